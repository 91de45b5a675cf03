"""Participation in a group: the effects of the member's state machine, handled on the owner's thread.

A `Participant` requests partitions, computes assignments when it leads, stores its own assignment, and reports changes
to its owner. The owner, a `GroupConsumer` or a `GroupMember`, knows the partitions and the listeners.

Source: Kafka's ConsumerCoordinator, onJoinPrepare, onLeaderElected, onJoinComplete and rejoinNeededOrPending.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from kafka import TopicPartition
from kafka.errors import KafkaError, RetriableError, for_code
from msgspec import Struct

from coordinator.base.consumer_protocol import subscribed_topics
from coordinator.member.consumer_member import State
from coordinator.member.effects import (
    Assigned,
    CoordinatorSilent,
    Effect,
    Failed,
    MakePlan,
    PartitionsLost,
    PrepareToJoin,
    RejoinNeeded,
)
from coordinator.member.member import MemberState
from coordinator.member.owned_partitions import OwnedPartitions
from streaming.client.callbacks import Listening, notify_all
from streaming.client.driver import Driver, MemberDriver
from streaming.client.plans import effective_protocol, make_plan, offer, read_assignment
from streaming.client.strategies import LastAssignment, Strategy

log = logging.getLogger(__name__)

Racks = Sequence[frozenset[str]]
"""The racks with a replica of each of a topic's partitions, in order."""


class Owner(Listening, Protocol):
    """The owner of a participant."""

    def subscribed(self) -> frozenset[str]:
        """Return the topics that are subscribed to now."""

    def is_wanted(self, topic: str) -> bool:
        """Return whether partitions of a topic may be assigned to this member."""

    def look_up(self, topics: Collection[str], *, newest: bool) -> Mapping[str, Racks]:
        """Return the partitions of topics. A topic that does not exist is left out.

        Args:
            newest: Wait for topics that are not known yet. Raises a retriable KafkaError if that takes too long.
        """

    def hear(self, effect: Effect) -> None:
        """Handle an effect that is not about membership: the end of a commit or of a fetch."""


class TakesPart(Protocol):
    """The participation in a group, with either protocol."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now."""

    @property
    def fencing_token(self) -> int:
        """The token of the current assignment; -1 while nothing is owned."""

    def attend(self) -> None:
        """Handle the effects of the group until none is left."""

    def request_rebalance(self, reason: str) -> None:
        """Request a rebalance of the group, with the next `attend`."""

    def leave(self, reason: str, wait_s: float) -> bool:
        """Release all partitions and leave the group. Return whether the coordinator has confirmed it in time."""


class InGroup:
    """The properties of a member of a group."""

    _driver: MemberDriver[Any]
    _participant: TakesPart

    def _take_part(self) -> None:
        """Handle the effects of the group, as each `poll` does."""
        self._participant.attend()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.member_id or 'of no id'} in {self._group_id}, {self.state.name}>"

    @property
    def _group_id(self) -> str:
        group_id: str = self._driver.member.config.group_id
        return group_id

    @property
    def generation(self) -> int:
        """The generation of this member, its member epoch with the consumer protocol; -1 without one."""
        generation: int = self._driver.member.generation_id
        return generation

    @property
    def fencing_token(self) -> int:
        """A number to show to the system that stores the work; -1 while nothing is owned.

        A later owner of a partition or resource shows a higher number, also a new process under the same
        `group_instance_id`. So a store that refuses numbers below the highest it has seen refuses an expelled owner.
        All that a member owns has one token, which grows with each rebalance. It is below 2^53. A coordinator from
        before fencing tokens gives none; then it is the generation.

        Source: M. Kleppmann, How to do distributed locking.
        """
        return self._participant.fencing_token

    @property
    def member_id(self) -> str:
        """The id from the coordinator, "" without one; with the consumer protocol, the id that the client has made."""
        member_id: str = self._driver.member.member_id
        return member_id

    @property
    def state(self) -> MemberState | State:
        """The state of this member in the group, a `State` with the consumer protocol."""
        state: MemberState | State = self._driver.member.state
        return state


class _Round(Struct):
    """The requests and responses of the round that led to this member's generation.

    Args:
        topics: The topics that it subscribed to.
        generation_id: The member's generation when it began to prepare.
        counts: The number of partitions of each topic, when this member computed assignments as the leader.
    """

    topics: frozenset[str] = frozenset()
    generation_id: int = -1
    counts: dict[str, int] | None = None


