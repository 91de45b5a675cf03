"""Joining, syncing, staying alive, leaving, and being given up.

Each handler's checks stand in Kafka's order and leave at once; what a member of the current generation hears comes
from the tables of `answers`.

Source: Kafka's GroupMetadataManager, methods classicGroupJoin, classicGroupSync, classicGroupHeartbeat and
classicGroupLeave; KIP-62, KIP-394, KIP-800. Static members (KIP-345) are not served yet.
"""

from collections.abc import Iterator

from coordinator import answers
from coordinator.config import Config
from coordinator.errors import ErrorCode
from coordinator.group import NEVER_MS, Group, Member, Parked, Session, Vitals
from coordinator.outputs import (
    LeaveGroupAnswer,
    LeftMember,
    MemberJoined,
    MemberLeft,
    Output,
    Reply,
)
from coordinator.phases import Phase
from coordinator.rebalance import (
    Blame,
    complete,
    drop,
    install,
    joined,
    let_go,
    prepare,
    prepare_or_try_to_complete,
    refuse_join,
    synced,
)
from coordinator.refusals import refuse
from coordinator.requests import Heartbeat, JoinGroup, LeaveGroup, Leaving, SyncGroup

# -- joining -----------------------------------------------------------------------------------------------------------


def misjoined(request: JoinGroup, config: Config) -> ErrorCode:
    """Check what can be checked of a join before any group is looked at."""
    if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if request.group_instance_id is not None:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def join(group: Group | None, request: JoinGroup, now_ms: int, config: Config, suffix: str) -> Iterator[Output]:
    """Take a member into the next generation. The reply comes when the join round ends, or at once where noted.

    Args:
        group: None where there is none; a join with an unknown id ("") finds one made for it.
        suffix: What makes an id unique, should this join be given one.

    Replies with:
        INVALID_SESSION_TIMEOUT, UNSUPPORTED_VERSION, GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL: at once.
        UNKNOWN_MEMBER_ID: at once; or later, when the member is given up before its round ends.
        MEMBER_ID_REQUIRED: at once, with the id to join with.
        NONE: at once, where a member's earlier reply must have been lost.
    """
    asked = Parked(request.request_id, request.reply_to)
    if (error := misjoined(request, config)) is not ErrorCode.NONE:
        yield refuse(request, error)
    elif group is None:
        yield refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    elif not _has_room(group, request.member_id, config):
        yield from _turn_away(group, request.member_id, now_ms)
        yield refuse_join(asked, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not group.supports(request.protocol_type, request.protocols):
        yield refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif not request.member_id:
        member_id = f"{request.client_id}-{suffix}"
        if request.require_known_member_id:
            vitals = group.vitals
            vitals.pending[member_id] = Session(NEVER_MS, request.session_timeout_ms)
            vitals.renew(vitals.pending[member_id], now_ms)
            yield refuse_join(asked, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            yield from _join_newcomer(group, request, member_id, asked, now_ms, config)
    elif request.member_id in group.vitals.pending:
        yield from _join_newcomer(group, request, request.member_id, asked, now_ms, config)
    elif request.member_id not in group.members:
        yield refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        yield from _rejoin(group, group.members[request.member_id], request, asked, now_ms, config)


def _has_room(group: Group, member_id: str, config: Config) -> bool:
    """While joins are collected, the first to come are in; otherwise members are, and others while there is room."""
    if group.phase is Phase.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.phase is Phase.PREPARING:
        return bool(member and member.awaiting_join) or group.joins_parked < config.group_max_size
    return member is not None or len(group.members) < config.group_max_size


def _turn_away(group: Group, member_id: str, now_ms: int) -> Iterator[Output]:
    group.vitals.pending.pop(member_id, None)
    if member := group.members.get(member_id):
        yield from drop(group, member, "group_full", now_ms)


def _join_newcomer(
    group: Group, request: JoinGroup, member_id: str, asked: Parked, now_ms: int, config: Config
) -> Iterator[Output]:
    if group.phase is Phase.PREPARING and group.delay:
        group.newcomers = True
    member = Member(
        member_id=member_id,
        group_instance_id=None,
        client_id=request.client_id,
        client_host=request.client_host,
        reply_to=request.reply_to,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
    )
    session = Session(now_ms + config.group_new_member_join_timeout_ms, request.session_timeout_ms)
    group.add(member, session, request.protocol_type, now_ms)
    yield MemberJoined(
        group_id=group.group_id,
        version=group.next_version(),
        at_ms=now_ms,
        generation_id=group.generation_id,
        member_id=member_id,
        client_id=request.client_id,
        client_host=request.client_host,
        reason=request.reason,
    )
    yield from _park_join(group, member, asked)
    yield from prepare_or_try_to_complete(group, blame(member, "member_joined", request.reason), now_ms, config)


def _rejoin(
    group: Group, member: Member, request: JoinGroup, asked: Parked, now_ms: int, config: Config
) -> Iterator[Output]:
    is_leader, same = member.member_id == group.leader_id, member.protocols == request.protocols
    become = answers.rejoin(group.phase, is_leader=is_leader, same_protocols=same)
    if become is answers.Rejoin.REPEAT:
        yield Reply(asked.reply_to, joined(group, member, asked.request_id))
        return
    group.offer(member, request.protocols)
    member.rebalance_timeout_ms, member.reply_to = request.rebalance_timeout_ms, request.reply_to
    group.vitals.sessions[member.member_id].timeout_ms = request.session_timeout_ms
    yield from _park_join(group, member, asked)
    cause = "leader_rejoined" if same else "metadata_changed"
    yield from prepare_or_try_to_complete(group, blame(member, cause, request.reason), now_ms, config)


def _park_join(group: Group, member: Member, asked: Parked) -> Iterator[Output]:
    """Park a join. One that the member had parked before is answered; Kafka forgets it (KAFKA-20938)."""
    earlier, member.awaiting_join = member.awaiting_join, asked
    group.joins_parked += earlier is None
    if earlier and earlier != asked:
        yield refuse_join(earlier, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)


def blame(member: Member, cause: str, reason: str | None = None) -> Blame:
    """Name a member as the one behind a rebalance."""
    return Blame(cause, member.member_id, member.client_id, member.client_host, reason)


# -- syncing -----------------------------------------------------------------------------------------------------------


def sync(group: Group | None, request: SyncGroup, now_ms: int) -> Iterator[Output]:
    """Give a member its part of the plan, at once or when the leader brings it; take the plan from the leader.

    Replies with:
        UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL: at once.
        REBALANCE_IN_PROGRESS: at once where joins are collected; later where a rebalance overtakes the plan.
    """
    member = group.members.get(request.member_id) if group else None
    if group is None or member is None:
        yield refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    elif request.generation_id != group.generation_id:
        yield refuse(request, ErrorCode.ILLEGAL_GENERATION)
    elif _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        yield refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif answers.SYNC[group.phase] is answers.Sync.REJOIN:
        yield refuse(request, ErrorCode.REBALANCE_IN_PROGRESS)
    elif answers.SYNC[group.phase] is answers.Sync.PLAN:
        group.settle_sync(member)
        group.vitals.renew(group.vitals.sessions[member.member_id], now_ms)
        yield Reply(request.reply_to, synced(group, member, request.request_id))
    else:
        yield from _park_sync(group, member, request)
        if member.member_id == group.leader_id:
            yield from install(group, {a.member_id: a.assignment for a in request.assignments}, now_ms)


def _park_sync(group: Group, member: Member, request: SyncGroup) -> Iterator[Output]:
    earlier, member.awaiting_sync = member.awaiting_sync, Parked(request.request_id, request.reply_to)
    group.settle_sync(member)
    if earlier and earlier != member.awaiting_sync:
        answer = synced(group, member, earlier.request_id, ErrorCode.REBALANCE_IN_PROGRESS)
        yield Reply(earlier.reply_to, answer)


def _differs(asked: str | None, known: str | None) -> bool:
    return asked is not None and known is not None and asked != known


# -- staying alive -----------------------------------------------------------------------------------------------------


def heartbeat(vitals: Vitals, request: Heartbeat, now_ms: int) -> ErrorCode:
    """Renew a member's session and tell it whether to rejoin. The one handler that needs a group's vitals only.

    Replies with:
        UNKNOWN_MEMBER_ID: the member never joined, or its session ran out.
        ILLEGAL_GENERATION: the request is from another generation.
        REBALANCE_IN_PROGRESS: joins are being collected; the session is renewed all the same.
    """
    session = vitals.sessions.get(request.member_id)
    if session is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.generation_id != vitals.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    vitals.renew(session, now_ms)
    return answers.HEARTBEAT[vitals.phase]


# -- leaving and being given up ----------------------------------------------------------------------------------------


def leave(group: Group | None, request: LeaveGroup, now_ms: int, config: Config) -> Iterator[Output]:
    """Let members go at once. However many they are, the others rebalance once.

    Replies with, for each entry:
        UNKNOWN_MEMBER_ID: no such member.
    """
    left: list[LeftMember] = []
    behind: Blame | None = None
    for entry in request.members:
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group and entry.member_id in group.vitals.pending:
            del group.vitals.pending[entry.member_id]
            behind = behind or Blame(
                "member_left", entry.member_id, request.client_id, request.client_host, entry.reason
            )
            error = ErrorCode.NONE
        elif group and (member := group.members.get(entry.member_id)):
            behind = behind or blame(member, "member_left", entry.reason)
            yield from _leave_one(group, member, entry, now_ms)
            error = ErrorCode.NONE
        left.append(LeftMember(entry.member_id, entry.group_instance_id, error.name, error.number))
    yield Reply(request.reply_to, LeaveGroupAnswer(request_id=request.request_id, members=tuple(left)))
    if group and behind and group.phase is not Phase.EMPTY:
        yield from prepare_or_try_to_complete(group, behind, now_ms, config)


def _leave_one(group: Group, member: Member, entry: Leaving, now_ms: int) -> Iterator[Output]:
    yield from let_go(group, member, now_ms)
    yield MemberLeft(
        group_id=group.group_id,
        version=group.next_version(),
        at_ms=now_ms,
        generation_id=group.generation_id,
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        reason=entry.reason,
    )


def session_due(group: Group, member: Member, now_ms: int, config: Config) -> Iterator[Output]:
    """Give up a member whose session is over, unless a request of its own is parked here: then it has done its part.

    A member in its first join round has no such excuse: its join is given up after `group_new_member_join_timeout_ms`.
    """
    session = group.vitals.sessions[member.member_id]
    if not member.is_new and (member.awaiting_join or member.awaiting_sync):
        session.deadline_ms = NEVER_MS
        return
    silence_ms = None if member.is_new or session.spared else session.timeout_ms
    yield from drop(group, member, "session_expired", now_ms, silence_ms)
    if group.phase is not Phase.PREPARING:
        yield from prepare(group, blame(member, "session_expired"), now_ms, config)
    elif group.everybody_joined:
        yield from complete(group, now_ms)


def pending_due(group: Group, member_id: str, now_ms: int) -> Iterator[Output]:
    """Give up an id that was handed out and never came back."""
    del group.vitals.pending[member_id]
    if group.phase is Phase.PREPARING and group.everybody_joined:
        yield from complete(group, now_ms)
