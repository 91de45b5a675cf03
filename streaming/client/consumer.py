"""`GroupConsumer`: kafka-python's consumer, in a group of this coordinator.

All effects that a caller may notice happen on the caller's thread: joining, listeners, fetching records. The
transport's thread keeps the session alive.

Kafka's clients wait for a commit before they join or leave. This client need not: a commit is ahead of the join or the
leave that follows it, in the same partition of the request topic.

Source: kafka-python's KafkaConsumer and ConsumerCoordinator; protocol.md 6.4 to 6.6.
"""

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import IllegalStateError

from coordinator.base.consumer_protocol import CONSUMERS
from coordinator.member.consumer_config import Wanted
from coordinator.member.effects import Effect
from coordinator.member.owned_partitions import Change, ListenerCall
from streaming.client.committing import Callback, Commits
from streaming.client.config import configure_consumer
from streaming.client.consumer_protocol.participant import SubscribedTopics
from streaming.client.membership import membership
from streaming.client.participant import InGroup, Racks
from streaming.client.partition_reader import Offsets, PartitionReader, Records
from streaming.client.reads import ReadsPartitions
from streaming.client.sharing import borrow, give_back
from streaming.client.subscription import Subscription
from streaming.kafka.patterns import WholeName
from streaming.moments import monotonic_ms

log = logging.getLogger(__name__)

SLICE_MS = 10
"""The longest time that waiting for records delays a rebalance."""

CLOSE_WAIT_MS = 5_000
NEARLY_OVERDUE = 0.8
"""The part of `max_poll_interval_ms` between two polls that causes a warning."""


