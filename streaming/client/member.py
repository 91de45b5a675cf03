"""`GroupMember`: shares any named resources among workers, without a topic of records and without Kafka partitions.

Shards, jobs, cameras, tenants: a resource needs nothing but a name. To the protocol each resource is a topic with one
partition, so the same assignors that assign partitions assign resources.

Source: Kafka's AbstractCoordinator, which consumers use, and which Connect's workers use in another way.
"""

import hashlib
import logging
import math
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from kafka import TopicPartition
from kafka.errors import IllegalStateError, KafkaConfigurationError

from coordinator.base.consumer_protocol import RESOURCES
from coordinator.base.limits import NAME_CHARS_MAX
from coordinator.member.consumer_config import Wanted
from coordinator.member.effects import Effect
from coordinator.member.owned_partitions import Change, ListenerCall
from coordinator.messages.consumer_requests import TopicFact
from streaming.client.config import ClientConfig, configure_member
from streaming.client.membership import membership
from streaming.client.participant import InGroup, Racks
from streaming.client.plans import SETTING
from streaming.client.sharing import borrow, give_back
from streaming.moments import monotonic_ms

log = logging.getLogger(__name__)

WAIT_SLICE_S = 1.0
CLOSE_WAIT_S = 5.0
ONE_PARTITION: Racks = (frozenset(),)

Listener = Callable[[frozenset[str]], object]


