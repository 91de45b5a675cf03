"""Joining, syncing, staying alive.

Whether a request is let in at all stands in the tables of `checks`; what a member of the current generation hears
comes from those of `answers`.

Source: Kafka's GroupMetadataManager, methods classicGroupJoin, classicGroupSync, classicGroupHeartbeat and
updateStaticMemberThenRebalanceOrCompleteJoin; KIP-62, KIP-345, KIP-394, KIP-800, KIP-814.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from coordinator import answers, checks
from coordinator.config import Config
from coordinator.consumer_protocol import subscribed_topics
from coordinator.describe import publish_at_a_bounded_rate
from coordinator.errors import ErrorCode
from coordinator.events import member_event
from coordinator.group import NEVER_MS, Group, Member, Parked, Session, Vitals
from coordinator.limits import PENDING_MAX
from coordinator.outputs import JoinGroupAnswer, MemberFenced, MemberJoined, Output, Reply
from coordinator.phases import Phase
from coordinator.rebalance import (
    blame,
    drop,
    install,
    joined,
    prepare_or_try_to_complete,
    refuse_join,
    refuse_sync,
    synced,
    vote,
)
from coordinator.refusals import refuse
from coordinator.requests import Heartbeat, JoinGroup, Protocol, SyncGroup

# -- joining -----------------------------------------------------------------------------------------------------------


def join(group: Group | None, request: JoinGroup, now_ms: int, config: Config, suffix: str) -> Iterator[Output]:
    """Take a member into the next generation. The reply comes when the join round ends, or at once where noted.

    Args:
        group: None where there is none; a join with an unknown id ("") finds one made for it.
        suffix: What makes an id unique, should this join be given one; the same whenever a join comes again that
            `is_known_by_its_id`.

    Replies with:
        what `checks` refuse a join for: at once.
        UNKNOWN_MEMBER_ID: later, when the member is given up before its round ends.
        FENCED_INSTANCE_ID: later, when another process comes under its instance id before that.
        MEMBER_ID_REQUIRED: at once, with the id to join with.
        NONE: at once, where a member's earlier reply must have been lost, or a static one comes back as it was.
    """
    asked = Parked(request.request_id, request.reply_to)
    new_id = f"{request.client_id if request.group_instance_id is None else request.group_instance_id}-{suffix}"
    if group is not None and (member := _made_by(group, request, asked, new_id)):
        yield from _join_again(group, member, request, asked)
        return
    error = checks.refused(group, request, config)
    if group is None or error is not ErrorCode.NONE:
        if group is not None and error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            yield from _turn_away(group, request.member_id, now_ms)
        yield refuse(request, error)
    elif request.member_id in group.vitals.pending:
        yield from _join_newcomer(group, request, request.member_id, asked, now_ms, config)
    elif request.member_id:
        yield from _rejoin(group, group.members[request.member_id], request, asked, now_ms, config)
    elif request.group_instance_id is not None:
        yield from _join_static(group, request, asked, now_ms, config, new_id)
    elif request.require_known_member_id:
        yield _hand_out(group, request, asked, now_ms, new_id)
    else:
        yield from _join_newcomer(group, request, new_id, asked, now_ms, config)


def is_known_by_its_id(request: JoinGroup) -> bool:
    """Tell whether a join makes its member at once, under an id that a repeat of it finds.

    Not with an instance id: two processes that take turns would take their old ids again, which are fenced.
    """
    return not (request.member_id or request.require_known_member_id or request.group_instance_id is not None)


def _made_by(group: Group, request: JoinGroup, asked: Parked, new_id: str) -> Member | None:
    """Find the member that this very join has made, where it comes again."""
    if is_known_by_its_id(request):
        return group.members.get(new_id)
    if request.member_id or request.group_instance_id is None:
        return None
    holder = group.members.get(group.vitals.instances.get(request.group_instance_id, ""))
    return holder if holder and holder.made_by == asked else None


def _join_again(group: Group, member: Member, request: JoinGroup, asked: Parked) -> Iterator[Output]:
    """Answer a join that has been taken already: it changes nothing, and fences nobody (KAFKA-20985)."""
    if member.awaiting_join == asked:
        return
    if group.phase is Phase.PREPARING:
        yield refuse_join(asked, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    else:
        yield Reply(asked.reply_to, _told_to_keep(group, member, request))


def _turn_away(group: Group, member_id: str, now_ms: int) -> Iterator[Output]:
    group.vitals.pending.pop(member_id, None)
    if member := group.members.get(member_id):
        yield from drop(group, member, "group_full", now_ms)


def _hand_out(group: Group, request: JoinGroup, asked: Parked, now_ms: int, member_id: str) -> Reply:
    pending = group.vitals.pending
    if len(pending) >= PENDING_MAX:
        del pending[next(iter(pending))]
    session = pending[member_id] = Session(NEVER_MS, request.session_timeout_ms)
    group.vitals.renew(session, now_ms)
    return refuse_join(asked, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _join_newcomer(
    group: Group, request: JoinGroup, member_id: str, asked: Parked, now_ms: int, config: Config
) -> Iterator[Output]:
    if group.phase is Phase.PREPARING and group.delay:
        group.newcomers = True
    member = _member(request, member_id)
    session = Session(now_ms + config.group_new_member_join_timeout_ms, request.session_timeout_ms)
    group.add(member, session, request.protocol_type, now_ms)
    yield member_event(MemberJoined, group, member, now_ms, reason=request.reason)
    yield from _park_join(group, member, asked)
    yield from prepare_or_try_to_complete(group, blame(member, "member_joined", request.reason), now_ms, config)


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
    group: Group, member: Member, request: JoinGroup, asked: Parked, now_ms: int, config: Config
) -> Iterator[Output]:
    member.reply_to = request.reply_to
    is_leader, same = member.member_id == group.leader_id, member.protocols == request.protocols
    become = answers.rejoin(group.phase, is_leader=is_leader, same_protocols=same)
    if become is answers.Rejoin.REPEAT:
        yield Reply(asked.reply_to, joined(group, member, asked.request_id))
        return
    asks_as_before = _asked_for(member.protocols) == _asked_for(request.protocols)
    group.offer(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    group.vitals.sessions[member.member_id].timeout_ms = request.session_timeout_ms
    yield from _park_join(group, member, asked)
    cause = "leader_rejoined" if is_leader and asks_as_before else "metadata_changed"
    yield from prepare_or_try_to_complete(group, blame(member, cause, request.reason), now_ms, config)


def _asked_for(protocols: Iterable[Protocol]) -> list[tuple[str, object]]:
    """Say what a member offers and wants; its metadata may also tell what it owns, and since which generation."""
    return [(p.name, subscribed_topics(p.metadata) or p.metadata) for p in protocols]


def _park_join(group: Group, member: Member, asked: Parked) -> Iterator[Output]:
    """Park a join. One that the member had parked before is answered; Kafka forgets it (KAFKA-20938)."""
    earlier, member.awaiting_join = member.awaiting_join, asked
    group.joins_parked += earlier is None
    if earlier and earlier != asked:
        yield refuse_join(earlier, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)


# -- joining under an instance id --------------------------------------------------------------------------------------


def _join_static(
    group: Group, request: JoinGroup, asked: Parked, now_ms: int, config: Config, member_id: str
) -> Iterator[Output]:
    holder = group.vitals.instances.get(request.group_instance_id or "")
    if holder is None:
        yield from _join_newcomer(group, request, member_id, asked, now_ms, config)
    else:
        yield from _replace(group, group.members[holder], request, asked, now_ms, config, member_id)


def _replace(
    group: Group, old: Member, request: JoinGroup, asked: Parked, now_ms: int, config: Config, member_id: str
) -> Iterator[Output]:
    """Let a static member's new process take over from the old one, which is fenced from now on.

    While the group is Stable and the protocol stays the same, nobody else need know: no rebalance. The new process is
    given a fencing token of its own, which its sync answers: the old one may be paused and not know yet.
    """
    leader_before, session = group.leader_id, group.vitals.sessions[old.member_id]
    new = _member(request, member_id)
    new.assignment, new.is_new = old.assignment, False
    new.fencing_token = group.next_token(now_ms, config.fencing_token_floor)
    deadline_ms = group.vitals.wait(now_ms, session.timeout_ms)
    group.replace(old, new, Session(deadline_ms, request.session_timeout_ms))
    yield from _fence(old, asked)
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
    if group.phase is Phase.STABLE and (_offers_alike(old, new) or vote(group) == group.protocol_name):
        yield from publish_at_a_bounded_rate(group, now_ms)
        answer = _told_to_keep(group, new, request)
        if not request.supports_skipping_assignment:  # it must not plan anew, so it is made to believe that it follows
            answer = replace(answer, leader=leader_before, members=())
        yield Reply(asked.reply_to, answer)
        return
    yield from _park_join(group, new, asked)
    cause = blame(new, "static_member_replaced", request.reason)
    yield from prepare_or_try_to_complete(group, cause, now_ms, config)


def _offers_alike(old: Member, new: Member) -> bool:
    """Return whether a vote comes out as before, without counting everybody's."""
    return [p.name for p in old.protocols] == [p.name for p in new.protocols]


