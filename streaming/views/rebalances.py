"""Rebalances, read from a group's events: causes, durations, members that joined and left, partitions that moved."""

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
"""The reasons for the expulsion of members for which all other members waited without success."""

_ENDS = (RebalanceCompleted, GroupEmptied)


class Rebalance(Struct, kw_only=True):
    """One rebalance, from its first reason to the assignments.

    Args:
        started: Its reasons, in order. A second reason during the sync phase begins another join phase.
        completed: None while the rebalance runs, and if it ended without any member.
        ended_ms: The time at which the assignments were computed, or the last member left; None while it runs.
        handovers: Partitions that changed owners.
        late: Members that were expelled because they did not join or sync in time.
    """

    generation_id: int
    started: list[RebalanceStarted]
    completed: RebalanceCompleted | None = None
    ended_ms: int | None = None
    handovers: tuple[Handover, ...] = ()
    late: list[MemberExpired] = field(default_factory=list)

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


def rebalances(events: Iterable[AnyEvent]) -> list[Rebalance]:
    """Return the rebalances in a group's events, the oldest first. The events are in order."""
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
    """Return the last rebalance in a group's events, without reading all events before it."""
    for index in range(len(events) - 1, -1, -1):
        if isinstance(events[index], _ENDS) and (told := rebalances(events[index + 1 :])):
            return told[-1]
    told = rebalances(events)
    return told[-1] if told else None
