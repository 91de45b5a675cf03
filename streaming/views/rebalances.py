"""A group's events, told as rebalances: what began each, how long it took, who came and went, what changed hands."""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from coordinator.outputs import (
    AnyEvent,
    AssignmentChanged,
    GroupEmptied,
    Handover,
    MemberExpired,
    RebalanceCompleted,
    RebalanceStarted,
)

LATE = frozenset({"joins_overdue", "syncs_overdue"})
"""Why members are dropped for whom all the others have waited in vain."""

_ENDS = (RebalanceCompleted, GroupEmptied)


class Rebalance(Struct, kw_only=True):
    """One rebalance, from the first reason for it to the plan.

    Args:
        started: Why, in order: a second reason while the first one's syncs are awaited has joins collected once more.
        completed: None while it runs, and where it ended with nobody left.
        ended_ms: When the plan was there, or the last member gone; None while it runs.
        handovers: Partitions that changed hands.
        late: Members that did not do their part in time, and were dropped for it.
    """

    generation_id: int
    started: list[RebalanceStarted]
    completed: RebalanceCompleted | None = None
    ended_ms: int | None = None
    handovers: tuple[Handover, ...] = ()
    late: list[MemberExpired] = field(default_factory=list)

    @property
    def started_ms(self) -> int:
        """When it began, Unix milliseconds; where that is no longer known, by how long it took."""
        if self.started:
            return self.started[0].at_ms
        return self.completed.at_ms - self.completed.duration_ms if self.completed else 0

    @property
    def cause(self) -> str:
        """What began it."""
        return self.started[0].cause if self.started else "unknown"


def rebalances(events: Iterable[AnyEvent]) -> list[Rebalance]:
    """Tell a group's events, which are in order, as rebalances, the oldest first."""
    told: list[Rebalance] = []
    running: Rebalance | None = None
    for event in events:
        match event:
            case RebalanceStarted():
                if running is None:
                    running = Rebalance(generation_id=event.generation_id or 0, started=[])
                    told.append(running)
                running.started.append(event)
            case MemberExpired() if running is not None and event.why in LATE:
                running.late.append(event)
            case RebalanceCompleted():
                ended = running or Rebalance(generation_id=0, started=[])
                if running is None:
                    told.append(ended)
                ended.generation_id = event.generation_id or 0
                ended.completed, ended.ended_ms, running = event, event.at_ms, None
            case GroupEmptied() if running is not None:
                running.generation_id, running.ended_ms, running = event.generation_id or 0, event.at_ms, None
            case AssignmentChanged() if told and told[-1].ended_ms == event.at_ms:
                told[-1].handovers = event.handovers
    return told


def latest(events: Sequence[AnyEvent]) -> Rebalance | None:
    """Tell the last rebalance of a group's events, without going through those before it."""
    for index in range(len(events) - 1, -1, -1):
        if isinstance(events[index], _ENDS) and (told := rebalances(events[index + 1 :])):
            return told[-1]
    told = rebalances(events)
    return told[-1] if told else None
