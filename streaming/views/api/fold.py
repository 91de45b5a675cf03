"""All groups, folded from the records of the two output topics. Each record is folded once, in partition order.

The result does not depend on how the records are split into batches, nor on which topic is read first. The memory is
bounded: of each group the latest events (`HISTORY_MAX`), of all groups together `WEIGHT_MAX`, and the last `ENDED_MAX`
forgotten groups.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct, field

from coordinator.messages.events import AnyEvent, ClockAhead, GroupDeleted, LogBroken, Oversized
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from coordinator.messages.move_events import GroupArrived
from streaming.views.sentences.records import Gap, Unreadable, to_line
from streaming.views.state.fields import known
from streaming.views.state.group import GroupView
from streaming.views.state.version_follower import EVENTS, GROUPS
from streaming.wire.newest_records import Order, order_in, order_of
from streaming.wire.records import Tombstone, decode_event, decode_group_record

HISTORY_MAX = 20_000
"""The greatest weight of one group's history. Beyond it, the oldest events are dropped."""

WEIGHT_MAX = 400_000
"""The greatest weight of all histories together: about 200 MB at most."""

ENDED_MAX = 1_000
ALARMS_MAX = 1_000

TopicKind = Literal["groups", "events"]


class Raw(NamedTuple):
    """A Kafka record of one of the two topics.

    Args:
        version, at_ms: The headers of a tombstone.
    """

    topic: TopicKind
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    version: int | bytes | None = None
    at_ms: int | bytes | None = None

    @property
    def order(self) -> Order | None:
        """The record's order; None if the record has none or cannot be read."""
        try:
            return order_in(self.value, _number(self.version), _number(self.at_ms))
        except ValueError:
            return None


PublishedRecord = AnyEvent | GroupRecord | OffsetRecord | Tombstone


class Alarm(Struct, frozen=True):
    """A fault, in words: records that are missing, unreadable or too large, or a broken log."""

    at_ms: int
    group_id: str | None
    kind: str
    text: str


