"""Rebalances, read from a group's events: causes, durations, members that joined and left, partitions that moved.

In a group of the consumer protocol, partitions move one by one while the rebalance runs. The next owner of a partition
waits until the member that has it gives it up: `Wait`.
"""

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct, field

from coordinator.outputs import (
    AnyEvent,
    AssignmentChanged,
    GroupEmptied,
    Handover,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    PlanMade,
    RebalanceCompleted,
    RebalanceStarted,
)

LATE = frozenset({"joins_overdue", "syncs_overdue", "revocation_overdue"})
"""The reasons for the expulsion of members for which other members waited without success."""

_ENDS = (RebalanceCompleted, GroupEmptied)

Place = tuple[str, int]


def named(event: AssignmentChanged) -> list[Handover]:
    """Return the handovers of partitions whose topic is known.

    The coordinator has forgotten the names of the topics when the last member of a consumer group is gone.
    """
    return [each for each in event.handovers if each.topic]


class Wait(Struct):
    """A partition that could not be assigned before another member gave it up.

    Args:
        member_id: The member that had to give it up.
        next_id: The member that got it; null if none has it yet.
        wait_ms: The time from the plan that moved the partition until the member gave it up, or was removed.
    """

    topic: str
    partition: int
    member_id: str
    next_id: str | None
    wait_ms: int


class Rebalance(Struct, kw_only=True):
    """One rebalance, from its first reason to the assignments.

    Args:
        started: Its reasons, in order. A second reason during the sync phase begins another join phase.
        completed: None while the rebalance runs, and if it ended without any member.
        ended_ms: The time at which the assignments were computed, or the last member left; None while it runs.
        moves: The owners of each partition that changed hands, before and after the rebalance.
        late: Members that were expelled because they did not join, sync or give up partitions in time.
        plans: How many plans server assignors made. Only groups of the consumer protocol have them.
        moving_ms: The times of the plans that moved partitions.
        waits: Partitions that waited for a member, by topic and partition.
        confirmed: By member, how many of the plans that moved partitions it has followed by giving some up.
    """

    generation_id: int
    started: list[RebalanceStarted]
    completed: RebalanceCompleted | None = None
    ended_ms: int | None = None
    moves: dict[Place, Handover] = field(default_factory=dict)
    late: list[MemberExpired] = field(default_factory=list)
    plans: int = 0
    moving_ms: list[int] = field(default_factory=list)
    waits: dict[Place, Wait] = field(default_factory=dict)
    confirmed: dict[str, int] = field(default_factory=dict)

    @property
    def started_ms(self) -> int:
        """The start of the rebalance, Unix milliseconds. Without its first event, computed from its duration."""
        if self.started:
            return self.started[0].at_ms
        return self.completed.at_ms - self.completed.duration_ms if self.completed else 0

    @property
    def cause(self) -> str:
        """The cause of its first reason."""
        return self.started[0].cause if self.started else "unknown"

    @property
    def handovers(self) -> list[Handover]:
        """The partitions whose owner after the rebalance is another one than before it."""
        return [move for move in self.moves.values() if move.before != move.after]

    def hand_over(self, event: AssignmentChanged, left: Collection[str]) -> None:
        """Add partitions that changed hands.

        Args:
            left: Members that no one waited for, because they left or were dropped.
        """
        gave_up = {each.before for each in event.handovers if each.before is not None and each.after is None} - {*left}
        latest = len(self.moving_ms) - 1
        since_ms = {m: self.moving_ms[min(self.confirmed.get(m, 0), latest)] for m in gave_up if latest >= 0}
        for each in named(event):
            place = each.topic, each.partition
            first = self.moves.get(place, each)
            self.moves[place] = Handover(*place, first.before, each.after)
            if each.after is None and each.before in since_ms:
                wait_ms = event.at_ms - since_ms[each.before]
                self.waits[place] = Wait(*place, each.before, None, wait_ms)
            elif each.after is not None and (wait := self.waits.get(place)) is not None:
                wait.next_id = each.after
        for member_id in since_ms:
            self.confirmed[member_id] = self.confirmed.get(member_id, 0) + 1


def rebalances(events: Iterable[AnyEvent]) -> list[Rebalance]:
    """Return the rebalances in a group's events, the oldest first. The events are in order."""
    told: list[Rebalance] = []
    running: Rebalance | None = None
    left: set[str] = set()
    for event in events:
        match event:
            case RebalanceStarted():
                if running is None:
                    running = Rebalance(generation_id=event.generation_id or 0, started=[])
                    told.append(running)
                running.started.append(event)
            case MemberJoined():
                left.discard(event.member_id)
            case MemberExpired() if running is not None and event.why in LATE:
                running.late.append(event)
            case MemberExpired() | MemberLeft():
                left.add(event.member_id)
            case RebalanceCompleted():
                ended = running or Rebalance(generation_id=0, started=[])
                if running is None:
                    told.append(ended)
                ended.generation_id = event.generation_id or 0
                ended.completed, ended.ended_ms, running = event, event.at_ms, None
            case GroupEmptied() if running is not None:
                running.generation_id, running.ended_ms, running = event.generation_id or 0, event.at_ms, None
            case PlanMade() if running is not None:
                running.plans += 1
                running.moving_ms += [event.at_ms] if event.moved else []
            case AssignmentChanged() if running is not None:
                running.hand_over(event, left)
            case AssignmentChanged() if told and told[-1].ended_ms == event.at_ms and not told[-1].plans:
                told[-1].hand_over(event, left)
    return told


def latest(events: Sequence[AnyEvent]) -> Rebalance | None:
    """Return the last rebalance in a group's events, without reading all events before it."""
    for index in range(len(events) - 1, -1, -1):
        if isinstance(events[index], _ENDS) and (told := rebalances(events[index + 1 :])):
            return told[-1]
    told = rebalances(events)
    return told[-1] if told else None
