"""The owners of partitions over time, from a group's events.

`assignment_changed` has the previous and the next owner. A member that leaves, expires or is fenced owns nothing from
that moment on, although the next assignment comes later. Where a policy keeps its seat, the member that takes the seat
is the next owner, in the same generation. A member of the consumer protocol that has to give up a
partition owns it until it has confirmed that.
"""

from typing import TypeGuard

from msgspec import Struct

from coordinator.messages.events import (
    AnyEvent,
    AssignmentChanged,
    GroupDeleted,
    MemberBack,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    RebalanceCompleted,
)
from coordinator.messages.move_events import GroupArrived, GroupMoved, GroupReleased
from coordinator.messages.observed_events import MemberGone
from coordinator.messages.policy_events import SeatTaken
from streaming.views.history.rebalances import named
from streaming.views.state.fields import PartitionKey
from streaming.views.state.group import GroupView
from streaming.views.text import escape


class Span(Struct):
    """A period in which a partition has one owner.

    Args:
        from_ms: The beginning; None if that was before the history begins.
        to_ms: The end; None while the period lasts.
        because: The cause of the end: `assigned elsewhere`, `given up`, `left`, `expired`, `gone`, `came back as
            another process`, `group deleted`, `group moved to PREFIX`.
        last_commit_ms: The time of the owner's last commit, if it is gone from a group that Kafka's coordinator keeps;
            null otherwise, and if no commit of it is known.
        seat_of: The member whose seat the owner took, by `how`: `took`, `passed` or `adopted`; null if a rebalance made
            it the owner.
    """

    member_id: str
    client_id: str
    client_host: str
    from_ms: int | None
    to_ms: int | None = None
    because: str | None = None
    generation_id: int | None = None
    seat_of: str | None = None
    how: str | None = None
    last_commit_ms: int | None = None


def spans_of_owners(group: GroupView) -> dict[PartitionKey, list[Span]]:
    """Return the owners of each partition in order, by topic and partition, as far back as the events go."""
    return dict(sorted(_Walk(group).walk().items()))


def owner_at(spans: list[Span], at_ms: int) -> Span | None:
    """Return the period with a partition's owner at a moment; None between two owners."""
    for span in reversed(spans):
        if (span.from_ms is None or span.from_ms <= at_ms) and (span.to_ms is None or at_ms < span.to_ms):
            return span
    return None


def token_at(group: GroupView, member_id: str, at_ms: int) -> int | None:
    """Return the fencing token that a member had at a moment; None if the history does not show it.

    A token without an event is older than the history. Then the member still has it. A member of the consumer protocol
    gets a token with each partition; only its record shows that token, so only the latest one is known.
    """
    if group.type_at(at_ms).has_epochs:
        return _latest_token(group, member_id, at_ms)
    given = [(e.at_ms, e.fencing_token) for e in group.events if _gives_token(e, member_id)]
    if not given:
        given = [(0, member.fencing_token) for member in group.members if member.member_id == member_id]
    return next((token for given_ms, token in reversed(given) if given_ms <= at_ms), 0) or None


def _latest_token(group: GroupView, member_id: str, at_ms: int) -> int | None:
    """Return a member's present token if it had that token already at a moment."""
    taken = (e.at_ms for e in reversed(group.events) if isinstance(e, AssignmentChanged) and _takes(e, member_id))
    if next(taken, 0) > at_ms:
        return None
    return next((member.fencing_token for member in group.members if member.member_id == member_id), 0) or None


def _takes(event: AssignmentChanged, member_id: str) -> bool:
    return any(each.after == member_id for each in event.handovers)


def _gives_token(event: AnyEvent, member_id: str) -> TypeGuard[RebalanceCompleted | MemberFenced | SeatTaken]:
    if isinstance(event, MemberFenced):
        return event.replaced_by == member_id
    if isinstance(event, SeatTaken):
        return event.member_id == member_id
    return isinstance(event, RebalanceCompleted) and member_id in event.members_after


