"""The deadlines of a classic group, and what each of them changes. `timers` fires them.

`consumer.deadlines` has those of a group of the consumer protocol.
"""

from collections.abc import Iterator
from enum import IntEnum

from coordinator.base.config import Config
from coordinator.classic.describe import publish, publishing
from coordinator.classic.leave import pending_due, session_due, syncs_due
from coordinator.classic.policy_deadlines import seats_due, wait_once_more
from coordinator.classic.rebalance import joins_due
from coordinator.common.offsets import offsets_due
from coordinator.common.timers import Deadline, Timers
from coordinator.messages.outputs import Output
from coordinator.state.classic_group import Group
from coordinator.state.group import Session


class Kind(IntEnum):
    """The kinds of deadlines, in the order in which they fire if several have the same time."""

    SESSION = 0
    PENDING = 1
    JOINS = 2
    SYNCS = 3
    OFFSETS = 4
    SEATS = 5
    PUBLISH = 6


def deadlines(group: Group) -> Iterator[Deadline]:
    """Yield all deadlines of a group; a time of `NEVER_MS` is not armed."""
    vitals = group.vitals
    for place, (member_id, session) in enumerate(vitals.sessions.items()):
        yield Deadline(session.deadline_ms, Kind.SESSION, place, member_id)
    for place, (member_id, session) in enumerate(vitals.pending.items()):
        yield Deadline(session.deadline_ms, Kind.PENDING, place, member_id)
    yield Deadline(vitals.joins_ms, Kind.JOINS)
    yield Deadline(vitals.syncs_ms, Kind.SYNCS)
    yield Deadline(vitals.offsets_ms, Kind.OFFSETS)
    yield Deadline(vitals.seats_ms, Kind.SEATS)
    yield Deadline(vitals.publish_ms, Kind.PUBLISH)


def _armed_ms(group: Group, due: Deadline) -> int | None:
    vitals = group.vitals
    if due.kind in (Kind.SESSION, Kind.PENDING):
        session = _session(group, due)
        return session.deadline_ms if session else None
    return {
        Kind.JOINS: vitals.joins_ms,
        Kind.SYNCS: vitals.syncs_ms,
        Kind.OFFSETS: vitals.offsets_ms,
        Kind.SEATS: vitals.seats_ms,
        Kind.PUBLISH: vitals.publish_ms,
    }[Kind(due.kind)]


def _session(group: Group, due: Deadline) -> Session | None:
    if due.kind == Kind.SESSION:
        return group.vitals.sessions.get(due.member_id)
    return group.vitals.pending.get(due.member_id) if due.kind == Kind.PENDING else None


def _fire(group: Group, due: Deadline, config: Config) -> Iterator[Output]:
    yield from publishing(group, _due(group, due, config))


def _due(group: Group, due: Deadline, config: Config) -> Iterator[Output]:
    if due.kind == Kind.SESSION:
        yield from session_due(group, group.members[due.member_id], due.at_ms, config)
    elif due.kind == Kind.PENDING:
        yield from pending_due(group, due.member_id, due.at_ms, config)
    elif due.kind == Kind.JOINS:
        yield from joins_due(group, due.at_ms, config)
    elif due.kind == Kind.SYNCS:
        yield from syncs_due(group, due.at_ms, config)
    elif due.kind == Kind.SEATS:
        yield from seats_due(group, due.at_ms, config)
    elif due.kind == Kind.PUBLISH:
        yield publish(group)
    else:
        yield from offsets_due(group, due.at_ms, config)


def _wait_once_more(group: Group, due: Deadline, from_ms: int) -> bool:
    vitals, session = group.vitals, _session(group, due)
    if due.kind == Kind.SEATS:
        return from_ms > due.at_ms and wait_once_more(group, from_ms)
    if due.kind in (Kind.OFFSETS, Kind.PUBLISH) or (session or vitals).extended:
        return False
    wait_ms = _wait_ms(group, due, session)
    if wait_ms <= 0 or from_ms + wait_ms <= due.at_ms:
        return False
    if session is not None:
        vitals.renew(session, from_ms)
        session.extended = True
        return True
    vitals.extended = True
    if due.kind == Kind.SYNCS:
        vitals.syncs_ms = vitals.wait(from_ms, wait_ms)
    else:
        vitals.joins_ms = vitals.wait(from_ms, wait_ms)
    return True


def _wait_ms(group: Group, due: Deadline, session: Session | None) -> int:
    """Return the length of the wait whose end is a deadline."""
    if session is not None:
        return session.timeout_ms
    if due.kind == Kind.JOINS and group.delay:
        return group.delay.delay_ms
    return group.rebalance_timeout_ms


TIMERS = Timers[Group](deadlines, _armed_ms, _fire, _wait_once_more)
