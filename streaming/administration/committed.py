"""A group's committed offsets at a past time, read from the topic `groups`, and whether they are certain.

The topic is compacted: a record that a later record of its key supersedes may be missing, which leaves a hole in the
offsets of its partition. The last record of each key stays. So for one partition of a topic

- the last existing record was never superseded: its offset has been the committed one since its time;
- between two records without a hole between them, no record is missing;
- no record younger than the topic's `min.compaction.lag.ms` is missing, if that was set before they were written.

A record that a paused writer repeated late follows newer records. It is ignored if those records still exist. If a hole
may have been the newer record, the record makes its key uncertain.

A tombstone may also be missing, and with it every trace of a deleted offset. So an answer about all partitions is
certain only for times after the last hole, or within the lag.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from coordinator.base.limits import NEVER_MS
from coordinator.messages.group_records import OffsetRecord
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.kafka.any_broker import values_of
from streaming.kafka.topics import any_broker
from streaming.views.api.view_reader import ViewReader
from streaming.views.state.fields import PartitionKey
from streaming.wire.newest_records import NewestRecords, Order
from streaming.wire.records import decode_group_record


class Commit(NamedTuple):
    """A record of one partition's committed offset; without `committed`, a tombstone.

    Args:
        offset: The record's offset in the topic `groups`.
        at_ms: The group's time of the commit; for a tombstone, the time of its record.
    """

    offset: int
    at_ms: int
    committed: OffsetRecord | None


class Past:
    """The commits of one group that the topic still has.

    Args:
        kept_from_ms: The time from which no record can have been compacted.
    """

    def __init__(self, group_id: str, kept_from_ms: int = NEVER_MS) -> None:
        self._group_id, self.kept_from_ms = group_id, kept_from_ms
        self._group_key = msgspec.json.encode(["group", group_id])
        self._prefix = msgspec.json.encode(["offset", group_id])[:-1] + b","
        self._commits: dict[PartitionKey, list[Commit]] = {}
        self._newest = NewestRecords()
        self._next_offset = 0
        self._after_holes: list[int] = []
        self._after_last_hole_ms = 0

    def add(self, offset: int, timestamp_ms: int, key: bytes, value: bytes | None, order: Order | None = None) -> None:
        """Add the next record of the group's partition of the topic. Records come in order, with those of other groups.

        Args:
            order: The record's place in the order of its key; None if the record does not contain it.
        """
        if offset != self._next_offset:
            self._after_holes.append(offset)
            self._after_last_hole_ms = timestamp_ms
        self._next_offset = offset + 1
        if key == self._group_key:
            self._is_newest(key, order)
        elif key.startswith(self._prefix) and self._is_newest(key, order):
            (_, _, topic, partition), record = decode_group_record(key, value)  # type: ignore[misc]
            at_ms = record.commit_timestamp_ms if isinstance(record, OffsetRecord) else timestamp_ms
            commit = Commit(offset, at_ms, record if isinstance(record, OffsetRecord) else None)
            self._commits.setdefault((topic, partition), []).append(commit)

    def _is_newest(self, key: bytes, order: Order | None) -> bool:
        return order is None or self._newest.add(key, order)

    def _is_late(self, place: PartitionKey) -> bool:
        """Return whether the last record of a key is a late repeat. The record that it follows may be missing."""
        return msgspec.json.encode(["offset", self._group_id, *place]) in self._newest.late

    def end(self, offset: int, now_ms: int) -> None:
        """Set the end of the partition. Records that are missing before it are not younger than `now_ms`."""
        if offset > self._next_offset:
            self._after_holes.append(offset)
            self._after_last_hole_ms = now_ms

    @property
    def places(self) -> set[PartitionKey]:
        """The partitions with at least one commit."""
        return set(self._commits)

    def at(self, place: PartitionKey, at_ms: int) -> OffsetRecord | None:
        """Return a partition's committed offset at a time; None if no commit is known."""
        last = self._last_by(place, at_ms)
        return last.committed if last else None

    def is_certain(self, places: Collection[PartitionKey], at_ms: int, *, of_all: bool) -> bool:
        """Return whether no missing record could change the result of `at` for these partitions.

        Args:
            of_all: The partitions are meant to be all partitions that had a commit.
        """
        if at_ms >= self.kept_from_ms or not self._after_holes:
            return True
        if of_all and at_ms < self._after_last_hole_ms:
            return False
        return all(self._is_certain(place, at_ms) for place in places)

    def certain_from_ms(self, places: Collection[PartitionKey], *, of_all: bool) -> int:
        """Return the time from which `at` is certain for these partitions."""
        if not self._after_holes:
            return 0
        froms = [self._certain_from_ms(place) for place in places]
        return min(max([*froms, self._after_last_hole_ms if of_all else 0]), self.kept_from_ms)

    def _last_by(self, place: PartitionKey, at_ms: int) -> Commit | None:
        return next((each for each in reversed(self._commits.get(place, ())) if each.at_ms <= at_ms), None)

    def _is_certain(self, place: PartitionKey, at_ms: int) -> bool:
        commits, last = self._commits.get(place), self._last_by(place, at_ms)
        if not commits:
            return at_ms >= self._after_last_hole_ms
        if last is commits[-1]:
            return not self._is_late(place)
        begin = last.offset if last else -1
        end = next(each.offset for each in commits if each.offset > begin)
        return not any(begin < hole <= end for hole in self._after_holes)

    def _certain_from_ms(self, place: PartitionKey) -> int:
        commits = self._commits.get(place)
        if not commits:
            return self._after_last_hole_ms
        if self._is_late(place):
            return NEVER_MS
        return next((each.at_ms for each in commits if each.offset >= self._after_holes[-1]), commits[-1].at_ms)


def read_past(settings: Settings, group_id: str, now_ms: int) -> Past:
    """Read all commits of a group that the topic still has.

    Args:
        now_ms: Unix milliseconds.

    Raises:
        BrokerUnreachable: No broker answers.
        NoCoordinator: The topic does not exist.
    """
    lag_ms = compaction_lag_ms(settings)
    past = Past(group_id, now_ms - lag_ms + settings.clock_slack_ms if lag_ms else NEVER_MS)
    with ViewReader(settings, groups=[group_id], topics=["groups"]) as reading:
        for raw in reading.backlog():
            past.add(raw.offset, raw.timestamp_ms, raw.key, raw.value, raw.order)
        past.end(max(reading.ends.values()), now_ms)
    return past


def compaction_lag_ms(settings: Settings) -> int:
    """Return the topic's compaction lag in milliseconds; 0 if the brokers do not report it."""
    try:
        with any_broker(settings) as brokers:
            config = brokers.describe_configs([settings.groups_topic], known_within_s=0)
    except BrokerUnreachable:
        return 0
    return int(values_of(config[settings.groups_topic]).get("min.compaction.lag.ms", "0"))