class GroupConsumer(ReadsPartitions, InGroup):
    """Consumes topics together with the other members of a group. Not thread-safe.

    Args:
        topics: The topics to subscribe to; or call `subscribe`.
        configs: kafka-python's names and defaults, and `topic_prefix` of the coordinator's topics.
            `partition_assignment_strategy` also accepts names of assignors.

    Raises:
        KafkaConfigurationError: names the setting that is unknown, missing or out of its range.
        BrokerUnreachable, NoCoordinator: no broker answers, or the coordinator's topics do not exist.
    """

    def __init__(self, *topics: str, **configs: Any) -> None:
        config = configure_consumer(configs)
        self._group: Mapping[str, Any] = config.group
        self._polled_ms = monotonic_ms()
        self._is_closed = False
        self._transport = borrow(config)
        try:
            self._reading = PartitionReader(self._transport.record_reader(config.reading))
        except BaseException:
            give_back(self._transport)
            raise
        watch = self._transport.topics
        self._subscription = Subscription(
            watch,
            excludes_internal=self._group["exclude_internal_topics"],
            compiled=WholeName if config.uses_consumer_protocol else re.compile,
        )
        self._topics = SubscribedTopics(self._subscription, watch, self._group["metadata_refresh_ms"])
        self._driver, self._participant = membership(config, self._transport, CONSUMERS, self)
        self._commits = Commits(self._driver, self._reading, config.group, watch.id_of)
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
        """Subscribe to topics together with the other members, in place of the previous subscription.

        Args:
            topics: Their names; or
            pattern: A regular expression that the beginning of their names matches. New topics are included once they
                are seen: within `metadata_max_age_ms`. With the consumer protocol, a regular expression of RE2 that
                their whole names match; new topics are seen within `metadata_refresh_ms`.
            listener: Called on this thread, inside `poll`, with the partitions that were revoked, assigned or lost.

        Raises:
            ValueError: neither topics nor a pattern, an illegal topic name, or a pattern that RE2 does not compile.
            TypeError: topics are not a list of text, or the listener is not a ConsumerRebalanceListener.
            re.error: the pattern is not a regular expression.
            IllegalStateError: both topics and a pattern; or one, while the other is subscribed to: call `unsubscribe`
                first.
        """
        self._check_open()
        self._subscription.replace(topics, pattern, listener)
        if self._subscription.pattern and self._group["group_protocol"] == "classic":
            self._transport.topics.ask(self, None)
        if not self._driver.member.is_subscribed:
            self._driver.subscribe(str(self._subscription))

    def unsubscribe(self) -> None:
        """Release all partitions and leave the group."""
        self._check_open()
        self._leave("the consumer unsubscribed from all topics", CLOSE_WAIT_MS)

    def subscription(self) -> set[str] | None:
        """Return the subscribed topics, those that match a pattern as far as they are seen; None without a
        subscription.
        """
        return set(self._subscription.topics()) if self._subscription else None

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Request a rebalance of the group, with this member's next `poll` (KIP-568).

        Args:
            reason: The reason in the group's events.
        """
        self._check_open()
        self._participant.request_rebalance(reason or "rebalance enforced by user")

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this member owns now."""
        return set(self._reading.owned)

    # -- reading -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Participate in the group, and fetch records of the owned partitions.

        Args:
            timeout_ms: How long to wait for records, milliseconds.
            max_records: The most records to return; `max_poll_records` unless given.

        Raises:
            KafkaError: the coordinator refuses this member, by its code; or a listener failed, which is the cause.
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
        deadline_ms = monotonic_ms() + self._group["consumer_timeout_ms"]
        while True:
            self._take_part()
            if (record := self._reading.hand_out()) is not None:
                return record
            if monotonic_ms() >= deadline_ms:
                raise StopIteration
            if self._may_read:
                self._reading.fetch_ahead(self._wait(SLICE_MS), self._group["max_poll_records"])

    def _take_part(self) -> None:
        self._record_poll()
        self._commits.commit_if_due()
        super()._take_part()
        self._commits.fetch_if_unplaced()

    def _record_poll(self) -> None:
        now_ms, limit_ms = monotonic_ms(), self._group["max_poll_interval_ms"]
        away_ms, self._polled_ms = now_ms - self._polled_ms, now_ms
        if self._reading.owned and away_ms > NEARLY_OVERDUE * limit_ms:
            log.warning(
                "group %s: %d ms passed between two polls, and max_poll_interval_ms is %d: handle fewer records at a"
                " time (max_poll_records), or allow more", self._group["group_id"], away_ms, limit_ms,
            )  # fmt: skip

    @property
    def _may_read(self) -> bool:
        """Whether fetched records may be returned: the partitions may be lost while the caller does not know it yet."""
        return self._driver.is_in_group or not self._reading.owned

    def _wait(self, wait_ms: float) -> float:
        """Return how long to wait for records. If none can be fetched, wait for the group instead, and return 0."""
        wait_ms = min(wait_ms, SLICE_MS)
        if self._reading.can_fetch:
            return wait_ms
        self._driver.wait(wait_ms / 1000)
        return 0

    # -- positions -----------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int | None:
        """Return the offset of the next record that the caller will get; None while it is unknown.

        Raises:
            IllegalStateError: this member does not own the partition.
            KafkaTimeoutError: the committed offset did not come in time.
        """
        self._check_open()
        if not isinstance(partition, TopicPartition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        if partition not in self._reading.owned:
            raise IllegalStateError("Partition is not assigned")
        wait_ms = self._group["request_timeout_ms"] if timeout_ms is None else timeout_ms
        if partition in self._reading.unplaced:
            self._commits.place_readers(wait_ms)
        return self._reading.position(partition, wait_ms)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout_ms: int | None = None) -> None:
        """Commit offsets and wait for the response. Without offsets, commit the positions of all owned partitions.

        Raises:
            CommitFailedError: this member is no longer in the group's generation, or does not own a partition.
            RebalanceInProgressError: poll, and commit again.
            KafkaTimeoutError: no response in time; the commit may still take effect.
        """
        self._check_open()
        wait_ms = self._group["request_timeout_ms"] if timeout_ms is None else timeout_ms
        self._commits.commit(offsets, wait_ms)

    def commit_async(self, offsets: Offsets | None = None, callback: Callback | None = None) -> Any:
        """Send a commit and do not wait. Only the callback gets an error.

        Args:
            callback: Called with the offsets, and an exception or None, in a later `poll`, `commit`, `commit_async` or
                `close`, on this thread; `default_offset_commit_callback` unless given.

        Returns:
            kafka.future.Future: settled at the same time, with the offsets as its value.
        """
        self._check_open()
        return self._commits.commit_async(offsets, callback)

    def committed(self, partition: TopicPartition, metadata: bool = False, timeout_ms: int | None = None) -> Any:
        """Return the group's committed offset of a partition.

        Args:
            metadata: Return the OffsetAndMetadata instead of the offset alone.

        Returns:
            None if nothing is committed.

        Raises:
            KafkaTimeoutError: no response in time.
        """
        self._check_open()
        if not isinstance(partition, TopicPartition):
            raise TypeError("partition must be a TopicPartition namedtuple")
        wait_ms = self._group["request_timeout_ms"] if timeout_ms is None else timeout_ms
        found = self._commits.committed(partition, wait_ms)
        return found if metadata or found is None else found.offset

    # -- the owner of a participant ------------------------------------------------------------------------------------

    def subscribed(self) -> frozenset[str]:
        """Return the topics that are subscribed to now."""
        return self._subscription.topics()

    def is_wanted(self, topic: str) -> bool:
        """Return whether partitions of a topic may be assigned to this member."""
        return self._subscription.has(topic)

    def look_up(self, topics: Collection[str], *, newest: bool) -> Mapping[str, Racks]:
        """Return the partitions of topics. A topic that does not exist is left out."""
        watch, snapshot = self._transport.topics, self._transport.topics.snapshot
        if newest:
            watch.ask(self, None if self._subscription.pattern else topics)
            snapshot = watch.wait(topics, self._group["request_timeout_ms"] / 1000)
        return {topic: snapshot.topics[topic].racks for topic in topics if topic in snapshot.topics}

    def wanted(self, requested: frozenset[str]) -> Wanted | None:
        """Return the subscription with what is known of its topics; None until they have been read."""
        return self._topics.wanted(requested)

    def notify(self, change: Change[TopicPartition]) -> None:
        """Commit revoked partitions, and call the listener."""
        if change.call is ListenerCall.REVOKED and self._commits.is_automatic:
            self._commits.commit_automatically()
        if (listener := self._subscription.listener) is not None:
            getattr(listener, change.call.value)(set(change.partitions))

    def keep_owned(self, owned: frozenset[TopicPartition]) -> None:
        """Read the owned partitions from now on, and no others."""
        self._commits.keep_owned(owned)

    def hear(self, effect: Effect) -> None:
        """Handle the end of a commit or of a fetch."""
        self._commits.hear(effect)

    # -- leaving -------------------------------------------------------------------------------------------------------

    def close(self, reason: str | None = None, *, autocommit: bool = True, timeout_ms: int = CLOSE_WAIT_MS) -> None:
        """Commit if that is automatic, give up all partitions, leave the group and stop.

        A static member (`group_instance_id`) does not leave: its partitions stay assigned to it until its session ends.

        Args:
            reason: The reason in the group's events.
            timeout_ms: How long to wait for the coordinator's response.
        """
        if self._is_closed:
            return
        self._commits.is_automatic &= autocommit
        try:
            self._leave(reason or "the consumer is being closed", timeout_ms)
        finally:
            self._is_closed = True
            self._transport.topics.forget(self)
            self._topics.forget()
            self._driver.close()
            self._commits.close()
            self._reading.close()
            give_back(self._transport)

    def _leave(self, reason: str, timeout_ms: int) -> None:
        try:
            if not self._participant.leave(reason, timeout_ms / 1000):
                log.warning("group %s: no response to leaving within %d ms", self._group["group_id"], timeout_ms)
        finally:
            self._subscription.clear()
            self._commits.hear_ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(autocommit=kind is None)  # records whose processing failed must not be committed

    def _check_open(self) -> None:
        if self._is_closed:
            raise IllegalStateError("GroupConsumer is closed")
