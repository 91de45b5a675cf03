"""The reading of the two output topics into the views: the existing records first, then the new ones."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from coordinator.base.hashing import shard_of
from streaming.config.settings import Settings
from streaming.kafka.offsets import TopicAndPartition
from streaming.kafka.reader import Progress, Record, TopicReader
from streaming.views.api.fold import PublishedRecord, Raw, TopicKind, Views
from streaming.wire.newest_records import Order
from streaming.wire.records import AT_MS, VERSION

SILENCE_S = 30.0
"""The time without a record after which a command, or the dashboard, reports that the brokers do not answer."""


class ViewReader:
    """A reader of one or both topics into views, from the positions of the views.

    Args:
        groups: The groups whose shards are read; None for all.
        topics: Which of the two topics to read.
        lock: Held while the views change, for other threads that read them.

    Raises:
        BrokerUnreachable: no broker answers.
        NoCoordinator: the topics do not exist.
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
        self._kinds: dict[str, TopicKind] = {}
        if "groups" in topics:
            self._kinds[settings.groups_topic] = "groups"
        if "events" in topics:
            self._kinds[settings.events_topic] = "events"
        self._reader = TopicReader(
            settings,
            self._kinds,
            "coordinator-views",
            partitions=lambda count: range(count) if groups is None else {shard_of(g, count) for g in groups},
            when_expired="error",
            silence_s=SILENCE_S,
        )
        self._reader.seek({place: self._start(place, low) for place, low in self._reader.begins.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()

    def catch_up(
        self,
        tell: Callable[[int, int], None] = lambda read, of: None,
        handle: Callable[[PublishedRecord], object] | None = None,
    ) -> Views:
        """Read all records that existed when this reader was made.

        Of the compacted topic only the newest record of each key is folded, as if it had just been compacted.

        Args:
            tell: Called at intervals with the number of records read and the approximate total.
            take: Called with each new record. With it, all records of the compacted topic are folded.

        Raises:
            BrokerUnreachable: the brokers stopped answering.
        """
        latest: dict[bytes, tuple[Raw, Order | None]] | None = {} if handle is None else None
        for raw in self.backlog(tell):
            if latest is not None and raw.topic == "groups":
                before, order = latest.get(raw.key), raw.order
                if before is None or before[1] is None or order is None or order >= before[1]:
                    latest[raw.key] = raw, order
            elif (record := self._handle(raw)) is not None and handle is not None:
                handle(record)
        newest = (raw for raw, _ in (latest or {}).values())
        for raw in sorted(newest, key=lambda raw: (raw.partition, raw.offset)):
            self._handle(raw)
        self.views.begin()
        return self.views

    def backlog(self, tell: Callable[[int, int], None] = lambda read, of: None) -> Iterator[Raw]:
        """Yield the records that existed when this reader was made, without changing the views.

        Raises:
            BrokerUnreachable: the brokers stopped answering.
        """
        return map(self._raw, self._reader.backlog(progress=Progress(tell)))

    @property
    def length(self) -> int:
        """The approximate number of records from the begins of the topics to `ends`."""
        return sum(end - self._reader.begins[place] for place, end in self._reader.ends.items())

    @property
    def ends(self) -> Mapping[TopicAndPartition, int]:
        """By topic and partition, the end of the records when reading began."""
        return self._reader.ends

    def poll(self, wait_s: float) -> Iterator[PublishedRecord]:
        """Read new records, or wait up to `wait_s` for them. Yield those that are not repeats.

        Raises:
            BrokerUnreachable: the next records to read have expired, or may not be read.
        """
        for raw in map(self._raw, self._reader.gather(wait_s)):
            if (record := self._handle(raw)) is not None:
                yield record

    def _handle(self, raw: Raw) -> PublishedRecord | None:
        with self._lock:
            return self.views.fold(raw, time.monotonic_ns() // 1_000_000)

    def look_for_gaps(self) -> None:
        """Make the views report missing records, if both topics are read to their ends."""
        now_ms = time.monotonic_ns() // 1_000_000
        if any(group.versions.is_waiting for group in self.views.groups.values()) and self._reader.is_at_the_ends():
            with self._lock:
                for _ in self.views.missing(now_ms, at_ms=_clock_ms()):
                    pass

    # -- one record ----------------------------------------------------------------------------------------------------

    def _start(self, place: TopicAndPartition, low: int) -> int:
        """Return the offset to start from in a partition: the position of the views, or the first record that still
        exists.
        """
        kind, partition = self._kinds[place[0]], place[1]
        position = self.views.positions[kind].get(partition)
        if position is None or position < low:
            position = self.views.positions[kind][partition] = low
            if kind == "events" and low:
                self.views.expired_before(partition, _clock_ms())
        return position

    def _raw(self, record: Record) -> Raw:
        of_tombstone = dict(record.headers)
        return Raw(
            self._kinds[record.topic],
            record.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            of_tombstone.get(VERSION),
            of_tombstone.get(AT_MS),
        )


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000
