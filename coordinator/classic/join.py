"""Joins, syncs and heartbeats.

The rows of `handlers` list the checks that a request passes before it comes here. The tables of `decisions` have the
responses to a member of the current generation.

Source: Kafka's GroupMetadataManager, methods classicGroupJoin, classicGroupSync, classicGroupHeartbeat and
updateStaticMemberThenRebalanceOrCompleteJoin; KIP-62, KIP-345, KIP-394, KIP-800, KIP-814.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from coordinator.base.config import Config
from coordinator.base.connect_protocol import CONNECT, has_to_give_up_work
from coordinator.base.consumer_protocol import has_to_give_up, subscribed_topics
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import member_suffix
from coordinator.base.limits import NEVER_MS, PENDING_MAX
from coordinator.base.states import Phase
from coordinator.classic import checks, decisions, newcomers, offers
from coordinator.classic.departures import Departure
from coordinator.classic.describe import publish_at_a_bounded_rate
from coordinator.classic.newcomers import JoinOutcome
from coordinator.classic.policy_deadlines import look_at_plan
from coordinator.classic.rebalance import (
    expired,
    install,
    joined,
    prepare_or_try_to_complete,
    refuse_join,
    refuse_sync,
    synced,
    vote,
)
from coordinator.common.events import member_cause, member_event
from coordinator.common.refusals import refusal
from coordinator.messages.events import MemberFenced, MemberJoined
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.outputs import Output
from coordinator.messages.requests import JoinGroup, Protocol, SyncGroup
from coordinator.messages.responses import HeartbeatAnswer, HeartbeatsAnswer, JoinGroupAnswer, Reply
from coordinator.policies.instability import End, record_join
from coordinator.policies.rules import record_repeated_join
from coordinator.state.classic_group import Group, HotState, Member, Parked
from coordinator.state.group import Session

# -- joins -------------------------------------------------------------------------------------------------------------


def is_of_a_newcomer(request: JoinGroup) -> bool:
    """Return whether a join creates its group. A join without a member id does."""
    return not request.member_id


def is_answered_with_all_members(group: Group, request: JoinGroup) -> bool:
    """Return whether the response to a join lists all members: the leader joins, and no join round is in progress.

    A newcomer may be seated as the leader.
    """
    if group.leader_id is None:
        return False
    named = request.member_id or group.hot_state.instances.get(request.group_instance_id or "")
    leads = named == group.leader_id or offers.may_lead(group, named or "")
    return leads and group.phase is not Phase.PREPARING


def join(group: Group, request: JoinGroup, context: Context) -> Iterator[Output]:
    """Add a member to the next generation. The reply comes when the join round ends, or at once where noted.

    Replies with:
        UNKNOWN_MEMBER_ID: later, if the member is dropped before its round ends.
        FENCED_INSTANCE_ID: later, if another process joins with its instance id before that.
        MEMBER_ID_REQUIRED: at once, with the id to join with.
        NONE: at once, if the earlier reply to the member must have been lost, or if a static member returns unchanged.
    """
    request_ref, now_ms, config = Parked(request.request_id, request.reply_to), context.now_ms, context.config
    if request.member_id in group.hot_state.pending:
        yield from _join_newcomer(group, request, request.member_id, request_ref, now_ms, config)
    elif request.member_id:
        yield from _rejoin(group, group.members[request.member_id], request, request_ref, now_ms, config)
    elif request.group_instance_id is not None:
        yield from _join_static(group, request, request_ref, now_ms, config, _new_id(request, context))
    elif request.require_known_member_id:
        yield _hand_out(group, request, request_ref, now_ms, _new_id(request, context))
    else:
        yield from _join_newcomer(group, request, _new_id(request, context), request_ref, now_ms, config)


def is_known_by_its_id(request: JoinGroup) -> bool:
    """Return whether a join creates its member at once, under an id that a repeat of the join finds.

    A join with an instance id does not. Otherwise two processes that join in turns would get their old ids again, which
    are fenced.
    """
    return not (request.member_id or request.require_known_member_id or request.group_instance_id is not None)


def _new_id(request: JoinGroup, context: Context) -> str:
    """Return the member id of a new member. A repeat of a join that `is_known_by_its_id` gets the same id."""
    by_request, by_offset = (request.reply_to, request.request_id), (context.partition, context.offset)
    derived_from = by_request if is_known_by_its_id(request) else by_offset
    name = request.client_id if request.group_instance_id is None else request.group_instance_id
    return f"{name}-{member_suffix(context.secret, request.group_id, derived_from)}"


def repeated(group: Group | None, request: JoinGroup, context: Context) -> Iterator[Output] | None:
    """Return the outputs for a join that was handled already; None for any other join."""
    request_ref = Parked(request.request_id, request.reply_to)
    if group is not None and (member := _made_by(group, request, request_ref, context)):
        return _join_again(group, member, request, request_ref)
    return None


def _made_by(group: Group, request: JoinGroup, request_ref: Parked, context: Context) -> Member | None:
    """Return the member that this join has created already; None if it has created none."""
    if is_known_by_its_id(request):
        return group.members.get(_new_id(request, context))
    if request.member_id or request.group_instance_id is None:
        return None
    holder = group.members.get(group.hot_state.instances.get(request.group_instance_id, ""))
    return holder if holder and holder.made_by == request_ref else None


def _join_again(group: Group, member: Member, request: JoinGroup, request_ref: Parked) -> Iterator[Output]:
    """Answer a join that was handled already. It changes nothing, and fences no member (KAFKA-20985)."""
    if member.awaiting_join == request_ref:
        return
    if group.phase is Phase.PREPARING:
        yield refuse_join(request_ref, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    else:
        offers.record_call(group, member)
        yield Reply(request_ref.reply_to, _answer_without_rebalance(group, member, request))


def reject_join(group: Group, request: JoinGroup, error: ErrorCode, context: Context) -> Iterator[Output]:
    """Remove the member or the pending id of a join for which the group has no room."""
    if error is not ErrorCode.GROUP_MAX_SIZE_REACHED:
        return
    group.hot_state.pending.pop(request.member_id, None)
    if member := group.members.get(request.member_id):
        departure = Departure(group, member, End.REFUSED, context.now_ms, context.config)
        yield from departure.remove()
        yield expired(group, member, "group_full", context.now_ms)
        yield from departure.leave_behind(member_cause(member, "group_full"))


def _hand_out(group: Group, request: JoinGroup, request_ref: Parked, now_ms: int, member_id: str) -> Reply:
    pending = group.hot_state.pending
    if len(pending) >= PENDING_MAX:
        del pending[next(iter(pending))]
    session = pending[member_id] = Session(NEVER_MS, request.session_timeout_ms)
    group.hot_state.renew(session, now_ms)
    return refuse_join(request_ref, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _join_newcomer(
    group: Group, request: JoinGroup, member_id: str, request_ref: Parked, now_ms: int, config: Config
) -> Iterator[Output]:
    if group.phase is Phase.PREPARING and group.delay:
        group.newcomers = True
    member = _member(request, member_id)
    new = newcomers.new_member(group, member, now_ms, config)
    then, policy = newcomers.join_outcome(new) if new is not None else (JoinOutcome.REBALANCE, "")
    if new is not None and then is not JoinOutcome.REBALANCE and group.phase is not Phase.PREPARING:
        yield from newcomers.seat(new, request, request_ref, then, policy)
        yield Reply(request_ref.reply_to, joined(group, member, request_ref.request_id))
        return
    group.open_round(now_ms)
    session = Session(now_ms + config.group_new_member_join_timeout_ms, request.session_timeout_ms)
    group.add(member, session, request.protocol_type)
    record_join(group, member_id, now_ms, config)
    yield member_event(MemberJoined, group, member, now_ms, reason=request.reason)
    if new is not None and then is JoinOutcome.QUARANTINED:
        yield from newcomers.quarantine(new, policy, request.reason)
    yield from _park_join(group, member, request_ref)
    yield from prepare_or_try_to_complete(group, member_cause(member, "member_joined", request.reason), now_ms, config)


def _member(request: JoinGroup, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        reply_to=request.reply_to,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        made_by=Parked(request.request_id, request.reply_to) if request.group_instance_id is not None else None,
    )


def _rejoin(
    group: Group, member: Member, request: JoinGroup, request_ref: Parked, now_ms: int, config: Config
) -> Iterator[Output]:
    member.reply_to = request.reply_to
    is_leader, session = member.member_id == group.leader_id, group.hot_state.sessions[member.member_id]
    become = offers.rejoin(group, member, request, now_ms, config)
    is_repeat = become is decisions.Rejoin.SEAT and not offers.record_join(group, member, request_ref)
    if become is decisions.Rejoin.REPEAT or is_repeat:
        record_repeated_join(group, member.member_id, request_ref)
        offers.record_call(group, member)
        yield Reply(request_ref.reply_to, joined(group, member, request_ref.request_id))
        return
    asks_as_before = _offered(member.protocols) == _offered(request.protocols)
    is_round = _is_further_round(group, member, asks_as_before=asks_as_before)
    group.offer(member, request.protocols)
    member.rebalance_timeout_ms, session.timeout_ms = request.rebalance_timeout_ms, request.session_timeout_ms
    if become is decisions.Rejoin.SEAT:
        group.hot_state.renew(session, now_ms)
        group.subscribe_too(subscribed_topics(member.metadata(group.protocol_name)))
        yield Reply(request_ref.reply_to, joined(group, member, request_ref.request_id))
        return
    yield from _park_join(group, member, request_ref)
    cause = "leader_rejoined" if is_leader and asks_as_before else "metadata_changed"
    if is_round:
        cause = "cooperative_round"
    yield from prepare_or_try_to_complete(group, member_cause(member, cause, request.reason), now_ms, config)


def _is_further_round(group: Group, member: Member, *, asks_as_before: bool) -> bool:
    """Return whether a member joins again because it had to give something up in the running generation.

    Args:
        asks_as_before: Whether it has the same topics and assignors as before.
    """
    if group.phase is not Phase.STABLE:
        return False
    if group.protocol_type == CONNECT:
        return has_to_give_up_work(member.assignment)
    return asks_as_before and has_to_give_up(member.metadata(group.protocol_name), member.assignment)


def _offered(protocols: Iterable[Protocol]) -> list[tuple[str, object]]:
    """Return the assignors that a member offers, each with its topics, or its metadata if that cannot be read.

    The metadata alone do not show a change of the topics: they may also contain owned partitions and a generation.
    """
    return [(p.name, subscribed_topics(p.metadata) or p.metadata) for p in protocols]


def _park_join(group: Group, member: Member, request_ref: Parked) -> Iterator[Output]:
    """Park a join. If the member has another join parked, answer that one; Kafka never answers it (KAFKA-20938)."""
    earlier, member.awaiting_join = member.awaiting_join, request_ref
    group.joins_parked += earlier is None
    if earlier and earlier != request_ref:
        yield refuse_join(earlier, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)


# -- joins with an instance id -----------------------------------------------------------------------------------------


def _join_static(
    group: Group, request: JoinGroup, request_ref: Parked, now_ms: int, config: Config, member_id: str
) -> Iterator[Output]:
    holder = group.hot_state.instances.get(request.group_instance_id or "")
    if holder is None:
        yield from _join_newcomer(group, request, member_id, request_ref, now_ms, config)
    else:
        yield from _replace(group, group.members[holder], request, request_ref, now_ms, config, member_id)


def _replace(
    group: Group, old: Member, request: JoinGroup, request_ref: Parked, now_ms: int, config: Config, member_id: str
) -> Iterator[Output]:
    """Replace a static member's old process by its new process. The old process is fenced from now on.

    While the group is Stable and the protocol stays the same, no rebalance is necessary. The new process gets a fencing
    token of its own, in the response to its sync: the old process may be paused, and may not know that it is fenced.
    """
    leader_before, session = group.leader_id, group.hot_state.sessions[old.member_id]
    new = _member(request, member_id)
    new.assignment, new.is_new = old.assignment, False
    new.fencing_token = group.next_token(now_ms, config.fencing_token_floor)
    deadline_ms = group.hot_state.wait(now_ms, session.timeout_ms)
    offers.restart(group, old, new, Session(deadline_ms, request.session_timeout_ms))
    yield from _fence(old, request_ref)
    yield member_event(
        MemberFenced,
        group,
        old,
        now_ms,
        replaced_by=new.member_id,
        replaced_by_client_id=new.client_id,
        replaced_by_client_host=new.client_host,
        fencing_token=new.fencing_token,
    )
    if group.phase is Phase.STABLE and (_offers_same_names(old, new) or vote(group) == group.protocol_name):
        is_seated = offers.is_seated_by_joining(group, new)
        if is_seated:
            offers.record_join(group, new, request_ref)
        yield from publish_at_a_bounded_rate(group, now_ms)
        answer = _answer_without_rebalance(group, new, request)
        if not (request.supports_skipping_assignment or is_seated):  # it must compute nothing: a follower's response
            answer = replace(answer, leader=leader_before, members=())
        yield Reply(request_ref.reply_to, answer)
        return
    yield from _park_join(group, new, request_ref)
    cause = member_cause(new, "static_member_replaced", request.reason)
    yield from prepare_or_try_to_complete(group, cause, now_ms, config)


def _offers_same_names(old: Member, new: Member) -> bool:
    """Return whether the vote has the same result as before, without a count of all votes."""
    return [p.name for p in old.protocols] == [p.name for p in new.protocols]


def _fence(old: Member, request_ref: Parked) -> Iterator[Output]:
    """Answer the parked request of the old process. If both have one mailbox, it is the same client and may rejoin."""
    parked = old.awaiting_join or old.awaiting_sync
    if parked:
        is_itself = parked.reply_to == request_ref.reply_to
        error = ErrorCode.REBALANCE_IN_PROGRESS if is_itself else ErrorCode.FENCED_INSTANCE_ID
        yield refuse_join(parked, error, old.member_id) if old.awaiting_join else refuse_sync(parked, error)


def _answer_without_rebalance(group: Group, member: Member, request: JoinGroup) -> JoinGroupAnswer:
    """Return the response to a join that leaves the generation as it is.

    It tells the leader that the assignments are known, if the leader's client supports this.
    """
    is_leader, is_planned = member.member_id == group.leader_id, group.phase is Phase.STABLE
    skip = is_leader and is_planned and request.supports_skipping_assignment and not group.policy_state.awaits_plan
    return replace(joined(group, member, request.request_id), skip_assignment=skip)


# -- syncs -------------------------------------------------------------------------------------------------------------


def sync(group: Group, request: SyncGroup, context: Context) -> Iterator[Output]:
    """Answer a member with its assignment, at once or after the leader's sync, which has all assignments.

    Replies with:
        REBALANCE_IN_PROGRESS: later, if a rebalance begins before the assignments come.
        FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID: later, if the member is replaced or dropped before they come.
    """
    now_ms, member = context.now_ms, group.members[request.member_id]
    if decisions.SYNC[group.phase] is decisions.Sync.PLAN:
        group.settle_sync(member)
        group.hot_state.renew(group.hot_state.sessions[member.member_id], now_ms)
        request_ref = Parked(request.request_id, request.reply_to)
        yield from offers.take_vacancy(group, member, request_ref, now_ms, context.config)
        yield synced(group, member, request_ref)
        yield from look_at_plan(group, member, request, now_ms, context.config)
        return
    yield from _park_sync(group, member, request)
    if member.member_id == group.leader_id:
        yield from install(group, {a.member_id: a.assignment for a in request.assignments}, now_ms, context.config)


def _park_sync(group: Group, member: Member, request: SyncGroup) -> Iterator[Output]:
    earlier, member.awaiting_sync = member.awaiting_sync, Parked(request.request_id, request.reply_to)
    group.settle_sync(member)
    if earlier and earlier != member.awaiting_sync:
        yield refuse_sync(earlier, ErrorCode.REBALANCE_IN_PROGRESS)


# -- heartbeats --------------------------------------------------------------------------------------------------------


def heartbeat(group: Group, request: Heartbeat, context: Context) -> Iterator[Output]:
    """Renew a member's session. The response says whether to rejoin."""
    yield _renewed(group.hot_state, request, context.now_ms)


