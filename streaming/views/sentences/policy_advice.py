"""What policies did about the rebalances of a group, or would have done.

Where a policy had an effect: how many seats passed on, and for how long a rebalance was held. Where none had: which
policy would have made the rebalance unnecessary, as far as the events show it. A newcomer of the same client id counts
as the successor of a member; whether it subscribes to the same topics is not in the events.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from msgspec import Struct

from coordinator.base.policies import Quarantine, Settle, Succession
from coordinator.messages.events import MemberExpired, MemberJoined, MemberLeft, RebalanceCompleted, RebalanceStarted
from streaming.views.history.rebalances import Rebalance, rebalances
from streaming.views.history.vacancies import REBALANCED, TAKEN, HeldPeriod, SeatHistory
from streaming.views.state.group import GroupView
from streaming.views.text import brief, counted, duration, escape, plain

PERIOD_MS = 24 * 3_600_000
"""The time in which seats are counted."""

SUCCESSION, SETTLE, QUARANTINE = Succession(), Settle(), Quarantine()
"""The policies with the settings that they have when they are switched on."""


class SeatCount(Struct, kw_only=True):
    """The seats of a group that fell vacant within a day.

    Args:
        vacated: Seats that fell vacant.
        taken: Seats that another member took, without a rebalance.
        rebalanced: Seats whose vacancy ended in a rebalance.
        rebalances: The rebalances in which they ended.
        unowned_max_ms: The longest time without an owner, of the seats that were taken; null if none was.
        policies: The policies that kept them.
    """

    vacated: int
    taken: int
    rebalanced: int
    rebalances: int
    unowned_max_ms: int | None
    policies: list[str]


class HeldBy(Struct, kw_only=True):
    """A rebalance that a policy held.

    Args:
        held_ms: How long, from its first cause on.
        policies, causes: Those of the time in which it was held, in order.
        vacant: The members whose seats were still vacant when it began.
    """

    held_ms: int
    policies: list[str]
    causes: list[str]
    vacant: list[str]


def seat_count(group: GroupView, until_ms: int) -> SeatCount | None:
    """Return the seats that fell vacant within the day before a time; None if none did."""
    if not group.has_holds:
        return None
    seats = [s for s in SeatHistory(group.events).seats if until_ms - PERIOD_MS < s.vacated_ms <= until_ms]
    if not seats:
        return None
    taken = [seat.unowned_ms or 0 for seat in seats if seat.ended == TAKEN]
    over = [seat.ended_ms for seat in seats if seat.ended == REBALANCED]
    return SeatCount(
        vacated=len(seats),
        taken=len(taken),
        rebalanced=len(over),
        rebalances=len(set(over)),
        unowned_max_ms=max(taken, default=None),
        policies=sorted({seat.policy for seat in seats if seat.policy}),
    )


def count_in_words(count: SeatCount) -> str:
    """Return the seats of a day as a sentence."""
    became = f"Within a day, {counted(count.vacated, 'departure')} became {counted(count.rebalances, 'rebalance')}"
    by = f" ({', '.join(map(plain, count.policies))})" if count.policies else ""
    if count.unowned_max_ms is None:
        return f"{became}: no seat passed on{by}."
    passed = f"{counted(count.taken, 'seat')} passed on"
    return f"{became}: {passed}, the longest {duration(count.unowned_max_ms)} without an owner{by}."


def held_by(group: GroupView, rebalance: Rebalance) -> HeldBy | None:
    """Return how long policies have held a rebalance, and why; None if none has."""
    if rebalance.held_ms is None:
        return None
    history = SeatHistory(group.events)
    at_ms = rebalance.started_ms
    over = (each for each in history.periods if (each.to_ms, each.ended) == (at_ms, REBALANCED))
    period = next(over, HeldPeriod(from_ms=0, until_ms=0))
    vacant = [seat.member_id for seat in history.seats if (seat.ended_ms, seat.ended) == (at_ms, REBALANCED)]
    return HeldBy(held_ms=rebalance.held_ms, policies=period.policies, causes=period.causes, vacant=vacant)


def held_in_words(held: HeldBy) -> str:
    """Return how long a rebalance was held as a sentence."""
    by = f" by {' and '.join(map(plain, held.policies))}" if held.policies else ""
    causes = f", for {counted(len(held.causes), 'cause')}" if len(held.causes) > 1 else ""
    names = ", ".join(brief(each) or "added partitions" for each in held.vacant)
    vacant = f"; nobody took the seat of {names}" if names else ""
    return f"It was held for {duration(held.held_ms)}{by}{causes}{vacant}."


# -- without a policy --------------------------------------------------------------------------------------------------


class Spared(Struct):
    """The policy that would have made a rebalance unnecessary, and the reason as a sentence."""

    policy: str
    text: str


def spared_by(group: GroupView, rebalance: Rebalance) -> Spared | None:
    """Return the policy that would have made a rebalance of a classic group unnecessary, with the suggested settings.

    None if no policy would have, if a policy has an effect on the group already, and if the group had no members.
    """
    is_first = rebalance.completed is not None and not rebalance.completed.members_before
    if group.has_holds or is_first or not rebalance.started:
        return None
    found = (look(group, rebalance.started[0]) for look in (_by_succession, _by_quarantine, _by_settle))
    return next((each for each in found if each is not None), None)


def _by_succession(group: GroupView, first: RebalanceStarted) -> Spared | None:
    if first.cause in ("member_left", "session_expired"):
        others = _near(group, first, SUCCESSION.standby_ms, SUCCESSION.vacant_ms, (MemberJoined,))
        founded_ms = _founded_ms(group, first) if others else 0
        gone, came = first, _nearest([each for each in others if each.at_ms > founded_ms], first)
    elif first.cause == "member_joined":
        others = _near(group, first, SUCCESSION.vacant_ms, SUCCESSION.standby_ms, (MemberLeft, MemberExpired))
        gone, came = _nearest(others, first), first
    else:
        return None
    if gone is None or came is None:
        return None
    apart_ms = came.at_ms - gone.at_ms
    when = f"{duration(abs(apart_ms))} {'after' if apart_ms >= 0 else 'before'} {brief(gone.member_id)} was gone"
    return Spared("succession", f"Succession would have spared this rebalance: {brief(came.member_id)} joined {when}.")


def _founded_ms(group: GroupView, first: RebalanceStarted) -> int:
    """Return when a group without members last got some. These were no newcomers in a running group."""
    completed = takewhile(lambda e: e.at_ms <= first.at_ms, group.since(first.at_ms - PERIOD_MS, RebalanceCompleted))
    return max((e.at_ms for e in completed if isinstance(e, RebalanceCompleted) and not e.members_before), default=0)


def _by_quarantine(group: GroupView, first: RebalanceStarted) -> Spared | None:
    dropped = _near(group, first, QUARANTINE.within_ms, -1, (MemberExpired,))
    times = sum(event.client_host == first.client_host for event in dropped)
    if times < QUARANTINE.flaps:
        return None
    who = f"{escape(first.client_id)} at {escape(first.client_host) or '?'}"
    often = f"{who} was dropped {times} times in {duration(QUARANTINE.within_ms)} before it"
    return Spared("quarantine", f"Quarantine would have spared this rebalance: {often}.")


def _by_settle(group: GroupView, first: RebalanceStarted) -> Spared | None:
    """Return how many rebalances for newcomers began, each within a few seconds after the one before it."""
    around = takewhile(lambda e: e.at_ms <= first.at_ms + SETTLE.max_ms, group.since(first.at_ms - SETTLE.max_ms))
    runs: list[list[RebalanceStarted]] = []
    for each in (rebalance.started[0] for rebalance in rebalances(around) if rebalance.started):
        if runs and _settles_with(each, runs[-1]):
            runs[-1].append(each)
        else:
            runs.append([each])
    number = next((len(run) for run in runs if first in run), 1)
    if number < 2:
        return None
    return Spared("settle", f"Settle would have made one of these {number} rebalances, which newcomers began.")


def _settles_with(each: RebalanceStarted, run: list[RebalanceStarted]) -> bool:
    is_quiet = each.at_ms - run[-1].at_ms <= SETTLE.join_quiet_ms and each.at_ms - run[0].at_ms <= SETTLE.max_ms
    return is_quiet and each.cause == run[-1].cause == "member_joined"


def _near(group: GroupView, first: RebalanceStarted, before_ms: int, after_ms: int, kinds: Any) -> list[Any]:
    """Return the events about other memberships of a client, from some time before a rebalance to some time after."""
    since: Iterator[Any] = group.since(first.at_ms - before_ms, kinds)
    events = takewhile(lambda e: bool(e.at_ms <= first.at_ms + after_ms), since)
    return [e for e in events if e.client_id == first.client_id and e.member_id != first.member_id]


def _nearest(events: list[Any], first: RebalanceStarted) -> Any:
    return min(events, key=lambda e: abs(e.at_ms - first.at_ms), default=None)
