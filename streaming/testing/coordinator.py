"""`InMemoryCoordinator`: the coordinator's state machine and real members, in one thread, on a clock that a test moves.

    Shard                        the coordinator, as the query runs it
    InMemoryTransport            between them: the log of requests and a mailbox
    GroupMember, GroupConsumer   the members, as production runs them

Time passes only while a test calls `advance`, `settle`, `rebalance` or `expire`, or while a member waits.
"""

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.structs import OffsetAndMetadata

from coordinator.base.config import Config
from coordinator.base.states import Phase
from coordinator.messages.fields import Event
from coordinator.messages.requests import Received, Request, Wake
from coordinator.messages.responses import Reply
from coordinator.shard.shard import Shard
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup
from streaming.client.consumer import GroupConsumer
from streaming.client.driver import Driver
from streaming.client.member import GroupMember
from streaming.client.sharing import opened_by
from streaming.moments import clock_replaced
from streaming.testing.owners import Owners
from streaming.testing.records import Topics
from streaming.testing.transport import InMemoryTransport, NotSettled

AnyMember = GroupMember | GroupConsumer

START_MS = 1_767_225_600_000
"""The time at which each test begins: 2026-01-01 00:00 UTC, Unix milliseconds."""

TURN_MS = 100
"""The time of a turn in which something is due at once, in milliseconds."""

TURN_MS_MAX = 1_000
"""The longest time of a turn, in milliseconds."""

ROUNDS_MAX = 10_000
"""The most turns of one wait."""

WAITS_MAX = 100_000
"""The most turns of waits between two calls of a test."""

SECRET = b"a coordinator in memory"
NO_DELAY = Config(group_initial_rebalance_delay_ms=0)


