"""The moves of one group between several coordinators: one serves it at a time, and nothing is lost on the way.

A release and an arrival have the same `move_id`. The times of a group only grow over its moves. Those of a group that
was created anew, or imported, are judged with the difference that clocks may have.

Source: moving.md 2.3 to 2.6, and the promises of section 6.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from coordinator.base.hashing import shard_of
from coordinator.base.states import Phase
from coordinator.messages.move_events import GroupArrived, GroupReleased, GroupTakenBack
from streaming.verify.findings import Finding, Kind
from streaming.verify.snapshots import Commit, Snapshot
from streaming.verify.stays import GroupStays, Stay
from streaming.verify.watched import CLOCKS_APART_MS
from streaming.views.state.fields import PartitionKey
from streaming.views.text import brief, escape

OPERATOR = "taken_back"
"""The reason of a group that an operator has taken back. Its target may have adopted it, if the target is lost."""


class Coordinator(Struct):
    """What was read of one coordinator.

    Args:
        events_from_ms: By partition, the time of the oldest event; minus infinity if no event is gone.
        newest_ms: The time of its newest record.
        until_ms: Later records may be incomplete.
    """

    partitions: int
    until_ms: float
    events_from_ms: dict[int, float] = field(default_factory=dict)
    newest_ms: float = -math.inf
    stays: dict[str, GroupStays] = field(default_factory=dict)

    def kept_from(self, group_id: str) -> float:
        """Return the time from which on the events of a group are kept; minus infinity if none is gone."""
        return self.events_from_ms.get(shard_of(group_id, self.partitions), -math.inf)


class At(NamedTuple):
    """A stay, and the prefix of its coordinator."""

    prefix: str
    stay: Stay


class GroupMoves:
    """The judge of one group.

    Args:
        until_ms: Records of any coordinator that were written later may be incomplete.
    """

    def __init__(self, group_id: str, coordinators: Mapping[str, Coordinator], until_ms: float) -> None:
        self._group_id, self._coordinators, self._until_ms = group_id, coordinators, until_ms
        self._followed = {prefix: at.stays[group_id] for prefix, at in coordinators.items() if group_id in at.stays}
        self._stays = [At(prefix, stay) for prefix, group in self._followed.items() for stay in group.stays]
        self._arrivals = {came.move_id: at for at in self._stays if (came := _arrival(at.stay)) is not None}
        self._releases = {ended.move_id: at for at in self._stays for ended in (at.stay.left, at.stay.moved) if ended}
        self.compared = 0

    def findings(self) -> Iterator[Finding]:
        """Yield what was found, with the prefix of the coordinator whose record shows it."""
        for prefix, group in self._followed.items():
            for kind, place, text in group.wrong:
                yield Finding(kind, self._group_id, place, text, prefix)
        for at in self._stays:
            yield from self._judge_departure(at)
            yield from self._judge_return(at)
            if (came := _arrival(at.stay)) is not None:
                yield from self._judge_arrival(at, came)
        yield from self._judge_custody()

    def _found(self, kind: Kind, at: At, text: str, place: str | None = None) -> Finding:
        return Finding(kind, self._group_id, place or at.stay.begin.place, text, at.prefix)

    # -- both events of a move -----------------------------------------------------------------------------------------

    def _judge_departure(self, at: At) -> Iterator[Finding]:
        """Check that a group that has moved has arrived."""
        moved, written = at.stay.moved, at.stay.moved_at
        if moved is None or written is None or (target := self._coordinators.get(moved.to)) is None:
            return
        arrival, kept_from_ms = self._arrivals.get(moved.move_id), target.kept_from(self._group_id)
        if (arrival is not None and arrival.prefix == moved.to) or written.written_ms > self._until_ms:
            return
        released_ms = -math.inf if at.stay.left is None else at.stay.left.at_ms
        if released_ms > kept_from_ms + CLOCKS_APART_MS or kept_from_ms == -math.inf:
            text = f"it has moved to {escape(moved.to)} with number {moved.number}, and has not arrived there"
            yield self._found(Kind.NOT_ARRIVED, at, text, written.place)

    def _judge_arrival(self, at: At, came: GroupArrived) -> Iterator[Finding]:
        """Check that a group that has arrived was released, and compare its records at both ends of the move."""
        if (source := self._coordinators.get(came.source)) is None:
            return
        release = self._releases.get(came.move_id)
        if release is None or release.prefix != came.source:
            if self._is_certain(at, came, source):
                text = f"it has arrived from {escape(came.source)} with number {came.number}, which has not released it"
                yield self._found(Kind.NOT_RELEASED, at, text)
            return
        self.compared += 1
        ended = release.stay.left or release.stay.moved
        if ended is not None and ended.number != came.number:
            text = f"it has arrived with number {came.number}, and {escape(came.source)} has released it with"
            yield self._found(Kind.NOT_RELEASED, at, f"{text} {ended.number}")
        if (left := release.stay.left) is not None:
            yield from self._compare(at, left, came, release.stay.source)

    def _is_certain(self, at: At, came: GroupArrived, source: Coordinator) -> bool:
        """Return whether the release would be on the topics of the source, if it was ever written.

        A source that died may have sent the group without having written the event. The number is normally the time of
        the release, in microseconds.
        """
        if at.stay.begin.written_ms > min(self._until_ms, source.newest_ms - 1):
            return False
        kept_from_ms = source.kept_from(self._group_id)
        return kept_from_ms == -math.inf or kept_from_ms + CLOCKS_APART_MS < came.number // 1_000 <= came.at_ms

    def _judge_return(self, at: At) -> Iterator[Finding]:
        """Check that a group that was taken back is not served by its target."""
        back = at.stay.came
        if not isinstance(back, GroupTakenBack) or (arrival := self._arrivals.get(back.move_id)) is None:
            return
        last_ms = arrival.stay.last.written_ms
        if back.reason != OPERATOR or last_ms > at.stay.begin.written_ms + CLOCKS_APART_MS:
            text = f"it was taken back from {escape(back.to)}, which has adopted it, and served it at {last_ms}"
            yield self._found(Kind.TWO_SERVE, at, text)

    # -- custody -------------------------------------------------------------------------------------------------------

    def _judge_custody(self) -> Iterator[Finding]:
        """Check that no coordinator creates or imports a group while another one serves it."""
        before: At | None = None
        for at in sorted(self._stays, key=lambda each: each.stay.begin.at_ms):
            if before is not None and self._overlap(before.stay, at.stay):
                how = "created" if at.stay.came is None else "imported"
                text = f"it was {how} at {at.stay.begin.at_ms}, and {escape(before.prefix)} served it then"
                yield self._found(Kind.TWO_SERVE, at, text)
            before = at

    def _overlap(self, before: Stay, stay: Stay) -> bool:
        """Return whether a coordinator certainly served a group when another one created or imported it."""
        begin_ms = stay.begin.at_ms + CLOCKS_APART_MS
        if stay.came is None:
            is_certain = stay.is_created and stay.begin.written_ms <= self._until_ms
            return is_certain and (before.end_ms is None or before.end_ms > begin_ms)
        is_imported = isinstance(stay.came, GroupArrived) and _arrival(stay) is None
        return is_imported and before.last.at_ms > begin_ms

    # -- the records of a move -----------------------------------------------------------------------------------------

    def _compare(self, at: At, left: GroupReleased, came: GroupArrived, source: Snapshot | None) -> Iterator[Finding]:
        """Compare the group before its release with the group after its arrival."""
        was, now = left.generation_id or 0, came.generation_id or 0
        if now != was:
            kind = Kind.GENERATION_FELL if now < was else Kind.MOVE_CHANGED
            yield self._found(kind, at, f"it has arrived with generation {now}, and was released with {was}")
        target = at.stay.target
        if source is None or target is None or source.end not in (None, came.version_before):
            return
        yield from self._compare_members(at, left, source, target)
        copies = range((came.version or 0) + 2, (came.version or 0) + came.version_before - (left.version or 0))
        for place, commit in source.offsets.items():
            if (text := _lost(place, commit, target, copies)) is not None:
                yield self._found(Kind.COMMIT_LOST, at, f"{text}, as {escape(came.source)} published before the move")

    def _compare_members(self, at: At, left: GroupReleased, source: Snapshot, target: Snapshot) -> Iterator[Finding]:
        before, after = source.roster, target.roster
        if before is None or after is None or before.state is not Phase.STABLE:
            return
        if before.generation_id != left.generation_id:
            return  # the record at the source is older than the state that was released
        if after.state is not Phase.STABLE:
            yield self._found(Kind.MOVE_CHANGED, at, f"it was Stable at the release, and has arrived {after.state}")
        changed = sorted(set(before.members.items()) ^ set(after.members.items()))
        if changed:
            who = ", ".join(brief(member_id) for member_id in dict.fromkeys(member_id for member_id, _ in changed))
            yield self._found(Kind.MOVE_CHANGED, at, f"the move has changed the assignments of {who}"[:500])


def _arrival(stay: Stay) -> GroupArrived | None:
    """Return the arrival of a move; None for a group that was created, taken back, or imported from an export."""
    came = stay.came
    is_move = isinstance(came, GroupArrived) and came.move_id.rsplit("/", 2)[0] == came.source
    return came if is_move and isinstance(came, GroupArrived) else None


def _lost(place: PartitionKey, commit: Commit, target: Snapshot, copies: range) -> str | None:
    """Return the offset that is lost, in words; None if it is at the target, or may have been there.

    Args:
        copies: The versions of the copies of the offsets.
    """
    copy = target.offsets.get(place)
    text = f"{commit.offset} is committed for {escape(place[0])}-{place[1]}"
    if copy is not None:
        is_lower = (copy.at_ms, copy.offset) < (commit.at_ms, commit.offset)
        return f"{text}, and has arrived as {copy.offset}" if copy.version in copies and is_lower else None
    seen = sum(each.version in copies for each in target.offsets.values())
    return f"{text}, and has not arrived" if target.is_whole or seen == len(copies) else None