_CAME_BACK = "came back as another process"


def _net(event: AssignmentChanged) -> dict[PartitionKey, tuple[str | None, str | None]]:
    """Return the owners of each partition before and after an event, in which a partition may change hands twice."""
    net: dict[PartitionKey, tuple[str | None, str | None]] = {}
    for each in named(event):
        place = each.topic, each.partition
        net[place] = net.get(place, (each.before, None))[0], each.after
    return {place: moved for place, moved in net.items() if moved[0] != moved[1]}


class _Walk:
    """One pass over the events."""

    def __init__(self, group: GroupView) -> None:
        self._group = group
        self._open: dict[PartitionKey, Span] = {}
        self._owned: dict[str, set[PartitionKey]] = {}
        self._spans: dict[PartitionKey, list[Span]] = {}
        self._who: dict[str, tuple[str, str]] = {m.member_id: (m.client_id, m.client_host) for m in group.members}
        self._came_ms: dict[str, int] = {}
        self._gone: dict[str, tuple[int, str, int | None]] = {}
        self._fences: dict[str, MemberFenced] = {}
        self._left: GroupReleased | None = None
        self._owned_then: dict[PartitionKey, Span] = {}
        self._arrived_ms: int | None = None

    def walk(self) -> dict[PartitionKey, list[Span]]:
        for event in self._group.events:
            match event:
                case MemberJoined():
                    self._who[event.member_id] = event.client_id, event.client_host
                    self._came_ms[event.member_id] = event.at_ms
                case AssignmentChanged():
                    self._hand_over(event)
                case MemberLeft():
                    self._end_ownership(event, "left")
                case MemberExpired():
                    self._end_ownership(event, "expired")
                case MemberGone():
                    self._end_ownership(event, "gone")
                case MemberFenced():
                    self._end_ownership(event, _CAME_BACK)
                    self._replace(event)
                case MemberBack():
                    self._come_back(event)
                case SeatTaken():
                    self._take_seat(event)
                case GroupDeleted():
                    self._close_all(event.at_ms, "group deleted")
                case GroupReleased():
                    self._left, self._owned_then = event, dict(self._open)
                case GroupMoved():
                    self._close_all(event.at_ms, f"group moved to {escape(event.to)}")
                case GroupArrived():
                    self._arrive(event)
        self._add_what_never_moved()
        return self._spans

    def _hand_over(self, event: AssignmentChanged) -> None:
        for place, (before, after) in _net(event).items():
            if before is not None and place not in self._spans:
                self._add_the_first(place, before, event.at_ms)
            owner = self._open[place].member_id if place in self._open else before
            if owner == after or (after is None and owner != before):
                continue  # `after` has the partition already, as another process's successor; `before` has it no more
            self._close(place, event.at_ms, "given up" if after is None else "assigned elsewhere")
            if after is not None:
                self._begin(place, after, event.at_ms, event.generation_id)

    def _add_the_first(self, place: PartitionKey, member_id: str, until_ms: int) -> None:
        """Add an owner of which only the end is known."""
        gone_ms, because, last_commit_ms = self._gone.get(member_id, (until_ms, "assigned elsewhere", None))
        self._add_who_was_replaced(place, member_id)
        self._begin(place, member_id, self._came_ms.get(member_id), None)
        self._close(place, gone_ms, because, last_commit_ms)

    def _begin(self, place: PartitionKey, member_id: str, at_ms: int | None, generation_id: int | None) -> None:
        client_id, host = self._who.get(member_id, ("", ""))
        self._open[place] = Span(member_id, client_id, host, at_ms, generation_id=generation_id)
        self._spans.setdefault(place, []).append(self._open[place])
        self._owned.setdefault(member_id, set()).add(place)

    def _close(self, place: PartitionKey, at_ms: int, because: str, last_commit_ms: int | None = None) -> None:
        if span := self._open.pop(place, None):
            span.to_ms, span.because, span.last_commit_ms = at_ms, because, last_commit_ms
            self._owned.get(span.member_id, set()).discard(place)

    def _close_all(self, at_ms: int, because: str) -> None:
        for place in list(self._open):
            self._close(place, at_ms, because)

    def _arrive(self, event: GroupArrived) -> None:
        """Continue with the owners at the release, if its event is the one of this move.

        They end at the former coordinator when they begin here, by this coordinator's clock: the other one may differ.
        """
        self._arrived_ms = event.at_ms
        if self._left is None or self._left.move_id != event.move_id:
            return
        self._close_all(event.at_ms, f"group moved to {escape(self._left.to)}")
        for place, span in self._owned_then.items():
            span.to_ms = event.at_ms
            self._begin(place, span.member_id, event.at_ms, span.generation_id)

    def _end_ownership(self, event: MemberLeft | MemberExpired | MemberGone | MemberFenced, because: str) -> None:
        self._who[event.member_id] = event.client_id, event.client_host
        last_commit_ms = event.last_commit_ms if isinstance(event, MemberGone) else None
        self._gone[event.member_id] = event.at_ms, because, last_commit_ms
        for place in sorted(self._owned.get(event.member_id, ())):
            self._close(place, event.at_ms, because, last_commit_ms)

    def _replace(self, event: MemberFenced) -> None:
        """Transfer the partitions of a static member's old process to its new process."""
        self._who[event.replaced_by] = event.replaced_by_client_id, event.replaced_by_client_host
        self._came_ms[event.replaced_by] = event.at_ms
        self._fences[event.replaced_by] = event
        for place, spans in self._spans.items():
            if (spans[-1].member_id, spans[-1].to_ms) == (event.member_id, event.at_ms) and place not in self._open:
                self._begin(place, event.replaced_by, event.at_ms, event.generation_id)

    def _come_back(self, event: MemberBack) -> None:
        """Transfer the partitions of a static member that was away to its new process."""
        self._who[event.member_id] = event.client_id, event.client_host
        if event.replaces == event.member_id:
            return
        self._gone[event.replaces] = event.at_ms, _CAME_BACK, None
        for place in sorted(self._owned.get(event.replaces, ())):
            self._close(place, event.at_ms, _CAME_BACK)
            self._begin(place, event.member_id, event.at_ms, event.generation_id)

    def _take_seat(self, event: SeatTaken) -> None:
        """Transfer the partitions of a seat to the member that took it."""
        self._who[event.member_id] = event.client_id, event.client_host
        for topic, numbers in event.partitions.items():
            for place in ((topic, number) for number in numbers):
                if place not in self._spans and event.before:
                    self._add_the_first(place, event.before, event.at_ms - event.unowned_ms)
                self._close(place, event.at_ms, "assigned elsewhere")
                self._begin(place, event.member_id, event.at_ms, event.generation_id)
                self._open[place].seat_of, self._open[place].how = event.before or None, event.how

    def _add_what_never_moved(self) -> None:
        for place, member in self._group.owned().items():
            if place not in self._spans:
                self._add_who_was_replaced(place, member.member_id)
                self._begin(place, member.member_id, self._came_ms.get(member.member_id), None)
            elif place not in self._open and self._arrived_ms is not None:  # the group was away
                self._begin(place, member.member_id, self._arrived_ms, None)

    def _add_who_was_replaced(self, place: PartitionKey, member_id: str) -> None:
        """Add the earlier processes of a static member as owners, each until the next process came."""
        fences: list[MemberFenced] = []
        while (fence := self._fences.get(member_id)) and len(fences) < len(self._fences):
            fences.append(fence)
            member_id = fence.member_id
        for fence in reversed(fences):
            self._begin(place, fence.member_id, self._came_ms.get(fence.member_id), None)
            self._close(place, fence.at_ms, _CAME_BACK)
