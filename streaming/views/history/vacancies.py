"""Seats that policies keep, and rebalances that they hold, from a group's events.

A seat is the assignment of a member that is gone, kept for another member of the running generation. From its vacancy
until it is taken nobody owns its partitions. A rebalance is held while a seat is vacant or a newcomer stands by.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from coordinator.messages.events import (
    AnyEvent,
    GroupConverted,
    GroupDeleted,
    GroupEmptied,
    MemberExpired,
    MemberFenced,
    MemberLeft,
    RebalanceStarted,
)
from coordinator.messages.policy_events import MemberQuarantined, QuarantineEnded, RebalanceHeld, SeatTaken, SeatVacated
from streaming.views.state.fields import PartitionKey, known
from streaming.views.state.group import GroupView

TAKEN, REBALANCED, EMPTIED = "taken", "rebalanced", "emptied"
"""The ends of a vacancy."""

ADDED = ""
"""The member id of the seat of partitions that were added in a freeze."""


class Seat(Struct, kw_only=True):
    """The assignment of a member that is gone, kept for another member. A value from before the history is null.

    Args:
        member_id: The member that had it; "" for partitions that were added in a freeze. `partitions` does not have
            these before the seat is taken.
        policy: The policy that keeps it: succession, settle or freeze.
        cause: Why the member is gone.
        until_ms: When a rebalance begins, or in a freeze a present member gets the partitions.
        ended: `taken`, `rebalanced` or `emptied`; null while the seat is vacant.
        taken_by: The member that has the partitions since.
        how: `took`: it came after the other one had gone. `passed`: it stood by. `adopted`: it has them beside its own.
        unowned_ms: How long nobody owned the partitions; null if they were not taken.
    """

    member_id: str
    client_id: str | None = None
    client_host: str | None = None
    policy: str | None = None
    cause: str | None = None
    reason: str | None = None
    partitions: dict[str, list[int]]
    vacated_ms: int
    until_ms: int | None = None
    ended_ms: int | None = None
    ended: str | None = None
    taken_by: str | None = None
    taken_client_id: str | None = None
    how: str | None = None
    unowned_ms: int | None = None
    fencing_token: int | None = None


class HeldPeriod(Struct, kw_only=True):
    """A time in which a rebalance was held.

    Args:
        policies: The policies that held it, in the order in which they began to.
        causes: What would have begun a rebalance, in order.
        until_ms: When it would have begun at the latest, as of the last cause.
        ended: `taken`: its causes were gone, and no rebalance began. `rebalanced` or `emptied`; null while it lasts.
    """

    from_ms: int
    to_ms: int | None = None
    until_ms: int
    policies: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    ended: str | None = None


class SeatHistory:
    """One pass over the events of a group.

    Attributes:
        seats: All seats, the oldest vacancy first.
        periods: The times in which a rebalance was held.
        standing_by: By member id, the event since which a newcomer stands by.
        quarantined: By member id, the event since which a member is in quarantine.
    """

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self.seats: list[Seat] = []
        self.periods: list[HeldPeriod] = []
        self.standing_by: dict[str, RebalanceHeld] = {}
        self.quarantined: dict[str, MemberQuarantined] = {}
        self.vacant: list[Seat] = []
        for event in events:
            self._handle(event)

    def _handle(self, event: AnyEvent) -> None:
        match event:
            case RebalanceHeld(cause="member_joined"):
                self.standing_by[event.member_id] = event
                self._hold(event)
            case RebalanceHeld():
                self._add(event)
                self._hold(event)
            case SeatVacated():
                self._vacate(event)
                self._hold(event)
            case SeatTaken():
                self._seat(event)
                self.standing_by.pop(event.member_id, None)
                self._end_unless_held(event.at_ms)
            case MemberQuarantined():
                self.quarantined[event.member_id] = event
            case QuarantineEnded():
                self.quarantined.pop(event.member_id, None)
            case MemberLeft() | MemberExpired():
                self._remove(event.member_id)
                self._end_unless_held(event.at_ms)
            case MemberFenced():
                self._replace(event.member_id, event.replaced_by)
            case RebalanceStarted():
                self._end(event.at_ms, REBALANCED)
            case GroupEmptied() | GroupDeleted() | GroupConverted():
                self._end(event.at_ms, EMPTIED)

    def _hold(self, event: RebalanceHeld | SeatVacated) -> None:
        if not self.periods or self.periods[-1].to_ms is not None:
            self.periods.append(HeldPeriod(from_ms=event.at_ms, until_ms=event.until_ms))
        period = self.periods[-1]
        period.until_ms = event.until_ms
        period.causes.append(event.cause)
        if event.policy not in period.policies:
            period.policies.append(event.policy)

    def _vacate(self, event: SeatVacated) -> None:
        seat = Seat(
            member_id=event.member_id,
            client_id=event.client_id,
            client_host=event.client_host,
            policy=event.policy,
            cause=event.cause,
            reason=event.reason,
            partitions=event.partitions,
            vacated_ms=event.at_ms,
            until_ms=event.until_ms,
        )
        self.seats.append(seat)
        self.vacant.append(seat)

    def _add(self, event: RebalanceHeld) -> None:
        """Add the seat of added partitions, which one event or several announce. Its taker's event names them."""
        if not any(seat.member_id == ADDED for seat in self.vacant):
            seat = Seat(
                member_id=ADDED,
                policy=event.policy,
                cause=event.cause,
                partitions={},
                vacated_ms=event.at_ms,
                until_ms=event.until_ms,
            )
            self.seats.append(seat)
            self.vacant.append(seat)

    def _seat(self, event: SeatTaken) -> None:
        seat = next((each for each in self.vacant if each.member_id == event.before), None)
        if seat is None:
            vacated_ms = event.at_ms - event.unowned_ms
            seat = Seat(member_id=event.before, partitions=event.partitions, vacated_ms=vacated_ms)
            self.seats.append(seat)
        else:
            self.vacant.remove(seat)
        seat.ended_ms, seat.ended, seat.partitions = event.at_ms, TAKEN, event.partitions
        seat.taken_by, seat.taken_client_id, seat.how = event.member_id, event.client_id, event.how
        seat.unowned_ms, seat.fencing_token = event.unowned_ms, event.fencing_token

    def _remove(self, member_id: str) -> None:
        self.standing_by.pop(member_id, None)
        self.quarantined.pop(member_id, None)

    def _replace(self, member_id: str, by: str) -> None:
        """Transfer what a static member's old process waits for to its new process."""
        if (standby := self.standing_by.pop(member_id, None)) is not None:
            self.standing_by[by] = standby
        if (quarantine := self.quarantined.pop(member_id, None)) is not None:
            self.quarantined[by] = quarantine

    def _end_unless_held(self, at_ms: int) -> None:
        if not self.vacant and not self.standing_by and self.periods and self.periods[-1].to_ms is None:
            self.periods[-1].to_ms, self.periods[-1].ended = at_ms, TAKEN

    def _end(self, at_ms: int, ended: str) -> None:
        for seat in self.vacant:
            seat.ended_ms, seat.ended = at_ms, ended
        self.vacant.clear()
        self.standing_by.clear()
        if self.periods and self.periods[-1].to_ms is None:
            self.periods[-1].to_ms, self.periods[-1].ended = at_ms, ended


