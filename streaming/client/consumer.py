"""`GroupConsumer`: kafka-python's consumer, in a group that this coordinator keeps.

Records come through a `KafkaConsumer` that is told its partitions and knows of no group, so Kafka's own coordinator
never hears of it. The caller's thread does all that a caller may notice: joining, listeners, fetching records. The
transport's thread keeps the session alive.

What Kafka's clients wait for, the log makes unnecessary: a commit is ahead of the join or the leave that follows it, in
the same partition of the request topic, so neither waits for the commit's answer.

Source: kafka-python's KafkaConsumer and ConsumerCoordinator; protocol.md 6.4 to 6.6.
"""

import logging
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import CommitFailedError, IllegalStateError, KafkaError, KafkaTimeoutError, for_code
from kafka.structs import OffsetAndMetadata

from coordinator.effects import (
    Assigned,
    CommitEnded,
    Effect,
    Failed,
    FetchEnded,
    Lost,
    MakePlan,
    PrepareToJoin,
    RejoinNeeded,
)
from coordinator.errors import ErrorCode
from coordinator.member import MemberConfig, MemberState
from coordinator.outputs import FetchedOffset
from coordinator.requests import OffsetToCommit, TopicPartitions
from streaming.client.config import configure
from streaming.client.driver import Driver
from streaming.client.plans import make_plan, protocols, read_assignment
from streaming.client.sharing import borrow, give_back
from streaming.client.transport import monotonic_ms

log = logging.getLogger(__name__)

SLICE_MS = 50
"""The longest that waiting for records keeps a rebalance waiting."""

CLOSE_WAIT_MS = 5_000

