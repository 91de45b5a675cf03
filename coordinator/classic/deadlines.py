"""The deadlines of a classic group, and what each of them changes. `timers` fires them.

`consumer.deadlines` has those of a group of the consumer protocol.
"""

from collections.abc import Iterator
from enum import IntEnum

from coordinator.base.config import Config
from coordinator.classic.describe import publish, publishing
from coordinator.classic.leave import pending_due, session_due, syncs_due
from coordinator.classic.policy_deadlines import policies_due, wait_once_more
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
    POLICIES = 5
    PUBLISH = 6


def deadlines(group: Group) -> Iterator[Deadline]:
    """Yield all deadlines of a group; a time of `NEVER_MS` is not armed."""
    hot_state = group.hot_state
    for place, (member_id, session) in enumerate(hot_state.sessions.items()):
        yield Deadline(session.deadline_ms, Kind.SESSION, place, member_id)
    for place, (member_id, session) in enumerate(hot_state.pending.items()):
        yield Deadline(session.deadline_ms, Kind.PENDING, place, member_id)
    yield Deadline(hot_state.joins_ms, Kind.JOINS)
    yield Deadline(hot_state.syncs_ms, Kind.SYNCS)
    yield Deadline(hot_state.offsets_ms, Kind.OFFSETS)
    yield Deadline(hot_state.policy_ms, Kind.POLICIES)
    yield Deadline(hot_state.publish_ms, Kind.PUBLISH)


def _armed_ms(group: Group, due: Deadline) -> int | None:
    hot_state = group.hot_state
    if due.kind in (Kind.SESSION, Kind.PENDING):
        session = _session(group, due)
        return session.deadline_ms if session else None
    return {
        Kind.JOINS: hot_state.joins_ms,
        Kind.SYNCS: hot_state.syncs_ms,
        Kind.OFFSETS: hot_state.offsets_ms,
        Kind.POLICIES: hot_state.policy_ms,
        Kind.PUBLISH: hot_state.publish_ms,
    }[Kind(due.kind)]


def _session(group: Group, due: Deadline) -> Session | None:
    if due.kind == Kind.SESSION:
        return group.hot_state.sessions.get(due.member_id)
    return group.hot_state.pending.get(due.member_id) if due.kind == Kind.PENDING else None


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
    elif due.kind == Kind.POLICIES:
        yield from policies_due(group, due.at_ms, config)
    elif due.kind == Kind.PUBLISH:
        yield publish(group)
    else:
        yield from offsets_due(group, due.at_ms, config)


def _wait_once_more(group: Group, due: Deadline, from_ms: int) -> bool:
    hot_state, session = group.hot_state, _session(group, due)
    if due.kind == Kind.POLICIES:
        return from_ms > due.at_ms and wait_once_more(group, from_ms)
    if due.kind in (Kind.OFFSETS, Kind.PUBLISH) or (session or hot_state).extended:
        return False
    wait_ms = _wait_ms(group, due, session)
    if wait_ms <= 0 or from_ms + wait_ms <= due.at_ms:
        return False
    if session is not None:
        hot_state.renew(session, from_ms)
        session.extended = True
        return True
    hot_state.extended = True
    if due.kind == Kind.SYNCS:
        hot_state.syncs_ms = hot_state.wait(from_ms, wait_ms)
    else:
        hot_state.joins_ms = hot_state.wait(from_ms, wait_ms)
    return True


def _wait_ms(group: Group, due: Deadline, session: Session | None) -> int:
    """Return the length of the wait whose end is a deadline."""
    if session is not None:
        return session.timeout_ms
    if due.kind == Kind.JOINS and group.delay:
        return group.delay.delay_ms
    return group.rebalance_timeout_ms


TIMERS = Timers[Group](deadlines, _armed_ms, _fire, _wait_once_more)
