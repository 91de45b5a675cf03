"""The deadlines of a group of the consumer protocol, and what each of them changes. `timers` fires them.

The next request computes a target assignment that is due. If no request comes, a deadline computes it. A target
assignment that a policy holds waits for its deadline.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum

from coordinator.base.config import Config
from coordinator.common.events import blame
from coordinator.common.offsets import offsets_due
from coordinator.common.timers import Deadline, Timers
from coordinator.consumer.classic_members import must_downgrade
from coordinator.consumer.epochs import after_removal, plan_due, seats_due, wait_once_more
from coordinator.consumer.leave import drop
from coordinator.consumer.publish import following, publish
from coordinator.messages.outputs import Output
from coordinator.state.consumer_group import ConsumerGroup, ConsumerVitals
from coordinator.state.group import Session


class Kind(IntEnum):
    """The kinds of deadlines, in the order in which they fire if several have the same time."""

    SESSION = 0
    REVOCATION = 1
    JOIN = 2
    SYNC = 3
    SEATS = 4
    PLAN = 5
    OFFSETS = 6
    PUBLISH = 7


OVERDUE = {
    Kind.SESSION: "session_expired",
    Kind.REVOCATION: "revocation_overdue",
    Kind.JOIN: "joins_overdue",
    Kind.SYNC: "syncs_overdue",
}
"""The reason in the event of a member that is removed because its deadline has passed."""


def deadlines(group: ConsumerGroup) -> Iterator[Deadline]:
    """Yield all deadlines of a group; a time of `NEVER_MS` is not armed."""
    vitals = group.vitals
    for place, (member_id, pulse) in enumerate(vitals.sessions.items()):
        yield Deadline(pulse.deadline_ms, Kind.SESSION, place, member_id)
        for kind in (Kind.REVOCATION, Kind.JOIN, Kind.SYNC):
            if (wait := _waits(vitals, kind).get(member_id)) is not None:
                yield Deadline(wait.deadline_ms, kind, place, member_id)
    yield Deadline(vitals.seats_ms, Kind.SEATS)
    yield Deadline(vitals.plan_ms, Kind.PLAN)
    yield Deadline(vitals.offsets_ms, Kind.OFFSETS)
    yield Deadline(vitals.publish_ms, Kind.PUBLISH)


def _armed_ms(group: ConsumerGroup, due: Deadline) -> int | None:
    vitals = group.vitals
    if due.kind in OVERDUE:
        session = _session(group, due)
        return session.deadline_ms if session else None
    return {
        Kind.SEATS: vitals.seats_ms,
        Kind.PLAN: vitals.plan_ms,
        Kind.OFFSETS: vitals.offsets_ms,
        Kind.PUBLISH: vitals.publish_ms,
    }[Kind(due.kind)]


def _session(group: ConsumerGroup, due: Deadline) -> Session | None:
    return _waits(group.vitals, Kind(due.kind)).get(due.member_id)


def _waits(vitals: ConsumerVitals, kind: Kind) -> Mapping[str, Session]:
    """Return the waits of one kind, by member id."""
    if kind == Kind.SESSION:
        return vitals.sessions
    return {Kind.REVOCATION: vitals.revocations, Kind.JOIN: vitals.joins, Kind.SYNC: vitals.syncs}.get(kind, {})


def _fire(group: ConsumerGroup, due: Deadline, config: Config) -> Iterator[Output]:
    yield from following(group, _due(group, due, config), due.at_ms, config)


def _due(group: ConsumerGroup, due: Deadline, config: Config) -> Iterator[Output]:
    if due.kind in OVERDUE:
        yield from _member_due(group, due, config)
    elif due.kind == Kind.SEATS:
        yield from seats_due(group, due.at_ms, config)
    elif due.kind == Kind.PLAN:
        yield from plan_due(group, due.at_ms, config)
    elif due.kind == Kind.PUBLISH:
        yield publish(group)
    else:
        yield from offsets_due(group, due.at_ms, config)


def _member_due(group: ConsumerGroup, due: Deadline, config: Config) -> Iterator[Output]:
    """Remove a member whose session, revocation, join or sync is overdue."""
    member, session = group.members[due.member_id], group.vitals.sessions[due.member_id]
    why = OVERDUE[Kind(due.kind)]
    silence_ms = session.timeout_ms if due.kind == Kind.SESSION and not session.extended else None
    yield from drop(group, member, why, due.at_ms, config, silence_ms=silence_ms)
    yield from after_removal(group, blame(member, why), due.at_ms, config)


def _wait_once_more(group: ConsumerGroup, due: Deadline, from_ms: int) -> bool:
    if due.kind == Kind.PLAN:
        return from_ms > due.at_ms and wait_once_more(group, from_ms)
    session = _session(group, due)
    if session is None or session.extended or session.timeout_ms <= 0 or from_ms + session.timeout_ms <= due.at_ms:
        return False
    group.vitals.renew(session, from_ms)
    session.extended = True
    return True


TIMERS = Timers[ConsumerGroup](deadlines, _armed_ms, _fire, _wait_once_more, must_downgrade)
