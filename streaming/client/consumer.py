"""`GroupConsumer`: kafka-python's consumer, in a group that this coordinator keeps.

The caller's thread does all that a caller may notice: joining, listeners, fetching records. The transport's thread
keeps the session alive.

What Kafka's clients wait for, the log makes unnecessary: a commit is ahead of the join or the leave that follows it, in
the same partition of the request topic, so neither waits for the commit's answer.

Source: kafka-python's KafkaConsumer and ConsumerCoordinator; protocol.md 6.4 to 6.6.
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import IllegalStateError

from coordinator.consumer_protocol import CONSUMERS
from coordinator.effects import Effect
from coordinator.holding import Change, Told
from coordinator.member import MemberState
from streaming.client.committing import Callback, Commits
from streaming.client.config import configure_consumer
from streaming.client.driver import Driver
from streaming.client.participant import InGroup, Participant, Racks
from streaming.client.reading import Offsets, Reading, Records
from streaming.client.sharing import borrow, give_back
from streaming.client.subscription import Subscription
from streaming.moments import monotonic_ms

log = logging.getLogger(__name__)

SLICE_MS = 10
"""The longest that waiting for records keeps a rebalance waiting."""

CLOSE_WAIT_MS = 5_000
NEARLY_OVERDUE = 0.8
"""The part of `max_poll_interval_ms` between two polls that is worth a warning."""


class GroupConsumer(InGroup):
    """Consume topics together with the other members of a group. Not to be shared by threads.

    Args:
        topics: What to subscribe to; or call `subscribe`.
        configs: kafka-python's names and defaults, and `topic_prefix` of the coordinator's topics.
            `partition_assignment_strategy` also takes names.

    Raises:
        KafkaConfigurationError: names what is unknown, missing or out of its range.
        BrokerUnreachable, NoCoordinator: there is nobody to talk to.
    """

    def __init__(self, *topics: str, **configs: Any) -> None:
        config = configure_consumer(configs)
        self._group: Mapping[str, Any] = config.group
        self._polled_ms = monotonic_ms()
        self._is_closed = False
        self._transport = borrow(config.way, self._group["topic_prefix"], config.signer())
        try:
            self._reading = Reading(config.reading)
        except BaseException:
            give_back(self._transport)
            raise
        self._driver = Driver(self._transport, config.member(self._transport, CONSUMERS))
        excludes_internal = self._group["exclude_internal_topics"]
        self._subscription = Subscription(self._transport.topics, excludes_internal=excludes_internal)
        self._commits = Commits(self._driver, self._reading, config.group)
        rack_id = self._group["client_rack"] or None
        self._participant = Participant(self._driver, config.strategies, self, rack_id)
        if topics:
            try:
                self.subscribe(topics)
            except BaseException:
                self.close()
                raise

    # -- subscribing ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Share topics with the other members, in place of what was subscribed to before.

        Args:
            topics: Their names; or
            pattern: A regular expression that their names begin with. Topics that come later are shared as well, once
                they are seen: within `metadata_max_age_ms`.
            listener: Told on this thread, inside `poll`, what was revoked, assigned or lost.

        Raises:
            ValueError: neither topics nor a pattern, or a name that no topic can have.
            TypeError: topics are no list of text, or the listener is no ConsumerRebalanceListener.
            re.error: the pattern is no regular expression.
            IllegalStateError: both; or one, and the other was subscribed to before: `unsubscribe` first.
        """
        self._check_open()
        self._subscription.replace(topics, pattern, listener)
        if self._subscription.pattern:
            self._transport.topics.ask(self, None)
        if not self._driver.member.is_subscribed:
            self._driver.subscribe(str(self._subscription))

    def unsubscribe(self) -> None:
        """Give up all partitions and leave the group."""
        self._check_open()
        self._leave("the consumer unsubscribed from all topics", CLOSE_WAIT_MS)

    def subscription(self) -> set[str] | None:
        """Tell the topics subscribed to, those of a pattern as far as they are seen; None without a subscription."""
        return set(self._subscription.topics()) if self._subscription else None

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group rebalance, with this member's next `poll` (KIP-568).

        Args:
            reason: What the group's events are to say about it.
        """
        self._check_open()
        self._driver.request_rejoin(reason or "rebalance enforced by user")

    def assignment(self) -> set[TopicPartition]:
        """Tell the partitions that are this member's now."""
        return set(self._reading.owned)

    # -- reading -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Take part in the group, and fetch records of the partitions owned.

        Args:
            timeout_ms: How long to wait where there are none.
            max_records: No more than these; `max_poll_records` unless given.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or a listener failed, as the cause.
        """
        self._check_open()
        if timeout_ms < 0:
            raise ValueError("Timeout must not be negative")
        if max_records is not None and max_records <= 0:
            raise ValueError("max_records must be positive")
        records_max = max_records or self._group["max_poll_records"]
        deadline_ms = monotonic_ms() + timeout_ms
        while True:
            self._take_part()
            wait_ms = max(0.0, deadline_ms - monotonic_ms())
            records = self._reading.fetch(self._wait(wait_ms), records_max) if self._may_read else {}
            if records or wait_ms <= 0:
                return records

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._check_open()
        deadline_s = time.monotonic() + self._group["consumer_timeout_ms"] / 1000
        while True:
            self._take_part()
            if (record := self._reading.hand_out()) is not None:
                return record
            if time.monotonic() >= deadline_s:
                raise StopIteration
            if self._may_read:
                self._reading.fetch_ahead(self._wait(SLICE_MS), self._group["max_poll_records"])

    def _take_part(self) -> None:
        self._note_poll()
        self._commits.commit_if_due()
        self._participant.attend()
        self._commits.fetch_if_unplaced()

    def _note_poll(self) -> None:
        now_ms, limit_ms = monotonic_ms(), self._group["max_poll_interval_ms"]
        away_ms, self._polled_ms = now_ms - self._polled_ms, now_ms
        if self._reading.owned and away_ms > NEARLY_OVERDUE * limit_ms:
            log.warning(
                "group %s: %d ms went by between two polls, and max_poll_interval_ms is %d: handle fewer records at a"
                " time (max_poll_records), or allow more", self._group["group_id"], away_ms, limit_ms,
            )  # fmt: skip

    @property
    def _may_read(self) -> bool:
        """Whether what is fetched is still for us: partitions may be lost, and the caller not have heard of it yet."""
        return self.state is not MemberState.UNJOINED or not self._reading.owned

    def _wait(self, wait_ms: float) -> float:
        """Say how long to wait for records; where there are none to come, wait here for the group instead."""
        wait_ms = min(wait_ms, SLICE_MS)
        if self._reading.can_fetch:
            return wait_ms
        self._driver.wait(wait_ms / 1000)
        return 0

    # -- positions -----------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int | None:
        """Tell the offset of the next record that the caller will get; None while that is not known.

        Raises:
            IllegalStateError: the partition is not this member's.
            KafkaTimeoutError: the coordinator did not say in time what is committed.
        """
        self._check_open()
        if not isinstance(partition, TopicPartition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        if partition not in self._reading.owned:
            raise IllegalStateError("Partition is not assigned")
        wait_ms = self._group["request_timeout_ms"] if timeout_ms is None else timeout_ms
        if partition in self._reading.unplaced:
            self._commits.place(wait_ms)
        return self._reading.position(partition, wait_ms)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Have the next `poll` go on at this offset. What is committed stays as it is."""
        self._reading.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the oldest record there is, of all partitions owned where none are given."""
        self._reading.seek_to_beginning(partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the newest record there is, of all partitions owned where none are given."""
        self._reading.seek_to_end(partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Have `poll` return nothing of these until they are resumed, or given up. They stay this member's."""
        self._reading.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with what was paused."""
        self._reading.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        """Tell what is paused."""
        return self._reading.paused()

    # -- what there is -------------------------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """Ask the brokers for all topics that may be seen."""
        return set(self._reading.kafka.topics())

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Tell a topic's partitions."""
        return set(self._reading.kafka.partitions_for_topic(topic))

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask the brokers for the oldest offset of each partition."""
        return dict(self._reading.kafka.beginning_offsets(partitions))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask the brokers for the offset that the next record of each partition will have."""
        return dict(self._reading.kafka.end_offsets(partitions))

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """Ask the brokers for the first offset at or after a time, Unix milliseconds, of each partition."""
        return dict(self._reading.kafka.offsets_for_times(timestamps))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Tell the end of a partition as the last fetch saw it; None before that."""
        offset: int | None = self._reading.kafka.highwater(partition)
        return offset

    def metrics(self, raw: bool = False) -> Any:
        """Tell KafkaConsumer's metrics of fetching."""
        return self._reading.kafka.metrics(raw)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout_ms: int | None = None) -> None:
        """Commit offsets, the positions of all partitions owned if none are given, and wait for the answer.

        Raises:
            CommitFailedError: this is no member of the group's generation any more, or a partition is not its own.
            RebalanceInProgressError: poll, and commit again.
            KafkaTimeoutError: no answer in time; the commit may still count.
        """
        self._check_open()
        wait_ms = self._group["request_timeout_ms"] if timeout_ms is None else timeout_ms
        self._commits.commit(offsets, wait_ms)

    def commit_async(self, offsets: Offsets | None = None, callback: Callback | None = None) -> Any:
        """Send a commit and go on. An error goes to the callback, and to nobody else.

        Args:
            callback: Called with the offsets, and an exception or None, in a later `poll`, `commit`, `commit_async` or
                `close`, on this thread; `default_offset_commit_callback` unless given.

        Returns:
            kafka.future.Future: settled at the same time, with the offsets as its value.
        """
        self._check_open()
        return self._commits.commit_async(offsets, callback)

    def committed(self, partition: TopicPartition, metadata: bool = False, timeout_ms: int | None = None) -> Any:
        """Ask for the group's committed offset of a partition.

        Args:
            metadata: Return the OffsetAndMetadata instead of the offset alone.

        Returns:
            None where nothing is committed.

        Raises:
            KafkaTimeoutError: no answer in time.
        """
        self._check_open()
        if not isinstance(partition, TopicPartition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        wait_ms = self._group["request_timeout_ms"] if timeout_ms is None else timeout_ms
        found = self._commits.committed(partition, wait_ms)
        return found if metadata or found is None else found.offset

    # -- what a participant asks of its owner --------------------------------------------------------------------------

    def subscribed(self) -> frozenset[str]:
        """Tell the topics that are wanted now."""
        return self._subscription.topics()

    def is_wanted(self, topic: str) -> bool:
        """Tell whether partitions of a topic may be given to this member."""
        return self._subscription.has(topic)

    def look_up(self, topics: Collection[str], *, newest: bool) -> Mapping[str, Racks]:
        """Find the partitions of topics; one that is not there is left out."""
        watch, snapshot = self._transport.topics, self._transport.topics.snapshot
        if newest:
            watch.ask(self, None if self._subscription.pattern else topics)
            snapshot = watch.wait(topics, self._group["request_timeout_ms"] / 1000)
        return {topic: snapshot.topics[topic].racks for topic in topics if topic in snapshot.topics}

    def tell(self, change: Change[TopicPartition]) -> None:
        """Commit what is given up, and call the listener."""
        if change.told is Told.REVOKED and self._commits.is_automatic:
            self._commits.commit_automatically()
        if (listener := self._subscription.listener) is not None:
            getattr(listener, change.told.value)(set(change.partitions))

    def keep(self, owned: frozenset[TopicPartition]) -> None:
        """Read what is owned from here on, and nothing else."""
        self._commits.keep(owned)

    def hear(self, effect: Effect) -> None:
        """Take the ends of commits and fetches."""
        self._commits.hear(effect)

    # -- leaving -------------------------------------------------------------------------------------------------------

    def close(self, reason: str | None = None, *, autocommit: bool = True, timeout_ms: int = CLOSE_WAIT_MS) -> None:
        """Commit where that is automatic, give up what is owned, leave the group and stop.

        A static member (`group_instance_id`) does not leave: what it had waits for it until its session ends.

        Args:
            reason: What the group's events are to say about it.
            timeout_ms: How long to wait for the coordinator to say that it has let this member go.
        """
        if self._is_closed:
            return
        self._commits.is_automatic &= autocommit
        try:
            self._leave(reason or "the consumer is being closed", timeout_ms)
        finally:
            self._is_closed = True
            self._transport.topics.forget(self)
            self._driver.close()
            self._commits.close()
            self._reading.close()
            give_back(self._transport)

    def _leave(self, reason: str, timeout_ms: int) -> None:
        try:
            if not self._participant.leave(reason, timeout_ms / 1000):
                log.warning("group %s: no answer to leaving within %d ms", self._group["group_id"], timeout_ms)
        finally:
            self._subscription.clear()
            self._commits.hear_ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(autocommit=kind is None)  # what failed in processing is not to be committed

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError("GroupConsumer is closed")
