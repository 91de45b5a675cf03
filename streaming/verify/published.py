"""The records that groups have published, one partition of both topics at a time: versions, generations, owners,
offsets.

A group that was removed and created again counts from 1 again, so the records of each topic are divided into lives. If
compaction or retention has removed the end of a life from one topic, the other topic and the times in the records show
it.
"""

import math
from collections.abc import Collection, Iterator
from typing import Any

from coordinator.base.limits import REMOVED_GROUP_MS, REMOVED_GROUPS_MAX
from coordinator.base.states import Phase
from coordinator.messages.events import AnyEvent, GroupConverted, GroupDeleted
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from coordinator.messages.move_events import GroupArrived, GroupMoved
from streaming.verify.consumers import Owners, is_of_consumers
from streaming.verify.custody import StayCollector
from streaming.verify.findings import FINDINGS_MAX, Finding, Kind
from streaming.verify.offsets import Committed, WrittenOffsets
from streaming.verify.watched import Held, Holes, ReadPosition, VersionAudit, Watched
from streaming.views.api.watching import decode_group
from streaming.views.state.version_follower import EVENTS, GROUPS
from streaming.views.text import escape
from streaming.wire.newest_records import order_of
from streaming.wire.records import Tombstone, decode_event, decode_group_key

REPEATS_MAX = 2**17
"""The number of a partition's latest records that are kept to recognize repeats: many times the records of a batch."""

REMEMBERED_MS = REMOVED_GROUP_MS - 3_600_000
"""The time after a group's end for which the coordinator certainly keeps the group's last generation."""

WHOLE_LIVES = (Kind.MISSING, Kind.ALTERED, Kind.GENERATION_FELL, Kind.NOT_FREE, Kind.NOT_COVERED)
"""Kinds of findings that are reported at the end, because the lives of a group are certain only then."""

WHOLE_HISTORIES = (Kind.NOT_FREE, Kind.NOT_COVERED)
"""Kinds of findings that a missing event may cause. They are not reported of a group with missing versions."""

Record = AnyEvent | GroupRecord | OffsetRecord | Tombstone
Wrong = tuple[Kind, str]