def seat_at(group: GroupView, place: PartitionKey, at_ms: int) -> Seat | None:
    """Return the vacant seat that had a partition at a time; None if no seat had it."""
    topic, partition = place
    for seat in reversed(SeatHistory(group.events).seats):
        is_vacant = seat.vacated_ms <= at_ms and (seat.ended_ms is None or at_ms < seat.ended_ms)
        if is_vacant and partition in seat.partitions.get(topic, ()):
            return seat
    return None


# -- now ---------------------------------------------------------------------------------------------------------------


class Standby(Struct):
    """A newcomer that has no partitions yet. What its event says is null if the event has expired."""

    member_id: str
    policy: str | None
    since_ms: int | None
    until_ms: int | None


class Quarantine(Struct):
    """A member that has no partitions for a while. What its event says is null if the event has expired.

    Args:
        identity: The instance id, or the client id and the host.
        flaps: The number of its memberships that ended too soon.
        times: How often the client has been in quarantine.
    """

    member_id: str
    identity: str | None
    flaps: int | None
    times: int | None
    until_ms: int | None


class HoldRow(Struct, kw_only=True):
    """The effect of policies on a group now.

    Args:
        since_ms: When the first cause of the rebalance that is held came; null if none is held.
        until_ms: When the rebalance begins, unless its causes are gone before that.
        frozen_until_ms: The end of the freeze that holds rebalances; null without one.
        vacant: The number of vacant seats; `seats` are the ones that the history shows.
    """

    since_ms: int | None
    until_ms: int | None
    frozen_until_ms: int | None
    vacant: int
    seats: list[Seat]
    standing_by: list[Standby]
    quarantined: list[Quarantine]


def hold_now(group: GroupView) -> HoldRow | None:
    """Return the effect of policies on a group, as its record shows it; None if they have none."""
    hold = known(group.record.hold) if group.record else None
    if hold is None:
        return None
    history = SeatHistory(group.events)
    standing = {member.member_id: known(member.standing) for member in group.members}
    return HoldRow(
        since_ms=hold.since_ms,
        until_ms=hold.until_ms,
        frozen_until_ms=hold.frozen_until_ms,
        vacant=hold.vacant,
        seats=history.vacant if hold.vacant else [],
        standing_by=[
            _standby(id_, history)
            for id_, what in standing.items()
            if what == "standing_by" or (what == "called" and id_ in history.standing_by)
        ],
        quarantined=[_quarantine(id_, history) for id_, what in standing.items() if what == "quarantined"],
    )


def _standby(member_id: str, history: SeatHistory) -> Standby:
    event = history.standing_by.get(member_id)
    return Standby(member_id, *((event.policy, event.at_ms, event.until_ms) if event else (None, None, None)))


def _quarantine(member_id: str, history: SeatHistory) -> Quarantine:
    event = history.quarantined.get(member_id)
    if event is None:
        return Quarantine(member_id, None, None, None, None)
    return Quarantine(member_id, event.identity, event.flaps, event.times, event.until_ms)