class InMemoryCoordinator:
    """A coordinator in memory. Inside its `with` block, every member of this process uses it, whatever its servers are.

    Policies are off. Only one member at a time may be called, in whatever thread.

    Args:
        config: The coordinator's settings. By default a new group is not delayed.
    """

    def __init__(self, config: Config = NO_DELAY) -> None:
        self.now_ms = START_MS
        self.events: list[Event] = []
        """The coordinator's events, the oldest first."""
        self.is_available = True
        """Set it to False, and the coordinator answers nothing until it is True again."""
        self._config = config
        self._shard = Shard(0, 1, SECRET, config)
        self._topics, self._owners = Topics(), Owners()
        self._transport = InMemoryTransport(self._topics, self._append, self._wait_until)
        self._members: list[AnyMember] = []
        self._log: deque[Received] = deque()
        self._offsets = itertools.count()
        self._waits = 0
        self._lock = threading.RLock()
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        self._opened.enter_context(clock_replaced(lambda: self.now_ms))
        self._opened.enter_context(opened_by(lambda *_: self._transport))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    # -- topics and members --------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, or add partitions to it.

        Raises:
            ValueError: the topic has as many partitions already.
        """
        self._topics.create(topic, partitions)

    def produce(self, topic: str, value: bytes | None, *, partition: int = 0, key: bytes | None = None) -> int:
        """Append a record to a partition. Return its offset.

        Raises:
            ValueError: the partition does not exist.
        """
        return self._topics.append(TopicPartition(topic, partition), value, key, self.now_ms)

    def member(self, resources: Iterable[str], *, group_id: str = "group", **configs: Any) -> GroupMember:
        """Return a new `GroupMember`, which `settle` polls. It takes the same arguments."""
        member = GroupMember(resources, group_id=group_id, **configs)
        self.poll_with(member)
        return member

    def consumer(
        self, *topics: str, group_id: str = "group", listener: ConsumerRebalanceListener | None = None, **configs: Any
    ) -> GroupConsumer:
        """Return a new `GroupConsumer` of these topics, which `settle` polls. It takes the same settings."""
        consumer = GroupConsumer(group_id=group_id, **configs)
        if topics:
            consumer.subscribe(topics, listener=listener)
        self.poll_with(consumer)
        return consumer

    def poll_with(self, member: AnyMember) -> None:
        """Poll also this member, which the code under test has made, in `settle`, `rebalance` and `expire`."""
        self._members.append(member)

    def kill(self, member: AnyMember) -> None:
        """End a member as a crash of its process does: no callback is called, and no request is sent.

        Its partitions stay assigned to it until its session ends: call `expire`, or `advance` the time.
        """
        member._driver.close()
        self._members = [each for each in self._members if each is not member]

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        """Advance the time. Heartbeats are sent meanwhile, and no member is polled, so no callback is called.

        Args:
            ms: Milliseconds, 0 or more.
        """
        self._waits = 0
        until_ms = self.now_ms + ms
        self._turn(0)
        while self.now_ms < until_ms:
            self._turn(min(self._quiet_ms(), until_ms - self.now_ms))

    def settle(self) -> None:
        """Poll all members until no rebalance is in progress. Their callbacks are called as in production.

        Records are not consumed. Members that have left, and killed members, are not polled.

        Raises:
            NotSettled: a rebalance is still in progress after `ROUNDS_MAX` turns.
            KafkaError: as `poll` does, for example because a callback failed.
        """
        self._settle(self._members)

    def rebalance(self, member: AnyMember, reason: str = "the test wants a rebalance") -> None:
        """Make a member request a rebalance of its group, and settle.

        Raises:
            ValueError: the member uses the consumer protocol, in which members request no rebalance.
            NotSettled, KafkaError: as `settle` does.
        """
        if not isinstance(member._driver, Driver):
            raise ValueError(
                "A member of the consumer protocol requests no rebalance. Let another member join or leave instead."
            )
        member._participant.request_rebalance(reason)
        self.settle()

    def expire(self, member: AnyMember) -> None:
        """End the session of a member, as if its process hung, and assign its partitions to the other members.

        The member does not know it: it owns its partitions until its next `poll`, which calls `on_lost` (for a
        consumer, `on_partitions_lost`). A killed member can expire too.

        Raises:
            ValueError: the member is not in its group.
            NotSettled, KafkaError: as `settle` does.
        """
        group_id, member_id, prefix = member._group_id, member.member_id, member._driver.prefix
        if not self._has(group_id, member_id):
            raise ValueError(f"{member!r} is not a member of the group {group_id}, so it cannot expire. Settle first.")
        others = [each for each in self._members if each is not member]
        self._transport.silence(prefix, is_silent=True)
        try:
            self._poll_until(lambda: not self._has(group_id, member_id), others, f"{member!r} to expire")
            self._settle(others)
        finally:
            self._transport.silence(prefix, is_silent=False)
        self._turn(0)  # its next heartbeat is sent,
        self._turn(0)  # and answered

    # -- results -------------------------------------------------------------------------------------------------------

    def assert_owner(self, topic: str, partition: int, member: AnyMember) -> None:
        """Check that a member owns a partition: by the coordinator's assignment, and by what the member knows.

        Args:
            topic: The topic; for a `GroupMember`, the resource.
            partition: The partition; for a `GroupMember`, 0.

        Raises:
            AssertionError: with the owner, since when and why.
        """
        wanted = TopicPartition(topic, partition)
        owned = self._owners.of(member._group_id, wanted)
        name = f"{topic}-{partition} of the group {member._group_id}"
        if owned is None:
            raise AssertionError(f"{name} was never assigned to a member, so not to {member!r}")
        since = (
            f"since {(owned.since_ms - START_MS) / 1000:g} s after the start of the test, generation"
            f" {owned.generation_id}, because of {owned.cause or 'an unknown cause'}"
        )
        if owned.member_id is None:
            raise AssertionError(f"{name} has no owner {since}; {member!r} was expected")
        if owned.member_id != member.member_id:
            raise AssertionError(f"{name} is owned by {self._name(owned.member_id)} {since}, and not by {member!r}")
        if wanted not in member._participant.owned:
            raise AssertionError(f"{name} is assigned to {member!r} {since}, but that member has not polled: settle()")

    def committed(self, topic: str, partition: int = 0, *, group_id: str = "group") -> OffsetAndMetadata | None:
        """Return the committed offset of a partition; None if nothing is committed."""
        group = self._group(group_id)
        found = group.offsets.get(topic, {}).get(partition) if group else None
        return None if found is None else OffsetAndMetadata(found.offset, found.metadata, found.leader_epoch)

    def _name(self, member_id: str) -> str:
        return next((repr(each) for each in self._members if each.member_id == member_id), f"the member {member_id}")

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _append(self, request: Request) -> None:
        self._log.append(Received(next(self._offsets), self.now_ms, request))

    def _turn(self, ms: int) -> None:
        """Advance the time, run one batch of the coordinator, deliver its responses, and advance the members."""
        with self._lock:
            self.now_ms += ms
            if self.is_available:
                log = [self._log.popleft() for _ in range(len(self._log))]
                wake = Received(next(self._offsets), self.now_ms, Wake())
                for output in self._shard.step([*self._shard.deferred, *log, wake], self.now_ms):
                    if isinstance(output, Event):
                        self.events.append(output)
                        self._owners.add(output)
                    elif isinstance(output, Reply):
                        self._transport.deliver(output.answer)
            self._transport.advance()

    def _quiet_ms(self) -> int:
        """Return the milliseconds until something may be due."""
        if self._log or self._shard.deferred:
            return TURN_MS
        deadlines = [member._driver.member.deadline_ms for member in self._members]
        if (shard_ms := self._shard.next_deadline_ms) is not None:
            deadlines.append(shard_ms + self._config.clock_slack_ms)
        return max(TURN_MS, min(TURN_MS_MAX, min(deadlines, default=0) - self.now_ms))

    def _wait_until(self, predicate: Callable[[], bool], wait_s: float) -> bool:
        """Advance the time for a member that waits."""
        until_ms = self.now_ms + wait_s * 1000
        if wait_s > 0:
            self._turn(0)
        while not predicate() and self.now_ms < until_ms:
            self._waits += 1
            if self._waits > WAITS_MAX:
                raise NotSettled(
                    f"A member waited for {WAITS_MAX} turns without an end. Give the call a timeout; or call settle()"
                    " first, because other members are not polled while one member waits."
                )
            self._turn(math.ceil(min(self._quiet_ms(), until_ms - self.now_ms)))
        return predicate()

    def _settle(self, members: list[AnyMember]) -> None:
        self._poll_until(lambda: self._is_settled(members), members, "the group to settle")

    def _poll_until(self, predicate: Callable[[], bool], members: list[AnyMember], what: str) -> None:
        self._waits = 0
        for _ in range(ROUNDS_MAX):
            for member in members:
                if not member._is_closed:
                    member._take_part()
            self._turn(0)
            if predicate():
                return
            self._turn(self._quiet_ms())
        members_text = "; ".join(map(repr, members)) or "no member"
        raise NotSettled(f"{ROUNDS_MAX} turns were not enough for {what}. The members: {members_text}")

    def _is_settled(self, members: list[AnyMember]) -> bool:
        alive = [m for m in members if not m._is_closed and m._driver.member.is_subscribed]
        if self._log or not all(m._driver.is_at_rest for m in alive):
            return False
        groups = (self._group(m._group_id) for m in alive)
        return all(group is not None and group.phase is Phase.STABLE for group in groups)

    def _has(self, group_id: str, member_id: str) -> bool:
        group = self._group(group_id)
        return group is not None and member_id in group.members

    def _group(self, group_id: str) -> Group | ConsumerGroup | None:
        return self._shard.group(group_id) or self._shard.consumer_group(group_id)