class Published:
    """A judge of one partition of the groups and events topics.

    Args:
        wanted: The groups to check; None for all.
        events_from: The first offset of the events partition that is kept.
        is_observed: Whether Kafka's own coordinator keeps the groups. Then versions, repeats and owners are judged.
        collector: The collector of the groups' stays, if several coordinators are checked.
    """

    def __init__(
        self,
        wanted: Collection[str] | None,
        events_from: int,
        *,
        is_observed: bool = False,
        collector: StayCollector | None = None,
    ) -> None:
        self._wanted, self._is_observed, self._collector = wanted, is_observed, collector
        self._next, self._removed, self._ended = [0, events_from], [0, 0], [0, 0]
        self._events_from_ms = math.inf if events_from else -math.inf
        self._held: list[Held] = []
        self._recent: dict[int, None] = {}
        self.groups: dict[str, Watched] = {}
        self.offsets = WrittenOffsets()

    def judge(self, topic: int, record: Any) -> Iterator[Finding]:
        """Judge one Kafka record. The records of each topic come in order, both topics roughly by time."""
        self._removed[topic] += record.offset - self._next[topic]
        self._next[topic] = record.offset + 1
        if topic == EVENTS:
            self._events_from_ms = min(self._events_from_ms, record.timestamp)
        try:
            read, version = _decode(topic, record)
        except ValueError as error:
            yield Finding(Kind.UNREADABLE, None, _where(record), escape(str(error))[:500])
            return
        if read.group_id is None or (self._wanted is not None and read.group_id not in self._wanted):
            return
        group = self.groups.setdefault(read.group_id, Watched())
        if topic == GROUPS:
            is_newest = _record_late(group, read, record)
            self.offsets.add(read)
        else:
            is_newest = True
        if self._collector is not None and is_newest:
            self._collector.add(read, version, _own_ms(read), record)
        if version is None:
            return
        if self._is_known(hash((topic, record.key, record.value, version, _own_ms(read)))):
            return
        yield from self._findings(group, topic, read, version, record)

    def end(self, at_ms: float) -> Iterator[Finding]:
        """Judge the rest, as far as it was written by `at_ms`. Later records may be incomplete."""
        missing = list(self._missing_at_the_end(at_ms))
        found = (*(held.finding for held in self._held), *missing)
        lacking = {finding.group_id for finding in found if finding.kind is Kind.MISSING}
        for held in self._held:
            if self._is_certain(held, lacking):
                yield held.finding
        for group_id, group in self.groups.items():
            yield from self._outdated(group_id, group, at_ms)
        yield from missing
        if self._collector is not None:
            self._collector.end(self._events_from_ms, self._next[GROUPS] - self._removed[GROUPS])

    def _is_certain(self, held: Held, lacking: Collection[str | None]) -> bool:
        finding, group = held.finding, self.groups[held.finding.group_id or ""]
        if group.is_blurred or (finding.kind in WHOLE_HISTORIES and finding.group_id in lacking):
            return False
        goes_on = finding.kind is Kind.GENERATION_FELL and held.is_first and held.life in group.arrived
        return not goes_on  # the generation of a group that has arrived began elsewhere

    def _missing_at_the_end(self, at_ms: float) -> Iterator[Finding]:
        for group_id, group in self.groups.items():
            for life in group.lives.values() if not group.is_blurred else ():
                for gone in life.end(self._holes, at_ms):
                    yield Finding(Kind.MISSING, group_id, "at the end", _missing(gone))

    def _outdated(self, group_id: str, group: Watched, at_ms: float) -> Iterator[Finding]:
        """Judge the keys whose last record is older than an earlier record of the group.

        If records are gone, the record that the last one replaced may be among them.
        """
        for key, (where, written_ms) in group.late.items():
            order = group.newest.late[key]
            if written_ms > at_ms:
                continue
            if group.newest.is_outdated(key):
                newest = group.newest.newest[key]
                text = f"version {order.version} is the last record of {_words(key)}, after version {newest.version}"
                yield Finding(Kind.STANDS_OLD, group_id, where, text)
            elif self._removed[GROUPS]:
                text = f"version {order.version} of {_words(key)} was repeated after version {group.newest.highest}"
                text = f"{text} of the group: compaction may have removed a newer record of the key"
                yield Finding(Kind.STANDS_OLD, group_id, where, text)

    @property
    def _holes(self) -> Holes:
        return Holes((self._removed[GROUPS], self._removed[EVENTS]), self._events_from_ms)

    def _is_known(self, fingerprint: int) -> bool:
        if fingerprint in self._recent:
            return True
        self._recent[fingerprint] = None
        if len(self._recent) > REPEATS_MAX:
            del self._recent[next(iter(self._recent))]
        return False

    # -- one record ----------------------------------------------------------------------------------------------------

    def _findings(self, group: Watched, topic: int, read: Record, version: int, record: Any) -> Iterator[Finding]:
        for kind, text in self._judge(group, topic, read, version, record.timestamp):
            finding = Finding(kind, read.group_id, _where(record), text)
            if kind in WHOLE_LIVES and len(self._held) < FINDINGS_MAX:
                place = group.places[topic]
                self._held.append(Held(finding, place.life, is_first=version == place.first))
            else:
                yield finding

    def _judge(self, group: Watched, topic: int, read: Record, version: int, at_ms: int) -> Iterator[Wrong]:
        place = group.places[topic]
        self._find_life(group, topic, read)
        if version <= place.version:
            is_later = _own_ms(read) > place.latest_ms
            if is_later and self._removed[topic] > place.removed:  # the record that ended the group is gone
                group.pass_over_an_end(topic)
            elif not is_later and (self._removed[topic] or version < place.first):
                return  # it may be a repeat of a record that is gone
            elif version == 1:
                text = f"versions begin again at 1 after {place.version}, and no record ended the group"
                place.begin_anew(is_remembered=True)
                yield from () if group.is_blurred else [(Kind.ALTERED, text)]
            elif not group.is_blurred:
                yield Kind.ALTERED, f"version {version} came again after {place.version}, with other contents"
                return
        place.first = place.first if place.version else version
        place.version, place.removed = version, self._removed[topic]
        place.latest_ms = max(place.latest_ms, _own_ms(read))
        if not group.is_blurred:
            yield from self._number(group, topic, read, version, at_ms)
            if not self._is_observed and not _is_written_again(group.latest, read):
                yield from _judge_generation(place, read, group.latest)
        if isinstance(read, GroupRecord):
            yield from group.owners.judge(read)
        if not self._is_observed:
            yield from group.consumers.judge(read)
            yield from ((Kind.TOKEN_FELL, text) for text in group.tokens.judge(read))
        self._record(group, topic, read, at_ms)

    def _number(self, group: Watched, topic: int, read: Record, version: int, at_ms: int) -> Iterator[Wrong]:
        number = group.places[topic].life
        if number not in group.lives:
            group.lives[number] = VersionAudit(self._holes, group.lives.get(number - 1))
            for over in [n for n in group.lives if n < min(place.life for place in group.places) - 1]:
                yield from _all_missing(group.lives.pop(over).end(self._holes, math.inf))
        if isinstance(read, GroupArrived):
            group.arrived.add(number)
            group.lives[number].begin_after(read.version_before)
        yield from _all_missing(group.lives[number].judge(topic, version, at_ms, self._holes))

    def _find_life(self, group: Watched, topic: int, read: Record) -> None:
        """Advance to the next life after an end, even if only the other topic still shows that end."""
        place, own_ms = group.places[topic], _own_ms(read)
        if place.ended_ms is not None:
            is_remembered = own_ms < place.ended_ms + REMEMBERED_MS
            place.begin_anew(is_remembered=is_remembered and self._ended[topic] - place.ended_as < REMOVED_GROUPS_MAX)
        if topic == GROUPS:
            while group.deleted_ms.get(place.life, math.inf) < own_ms:
                group.pass_over_an_end(topic)
        elif not place.version and self._events_from_ms > -math.inf:
            while group.founded_ms.get(place.life + 1, math.inf) <= own_ms:
                group.pass_over_an_end(topic)

    def _record(self, group: Watched, topic: int, read: Record, at_ms: int) -> None:
        place = group.places[topic]
        match read:
            case GroupRecord():
                group.latest = read
                group.founded_ms.setdefault(place.life, read.since_ms)
            case OffsetRecord():
                group.committed[read.topic, read.partition] = Committed(read.offset, read.commit_timestamp_ms)
            case Tombstone(topic=str(name), partition=int(number)):
                group.committed[name, number] = Committed(None, at_ms)
            case Tombstone():
                group.latest, group.owners = None, Owners()
                self._end(group, topic, at_ms)
            case GroupDeleted() | GroupMoved():
                group.deleted_ms[place.life] = read.at_ms
                self._end(group, topic, read.at_ms)

    def _end(self, group: Watched, topic: int, at_ms: int) -> None:
        place = group.places[topic]
        group.is_blurred |= any(self._removed) or self._events_from_ms > -math.inf
        self._ended[topic] += 1
        place.ended_ms, place.ended_as = at_ms, self._ended[topic]