def _fence(old: Member, asked: Parked) -> Iterator[Output]:
    """Answer what the old process had parked. Where that is the asker itself, which lost patience, it may ask again."""
    parked = old.awaiting_join or old.awaiting_sync
    if parked:
        is_itself = parked.reply_to == asked.reply_to
        error = ErrorCode.REBALANCE_IN_PROGRESS if is_itself else ErrorCode.FENCED_INSTANCE_ID
        yield refuse_join(parked, error, old.member_id) if old.awaiting_join else refuse_sync(parked, error)


def _told_to_keep(group: Group, member: Member, request: JoinGroup) -> JoinGroupAnswer:
    """Say which generation goes on as it is; a leader hears that the plan is there, if it can be told."""
    is_leader, is_planned = member.member_id == group.leader_id, group.phase is Phase.STABLE
    skip = is_leader and is_planned and request.supports_skipping_assignment
    return replace(joined(group, member, request.request_id), skip_assignment=skip)


# -- syncing -----------------------------------------------------------------------------------------------------------


def sync(group: Group | None, request: SyncGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """Give a member its part of the plan, at once or when the leader brings it; take the plan from the leader.

    Replies with:
        what `checks` refuse a sync for: at once.
        REBALANCE_IN_PROGRESS: at once where joins are collected; later where a rebalance overtakes the plan.
        FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID: later, where the member is replaced or given up before the plan comes.
    """
    error = checks.refused(group, request, config)
    if group is None or error is not ErrorCode.NONE:
        yield refuse(request, error)
        return
    member = group.members[request.member_id]
    become = answers.SYNC[group.phase]
    if become is answers.Sync.REJOIN:
        yield refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)
    elif become is answers.Sync.PLAN:
        group.settle_sync(member)
        group.vitals.renew(group.vitals.sessions[member.member_id], now_ms)
        yield synced(group, member, Parked(request.request_id, request.reply_to))
    else:
        yield from _park_sync(group, member, request)
        if member.member_id == group.leader_id:
            yield from install(group, {a.member_id: a.assignment for a in request.assignments}, now_ms, config)


def _park_sync(group: Group, member: Member, request: SyncGroup) -> Iterator[Output]:
    earlier, member.awaiting_sync = member.awaiting_sync, Parked(request.request_id, request.reply_to)
    group.settle_sync(member)
    if earlier and earlier != member.awaiting_sync:
        yield refuse_sync(earlier, ErrorCode.REBALANCE_IN_PROGRESS)


# -- staying alive -----------------------------------------------------------------------------------------------------


def heartbeat(vitals: Vitals, request: Heartbeat, now_ms: int) -> ErrorCode:
    """Renew a member's session and tell it whether to rejoin. The one handler that needs a group's vitals only.

    Replies with:
        what `checks` refuse a heartbeat for.
        REBALANCE_IN_PROGRESS: joins are being collected; the session is renewed all the same.
    """
    session = vitals.sessions.get(request.member_id)
    is_plain = request.group_instance_id is None and request.generation_id == vitals.generation_id
    if session is None or not is_plain:  # else no check can fail: nearly always, so they are not asked
        for check in checks.OF_A_MEMBER:
            if (error := check(vitals, request)) is not ErrorCode.NONE:
                return error
    vitals.renew(vitals.sessions[request.member_id], now_ms)
    return answers.HEARTBEAT[vitals.phase]