Records = dict[TopicPartition, list[Any]]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class GroupConsumer:
    """Consume topics together with the other members of a group. Not to be shared by threads.

    Args:
        topics: What to subscribe to; or call `subscribe`.
        configs: kafka-python's names and defaults, and `topic_prefix` of the coordinator's topics.

    Raises:
        KafkaConfigurationError: names what is unknown, missing or not served.
        BrokerUnreachable, NoCoordinator: there is nobody to talk to.
    """

    def __init__(self, *topics: str, **configs: Any) -> None:
        self._config = configure(configs)
        self._group: Mapping[str, Any] = self._config.group
        self._assignors = {assignor.name: assignor for assignor in self._config.assignors}
        self._listener: ConsumerRebalanceListener | None = None
        self._topics: frozenset[str] = frozenset()
        self._owned: frozenset[TopicPartition] = frozenset()
        self._has_owned = False  # Kafka: nothing is revoked before the very first join
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}  # of records that the caller has
        self._auto_committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._fetching: str | None = None  # committed offsets are on their way
        self._buffer: deque[tuple[TopicPartition, Any]] = deque()  # fetched, not yet iterated over
        self._auto_commit_ms = 0
        self._is_closed = False
        self._transport = borrow(self._config.way, self._group["topic_prefix"])
        try:
            self._kafka = KafkaConsumer(**self._config.reading)
        except BaseException:
            give_back(self._transport)
            raise
        self._driver = Driver(self._transport, self._member_config())
        if topics:
            self.subscribe(topics)

    def _member_config(self) -> MemberConfig:
        names = ("group_id", "client_id", "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms",
                 "request_timeout_ms", "retry_backoff_ms")  # fmt: skip
        return MemberConfig(
            **{name: self._group[name] for name in names},
            reply_to=self._transport.inbox,
            client_host=self._transport.client_host(),
        )

    # -- subscribing ---------------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Share these topics with the other members, in place of what was subscribed to before.

        Args:
            listener: Told on this thread, inside `poll`, what was revoked, assigned or lost.
        """
        self._check_open()
        if isinstance(topics, str):
            raise TypeError("Topics must be a list (or non-str sequence)")
        wanted = frozenset(topics)
        if not wanted:
            self.unsubscribe()
            return
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener must be a ConsumerRebalanceListener")
        is_news, self._topics, self._listener = wanted != self._topics, wanted, listener
        if is_news:
            self._driver.subscribe(f"subscribed to {', '.join(sorted(wanted))}")

    def unsubscribe(self) -> None:
        """Give up all partitions and leave the group."""
        self._check_open()
        self._leave("the consumer unsubscribed from all topics", CLOSE_WAIT_MS, autocommit=True)

    def subscription(self) -> set[str] | None:
        """Tell the topics subscribed to, None where there are none."""
        return set(self._topics) or None

    def assignment(self) -> set[TopicPartition]:
        """Tell the partitions that are this member's now."""
        return set(self._owned)

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave; "" while there is none."""
        return self._driver.member.member_id

    @property
    def generation(self) -> int:
        """The generation this member is in; -1 while it is in none."""
        return self._driver.member.generation_id

    @property
    def state(self) -> MemberState:
        """How far this member has come in joining the group."""
        return self._driver.member.state

    # -- reading -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> Records:
        """Take part in the group, and fetch records of the partitions owned.

        Args:
            timeout_ms: How long to wait where there are none.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or a listener failed, as the cause.
        """
        self._check_open()
        if timeout_ms < 0:
            raise ValueError("Timeout must not be negative")
        records = self._poll(timeout_ms, max_records or self._group["max_poll_records"])
        for partition, batch in records.items():
            self._consumed(partition, batch[-1])
        return records

    def _poll(self, timeout_ms: float, max_records: int) -> Records:
        deadline_ms = monotonic_ms() + timeout_ms
        self._auto_commit_if_due()
        while True:
            self._attend()
            wait_ms = max(0, deadline_ms - monotonic_ms())
            records = self._fetch(min(wait_ms, SLICE_MS), max_records)
            if records or wait_ms <= 0:
                return records

    def _fetch(self, wait_ms: float, max_records: int) -> Records:
        """Fetch records, if it is known from where. What comes after partitions were lost is not for us any more."""
        if not self._owned or self._fetching:
            self._driver.wait(wait_ms / 1000)
            return {}
        records: Records = self._kafka.poll(timeout_ms=int(wait_ms), max_records=max_records)
        if records and self.state is MemberState.UNJOINED:
            return {}
        return records

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._check_open()
        deadline_s = time.monotonic() + self._group["consumer_timeout_ms"] / 1000
        while True:
            if self._buffer:
                self._attend()
            if self._buffer:
                partition, record = self._buffer.popleft()
                self._consumed(partition, record)
                return record
            if time.monotonic() >= deadline_s:
                raise StopIteration
            for partition, batch in self._poll(SLICE_MS, self._group["max_poll_records"]).items():
                self._positions.setdefault(partition, OffsetAndMetadata(batch[0].offset, "", -1))
                self._buffer.extend((partition, record) for record in batch)

    def _consumed(self, partition: TopicPartition, record: Any) -> None:
        epoch = -1 if record.leader_epoch is None else record.leader_epoch
        self._positions[partition] = OffsetAndMetadata(record.offset + 1, "", epoch)

    def position(self, partition: TopicPartition) -> int | None:
        """Tell the offset of the next record that the caller will get; None while that is not known.

        Raises:
            IllegalStateError: the partition is not this member's.
        """
        if partition not in self._owned:
            raise IllegalStateError("Partition is not assigned")
        if self._fetching:
            self._await_positions()
        if partition in self._positions:
            return int(self._positions[partition].offset)
        position: int | None = self._kafka.position(partition, timeout_ms=self._group["request_timeout_ms"])
        return position

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout_ms: int | None = None) -> None:
        """Commit offsets, the positions of all partitions owned if none are given, and wait for the answer.

        Raises:
            CommitFailedError: this is no member of the group's generation any more.
            RebalanceInProgressError: poll, and commit again.
            KafkaTimeoutError: no answer in time; the commit may still count.
        """
        self._check_open()
        wait_ms = self._group["request_timeout_ms"] if timeout_ms is None else timeout_ms
        offsets = self._all_positions() if offsets is None else offsets
        if not offsets:
            return
        ended = self._driver.ended(self._driver.commit(_to_commit(offsets)), wait_ms / 1000)
        if ended is None:
            raise KafkaTimeoutError(f"No answer to a commit of group {self._group['group_id']} within {wait_ms} ms")
        _raise_for(ended.code, ended.error)

    def committed(self, partition: TopicPartition, timeout_ms: int | None = None) -> int | None:
        """Ask for the group's committed offset of a partition; None where nothing is committed.

        Raises:
            KafkaTimeoutError: no answer in time.
        """
        self._check_open()
        wait_ms = self._group["request_timeout_ms"] if timeout_ms is None else timeout_ms
        ended = self._driver.ended(self._driver.fetch(_by_topic([partition])), wait_ms / 1000)
        if not isinstance(ended, FetchEnded):
            raise KafkaTimeoutError(f"No answer about {partition} within {wait_ms} ms")
        _raise_for(ended.code, ended.error)
        return next((p.offset for p in ended.partitions if p.offset >= 0), None)

    def _auto_commit_if_due(self) -> None:
        if self._group["enable_auto_commit"] and self._owned and monotonic_ms() >= self._auto_commit_ms:
            self._auto_commit()

    def _auto_commit(self) -> None:
        """Send a commit of what the caller has had since the last one; a failure is logged when it is known."""
        self._auto_commit_ms = monotonic_ms() + self._group["auto_commit_interval_ms"]
        if self._fetching:
            return
        moved = {p: at for p, at in self._all_positions().items() if self._auto_committed.get(p) != at}
        if moved:
            self._auto_committed |= moved
            self._driver.commit(_to_commit(moved))

    def _all_positions(self) -> Offsets:
        """Tell where the caller stands in each partition owned, also where it has not read yet."""
        unread = {p: self._kafka.position(p, timeout_ms=0) for p in self._owned - self._positions.keys()}
        known = {p: OffsetAndMetadata(at, "", -1) for p, at in unread.items() if at is not None}
        return {**self._positions, **known}

    # -- taking part ---------------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        """Do what the group asks of this member, until there is nothing more to do at once."""
        while (effect := self._driver.poll()) is not None:
            self._act(effect)

    def _act(self, effect: Effect) -> None:
        match effect:
            case PrepareToJoin(why):
                log.info("group %s: joining again, because %s", self._group["group_id"], why)
                try:
                    self._give_up_all()
                finally:  # the round must not wait for us because a listener failed
                    self._driver.join(protocols(self._config.assignors, self._topics))
            case MakePlan(generation_id, protocol_name, members):
                assignor = self._assignors[protocol_name]
                self._driver.plan(generation_id, make_plan(assignor, members, self._kafka.partitions_for_topic))
            case Assigned(generation_id) if generation_id == self.generation:
                self._assigned(effect)
            case Lost(why):
                log.warning("group %s: partitions lost, because %s", self._group["group_id"], why)
                lost = self._drop_all()
                if lost:
                    self._tell("on_partitions_lost", lost)
            case RejoinNeeded(why):
                log.info("group %s: will join again, because %s", self._group["group_id"], why)
            case FetchEnded() if effect.ticket == self._fetching:
                self._positions_known(effect)
            case CommitEnded(_, code, error) if code:
                log.warning("group %s: offsets were not committed: %s", self._group["group_id"], error)
                self._auto_committed.clear()
            case Failed(code, error, message):
                raise for_code(code)(message or error)

    def _give_up_all(self) -> None:
        """Commit and revoke all that is owned, as the eager protocol has it."""
        if self._group["enable_auto_commit"]:
            self._auto_commit()
        try:
            if self._has_owned:
                self._tell("on_partitions_revoked", self._owned)
        finally:
            self._drop_all()

    def _drop_all(self) -> frozenset[TopicPartition]:
        """Own nothing, and read nothing on."""
        dropped, self._owned = self._owned, frozenset()
        self._positions.clear()
        self._auto_committed.clear()
        self._buffer.clear()
        self._fetching = None
        self._kafka.unsubscribe()
        return dropped

    def _assigned(self, assigned: Assigned) -> None:
        assignor = self._assignors[assigned.protocol_name]
        partitions = read_assignment(assignor, assigned.assignment, assigned.generation_id)
        if not self._topics.issuperset(p.topic for p in partitions):
            self._driver.request_rejoin("the plan is for another subscription")
            return
        self._owned, self._has_owned = frozenset(partitions), True
        self._auto_commit_ms = monotonic_ms() + self._group["auto_commit_interval_ms"]
        if partitions:
            self._kafka.assign(partitions)
            self._fetching = self._driver.fetch(_by_topic(partitions))
        self._tell("on_partitions_assigned", self._owned)

    def _await_positions(self) -> None:
        assert self._fetching is not None, "offsets are on their way"
        ended = self._driver.ended(self._fetching, self._group["request_timeout_ms"] / 1000)
        if not isinstance(ended, FetchEnded):
            raise KafkaTimeoutError(f"No answer about the offsets of group {self._group['group_id']}")
        self._positions_known(ended)

    def _positions_known(self, fetched: FetchEnded) -> None:
        """Read on from where the group has committed; elsewhere KafkaConsumer follows `auto_offset_reset`."""
        self._fetching = None
        _raise_for(fetched.code, fetched.error)
        for committed in fetched.partitions:
            self._seek(committed)

    def _seek(self, committed: FetchedOffset) -> None:
        partition = TopicPartition(committed.topic, committed.partition)
        if committed.offset >= 0 and partition in self._owned:
            self._kafka.seek(partition, committed.offset)

    def _tell(self, method: str, partitions: Collection[TopicPartition]) -> None:
        if self._listener is None:
            return
        try:
            getattr(self._listener, method)(set(partitions))
        except Exception as error:
            raise KafkaError(f"User rebalance callback {method} throws an error") from error

    # -- leaving -------------------------------------------------------------------------------------------------------

    def close(self, reason: str | None = None, *, autocommit: bool = True, timeout_ms: int = CLOSE_WAIT_MS) -> None:
        """Commit where that is automatic, give up what is owned, leave the group and stop.

        Args:
            reason: What the group's events are to say about it.
            timeout_ms: How long to wait for the coordinator to say that it has let this member go.
        """
        if self._is_closed:
            return
        try:
            self._leave(reason or "the consumer is being closed", timeout_ms, autocommit=autocommit)
        finally:
            self._is_closed = True
            self._driver.close()
            self._kafka.close(autocommit=False)
            give_back(self._transport)

    def _leave(self, reason: str, timeout_ms: int, *, autocommit: bool) -> None:
        is_ours = self.state is MemberState.STABLE
        if is_ours and autocommit and self._group["enable_auto_commit"]:
            self._auto_commit()
        try:
            if self._owned:
                self._tell("on_partitions_revoked" if is_ours else "on_partitions_lost", self._owned)
        finally:
            self._drop_all()
            self._topics, self._has_owned = frozenset(), False
            if not self._driver.leave(reason, timeout_ms / 1000):
                log.warning("group %s: no answer to leaving within %d ms", self._group["group_id"], timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(autocommit=kind is None)  # what failed in processing is not to be committed

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError("GroupConsumer is closed")


# -- between kafka-python's types and the requests' --------------------------------------------------------------------

_COMMIT_FAILED = {ErrorCode.ILLEGAL_GENERATION.number, ErrorCode.UNKNOWN_MEMBER_ID.number}


def _raise_for(code: int, error: str) -> None:
    if code in _COMMIT_FAILED:
        raise CommitFailedError
    if code:
        raise for_code(code)(error)


def _to_commit(offsets: Offsets) -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(partition.topic, partition.partition, at.offset, at.leader_epoch, at.metadata)
        for partition, at in sorted(offsets.items())
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        numbers[partition.topic].append(partition.partition)
    return tuple(TopicPartitions(topic, tuple(each)) for topic, each in numbers.items())
