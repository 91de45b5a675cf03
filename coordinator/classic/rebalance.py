"""A rebalance: collect joins, start a generation, send the assignments.

    prepare ── all joins, or the deadline ──> complete ── leader's sync ──> install
                                                 └─ syncs overdue ──> syncs_due ──> prepare

Functions change the group that they are given and yield the outputs; their caller reads all outputs before it
continues.

Source: Kafka's GroupMetadataManager.prepareRebalance, completeClassicGroupJoin, tryCompleteInitialRebalanceElseSchedule
and expirePendingSync; ClassicGroup.initNextGeneration.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import UNSET

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import assigned_partitions, subscribed_topics
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import java_hash
from coordinator.base.limits import JOINS_AGAIN_MS_MIN, NEVER_MS
from coordinator.base.states import Cause, Phase
from coordinator.common.events import RebalanceCause, event, member_event
from coordinator.messages.events import (
    AssignmentChanged,
    GroupEmptied,
    Handover,
    MemberExpired,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.outputs import Output
from coordinator.messages.responses import JoinedMember, JoinGroupAnswer, RebalanceNotice, Reply, SyncGroupAnswer
from coordinator.policies.instability import End, record_end
from coordinator.policies.rules import (
    broken_freeze,
    end_quarantine_of_the_last,
    has_plain_assignments,
    record_requests,
    record_sync,
)
from coordinator.state.classic_group import Delay, Group, Member, Parked
from coordinator.state.policy_state import NO_PARTITIONS

# -- the join round ----------------------------------------------------------------------------------------------------


def prepare(group: Group, cause: RebalanceCause, now_ms: int, config: Config) -> Iterator[Output]:
    """Start a join round: all members must join again within the longest rebalance timeout of the members.

    A rebalance of an Empty group waits for the initial delay instead, so that members that start together share one
    generation. It clears all pending holds of policies.
    """
    group.open_round(now_ms)
    yield from end_quarantine_of_the_last(group, now_ms)
    yield from broken_freeze(group, cause, now_ms, config)
    held_since_ms = group.policy_state.since_ms
    group.end_hold()
    if group.phase is Phase.COMPLETING:
        for member in group.members.values():
            member.assignment = b""
            yield from answer_sync(group, member, now_ms, ErrorCode.REBALANCE_IN_PROGRESS)
            group.settle_sync(member)
    group.hot_state.syncs_ms, group.hot_state.extended = NEVER_MS, False
    is_initial = group.phase is Phase.EMPTY
    group.move(Cause.MEMBERS_CHANGED, now_ms)

    wait_ms = config.group_initial_rebalance_delay_ms if is_initial else group.rebalance_timeout_ms
    group.hot_state.joins_ms = group.hot_state.wait(now_ms, wait_ms)
    yield event(
        RebalanceStarted,
        group,
        now_ms,
        cause=cause.name,
        member_id=cause.member_id,
        client_id=cause.client_id,
        client_host=cause.client_host,
        reason=cause.reason,
        members=len(group.members),
        joins_until_ms=group.hot_state.joins_ms,
        held_ms=UNSET if held_since_ms in (None, now_ms) else now_ms - held_since_ms,
    )
    yield from _notices(group)
    if is_initial:
        group.delay = Delay(wait_ms, max(group.rebalance_timeout_ms - wait_ms, 0))
    elif group.everybody_joined:
        yield from complete(group, now_ms, config)


def prepare_or_try_to_complete(group: Group, cause: RebalanceCause, now_ms: int, config: Config) -> Iterator[Output]:
    """Start a rebalance. If the group collects joins already, end the join round if no join is missing."""
    if group.phase is Phase.PREPARING:
        yield from try_to_complete(group, now_ms, config)
    else:
        yield from prepare(group, cause, now_ms, config)


def try_to_complete(group: Group, now_ms: int, config: Config) -> Iterator[Output]:
    """End the join round if no join is missing. The initial delay is never cut short."""
    if group.phase is Phase.PREPARING and group.delay is None and group.everybody_joined:
        yield from complete(group, now_ms, config)


def joins_due(group: Group, now_ms: int, config: Config) -> Iterator[Output]:
    """End the join round at its deadline, or extend the initial delay if a member joined during it."""
    delay = group.delay
    if delay and group.newcomers and delay.remaining_ms:
        group.newcomers = False
        next_ms = min(delay.delay_ms, delay.remaining_ms)
        group.delay = Delay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
        group.hot_state.joins_ms = group.hot_state.wait(now_ms, next_ms)
        return
    yield from complete(group, now_ms, config)


def complete(group: Group, now_ms: int, config: Config) -> Iterator[Output]:
    """Start the next generation with the members that have joined, and drop dynamic members that have not.

    Static members stay, because they may only be restarting. If no member has joined and only static ones are left, no
    generation starts, and the wait begins once more. Members in quarantine are no part of the generation, unless no
    other member is left.
    """
    hot_state = group.hot_state
    hot_state.joins_ms, hot_state.extended, group.delay = NEVER_MS, False, None
    for member in [m for m in group.members.values() if not m.awaiting_join and not m.is_static]:
        record_end(group, member, End.OVERDUE, now_ms, config)
        yield from expel_member(group, member, "joins_overdue", now_ms)
    yield from end_quarantine_of_the_last(group, now_ms)
    if not group.members:
        yield from _become_empty(group, now_ms)
        return
    present = [m.member_id for m in group.visible if m.awaiting_join]
    if not present:
        wait_ms = group.rebalance_timeout_ms or _shortest_session_ms(group)
        hot_state.joins_ms = hot_state.wait(now_ms, max(wait_ms, JOINS_AGAIN_MS_MIN))
        return
    if not group.members[group.leader_id or ""].awaiting_join or group.leader_id in group.policy_state.quarantined:
        group.leader_id = present[0]
    hot_state.generation_id += 1
    group.protocol_name = vote(group)
    group.subscribed_topics, group.policy_state.topics = subscribed(group), {}
    record_requests(group, config)
    group.move(Cause.JOINS_COMPLETE, now_ms)
    assert group.round is not None, "joins are collected in a round"
    group.round.joined_ms = now_ms
    for member in group.members.values():
        yield from answer_join(group, member)
        hot_state.renew(hot_state.sessions[member.member_id], now_ms)
        member.is_new, member.owes_sync = False, member.member_id not in group.policy_state.quarantined
    group.syncs_owed = len(group.members) - len(group.policy_state.quarantined)
    hot_state.syncs_ms = hot_state.wait(now_ms, group.rebalance_timeout_ms)


def _shortest_session_ms(group: Group) -> int:
    return min(session.timeout_ms for session in group.hot_state.sessions.values())


def _become_empty(group: Group, now_ms: int) -> Iterator[Output]:
    group.hot_state.generation_id += 1
    group.protocol_name, group.round = None, None
    group.subscribed_topics = () if group.is_readable else None
    group.move(Cause.NOBODY_LEFT, now_ms)
    group.schedule_offset_expiry(now_ms)
    yield event(GroupEmptied, group, now_ms)


def _notices(group: Group) -> Iterator[Output]:
    for member in group.members.values():
        if not member.awaiting_join:
            yield Reply(
                member.reply_to,
                RebalanceNotice(
                    request_id=None,
                    group_id=group.group_id,
                    generation_id=group.generation_id,
                    member_id=member.member_id,
                ),
            )


def vote(group: Group) -> str:
    """Return the assignor: each member votes for the first of its own that all offer; ties go by Java's hash order.

    Source: Kafka's ClassicGroup.selectProtocol, whose ties fall to the order of a 16-bucket Java HashMap.
    """
    candidates = {name for name, supporters in group.supporters.items() if supporters == len(group.members)}
    votes = Counter(next(p.name for p in m.protocols if p.name in candidates) for m in group.members.values())

    def rank(name: str) -> tuple[int, int, str]:
        h = java_hash(name)
        return -votes[name], (h ^ h >> 16) & 15, name

    return min(votes, key=rank)


def subscribed(group: Group) -> tuple[str, ...] | None:
    if not group.is_readable:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        subscription = subscribed_topics(member.metadata(group.protocol_name))
        if subscription is None:
            return None
        topics.update(subscription)
    return tuple(sorted(topics))


# -- the assignments ---------------------------------------------------------------------------------------------------


def install(group: Group, plan: Mapping[str, bytes], now_ms: int, config: Config) -> Iterator[Output]:
    """Install the leader's assignments, and answer the parked syncs. Later syncs are answered as they come.

    A member without an entry gets an empty assignment, and a member in quarantine one without partitions. Entries for
    unknown member ids are ignored. All members get one fencing token, which is above that of every earlier generation.
    """
    token = group.next_token(now_ms, config.fencing_token_floor)
    plan = (
        {**plan, **dict.fromkeys(group.policy_state.quarantined, NO_PARTITIONS)}
        if group.policy_state.quarantined
        else plan
    )
    group.assigned_bytes = 0
    for member in group.members.values():
        member.assignment, member.fencing_token = plan.get(member.member_id, b""), token
        group.assigned_bytes += len(member.assignment)
        yield from answer_sync(group, member, now_ms)
    group.move(Cause.LEADER_SYNCED, now_ms)
    group.schedule_offset_expiry(now_ms)
    ended, group.round = group.round, None
    assert ended is not None, "the assignments end a round"
    members = tuple(group.members)
    yield event(
        RebalanceCompleted,
        group,
        now_ms,
        duration_ms=now_ms - ended.started_ms,
        joins_ms=ended.joined_ms - ended.started_ms,
        syncs_ms=now_ms - ended.joined_ms,
        protocol_name=group.protocol_name,
        leader=group.leader_id,
        members_before=tuple(ended.before),
        members_after=members,
        joined=tuple(m for m in members if m not in ended.before),
        gone=tuple(m for m in ended.before if m not in group.members),
        fencing_token=token,
    )
    handovers = _handovers(group, ended.before)
    is_unfinished = any(h.after is None and h.before in group.members for h in handovers)
    group.policy_state.is_unfinished = is_unfinished and has_plain_assignments(group, config)
    if handovers:
        yield event(AssignmentChanged, group, now_ms, handovers=handovers)


def _handovers(group: Group, before: Mapping[str, bytes]) -> tuple[Handover, ...]:
    if not group.is_readable:
        return ()
    old = _owners(before)
    new = _owners({m.member_id: m.assignment for m in group.members.values()})
    moved = sorted(p for p in old.keys() | new.keys() if old.get(p) != new.get(p))
    return tuple(Handover(topic, partition, old.get((topic, partition)), new.get((topic, partition)))
                 for topic, partition in moved)  # fmt: skip


def _owners(assignments: Mapping[str, bytes]) -> dict[tuple[str, int], str]:
    return {
        (topic, partition): member_id
        for member_id, assignment in assignments.items()
        for topic, partitions in (assigned_partitions(assignment) or {}).items()
        for partition in partitions
    }


# -- members' parked requests ------------------------------------------------------------------------------------------


def answer_join(group: Group, member: Member) -> Iterator[Output]:
    """Answer a member's parked join, if it has one, with the group's present generation."""
    parked, member.awaiting_join = member.awaiting_join, None
    if parked:
        group.joins_parked -= 1
        yield Reply(parked.reply_to, joined(group, member, parked.request_id))


def joined(group: Group, member: Member, request_id: str) -> JoinGroupAnswer:
    """Return the response to a member's join; the leader's response lists all members."""
    everyone: tuple[JoinedMember, ...] = ()
    if member.member_id == group.leader_id:
        everyone = tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(group.protocol_name)) for m in group.visible
        )
    return JoinGroupAnswer(
        request_id=request_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=everyone,
    )


def refuse_join(parked: Parked, error: ErrorCode, member_id: str = "") -> Reply:
    """Return the response to a join with an error."""
    answer = JoinGroupAnswer(request_id=parked.request_id, error=error.name, code=error.number, member_id=member_id)
    return Reply(parked.reply_to, answer)


def answer_sync(group: Group, member: Member, now_ms: int, error: ErrorCode = ErrorCode.NONE) -> Iterator[Output]:
    """Answer a member's parked sync, if it has one, and renew its session, which could not expire meanwhile."""
    parked, member.awaiting_sync = member.awaiting_sync, None
    if parked:
        group.hot_state.renew(group.hot_state.sessions[member.member_id], now_ms)
        record_sync(group, member.member_id, parked)
        yield synced(group, member, parked) if error is ErrorCode.NONE else refuse_sync(parked, error)


