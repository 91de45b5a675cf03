"""The deadlines of a group of the consumer protocol, and what each of them changes. `timers` fires them.

The next request computes a target assignment that is due. If no request comes, a deadline computes it. A target
assignment that a policy holds waits for its deadline.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum

from coordinator.base.config import Config
from coordinator.common.events import member_cause
from coordinator.common.offsets import offsets_due
from coordinator.common.timers import Deadline, Timers
from coordinator.consumer.classic_members import must_downgrade
from coordinator.consumer.epochs import after_removal, plan_due, policies_due, wait_once_more
from coordinator.consumer.leave import expel_member
from coordinator.consumer.publish import group_after, publish
from coordinator.messages.outputs import Output
from coordinator.state.consumer_group import ConsumerGroup, ConsumerHotState
from coordinator.state.group import Session


class Kind(IntEnum):
    """The kinds of deadlines, in the order in which they fire if several have the same time."""

    SESSION = 0
    REVOCATION = 1
    JOIN = 2
    SYNC = 3
    POLICIES = 4
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
    hot_state = group.hot_state
    for place, (member_id, session) in enumerate(hot_state.sessions.items()):
        yield Deadline(session.deadline_ms, Kind.SESSION, place, member_id)
        for kind in (Kind.REVOCATION, Kind.JOIN, Kind.SYNC):
            if (wait := _waits(hot_state, kind).get(member_id)) is not None:
                yield Deadline(wait.deadline_ms, kind, place, member_id)
    yield Deadline(hot_state.policy_ms, Kind.POLICIES)
    yield Deadline(hot_state.plan_ms, Kind.PLAN)
    yield Deadline(hot_state.offsets_ms, Kind.OFFSETS)
    yield Deadline(hot_state.publish_ms, Kind.PUBLISH)


def _armed_ms(group: ConsumerGroup, due: Deadline) -> int | None:
    hot_state = group.hot_state
    if due.kind in OVERDUE:
        session = _session(group, due)
        return session.deadline_ms if session else None
    return {
        Kind.POLICIES: hot_state.policy_ms,
        Kind.PLAN: hot_state.plan_ms,
        Kind.OFFSETS: hot_state.offsets_ms,
        Kind.PUBLISH: hot_state.publish_ms,
    }[Kind(due.kind)]


def _session(group: ConsumerGroup, due: Deadline) -> Session | None:
    return _waits(group.hot_state, Kind(due.kind)).get(due.member_id)


def _waits(hot_state: ConsumerHotState, kind: Kind) -> Mapping[str, Session]:
    """Return the waits of one kind, by member id."""
    if kind == Kind.SESSION:
        return hot_state.sessions
    return {Kind.REVOCATION: hot_state.revocations, Kind.JOIN: hot_state.joins, Kind.SYNC: hot_state.syncs}.get(
        kind, {}
    )


def _fire(group: ConsumerGroup, due: Deadline, config: Config) -> Iterator[Output]:
    yield from group_after(group, _due(group, due, config), due.at_ms, config)


def _due(group: ConsumerGroup, due: Deadline, config: Config) -> Iterator[Output]:
    if due.kind in OVERDUE:
        yield from _member_due(group, due, config)
    elif due.kind == Kind.POLICIES:
        yield from policies_due(group, due.at_ms, config)
    elif due.kind == Kind.PLAN:
        yield from plan_due(group, due.at_ms, config)
    elif due.kind == Kind.PUBLISH:
        yield publish(group)
    else:
        yield from offsets_due(group, due.at_ms, config)


def _member_due(group: ConsumerGroup, due: Deadline, config: Config) -> Iterator[Output]:
    """Remove a member whose session, revocation, join or sync is overdue."""
    member, session = group.members[due.member_id], group.hot_state.sessions[due.member_id]
    why = OVERDUE[Kind(due.kind)]
    silence_ms = session.timeout_ms if due.kind == Kind.SESSION and not session.extended else None
    yield from expel_member(group, member, why, due.at_ms, config, silence_ms=silence_ms)
    yield from after_removal(group, member_cause(member, why), due.at_ms, config)


def _wait_once_more(group: ConsumerGroup, due: Deadline, from_ms: int) -> bool:
    if due.kind == Kind.PLAN:
        return from_ms > due.at_ms and wait_once_more(group, from_ms)
    session = _session(group, due)
    if session is None or session.extended or session.timeout_ms <= 0 or from_ms + session.timeout_ms <= due.at_ms:
        return False
    group.hot_state.renew(session, from_ms)
    session.extended = True
    return True


TIMERS = Timers[ConsumerGroup](deadlines, _armed_ms, _fire, _wait_once_more, must_downgrade)
