"""The promises that a run must keep. They are checked with the members' notes and the coordinator's records."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coordinator.messages.group_records import OffsetRecord
from coordinator.messages.policy_events import SeatTaken
from tests.chaos.history import Note, read


@dataclass
class Stint:
    """The time in which one member owns one partition, from its assignment to its revocation, or to the member's death.

    Args:
        reach: One more than the last offset that it read; None if it has read nothing.
    """

    process: str
    member_id: str
    generation: int
    partition: int
    start: int | None = None
    reach: int | None = None


class Run:
    """All data of a run.

    Args:
        commits: The offset commits that the coordinator has published, in its order.
        ends: The number of records of each partition.
        seats: The seats that members have taken, in the coordinator's order.
    """

    def __init__(
        self,
        histories: list[Path],
        commits: list[OffsetRecord],
        ends: Mapping[int, int],
        seats: Iterable[SeatTaken] = (),
    ) -> None:
        self._commits, self._ends = commits, ends
        self._owners_by_seats = _owners_by_seats(seats)
        self.notes = {file.name: list(read(file)) for file in histories}
        self.stints = [stint for name, notes in self.notes.items() for stint in _stints(name, notes)]

    @property
    def acknowledged(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield member id, generation, partition and offset of each acknowledged commit."""
        for notes in self.notes.values():
            for note in notes:
                if note.what == "acknowledged":
                    yield from ((note.member_id, note.generation, int(p), o) for p, o in note.value.items())

    @property
    def records_read(self) -> int:
        return sum((s.reach or 0) - (s.start or 0) for s in self.stints)

    def judge(self) -> list[str]:
        """Return a sentence for each broken promise."""
        return [
            *self.records_lost(),
            *self.gaps_within_stints(),
            *self.commits_lost(),
            *self.commits_ahead(),
            *self.late_starts(),
            *self.two_owners(),
        ]

    def records_lost(self) -> Iterator[str]:
        """Check that every record is consumed at least once."""
        spans = defaultdict[int, list[tuple[int, int]]](list)
        for stint in self.stints:
            if stint.start is not None and stint.reach is not None:
                spans[stint.partition].append((stint.start, stint.reach))
        for partition, end in self._ends.items():
            reach = 0
            for start, after in [*sorted(spans[partition]), (end, end)]:
                if start > reach:
                    yield f"{partition}: no member has read {reach} to {start - 1}"
                reach = max(reach, after)

    def gaps_within_stints(self) -> Iterator[str]:
        """Check that a member reads its partitions in order, without gaps."""
        for name, notes in self.notes.items():
            at: dict[int, int] = {}
            for note in notes:
                if note.what == "assigned":
                    at = {p: o for p, o in at.items() if p not in note.value}
                elif note.what == "read":
                    partition, first, last = note.value
                    if at.get(partition, first) != first:
                        yield f"{partition}: {name} read {first}, but {at[partition]} was next"
                    at[partition] = last + 1

    def commits_lost(self) -> Iterator[str]:
        """I13: check that each acknowledged commit is published, by the same member in the same generation."""
        published = {(c.member_id, c.generation_id, c.partition, c.offset) for c in self._commits}
        for commit in self.acknowledged:
            if commit not in published:
                yield f"{commit[2]}: {commit[3]} was acknowledged to {commit[0]}, but is not published"

    def commits_ahead(self) -> Iterator[str]:
        """Check that no commit is above its member's position. A member without reads may commit its first position."""
        reach = defaultdict[tuple[str, int], int](int)
        for stint in self.stints:
            mine = stint.member_id, stint.partition
            reach[mine] = max(reach[mine], stint.reach or 0)
        latest: dict[int, int] = {}
        for commit in self._commits:
            mine = commit.member_id, commit.partition
            if commit.offset > reach[mine] and commit.offset != latest.get(commit.partition):
                yield f"{commit.partition}: {commit.offset} was committed by {mine[0]}, which had read to {reach[mine]}"
            latest[commit.partition] = commit.offset

    def late_starts(self) -> Iterator[str]:
        """I13: check that an owner starts from a committed offset, at or after every offset acknowledged before.

        A commit of an earlier generation is refused as soon as a new generation exists. A commit of a member that is
        gone is refused as well, so the taker of its seat starts from its last commit.
        """
        by_partition = defaultdict[int, list[OffsetRecord]](list)
        for published in self._commits:
            by_partition[published.partition].append(published)
        acknowledged = defaultdict[int, list[tuple[str, int, int]]](list)
        for member_id, generation, partition, offset in self.acknowledged:
            acknowledged[partition].append((member_id, generation, offset))
        for stint in self.stints:
            if stint.start is None:
                continue
            known = [o for who, number, o in acknowledged[stint.partition] if self._is_before(who, number, stint)]
            if stint.start < max(known, default=0):
                yield f"{stint.partition}: {stint} began before {max(known)}, which had been acknowledged"
            # a record without a member only binds an offset to the id of its topic
            of_members = [c for c in by_partition[stint.partition] if c.member_id]
            earlier = [c for c in of_members if self._is_before(c.member_id, c.generation_id, stint)]
            if stint.start != (earlier[-1].offset if earlier else 0):
                yield f"{stint.partition}: {stint} did not begin at the offset of {earlier[-1:]}"

    def two_owners(self) -> Iterator[str]:
        """I1: check that a partition has one owner at a moment. A kept partition is not assigned again.

        In one generation it has one owner, except where members took its seat one after the other.
        """
        owners = defaultdict[tuple[int, int], list[str]](list)
        for stint in self.stints:
            owners[stint.generation, stint.partition].append(stint.member_id)
        for (generation, partition), members in owners.items():
            passed_on = self._owners_by_seats.get((generation, partition), [])
            if len(members) > 1 and (len({*members}) < len(members) or not {*members} <= {*passed_on}):
                yield f"{partition}: {len(members)} owners in generation {generation}"

    def _is_before(self, member_id: str, generation: int, stint: Stint) -> bool:
        """Return whether a member had a partition before a stint: in an earlier generation, or in its seat."""
        if generation != stint.generation:
            return generation < stint.generation
        passed_on = self._owners_by_seats.get((generation, stint.partition), [])
        return stint.member_id in passed_on and member_id in passed_on[: passed_on.index(stint.member_id)]


def _owners_by_seats(seats: Iterable[SeatTaken]) -> dict[tuple[int, int], list[str]]:
    """Return the owners of each partition that was passed on, in order, by generation and partition.

    A crash may have repeated events.
    """
    owners = dict[tuple[int, int], list[str]]()
    for seat in {seat.version: seat for seat in seats}.values():
        for partition in itertools.chain.from_iterable(seat.partitions.values()):
            owners.setdefault((seat.generation_id or 0, partition), [seat.before]).append(seat.member_id)
    return owners


def _stints(name: str, notes: list[Note]) -> Iterator[Stint]:
    now: dict[int, Stint] = {}
    for note in notes:
        match note.what:
            case "assigned":
                new = {p: Stint(name, note.member_id, note.generation, p) for p in note.value}
                yield from new.values()
                now |= new
            case "read":
                partition, first, last = note.value
                stint = now[partition]  # KeyError: the member read it without owning it
                stint.start = first if stint.start is None else stint.start
                stint.reach = last + 1
            case "revoked" | "lost":
                now = {p: stint for p, stint in now.items() if p not in note.value}
