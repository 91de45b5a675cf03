"""What a life of a group cost: rebalances, moved partitions, and time without an owner."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from coordinator.messages.events import AnyEvent, MemberExpired, MemberLeft, RebalanceCompleted, RebalanceStarted
from coordinator.messages.policy_events import FreezeBroken, MemberQuarantined, RebalanceHeld, SeatTaken
from streaming.views import GroupView
from streaming.views.history.owners import Span, spans_of_owners
from streaming.views.history.rebalances import rebalances
from streaming.views.state.fields import PartitionKey

WEIGHT_MAX = 10_000_000
"""The weight of the history that a trial keeps."""

COOPERATIVE = "cooperative-sticky"

Interval = tuple[int, int]


class Figures(Struct, kw_only=True):
    """The figures of one life. Times are in milliseconds; null where nothing was counted.

    Args:
        rebalances: By cause.
        seats_passed_on, seats_adopted: Seats that another member took, without a rebalance.
        seat_wait_max_ms, standby_wait_max_ms: The longest waits of a seat for a member, and of a newcomer.
        delayed: Newcomers whose wait ended in a rebalance.
        unowned_s: The sum of all times in which a partition had no owner, seconds.
        unowned_p50_ms, unowned_p99_ms, unowned_max_ms: Of these times.
        moved: How often a partition came to another member.
    """

    rebalances: dict[str, int]
    seats_passed_on: int
    seats_adopted: int
    seat_wait_max_ms: int | None
    standby_wait_max_ms: int | None
    delayed: int
    unowned_s: float
    unowned_p50_ms: int | None
    unowned_p99_ms: int | None
    unowned_max_ms: int | None
    moved: int
    quarantines: int
    freezes_broken: int

    @property
    def total(self) -> int:
        """The number of rebalances."""
        return sum(self.rebalances.values())


def figures(
    group_id: str, before: Sequence[AnyEvent], events: Iterable[AnyEvent], from_ms: int, until_ms: int
) -> Figures:
    """Return the figures of a period.

    Args:
        before: The events before the period, which show the first owners.
        events: Those of the period.
    """
    group, told = GroupView(group_id, 0), list(events)
    for event in (*before, *told):
        group.add(event, WEIGHT_MAX)
    begun = [each for each in rebalances(told) if each.started]
    spans = spans_of_owners(group)
    unowned = sorted(_unowned(spans, _stops(told, until_ms), from_ms, until_ms))
    seats = [e for e in told if isinstance(e, SeatTaken)]
    waits, delayed = _standbys(told)
    return Figures(
        rebalances=dict(Counter(each.cause for each in begun)),
        seats_passed_on=sum(e.how != "adopted" for e in seats),
        seats_adopted=sum(e.how == "adopted" for e in seats),
        seat_wait_max_ms=max((e.unowned_ms for e in seats), default=None),
        standby_wait_max_ms=max(waits, default=None),
        delayed=delayed,
        unowned_s=round(sum(unowned) / 1_000, 1),
        unowned_p50_ms=_percentile(unowned, 50),
        unowned_p99_ms=_percentile(unowned, 99),
        unowned_max_ms=max(unowned, default=None),
        moved=sum(_moves(each, from_ms) for each in spans.values()),
        quarantines=sum(isinstance(e, MemberQuarantined) for e in told),
        freezes_broken=sum(isinstance(e, FreezeBroken) for e in told),
    )


def _moves(spans: list[Span], from_ms: int) -> int:
    return sum(
        before.member_id != after.member_id and (after.from_ms or 0) > from_ms for before, after in pairwise(spans)
    )


def _stops(events: list[AnyEvent], until_ms: int) -> list[Interval]:
    """Return the rebalances in which members revoke all of their partitions first: all but cooperative ones."""
    stops, begun_ms = list[Interval](), None
    for event in events:
        if isinstance(event, RebalanceStarted) and begun_ms is None:
            begun_ms = event.at_ms
        elif isinstance(event, RebalanceCompleted):
            if begun_ms is not None and event.protocol_name != COOPERATIVE:
                stops.append((begun_ms, event.at_ms))
            begun_ms = None
    return stops if begun_ms is None else [*stops, (begun_ms, until_ms)]


def _unowned(
    spans: dict[PartitionKey, list[Span]], stops: list[Interval], from_ms: int, until_ms: int
) -> Iterator[int]:
    """Yield the times in which a partition had no owner, each in one piece."""
    for each in spans.values():
        ends = [(before.to_ms, after.from_ms) for before, after in pairwise(each)]
        gaps = [
            (max(begin, from_ms), end) for begin, end in ends if begin is not None and end is not None and end > begin
        ]
        if (last_ms := each[-1].to_ms) is not None:
            gaps.append((max(last_ms, from_ms), until_ms))
        for begin, end in _merged([*gaps, *stops]):
            if end > begin:
                yield end - begin


def _merged(intervals: list[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def _standbys(events: list[AnyEvent]) -> tuple[list[int], int]:
    """Return how long newcomers stood by, and how many of them did so until a rebalance."""
    since: dict[str, int] = {}
    waits, delayed = list[int](), 0
    for event in events:
        match event:
            case RebalanceHeld(cause="member_joined"):
                since.setdefault(event.member_id, event.at_ms)
            case SeatTaken() if event.member_id in since:
                waits.append(event.at_ms - since.pop(event.member_id))
            case MemberLeft() | MemberExpired():
                since.pop(event.member_id, None)
            case RebalanceStarted():
                delayed += len(since)
                waits += [event.at_ms - begun_ms for begun_ms in since.values()]
                since.clear()
    return waits, delayed


def _percentile(values: list[int], percent: int) -> int | None:
    """Return a percentile of sorted values: the smallest one that this share of them does not exceed."""
    return values[max(0, -(-len(values) * percent // 100) - 1)] if values else None
