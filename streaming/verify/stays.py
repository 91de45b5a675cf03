"""The stays of groups at one coordinator: from a group's creation or arrival to its end or its release (moving.md 2).

The events are in their order. A record of the groups topic has its group's own time, and the copies that a target
publishes have old times. So a record that seems to be outside of a stay waits for the event that shows where it is.
"""

from collections.abc import Collection
from typing import NamedTuple

from msgspec import Struct, field

from coordinator.messages.events import (
    AnyEvent,
    CommitRejected,
    GroupDeleted,
    MemberFenced,
    OffsetsDeleted,
    OffsetsDropped,
    OffsetsExpired,
    RebalanceCompleted,
)
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from coordinator.messages.move_events import GroupArrived, GroupMoved, GroupReleased, GroupTakenBack
from coordinator.messages.policy_events import SeatTaken
from streaming.verify.findings import Kind
from streaming.verify.snapshots import Chapter, Snapshot
from streaming.verify.watched import CLOCKS_APART_MS
from streaming.views.text import escape
from streaming.wire.records import Tombstone

SUSPECTS_MAX = 100
"""The number of a group's records outside of a stay that wait for an event. Further ones are not judged."""

WRONG_MAX = 100
"""The number of findings about one group that are kept. Further ones are not counted."""

ABOUT_OFFSETS = (CommitRejected, OffsetsDeleted, OffsetsDropped, OffsetsExpired)
"""Events that change no member."""

Wrong = tuple[Kind, str, str]
"""A finding without its group: the kind, the place and the text."""


class Written(NamedTuple):
    """A record or an event on its topic.

    Args:
        at_ms: The group's own time.
        written_ms: The time at which it was written.
    """

    version: int
    at_ms: int
    written_ms: int
    place: str


class Stay(Struct):
    """One stay of a group at one coordinator.

    Args:
        begin: Its first record or event.
        last: The latest one before its end.
        came: The event of its begin; None if the group was created, or came before the first event that is kept.
        is_created: Whether it certainly began with the creation of the group.
        token: The highest fencing token that was given.
        roster_from: The version of the latest event that may have changed the members.
        deleted_ms: The group's time at which it was removed.
        source, target: The records before its release, and after its arrival.
    """

    begin: Written
    last: Written
    came: GroupArrived | GroupTakenBack | None = None
    is_created: bool = False
    token: int = 0
    roster_from: int = 0
    left: GroupReleased | None = None
    left_at: Written | None = None
    moved: GroupMoved | None = None
    moved_at: Written | None = None
    deleted_ms: int | None = None
    source: Snapshot | None = None
    target: Snapshot | None = None

    @property
    def is_over(self) -> bool:
        """Whether the group was removed, or was adopted elsewhere."""
        return self.moved is not None or self.deleted_ms is not None

    @property
    def is_served(self) -> bool:
        """Whether the coordinator still serves the group."""
        return self.left is None and not self.is_over

    @property
    def end_ms(self) -> int | None:
        """The group's time from which the coordinator does not serve it any more; None if it still does."""
        ended = self.left or self.moved
        return self.deleted_ms if ended is None else ended.at_ms

    @property
    def weight(self) -> int:
        """The number of its entries."""
        return 1 + sum(each.weight for each in (self.source, self.target) if each is not None)