def synced(group: Group, member: Member, request_ref: Parked) -> Reply:
    """Return the response to a sync, with the member's assignment."""
    answer = SyncGroupAnswer(
        request_id=request_ref.request_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
        fencing_token=member.fencing_token,
    )
    return Reply(request_ref.reply_to, answer)


def refuse_sync(parked: Parked, error: ErrorCode) -> Reply:
    """Return the response to a sync with an error."""
    return Reply(parked.reply_to, SyncGroupAnswer(request_id=parked.request_id, error=error.name, code=error.number))


def expel_member(group: Group, member: Member, why: str, now_ms: int, *, reason: str | None = None) -> Iterator[Output]:
    """Remove a member that did not leave by itself; its parked requests are answered UNKNOWN_MEMBER_ID."""
    group.open_round(now_ms)
    yield from remove_member(group, member)
    yield expired(group, member, why, now_ms, reason=reason)


def expired(
    group: Group, member: Member, why: str, now_ms: int, *, silence_ms: int | None = None, reason: str | None = None
) -> MemberExpired:
    """Make the event of a member that was removed and did not leave by itself."""
    return member_event(MemberExpired, group, member, now_ms, why=why, silence_ms=silence_ms, reason=reason)


def remove_member(group: Group, member: Member) -> Iterator[Output]:
    """Remove a member and answer its parked requests. The caller then updates the group for the other members.

    If a rebalance has to follow, its caller has opened the round before.
    """
    group.remove(member)
    if member.awaiting_join:
        yield refuse_join(member.awaiting_join, ErrorCode.UNKNOWN_MEMBER_ID)
    if member.awaiting_sync:
        yield refuse_sync(member.awaiting_sync, ErrorCode.UNKNOWN_MEMBER_ID)
