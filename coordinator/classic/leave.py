"""The end of a membership: a member leaves, its session expires, or an operator expels it.

Source: Kafka's GroupMetadataManager, methods classicGroupLeave, expireClassicGroupMemberHeartbeat and
removePendingMemberAndUpdateClassicGroup; KIP-345 for leaving on behalf of others, KIP-800 for the reasons.
"""

from collections.abc import Generator, Iterator

from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.classic import checks
from coordinator.classic.departures import Departure
from coordinator.classic.rebalance import complete, expel_member, expired, prepare, prepare_or_try_to_complete
from coordinator.common.events import RebalanceCause, member_cause, member_event
from coordinator.messages.events import MemberLeft
from coordinator.messages.outputs import Output
from coordinator.messages.requests import ExpelMember, LeaveGroup, Leaving
from coordinator.messages.responses import ExpelMemberAnswer, LeaveGroupAnswer, LeftMember, Reply
from coordinator.policies.instability import End
from coordinator.policies.rules import is_seatable
from coordinator.state.classic_group import Group, Member


def leave(group: Group | None, request: LeaveGroup, context: Context) -> Iterator[Output]:
    """Remove the members that leave. The other members rebalance once, however many members leave.

    Replies with, for each entry:
        UNKNOWN_MEMBER_ID: the group has no such member.
        FENCED_INSTANCE_ID: another member has the instance id.
    """
    left: list[LeftMember] = []
    cause: RebalanceCause | None = None
    for entry in request.members:
        error = checks.names_a_member(group.hot_state, entry) if group else ErrorCode.UNKNOWN_MEMBER_ID
        if group and error is ErrorCode.NONE:
            if member := _named(group, entry):
                each_cause = yield from _leave(group, member, entry.reason, context)
            else:
                each_cause = _leave_pending(group, entry, request, context)
            cause = cause or each_cause
        left.append(LeftMember(entry.member_id, entry.group_instance_id, error.name, error.number))
    yield Reply(request.reply_to, LeaveGroupAnswer(request_id=request.request_id, members=tuple(left)))
    if group and cause and group.phase is not Phase.EMPTY:
        yield from prepare_or_try_to_complete(group, cause, context.now_ms, context.config)


def _leave(
    group: Group, member: Member, reason: str | None, context: Context
) -> Generator[Output, None, RebalanceCause | None]:
    """Remove a member that leaves. Return the cause of the rebalance that follows; None if a policy holds it."""
    cause = member_cause(member, "member_left", reason)
    departure = Departure(group, member, End.LEFT, context.now_ms, context.config)
    yield from departure.remove()
    yield member_event(MemberLeft, group, member, context.now_ms, reason=reason)
    yield from departure.leave_behind(cause)
    return None if departure.is_held else cause


def _leave_pending(group: Group, entry: Leaving, request: LeaveGroup, context: Context) -> RebalanceCause | None:
    """Remove a pending id. Return the cause of the rebalance that follows; None where policies seat newcomers."""
    del group.hot_state.pending[entry.member_id]
    if is_seatable(group, context.config):
        return None
    return RebalanceCause("member_left", entry.member_id, request.client_id, request.client_host, entry.reason)


def _named(group: Group, entry: Leaving | ExpelMember) -> Member | None:
    """Return the member that an entry names; None if the entry names a pending id."""
    if entry.member_id in group.hot_state.pending:
        return None
    if not entry.member_id and entry.group_instance_id in group.hot_state.instances:
        return group.members[group.hot_state.instances[entry.group_instance_id]]
    return group.members[entry.member_id]


def expel(group: Group, request: ExpelMember, context: Context) -> Iterator[Output]:
    """Remove a member at an operator's request. The other members rebalance."""
    member = _named(group, request)
    member_id = member.member_id if member else request.member_id
    if member:
        yield from expel_member(group, member, "expelled", context.now_ms, reason=request.reason)
    else:
        del group.hot_state.pending[member_id]
    yield Reply(request.reply_to, ExpelMemberAnswer(request_id=request.request_id, member_id=member_id))
    if group.phase is not Phase.EMPTY:
        cause = RebalanceCause("operator", member_id, request.client_id, request.client_host, request.reason)
        yield from prepare_or_try_to_complete(group, cause, context.now_ms, context.config)


def session_due(group: Group, member: Member, now_ms: int, config: Config) -> Iterator[Output]:
    """Drop a member whose session has expired. A member with a parked request stays: it waits for its response.

    A member in its first join round does not stay: it is dropped after `group_new_member_join_timeout_ms`, although its
    join is parked.
    """
    session = group.hot_state.sessions[member.member_id]
    if not member.is_new and (member.awaiting_join or member.awaiting_sync):
        session.deadline_ms = NEVER_MS
        return
    silence_ms = None if member.is_new or session.extended else session.timeout_ms
    cause, departure = member_cause(member, "session_expired"), Departure(group, member, End.EXPIRED, now_ms, config)
    yield from departure.remove()
    yield expired(group, member, "session_expired", now_ms, silence_ms=silence_ms)
    yield from departure.leave_behind(cause)
    if group.phase is not Phase.PREPARING and not departure.is_held:
        yield from prepare(group, cause, now_ms, config)
    elif group.phase is Phase.PREPARING and group.everybody_joined:
        yield from complete(group, now_ms, config)


def syncs_due(group: Group, now_ms: int, config: Config) -> Iterator[Output]:
    """Drop the members that joined and never sent their sync, and rebalance without them."""
    overdue, is_held = [m for m in group.members.values() if m.owes_sync], True
    for member in overdue:
        departure = Departure(group, member, End.OVERDUE, now_ms, config)
        yield from departure.remove()
        yield expired(group, member, "syncs_overdue", now_ms)
        yield from departure.leave_behind(member_cause(member, "sync_overdue"))
        is_held = is_held and departure.is_held
    if not is_held:
        yield from prepare(group, member_cause(overdue[0], "sync_overdue"), now_ms, config)


def pending_due(group: Group, member_id: str, now_ms: int, config: Config) -> Iterator[Output]:
    """Remove a pending id that no join has used in time."""
    del group.hot_state.pending[member_id]
    if group.phase is Phase.PREPARING and group.everybody_joined:
        yield from complete(group, now_ms, config)