class GroupStays(Struct):
    """The stays of one group at one coordinator.

    Args:
        is_cut: Whether the oldest events of the shard are gone.
        order: The time and the version of the latest event. An earlier one is a repeat.
        suspects: Records that seem to be outside of a stay.
        wrong: What was found.
    """

    is_cut: bool
    stays: list[Stay] = field(default_factory=list)
    order: tuple[int, int] = (-1, -1)
    chapters: list[Chapter] = field(default_factory=lambda: [Chapter()])
    suspects: list[Written] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)

    # -- the groups topic ----------------------------------------------------------------------------------------------

    def add_record(self, read: GroupRecord | OffsetRecord | Tombstone, at: Written) -> None:
        """Add the next record that is newer than all earlier ones of its key."""
        self.chapters[-1].add(read)
        if isinstance(read, Tombstone):
            if read.topic is None:
                self.chapters.append(Chapter())
                self.suspects = self.suspects if self.stays else []  # the events of this life are gone
            return
        stay = self.stays[-1] if self.stays else None
        if stay is not None and stay.is_served:
            stay.last = max(stay.last, at, key=_own_ms)
        elif (stay is None or at.at_ms > (stay.end_ms or 0)) and len(self.suspects) < SUSPECTS_MAX:
            self.suspects.append(at)

    # -- the events topic ----------------------------------------------------------------------------------------------

    def add_event(self, event: AnyEvent, at: Written) -> None:
        """Add the next event. A repeat changes nothing."""
        if (at.at_ms, at.version) <= self.order:
            return
        self.order = at.at_ms, at.version
        match event:
            case GroupArrived() | GroupTakenBack():
                self._judge_suspects([each for each in self.suspects if each.version < at.version])
                is_back = isinstance(event, GroupTakenBack) and bool(self.stays)
                roster_from = self.stays[-1].roster_from if is_back else 0
                self.stays.append(Stay(at, at, came=event, roster_from=roster_from))
            case GroupReleased():
                stay = self._serving(at)
                stay.left, stay.left_at = event, at
                self._judge_number(stay, event, at)
            case GroupMoved():
                if not self.stays or self.stays[-1].is_over:  # its earlier events are gone
                    self.stays.append(Stay(at, at))
                    self.suspects = [each for each in self.suspects if each.at_ms > at.at_ms]
                self.stays[-1].moved, self.stays[-1].moved_at = event, at
            case GroupDeleted():
                self._serving(at).deleted_ms = event.at_ms
            case _:
                stay = self._serving(at)
                stay.last = max(stay.last, at, key=_own_ms)
                if not isinstance(event, ABOUT_OFFSETS):
                    stay.roster_from = at.version
                self._judge_token(stay, event, at)

    def _serving(self, at: Written) -> Stay:
        """Return the stay of an event that only the serving coordinator publishes."""
        stay = self.stays[-1] if self.stays else None
        if stay is None:
            return self._created([*self.suspects, at])
        if stay.is_over:
            return self._created([*self._judge_transit(stay, self.suspects), at])
        self._judge_transit(stay, [at])
        return stay

    def _created(self, records: list[Written]) -> Stay:
        """Add a stay that no event has announced."""
        is_first = not self.stays
        begin, last = min(records, key=_own_ms), max(records, key=_own_ms)
        is_created = not (is_first and self.is_cut) or any(each.version == 1 for each in records)
        self.stays.append(Stay(begin, last, is_created=is_created))
        self.suspects = []
        return self.stays[-1]

    # -- judgements ----------------------------------------------------------------------------------------------------

    def _judge_suspects(self, records: list[Written]) -> None:
        """Judge records that belong to no later stay. After a move, the name may have come back without a group."""
        self.suspects = []
        stay = self.stays[-1] if self.stays else None
        later = [] if stay is None else self._judge_transit(stay, records)
        if later and stay is not None and stay.is_over:
            self._created(later)

    def _judge_transit(self, stay: Stay, records: list[Written]) -> list[Written]:
        """Check that no record was published between a release and the end of its move. Return the later records."""
        left, moved = stay.left, stay.moved
        if left is None:
            return records
        in_transit = [each for each in records if moved is None or each.at_ms <= moved.at_ms]
        if in_transit and not self._may_be_repeated(stay):
            text = f"version {in_transit[0].version} was published after the release to {escape(left.to)}"
            self._find(Kind.TWO_SERVE, in_transit[0], text)
        return [each for each in records if each not in in_transit]

    def _may_be_repeated(self, stay: Stay) -> bool:
        """Return whether the first release that is kept may be a late repeat, whose move has ended before."""
        is_first = self.is_cut and stay is self.stays[0]
        return is_first and stay.left_at is not None and _is_late(stay.left_at)

    def _judge_number(self, stay: Stay, left: GroupReleased, at: Written) -> None:
        """Check that the number of a release is above that of the arrival, and above each token that was given."""
        before = max(stay.token, 0 if stay.came is None else stay.came.number)
        if left.number <= before:
            self._find(Kind.TOKEN_FELL, at, f"the release has number {left.number} after {before}")

    def _judge_token(self, stay: Stay, event: AnyEvent, at: Written) -> None:
        """Check that each token that is given after an arrival is above the number of the move."""
        if not isinstance(event, RebalanceCompleted | MemberFenced | SeatTaken) or not event.fencing_token:
            return
        token, number = event.fencing_token, 0 if stay.came is None else stay.came.number
        is_highest = isinstance(event, RebalanceCompleted) and event.leader is None  # perhaps it was given to nobody
        if token + is_highest <= number:
            self._find(Kind.TOKEN_FELL, at, f"token {token} was given after the move with number {number}")
        stay.token = max(stay.token, token)

    def _find(self, kind: Kind, at: Written, text: str) -> None:
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append((kind, at.place, text))

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self, peers: Collection[str], *, is_whole: bool) -> None:
        """Keep only the stays, with the records at both ends of the moves between the checked coordinators.

        Args:
            is_whole: Whether no record is gone from the partition of the groups topic.
        """
        if self.suspects and not self.stays:
            self._created(self.suspects)
        self._judge_suspects(self.suspects)
        for stay in self.stays:
            if stay.left is not None and stay.left.to in peers:
                stay.source = self._before(stay.left, stay.roster_from)
            if isinstance(stay.came, GroupArrived) and stay.came.source in peers:
                stay.target = self._after(stay.came, is_whole=is_whole)
        self.chapters = []

    @property
    def weight(self) -> int:
        """The number of entries of all stays."""
        return sum(stay.weight for stay in self.stays) + len(self.wrong)

    def _before(self, left: GroupReleased, roster_from: int) -> Snapshot:
        """Return the records before a release. Its tombstones have the next versions after it."""
        ends = [chapter for chapter in self.chapters if (chapter.end or 0) > (left.version or 0)]
        chapter = min(ends, key=lambda each: each.end or 0, default=self.chapters[-1])
        return chapter.at_source(left, roster_from)

    def _after(self, came: GroupArrived, *, is_whole: bool) -> Snapshot | None:
        found = [chapter.at_target(came, is_whole=is_whole) for chapter in self.chapters]
        copies = [each for each in found if each is not None]
        return copies[0] if len(copies) == 1 else None


def _is_late(at: Written) -> bool:
    return at.written_ms > at.at_ms + CLOCKS_APART_MS


def _own_ms(at: Written) -> int:
    return at.at_ms
