"""Brings the records of the two output topics to the views: all that is there, and what comes.

librdkafka reads; it is given a group id because it wants one, and joins nothing and commits nothing.
"""

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordinator.hashing import shard_of
from coordinator.limits import RECORD_BYTES_MAX
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, NoCoordinator
from streaming.views.fold import Raw, Told, TopicKind, Views
from streaming.wire.records import AT_MS, VERSION
from streaming.wire.standing import Order

kafka_log = logging.getLogger("kafka.librdkafka")

ANSWER_WAIT_S = 15.0
AT_ONCE = 2_000
CATCH_UP_WAIT_S = 0.1
"""librdkafka waits so long for `AT_ONCE` records, though all that there are have come."""


class Reading:
    """Reads both topics, or one, into views, from where the views are.

    Args:
        groups: Whose shards are to be read; None for all.
        topics: Which of the two.
        lock: Held while the views change, where others look at them meanwhile.

    Raises:
        BrokerUnreachable: no broker answers.
        NoCoordinator: the topics are not there.
    """

    def __init__(
        self,
        settings: Settings,
        views: Views | None = None,
        *,
        groups: Collection[str] | None = None,
        topics: Collection[TopicKind] = ("groups", "events"),
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.views = views or Views()
        self.views.is_live = False
        self._lock = lock or nullcontext()
        self._settings = settings
        self._kinds: dict[str, TopicKind] = {}
        self._positions: dict[tuple[str, int], int] = {}
        if "groups" in topics:
            self._kinds[settings.groups_topic] = "groups"
        if "events" in topics:
            self._kinds[settings.events_topic] = "events"
        arguments: dict[str, Any] = {
            **settings.librdkafka_arguments(),
            "client.id": "coordinator-views",
            "group.id": f"unused-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 500,
            "fetch.queue.backoff.ms": 0,
            "fetch.message.max.bytes": 2 * RECORD_BYTES_MAX,
            "queued.max.messages.kbytes": 32_768,
        }
        self._consumer = Consumer(arguments, logger=kafka_log)
        try:
            self._ends = self._assign(groups)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()

    def catch_up(
        self,
        tell: Callable[[int, int], None] = lambda read, of: None,
        take: Callable[[Told], object] | None = None,
    ) -> Views:
        """Read all that was there when this began.

        Of the compacted topic only the newest record of each key is looked at, as if it had just been compacted.

        Args:
            tell: Told now and then how many records are read, of about how many.
            take: Given each record that is new; then all of them are looked at.

        Raises:
            BrokerUnreachable: the brokers went away under way.
        """
        latest: dict[bytes, tuple[Raw, Order | None]] | None = {} if take is None else None
        for raw in self.backlog(tell):
            if latest is not None and raw.topic == "groups":
                before, order = latest.get(raw.key), raw.order
                if before is None or before[1] is None or order is None or order >= before[1]:
                    latest[raw.key] = raw, order
            elif (told := self._take(raw)) is not None and take is not None:
                take(told)
        newest = (raw for raw, _ in (latest or {}).values())
        for raw in sorted(newest, key=lambda raw: (raw.partition, raw.offset)):
            self._take(raw)
        self.views.begin()
        return self.views

    def backlog(self, tell: Callable[[int, int], None] = lambda read, of: None) -> Iterator[Raw]:
        """Yield all that was there when this began, as it stands in the topics; the views do not hear of it.

        Raises:
            BrokerUnreachable: the brokers went away under way.
        """
        read, of = 0, sum(end - self._positions[place] for place, end in self._ends.items())
        while not self.is_caught_up:
            before = read
            for raw in self._consume(CATCH_UP_WAIT_S):
                read += 1
                yield raw
            if read != before:
                tell(read, of)
            elif self._is_at_the_ends():
                return  # what is left of the offsets are holes, which a producer's transactions have left

    @property
    def ends(self) -> Mapping[tuple[str, int], int]:
        """By topic and partition, where what was there when this began ends."""
        return self._ends

    @property
    def is_caught_up(self) -> bool:
        """Whether all is read that was there when this began."""
        return all(self._positions[place] >= end for place, end in self._ends.items())

    def poll(self, wait_s: float) -> Iterator[Told]:
        """Read what has come, or wait for it so long; yields what is new.

        Raises:
            BrokerUnreachable: what was to be read on from here has expired, or may not be read.
        """
        for raw in self._consume(wait_s):
            if (told := self._take(raw)) is not None:
                yield told

    def _consume(self, wait_s: float) -> Iterator[Raw]:
        for message in self._consumer.consume(AT_ONCE, wait_s):
            if (error := message.error()) is not None:
                self._see(error)
            else:
                raw = self._raw(message)
                self._positions[str(message.topic()), raw.partition] = raw.offset + 1
                yield raw

    def _take(self, raw: Raw) -> Told | None:
        with self._lock:
            return self.views.take(raw, time.monotonic_ns() // 1_000_000)

    def look_for_gaps(self) -> None:
        """Have the views tell what is missing, if both topics are read to their ends."""
        now_ms = time.monotonic_ns() // 1_000_000
        if any(group.numbering.is_waiting for group in self.views.groups.values()) and self._is_at_the_ends():
            with self._lock:
                for _ in self.views.missing(now_ms, at_ms=_clock_ms()):
                    pass

    # -- Kafka ---------------------------------------------------------------------------------------------------------

    def _assign(self, groups: Collection[str] | None) -> dict[tuple[str, int], int]:
        known = self._known()
        ends: dict[tuple[str, int], int] = {}
        starts: list[TopicPartition] = []
        for topic, kind in self._kinds.items():
            partitions = set(known[topic].partitions)
            if groups is not None:
                partitions &= {shard_of(group_id, len(partitions)) for group_id in groups}
            for partition in sorted(partitions):
                low, high = self._bounds(topic, partition)
                position = self.views.positions[kind].get(partition)
                if position is None or position < low:
                    position = self.views.positions[kind][partition] = low
                    if kind == "events" and low:
                        self.views.expired_before(partition, _clock_ms())
                self._positions[topic, partition] = position
                starts.append(TopicPartition(topic, partition, position if high else OFFSET_BEGINNING))
                ends[topic, partition] = high
        self._consumer.assign(starts)
        return ends

    def _known(self) -> Any:
        try:
            known = self._consumer.list_topics(timeout=ANSWER_WAIT_S).topics
        except KafkaException as error:
            raise BrokerUnreachable.at(self._settings.bootstrap_servers, error.args[0].str()) from error
        if missing := [topic for topic in self._kinds if topic not in known or not known[topic].partitions]:
            raise NoCoordinator.without(missing[0], self._settings.bootstrap_servers)
        return known

    def _bounds(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=ANSWER_WAIT_S, cached=False
            )
        except KafkaException as error:
            raise BrokerUnreachable.at(self._settings.bootstrap_servers, error.args[0].str()) from error
        return low, high

    def _is_at_the_ends(self) -> bool:
        for place in self._consumer.position([TopicPartition(*place) for place in self._ends]):
            if place.offset < self._bounds(place.topic, place.partition)[1]:
                return False
        return True

    def _raw(self, message: Message) -> Raw:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        _, timestamp_ms = message.timestamp()
        value, key = message.value(), message.key()
        headers: Any = message.headers() if value is None else None
        told = dict(headers or ())
        return Raw(
            self._kinds[topic], partition, offset, timestamp_ms, key or b"", value, told.get(VERSION), told.get(AT_MS)
        )

    def _see(self, error: KafkaError) -> None:
        if error.retriable() or error.code() in _PASSING:
            return
        raise BrokerUnreachable(f"The coordinator's topics cannot be read: {error.str()}.")


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._MAX_POLL_EXCEEDED,
    }
)
"""What librdkafka tries again by itself."""
