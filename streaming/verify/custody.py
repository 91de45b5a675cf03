"""The stays of all groups at several coordinators, which are read one after another (moving.md 2).

Of each group its stays are kept until the last coordinator is read, and only the records at both ends of its moves.
"""

import math
import zlib
from collections.abc import Collection, Iterator
from typing import Any

from coordinator.messages.events import AnyEvent
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from streaming.verify.findings import Finding
from streaming.verify.moves import Coordinator, GroupMoves
from streaming.verify.stays import GroupStays, Written
from streaming.wire.records import Tombstone

ENTRIES_MAX = 500_000
"""The number of stays, and of offsets and members at both ends of moves, that are kept of all coordinators, in some 400
MB. Beyond it, the groups are halved by a hash of their ids. So a group is followed at all coordinators or at none."""

HASHES = 2**32
"""The number of hashes of ids."""

Record = AnyEvent | GroupRecord | OffsetRecord | Tombstone


class Custody:
    """The stays of all groups at several coordinators. Call `begin` for each coordinator, and `findings` at the end.

    Args:
        prefixes: The coordinators that are checked.
    """

    def __init__(self, prefixes: tuple[str, ...], entries_max: int = ENTRIES_MAX) -> None:
        self._prefixes, self._entries_max = prefixes, entries_max
        self._coordinators: dict[str, Coordinator] = {}
        self._entries = 0
        self.one_in, self.moves = 1, 0

    def begin(self, prefix: str, partitions: int, until_ms: float) -> None:
        """Start with the next coordinator."""
        self._coordinators[prefix] = Coordinator(partitions, until_ms)

    def partition(self, prefix: str, number: int, groups_end: int, *, is_cut: bool) -> "StayCollector":
        """Return a collector for one partition of both output topics.

        Args:
            groups_end: The end offset of the partition of the groups topic.
            is_cut: Whether the oldest events of the partition are gone.
        """
        return StayCollector(self, prefix, number, groups_end, is_cut=is_cut)

    @property
    def prefixes(self) -> Collection[str]:
        """The coordinators that are checked."""
        return self._prefixes

    def is_followed(self, group_id: str) -> bool:
        """Return whether a group is one of those that are compared."""
        return not zlib.crc32(group_id.encode()) % self.one_in

    def add(self, collector: "StayCollector", events_from_ms: float) -> None:
        """Keep the stays of the groups of one partition.

        Args:
            events_from_ms: The time of the oldest event of the partition; minus infinity if no event is gone.
        """
        at = self._coordinators[collector.prefix]
        at.newest_ms = max(at.newest_ms, collector.newest_ms)
        at.events_from_ms[collector.number] = events_from_ms
        for group_id, group in collector.groups.items():
            if self.is_followed(group_id):
                at.stays[group_id] = group
                self._entries += group.weight
                while self._entries > self._entries_max and self.one_in <= HASHES:
                    self._halve()

    def _halve(self) -> None:
        self.one_in *= 2
        for at in self._coordinators.values():
            at.stays = {group_id: group for group_id, group in at.stays.items() if self.is_followed(group_id)}
        self._entries = sum(group.weight for at in self._coordinators.values() for group in at.stays.values())

    # -- all coordinators ----------------------------------------------------------------------------------------------

    def findings(self) -> Iterator[Finding]:
        """Yield what was found about the moves of all groups."""
        until_ms = min((at.until_ms for at in self._coordinators.values()), default=-math.inf)
        names = dict.fromkeys(group_id for at in self._coordinators.values() for group_id in at.stays)
        for group_id in names:
            moves = GroupMoves(group_id, self._coordinators, until_ms)
            yield from moves.findings()
            self.moves += moves.compared


class StayCollector:
    """A collector of the stays of one partition's groups."""

    def __init__(self, custody: Custody, prefix: str, number: int, groups_end: int, *, is_cut: bool) -> None:
        self._custody, self.prefix, self.number = custody, prefix, number
        self._groups_end, self._is_cut = groups_end, is_cut
        self.groups: dict[str, GroupStays] = {}
        self.newest_ms = -math.inf

    def add(self, read: Record, version: int | None, at_ms: int, record: Any) -> None:
        """Add the next event, or the next record of the groups topic that is newer than all earlier ones of its key.

        Args:
            at_ms: The time of the record, by its group's own time.
        """
        self.newest_ms = max(self.newest_ms, record.timestamp)
        if read.group_id is None or version is None or not self._custody.is_followed(read.group_id):
            return
        group = self.groups.setdefault(read.group_id, GroupStays(self._is_cut))
        at = Written(version, at_ms, record.timestamp, f"{record.topic}-{record.partition}@{record.offset}")
        if isinstance(read, GroupRecord | OffsetRecord | Tombstone):
            group.add_record(read, at)
        else:
            group.add_event(read, at)

    def end(self, events_from_ms: float, groups_read: int) -> None:
        """Pass the stays on.

        Args:
            events_from_ms: The time of the oldest event of the partition; minus infinity if no event is gone.
            groups_read: The number of records of the groups topic. If it is the end offset, no record is gone.
        """
        for group in self.groups.values():
            group.end(self._custody.prefixes, is_whole=groups_read == self._groups_end)
        self._custody.add(self, events_from_ms)