def answer_heartbeat(hot_state: HotState, request: Heartbeat, now_ms: int) -> Reply:
    """Check and answer a heartbeat as its row of `handlers.HANDLERS` does, with only the hot state of its group.

    This is the short path of nearly all requests.
    """
    session = hot_state.sessions.get(request.member_id)
    is_plain = request.group_instance_id is None and request.generation_id == hot_state.generation_id
    if session is None or not is_plain:  # otherwise no check can fail
        for check in checks.OF_A_MEMBER:
            if (error := check(hot_state, request)) is not ErrorCode.NONE:
                return refusal(HeartbeatAnswer, request, error)
    return _renewed(hot_state, request, now_ms)


def _renewed(hot_state: HotState, request: Heartbeat, now_ms: int) -> Reply:
    """Renew a session. The response is REBALANCE_IN_PROGRESS while joins are collected, and to a called member."""
    hot_state.renew(hot_state.sessions[request.member_id], now_ms)
    error = decisions.HEARTBEAT[hot_state.phase]
    if hot_state.called and request.member_id in hot_state.called:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    if error is ErrorCode.NONE:
        return Reply(request.reply_to, HeartbeatAnswer(request_id=request.request_id))
    return refusal(HeartbeatAnswer, request, error)


# -- the heartbeats of one record --------------------------------------------------------------------------------------


def answer(codes: Sequence[int], request: Heartbeats, context: Context) -> Iterator[Output]:
    """Reply to the heartbeats of one record, which are handled already.

    Args:
        codes: The error number of each heartbeat, in the order of the record.
    """
    said = HeartbeatsAnswer(request_id=request.request_id, request_ids=request.request_ids, codes=tuple(codes))
    yield Reply(request.reply_to, said)