class Views(Struct):
    """The state that follows from the records read so far. Reading continues from `positions`.

    Args:
        only: The wanted groups, whose histories share the whole room; None for all groups.
        positions: By topic and partition, the next offset to read.
        from_ms: By shard, the time from which its events are complete, if earlier ones have expired.
        alarms: The last `ALARMS_MAX` alarms; `alarms_told` counts all of them.
        is_live: Whether all records from before the start of reading are read. Later records are counted and must have
            no gaps.
        ended: Forgotten groups whose history is still kept, the longest ended first.
    """

    only: frozenset[str] | None = None
    groups: dict[str, GroupView] = field(default_factory=dict)
    positions: dict[str, dict[int, int]] = field(default_factory=lambda: {"groups": {}, "events": {}})
    from_ms: dict[int, int] = field(default_factory=dict)
    alarms: list[Alarm] = field(default_factory=list)
    alarms_told: int = 0
    is_live: bool = False
    ended: dict[str, None] = field(default_factory=dict)
    weight: int = 0
    records: int = 0

    def fold(self, raw: Raw, now_ms: int) -> PublishedRecord | None:
        """Fold one record. Return its content, or None for a repeat and for a record that cannot be read.

        Args:
            now_ms: The reader's time, from any monotonic clock.
        """
        if raw.offset < self.positions[raw.topic].get(raw.partition, 0):
            return None
        self.positions[raw.topic][raw.partition] = raw.offset + 1
        self.records += 1
        try:
            record = _decode(raw)
        except ValueError as error:
            self._alarm(Unreadable(f"{raw.topic}-{raw.partition}@{raw.offset}", str(error)), raw.timestamp_ms)
            return None
        if raw.topic == "events" and raw.partition in self.from_ms:
            self.from_ms[raw.partition] = min(raw.timestamp_ms, self.from_ms[raw.partition])
        if record.group_id is None or (record.version is None and not isinstance(record, Tombstone)):
            self._record_alarm(record, raw)
            return record
        if self.only is not None and record.group_id not in self.only:
            return None
        group = self.groups.get(record.group_id)
        if group is None:
            group = self.groups[record.group_id] = GroupView(record.group_id, raw.partition)
        is_new = self._number(group, record, record.version, now_ms)
        self._fold(group, record, is_new=is_new)
        return record if is_new else None

    def _number(self, group: GroupView, record: PublishedRecord, version: int | None, now_ms: int) -> bool:
        versions, is_live = group.versions, self.is_live
        if version is None:
            return True
        match record:
            case Tombstone():
                return versions.add(GROUPS, version, record.at_ms, now_ms, is_live=is_live)
            case GroupRecord():
                return versions.add(GROUPS, version, record.since_ms, now_ms, is_live=is_live)
            case OffsetRecord():
                return versions.add(GROUPS, version, record.commit_timestamp_ms, now_ms, is_live=is_live)
        ends, before = (
            isinstance(record, GroupDeleted),
            record.version_before if isinstance(record, GroupArrived) else None,
        )
        return versions.add(EVENTS, version, record.at_ms, now_ms, is_live=is_live, ends_life=ends, begins_after=before)

    def missing(self, now_ms: int, at_ms: int) -> Iterator[Gap]:
        """Yield the version numbers that have been missing for too long, each once. Call it at the end of both topics.

        Each gap is an alarm as well.

        Args:
            now_ms: As for `fold`.
            at_ms: The same moment for the alarms, Unix milliseconds.
        """
        for group in self.groups.values():
            if group.versions.is_waiting:
                for gone in group.versions.give_up(now_ms):
                    group.tallied.missing += len(gone)
                    gap = Gap(group.group_id, gone.start, gone.stop - 1)
                    self._alarm(gap, at_ms)
                    yield gap

    def begin(self) -> None:
        """Start to count records and to report gaps: all records from before the start of reading are read."""
        for group in self.groups.values():
            group.versions.begin()
            group.ended = {}
        self.is_live = True

    def expired_before(self, shard: int, at_ms: int) -> None:
        """Record that events of a shard, before the next one to read, have expired.

        Args:
            at_ms: The time at which the reader found this, Unix milliseconds. The shard's events are complete from then
                on, unless an older event still exists.
        """
        self.from_ms[shard] = at_ms

    def known_from_ms(self, group: GroupView) -> int:
        """Return the time from which a group's history is complete, Unix milliseconds; 0 if none of it is lost."""
        return max(group.known_from_ms, self.from_ms.get(group.shard, 0))

    def present(self) -> list[GroupView]:
        """Return the groups that exist, sorted by id."""
        return sorted((group for group in self.groups.values() if group.is_there), key=lambda group: group.group_id)

    # -- one record ----------------------------------------------------------------------------------------------------

    def _fold(self, group: GroupView, record: PublishedRecord, *, is_new: bool) -> None:
        """Store the content of a record. In the compacted topic the newest record of a key counts, in any order of
        the records.
        """
        if isinstance(record, GroupRecord | OffsetRecord | Tombstone) and self._is_late(group, record, is_new=is_new):
            return
        if isinstance(record, Tombstone) and not self.is_live:
            group.end(record)
        match record:
            case OffsetRecord():
                group.offsets.setdefault(record.topic, {})[record.partition] = record
                group.tallied.commits += (known(record.stands_for) or 1) if is_new and self.is_live else 0
                self.ended.pop(group.group_id, None)
            case GroupRecord():
                group.record = record
                group.waiting_partitions.add(record)
                self.ended.pop(group.group_id, None)
            case Tombstone(topic=None):
                group.record = None
                self._end(group)
            case Tombstone():
                of_topic = group.offsets.get(record.topic or "", {})
                of_topic.pop(record.partition if record.partition is not None else -1, None)
                if not of_topic:
                    group.offsets.pop(record.topic or "", None)
                self._end(group)
            case _ if is_new:
                self._store_event(group, record)

    def _is_late(self, group: GroupView, record: GroupRecord | OffsetRecord | Tombstone, *, is_new: bool) -> bool:
        """Return whether a newer record of the key was read before.

        While the views are live, a repeat for a key without a stored record belongs to a key that has ended since.
        """
        order, current = order_of(record), group.current(record)
        return order < current if current else self.is_live and not is_new

    def _store_event(self, group: GroupView, event: AnyEvent) -> None:
        before = group.weight
        group.add(event, HISTORY_MAX if self.only is None else WEIGHT_MAX)
        self.weight += group.weight - before
        if self.is_live:
            group.tallied.count(event)
        if isinstance(event, Oversized):
            self._alarm(event, event.at_ms)
        if isinstance(event, GroupDeleted):
            self._end(group)
        if self.weight > WEIGHT_MAX:
            self._make_room()

    def _record_alarm(self, record: PublishedRecord, raw: Raw) -> None:
        if isinstance(record, LogBroken | ClockAhead):
            self._alarm(record, raw.timestamp_ms)

    def _end(self, group: GroupView) -> None:
        if group.is_there:
            return  # both topics have its end: the other record is still to come, or the group is founded anew
        self.ended.pop(group.group_id, None)
        self.ended[group.group_id] = None
        while len(self.ended) > ENDED_MAX:
            longest = next(iter(self.ended))
            del self.ended[longest]
            self.weight -= self.groups.pop(longest).weight

    def _make_room(self) -> None:
        """Drop the older half of the longest histories, until a tenth of the room is free."""
        for group in sorted(self.groups.values(), key=lambda group: -group.weight):
            before = group.weight
            group.forget(group.weight // 2)
            self.weight += group.weight - before
            if self.weight <= WEIGHT_MAX * 9 // 10:
                return

    def _alarm(self, about: Gap | Unreadable | Oversized | LogBroken | ClockAhead, at_ms: int) -> None:
        line = to_line(about, at_ms)
        self.alarms.append(Alarm(at_ms, line.group_id, type(about).__name__.lower(), line.text))
        self.alarms_told += 1
        del self.alarms[:-ALARMS_MAX]


def _decode(raw: Raw) -> PublishedRecord:
    """Decode a record.

    Raises:
        ValueError: it is not a record of that topic.
    """
    if raw.topic == "events":
        return decode_event(raw.value or b"")
    key, record = decode_group_record(raw.key, raw.value)
    if record is not None:
        return record
    return Tombstone.of(key, _number(raw.version), _number(raw.at_ms))


def _number(header: int | bytes | None) -> int | None:
    return None if header is None else int(header)