class GroupMember(InGroup):
    """Owns some of a set of resources, as long as the caller polls. Not thread-safe.

        with GroupMember(group_id="cameras", resources=["gate", "yard"], bootstrap_servers="kafka:9092") as member:
            while True:
                member.poll(1.0)
                for camera in member.assignment: ...

    Args:
        resources: The resources that this member can own: names, of 1 to 249 characters. Members may name different
            resources. Each resource that any member names has one owner among the members that name it.
        on_assigned: Called with the new resources, on the caller's thread, inside `poll` and `wait_for_assignment`.
        on_revoked: Called with the resources to give up, while they are still owned; likewise, and inside `leave`.
        on_lost: Called with the resources that another member may own already, since this member was expelled;
            `on_revoked` unless given.
        configs: `group_id`, `client_id`, `group_instance_id`, timeouts, `partition_assignment_strategy`
            (cooperative-sticky: a resource keeps its owner if possible), security settings; names and defaults are
            kafka-python's.

    Raises:
        KafkaConfigurationError: names the setting that is unknown, missing or out of its range.
        BrokerUnreachable, NoCoordinator: no broker answers, or the coordinator's topics do not exist.
    """

    def __init__(
        self,
        resources: Iterable[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        **configs: Any,
    ) -> None:
        config = configure_member(configs)
        _refuse_range(config)
        self._resources = _checked(resources)
        self._listeners = {
            ListenerCall.ASSIGNED: on_assigned,
            ListenerCall.REVOKED: on_revoked,
            ListenerCall.LOST: on_lost or on_revoked,
        }
        self._wanted: Wanted | None = None
        self._is_closed = False
        self._transport = borrow(config)
        self._driver, self._participant = membership(config, self._transport, RESOURCES, self)
        self._driver.subscribe(_wants(self._resources))

    # -- assignment ----------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> frozenset[str]:
        """The resources that this member owns now."""
        return _names(self._participant.owned)

    # -- participation -------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float = 0.0) -> frozenset[str]:
        """Participate in the group. A member that does not poll for `max_poll_interval_ms` gives up its resources.

        Args:
            timeout_s: How long to wait for an event of the group, seconds. The call returns as soon as the event is
                handled.

        Returns:
            The resources that this member owns now.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or a listener failed, which is the cause.
        """
        self._check_open()
        self._take_part()
        if timeout_s > 0:
            self._driver.wait(timeout_s)
            self._take_part()
        return self.assignment

    def wait_for_assignment(self, timeout_s: float | None = None) -> frozenset[str]:
        """Wait until this member owns a resource, polling meanwhile. A surplus member waits here as a stand-by.

        Args:
            timeout_s: How long to wait at most, seconds; for ever if None.

        Raises:
            TimeoutError: this member owns no resource after `timeout_s`.
            KafkaError: as `poll` does.
        """
        until_s = math.inf if timeout_s is None else monotonic_ms() / 1000 + timeout_s
        while not (self.poll() and self._driver.is_settled):
            wait_s = min(until_s - monotonic_ms() / 1000, WAIT_SLICE_S)
            if wait_s <= 0:
                raise TimeoutError(
                    f"Group {self._group_id} assigned this member nothing in {timeout_s:g} s; it is {self.state.name}"
                )
            self._driver.wait(wait_s)
        return self.assignment

    def subscribe(self, resources: Iterable[str]) -> None:
        """Replace the resources that this member can own. The group rebalances with the next `poll`."""
        self._check_open()
        self._resources = _checked(resources)
        self._wanted = None

    def leave(self, reason: str | None = None, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Release all resources and leave the group. The end of the `with` block does it too.

        A static member (`group_instance_id`) does not leave: its resources stay assigned to it until its session ends.

        Args:
            reason: The reason in the group's events.
            timeout_s: How long to wait for the coordinator's response, seconds.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if not self._participant.leave(reason or "the member is leaving", timeout_s):
                log.warning("group %s: no response to leaving within %g s", self._group_id, timeout_s)
        finally:
            self._driver.close()
            give_back(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(None if error is None else f"the member failed: {type(error).__name__}")

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError("GroupMember has left")

    # -- the owner of a participant ------------------------------------------------------------------------------------

    def subscribed(self) -> frozenset[str]:
        """Return the resources that this member can own now."""
        return self._resources

    def is_wanted(self, topic: str) -> bool:
        """Return whether this member can own a resource."""
        return topic in self._resources

    def look_up(self, topics: Collection[str], *, newest: bool) -> Mapping[str, Racks]:
        """Return one partition for each resource."""
        return dict.fromkeys(topics, ONE_PARTITION)

    def wanted(self, requested: frozenset[str]) -> Wanted | None:
        """Return the resources as topics with one partition. Their ids follow from their names."""
        if self._wanted is None or not requested <= self._wanted.facts.keys():
            facts = {name: TopicFact(name, resource_id(name), 1) for name in sorted(self._resources | requested)}
            self._wanted = Wanted(tuple(sorted(self._resources)), facts=facts)
        return self._wanted

    def notify(self, change: Change[TopicPartition]) -> None:
        """Call the listener."""
        if (listener := self._listeners[change.call]) is not None:
            listener(_names(change.partitions))

    def keep_owned(self, owned: frozenset[TopicPartition]) -> None:
        """Ignore the partitions: `assignment` reads the participant."""

    def hear(self, effect: Effect) -> None:
        """Ignore the effect: this member commits and fetches no offsets."""


def _checked(resources: Iterable[str]) -> frozenset[str]:
    if isinstance(resources, str):
        raise TypeError("resources must be a collection of names, not one string")
    names = frozenset(resources)
    if not names:
        raise ValueError("resources: at least one is needed")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
            raise ValueError(f"resources: {name!r} is not a name of 1 to {NAME_CHARS_MAX} characters")
    return names


def _refuse_range(config: ClientConfig) -> None:
    offered = {strategy.name for strategy in config.strategies} | {config.group["group_remote_assignor"]}
    if "range" in offered:
        setting = "group_remote_assignor" if config.uses_consumer_protocol else SETTING
        raise KafkaConfigurationError(f"{setting}: range assigns each resource separately, so one member would get all")


def resource_id(name: str) -> str:
    """Return the topic id of a resource, the same for all members: 16 bytes in URL-safe base64 without padding."""
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")


def _names(partitions: Iterable[TopicPartition]) -> frozenset[str]:
    return frozenset(partition.topic for partition in partitions)


def _wants(resources: Collection[str]) -> str:
    return f"can take {len(resources)} resources"