class Participant:
    """A member of a group with its owner's partitions.

    Args:
        strategies: The assignors to offer, the preferred one first.
        rack_id: The owner's rack, for assignors that use racks.
    """

    def __init__(
        self, driver: Driver, strategies: Sequence[Strategy], owner: Owner, rack_id: str | None = None
    ) -> None:
        self._driver, self._owner, self._rack_id = driver, owner, rack_id
        self._strategies = {strategy.name: strategy for strategy in strategies}
        self._holding: OwnedPartitions[TopicPartition] = OwnedPartitions(effective_protocol(strategies))
        self._round = _Round()
        self._has_to_join = False  # it has been asked to join, and has not done it yet
        self._last: dict[str, LastAssignment] = {}
        self.assigned_generation = -1
        """The generation of the current assignment; -1 without an assignment."""
        self._token = -1

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns now."""
        return self._holding.owned

    @property
    def fencing_token(self) -> int:
        """The token of the current assignment; -1 while nothing is owned."""
        return self._token if self.owned else -1

    @property
    def _group_id(self) -> str:
        return self._driver.member.config.group_id

    # -- participation -------------------------------------------------------------------------------------------------

    def attend(self) -> None:
        """Handle the effects of the group until none is left.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or the listener or an assignor failed, which
                is the cause. The effects were handled all the same.
        """
        self._look_for_changes()
        while (effect := self._driver.poll()) is not None:
            self._act(effect)
        if self._has_to_join:
            self._join()

    def request_rebalance(self, reason: str) -> None:
        """Join again with the next `attend`: all members do."""
        self._driver.request_rejoin(reason)

    def _look_for_changes(self) -> None:
        """Request to join again if the subscription, or a topic's number of partitions, differs from that of the
        assignments.
        """
        member = self._driver.member
        if member.state is not MemberState.STABLE or member.rejoin_needed:
            return
        if (topics := self._owner.subscribed()) != self._round.topics:
            self._driver.request_rejoin(subscribed_to(topics))
        elif member.is_leader and self._round.counts is not None:
            now = _counts(self._owner.look_up(self._round.counts, newest=False), self._round.counts)
            if now != self._round.counts:
                self._driver.request_rejoin(_what_changed(self._round.counts, now))

    def _act(self, effect: Effect) -> None:
        match effect:
            case PrepareToJoin(why):
                log.info("group %s: joining, because %s", self._group_id, why)
                self._prepare()
            case MakePlan():
                self._plan(effect)
            case Assigned(generation_id) if generation_id == self._driver.member.generation_id:
                self._handle_assigned(effect)
            case PartitionsLost(why):
                if self.owned:
                    log.warning("group %s: partitions lost, because %s", self._group_id, why)
                with notify_all(self._owner, self._holding.lose()):
                    self.assigned_generation = -1
            case CoordinatorSilent(session_timeout_ms):
                log.warning(
                    "group %s: no response from the coordinator for %d ms; continuing with %d partitions",
                    self._group_id, session_timeout_ms, len(self.owned),
                )  # fmt: skip
            case RejoinNeeded(why):
                log.info("group %s: will join again, because %s", self._group_id, why)
            case Failed(code, error, message):
                raise for_code(code)(message or error)
            case _:
                self._owner.hear(effect)

    def _prepare(self) -> None:
        """Release partitions as needed, and join even if the listener fails, because the round must not wait for it."""
        self._round = _Round(self._owner.subscribed(), self._driver.member.generation_id)
        self._has_to_join = True
        with notify_all(self._owner, self._holding.prepare(lambda p: self._owner.is_wanted(p.topic))):
            self._join()

    def _join(self) -> None:
        """Send a JoinGroup request. If an assignor fails to write its user data, the next `attend` tries again."""
        protocols = offer(
            self._strategies.values(),
            self._round.topics,
            owned=self.owned,
            generation_id=self._round.generation_id,
            last=self._last,
            rack_id=self._rack_id,
        )
        self._has_to_join = False
        self._driver.join(protocols)

    def _plan(self, wanted: MakePlan) -> None:
        topics = {topic for member in wanted.members for topic in subscribed_topics(member.metadata) or ()}
        try:
            racks = self._owner.look_up(topics, newest=True)
            self._round.counts = _counts(racks, topics)
            if not wanted.is_planned:
                strategy, counts = self._strategies[wanted.protocol_name], self._round.counts
                plan = make_plan(strategy, wanted.members, lambda t: range(counts[t]), lambda t: racks.get(t, ()))
                self._driver.plan(wanted.generation_id, plan)
        except KafkaError as error:
            self._driver.fail_to_plan(wanted.generation_id)
            if not isinstance(error, RetriableError):
                raise
            log.warning("group %s: no assignments could be computed, and this is retried: %s", self._group_id, error)

    def _handle_assigned(self, assigned: Assigned) -> None:
        strategy = self._strategies[assigned.protocol_name]
        partitions = read_assignment(strategy, assigned.assignment, assigned.generation_id)
        if not all(self._owner.is_wanted(p.topic) for p in partitions):
            self._driver.request_rejoin("the plan is for another subscription")
            return
        self._last[assigned.protocol_name] = LastAssignment(partitions, assigned.generation_id)
        self.assigned_generation, self._token = assigned.generation_id, assigned.fencing_token
        is_last_round = self.owned.issubset(partitions)
        with notify_all(self._owner, self._holding.assign(partitions)):
            if not is_last_round:
                self._driver.request_rejoin("partitions given up are free for others")

    # -- leaving -------------------------------------------------------------------------------------------------------

    def leave(self, reason: str, wait_s: float) -> bool:
        """Release all partitions and leave the group. Return whether the coordinator has confirmed it in time."""
        is_ours = self._driver.member.state is MemberState.STABLE
        self._has_to_join = False
        try:
            with notify_all(self._owner, self._holding.leave() if is_ours else self._holding.lose()):
                self.assigned_generation = -1
        finally:
            is_answered = self._driver.leave(reason, wait_s)
        return is_answered


def subscribed_to(topics: Collection[str]) -> str:
    """Return a member's subscription as a reason for joining."""
    return f"subscribed to {', '.join(sorted(topics)) or 'nothing that is there'}"


def _counts(racks: Mapping[str, Racks], topics: Iterable[str]) -> dict[str, int]:
    return {topic: len(racks.get(topic, ())) for topic in topics}


def _what_changed(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    changed = sorted(topic for topic in now if now[topic] != before[topic])
    return "partitions changed: " + ", ".join(f"{topic} has {now[topic]}, had {before[topic]}" for topic in changed)