def _where(record: Any) -> str:
    return f"{record.topic}-{record.partition}@{record.offset}"


def _all_missing(gaps: Iterator[range]) -> Iterator[Wrong]:
    return ((Kind.MISSING, _missing(gone)) for gone in gaps)


def _missing(gone: range) -> str:
    if len(gone) == 1:
        return f"version {gone.start} was published and is in no topic"
    return f"versions {gone.start} to {gone.stop - 1} were published and are in no topic"


def _decode(topic: int, record: Any) -> tuple[Record, int | None]:
    """Return a decoded record and its version.

    Raises:
        ValueError: The record is not one of that topic.
    """
    read = decode_event(record.value or b"") if topic == EVENTS else decode_group(record)
    return read, read.version


def _own_ms(read: Record) -> int:
    """Return a record's time, by its group's own time."""
    match read:
        case GroupRecord():
            return read.since_ms
        case OffsetRecord():
            return read.commit_timestamp_ms
        case Tombstone():
            return read.at_ms
    return int(read.at_ms)


def _record_late(group: Watched, read: Record, record: Any) -> bool:
    """Note the order of a record. Return whether it is newer than all earlier ones of its key."""
    is_newest = False
    if isinstance(read, GroupRecord | OffsetRecord | Tombstone):
        is_newest = group.newest.add(record.key, order_of(read))
        group.late = {key: place for key, place in group.late.items() if key in group.newest.late}
        if record.key in group.newest.late:
            group.late[record.key] = _where(record), record.timestamp
    return is_newest


def _words(key: bytes) -> str:
    kind, _, *place = decode_group_key(key)
    return "the group" if kind == "group" else f"the offset of {escape(str(place[0]))}-{place[1]}"


def _is_written_again(latest: GroupRecord | None, read: Record) -> bool:
    """Return whether a group's record repeats its latest one, so that no phase has begun."""
    if latest is None or not isinstance(read, GroupRecord):
        return False
    phases = ((each.state, each.generation_id, each.since_ms) for each in (latest, read))
    return next(phases) == next(phases)


def _judge_generation(place: ReadPosition, read: Record, latest: GroupRecord | None) -> Iterator[Wrong]:
    """Judge a generation, or the group epoch.

    A commit to a group of the consumer protocol has the member's epoch. A commit inside a transaction has the
    generation in which it was accepted, and is published when the transaction ends, which may be later.
    """
    generation_id = getattr(read, "generation_id", None)
    if generation_id is None or generation_id < 0:
        return  # a tombstone, or a commit from outside the group
    if isinstance(read, OffsetRecord) and (
        latest is None or is_of_consumers(latest) or generation_id < place.generation_id
    ):
        return
    if _is_converted(read, latest):
        place.generation_id = generation_id  # an Empty group counts anew in its other protocol
        return
    is_settled = isinstance(read, GroupRecord) and read.state in (Phase.COMPLETING, Phase.EMPTY)
    begins = isinstance(read, GroupRecord) and is_settled and read.version > 1 and not is_of_consumers(read)
    if generation_id < place.generation_id:
        yield Kind.GENERATION_FELL, f"generation {generation_id} came after {place.generation_id}"
    elif begins and generation_id == place.generation_id:
        yield Kind.GENERATION_FELL, f"generation {generation_id} began twice"
    place.generation_id = generation_id


def _is_converted(read: Record, latest: GroupRecord | None) -> bool:
    """Return whether a record shows that the group has changed its protocol."""
    if isinstance(read, GroupRecord):
        return latest is not None and is_of_consumers(latest) != is_of_consumers(read)
    return isinstance(read, GroupConverted)
