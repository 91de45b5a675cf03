"""The following of the two output topics as they grow: a line for each record, once, and a line for each gap."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from coordinator.messages.events import GroupDeleted
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from coordinator.messages.move_events import GroupArrived, GroupMoved
from streaming.config.settings import Settings
from streaming.kafka.reader import TopicReader
from streaming.moments import monotonic_ms
from streaming.views.sentences.records import Gap, Line, Record, Unreadable, to_line
from streaming.views.state.version_follower import EVENTS, GROUPS, VersionFollower
from streaming.wire.records import AT_MS, VERSION, Tombstone, decode_event, decode_group_record

POLL_S = 0.2


class Fetched(NamedTuple):
    """A Kafka record of one of the two topics.

    Args:
        topic: `groups` or `events`.
    """

    topic: str
    record: Any


class Reader:
    """A converter of the records of the two topics to lines: each record once, and a line for each gap.

    Args:
        groups: The groups whose records to show; None for all.
        is_live: The records that existed before the reading began are not read.
    """

    def __init__(self, groups: Collection[str] | None = None, *, is_live: bool = True) -> None:
        self._groups, self.is_live = groups, is_live
        self._versions: dict[str, VersionFollower] = {}

    def begin(self) -> None:
        """Report missing versions from now on: all records that existed when the reading began are read."""
        for versions in self._versions.values():
            versions.begin()
        self.is_live = True

    def read(self, records: Iterable[Fetched], now_ms: int) -> Iterator[Line]:
        """Yield the Kafka records of one poll in words, in the order in which they were written."""
        partitions: dict[tuple[str, int], list[tuple[Fetched, Record]]] = {}
        for fetched in records:
            place = fetched.topic, fetched.record.partition
            partitions.setdefault(place, []).append((fetched, _decode(fetched)))
        for fetched, record in heapq.merge(*partitions.values(), key=_moment):
            group_id = getattr(record, "group_id", None)
            if (self._groups is None or group_id in self._groups) and self._is_new(fetched, record, now_ms):
                yield to_line(record, _at_ms(record, fetched.record.timestamp))

    def _is_new(self, fetched: Fetched, record: Any, now_ms: int) -> bool:
        group_id, version = getattr(record, "group_id", None), getattr(record, "version", None)
        if group_id is None or version is None:
            return True
        versions = self._versions.setdefault(group_id, VersionFollower(knows_beginning=False))
        topic = EVENTS if fetched.topic == "events" else GROUPS
        at_ms = record.at_ms if isinstance(record, Tombstone) else _at_ms(record, fetched.record.timestamp)
        ends = isinstance(record, GroupDeleted | GroupMoved) or (isinstance(record, Tombstone) and record.topic is None)
        before = record.version_before if isinstance(record, GroupArrived) else None
        return versions.add(topic, version, at_ms, now_ms, is_live=self.is_live, ends_life=ends, begins_after=before)

    def is_in_doubt(self, now_ms: int) -> bool:
        """Return whether a record has been missing for so long that the ends of the topics should be checked."""
        return any(versions.is_in_doubt(now_ms) for versions in self._versions.values())

    def missing(self, now_ms: int) -> Iterator[Line]:
        """Yield a line for each gap, once. Call it when both topics are read to their ends."""
        for group_id, versions in self._versions.items():
            for gone in versions.give_up(now_ms):
                yield to_line(Gap(group_id, gone.start, gone.stop - 1), None)


def _moment(read: tuple[Fetched, Record]) -> tuple[int, int, int]:
    """Return the sort key for the records of both topics: when written, the group's own time, the version."""
    timestamp_ms, record = read[0].record.timestamp, read[1]
    return (
        timestamp_ms,
        getattr(record, "at_ms", None) or _at_ms(record, timestamp_ms),
        getattr(record, "version", None) or 0,
    )


def _decode(fetched: Fetched) -> Record:
    record = fetched.record
    try:
        return _decode_event(record) if fetched.topic == "events" else decode_group(record)
    except ValueError as error:
        return Unreadable(f"{record.topic}-{record.partition}@{record.offset}", str(error))


def _decode_event(record: Any) -> Record:
    return decode_event(record.value or b"")


def decode_group(record: Any) -> GroupRecord | OffsetRecord | Tombstone:
    """Decode a Kafka record of the groups topic.

    Raises:
        ValueError: it is not a record of the groups topic.
    """
    key, read = decode_group_record(record.key or b"", record.value)
    if read is not None:
        return read
    told = {name: int(value) for name, value in record.headers if name in (VERSION, AT_MS)}
    return Tombstone.of(key, told.get(VERSION), told.get(AT_MS))


def _at_ms(read: Record, timestamp_ms: int) -> int:
    match read:
        case GroupRecord():
            return read.since_ms
        case OffsetRecord():
            return read.commit_timestamp_ms
        case Tombstone() | Gap() | Unreadable():
            return timestamp_ms
    return read.at_ms


def follow(
    settings: Settings,
    *,
    groups: Collection[str] | None = None,
    from_beginning: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Line]:
    """Yield the records of both topics as they grow, in words.

    Args:
        groups: The groups to show; None for all.
        from_beginning: Show the existing records first; otherwise only new ones.
        stop: Called several times a second; the first time after the position to read from is fixed.

    Raises:
        BrokerUnreachable: no broker answers.
        NoCoordinator: the topics do not exist.
    """
    names = {settings.groups_topic: "groups", settings.events_topic: "events"}
    reader = Reader(groups, is_live=not from_beginning)
    with TopicReader(settings, names, "coordinator-watch") as topics:
        if not from_beginning:
            topics.seek_to_ends()
        while not stop():
            records = topics.poll(POLL_S) if reader.is_live else topics.poll_backlog(POLL_S)
            yield from reader.read((Fetched(names[record.topic], record) for record in records), monotonic_ms())
            if not reader.is_live and topics.is_caught_up:
                reader.begin()
            if reader.is_in_doubt(monotonic_ms()) and topics.is_at_the_ends():
                yield from reader.missing(monotonic_ms())
