"""Seats and holds in words, as the commands show them."""

from collections.abc import Iterator

from streaming.views.history.vacancies import REBALANCED, HoldRow, Quarantine, Seat
from streaming.views.text import brief, clock, clock_after, counted, duration, escape, in_quotes, plain

SEATS_SHOWN = 5
"""The number of vacant seats that are described. The rest are only counted."""


def hold_in_words(hold: HoldRow, now_ms: int) -> str | None:
    """Return since when a rebalance is held, until when and why; None if none is held."""
    if hold.since_ms is None:
        return None
    why = ", ".join(_causes(hold)) or "its cause is not known any more"
    lasts, until = duration(max(0, now_ms - hold.since_ms)), clock_after(hold.until_ms, now_ms)
    return f"for {lasts}, until {until} at the latest: {why}"


def _causes(hold: HoldRow) -> Iterator[str]:
    if hold.vacant:
        seats = [_in_short(seat) for seat in hold.seats[:SEATS_SHOWN]]
        more = [f"{hold.vacant - len(seats)} more"] if seats and hold.vacant > len(seats) else []
        seats_text = f" ({'; '.join([*seats, *more])})" if seats else ""
        yield f"{counted(hold.vacant, 'seat')} vacant{seats_text}"
    if hold.standing_by:
        yield f"{counted(len(hold.standing_by), 'member')} standing by"


def _in_short(seat: Seat) -> str:
    number = counted(sum(map(len, seat.partitions.values())), "partition")
    return f"{brief(seat.member_id)}, {number}" if seat.member_id else "added partitions"


def quarantine_in_words(each: Quarantine) -> str:
    """Return who is in quarantine, until when and why."""
    if each.until_ms is None:
        return brief(each.member_id)
    why = f"{counted(each.flaps or 0, 'membership')} of {escape(each.identity or '')} ended too soon"
    return f"{brief(each.member_id)} until {clock(each.until_ms)}: {why}"


def vacancy_in_words(seat: Seat) -> str:
    """Return why nobody owns the partitions of a seat, from when to when, and who has them next."""
    is_over = seat.ended_ms is not None
    when = f"from {clock(seat.vacated_ms)} to {clock(seat.ended_ms)}" if is_over else f"since {clock(seat.vacated_ms)}"
    of = f"the seat of {brief(seat.member_id)}" if seat.member_id else "the seat of added partitions"
    why = f" ({plain(seat.cause)}{in_quotes(seat.reason)})" if seat.cause else ""
    verb = "was" if is_over else "is"
    kept = (
        f"{verb} kept by {plain(seat.policy)} until {clock(seat.until_ms)} at the latest"
        if seat.policy
        else f"{verb} vacant"
    )
    return f"nobody {when}: {of}{why} {kept}{_next(seat)}"


def _next(seat: Seat) -> str:
    if seat.taken_by is not None:
        return f"; {brief(seat.taken_by)} took it"
    return {None: "", REBALANCED: "; then the group rebalanced"}.get(seat.ended, "; then the group had no members")
