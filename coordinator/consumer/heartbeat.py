"""Heartbeats of the consumer protocol: a member joins, reconciles, renews its session, goes away or leaves.

    1. `checks` refuses a wrong request
    2. the member is found or added, or it replaces a static member that went away
    3. the request updates the member and the group; the group epoch is raised if a new target assignment is needed
    4. the target assignment is computed if it is due
    5. the member is reconciled with its target
    6. the session is renewed, and the request is answered

Source: Kafka's GroupMetadataManager.consumerGroupHeartbeat, consumerGroupLeave; KIP-848.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import UNSET, structs

from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import member_suffix
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.common.events import event, member_cause, member_event
from coordinator.consumer import quarantine, target_assignment, topics
from coordinator.consumer.checks import JOIN_EPOCH, is_blank, owns_few_partitions
from coordinator.consumer.epochs import raise_epoch
from coordinator.consumer.leave import go_away, leave
from coordinator.consumer.reconcile import reconcile
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import EpochFenced, MemberBack, MemberJoined
from coordinator.messages.outputs import Output
from coordinator.messages.responses import AssignedTopic, ConsumerGroupHeartbeatAnswer, Reply
from coordinator.policies.instability import record_join
from coordinator.state.consumer_group import AWAY_EPOCH, ConsumerGroup, ConsumerHotState
from coordinator.state.consumer_member import ConsumerMember, MemberSession, MemberState
from coordinator.state.group import GroupHotState, Session


def answer_heartbeat(
    hot_state: GroupHotState, request: ConsumerGroupHeartbeat, now_ms: int, config: Config
) -> Reply | None:
    """Return the reply to a settled member's heartbeat that only renews its session; None for all other heartbeats."""
    if not isinstance(hot_state, ConsumerHotState):
        return None
    session = hot_state.sessions.get(request.member_id)
    if session is None or not session.is_settled or session.is_classic or session.epoch != request.member_epoch:
        return None
    instance_id = request.group_instance_id
    is_assigning = hot_state.group_epoch != hot_state.assignment_epoch and not hot_state.is_frozen
    if not request.is_plain or hot_state.asks or is_assigning:
        return None
    if instance_id is not None and hot_state.instances.get(instance_id) != request.member_id:
        return None
    if request.topic_partitions and owns_few_partitions(request, config) is not ErrorCode.NONE:
        return None
    if not request.again:
        hot_state.renew(session, now_ms)
    answer = ConsumerGroupHeartbeatAnswer(
        request_id=request.request_id,
        member_id=request.member_id,
        member_epoch=session.epoch,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
    )
    return Reply(request.reply_to, answer)


def heartbeat(group: ConsumerGroup, request: ConsumerGroupHeartbeat, context: Context) -> Iterator[Output]:
    """Handle a heartbeat that has passed all checks."""
    if request.member_epoch == AWAY_EPOCH:
        yield from go_away(group, request, context)
    elif request.member_epoch < JOIN_EPOCH:
        yield from leave(group, request, context)
    else:
        yield from _follow(group, request, context)


def _follow(group: ConsumerGroup, request: ConsumerGroupHeartbeat, context: Context) -> Iterator[Output]:
    now_ms, config = context.now_ms, context.config
    members = len(group.members)
    member, arrival = _enter(group, request, context)
    if arrival is not None:
        yield arrival
    before, previous_epoch = member.assigned, member.previous_epoch
    is_aware = not request.again and request.member_epoch in (JOIN_EPOCH, group.epoch_of(member.member_id))
    cause, has_changed, has_learned = _handle(group, member, request, config)
    is_new = isinstance(arrival, MemberJoined)
    if is_new:
        yield from quarantine.quarantine(group, member, now_ms, config)
    if len(group.members) < members:
        cause = "member_left"  # it takes the place of a static member, and was another member before
    elif cause is not None and is_new:
        cause = "member_joined"
        if member.member_id in group.policy_state.quarantined:
            cause = "topics_changed" if has_learned else None
    if cause is not None:
        yield from raise_epoch(group, member_cause(member, cause), now_ms, config)
    if target_assignment.is_due(group, now_ms, config):
        yield from target_assignment.make_plan(group, now_ms, config, request.server_assignor)
    if reconcile(group, member, request.topic_partitions, has_changed=has_changed):
        _await_revocation(group, member, now_ms)
        member.may_be_unaware = request.again or (member.may_be_unaware and not is_aware)
        if member.may_be_unaware:
            member.previous_epoch = previous_epoch
    if any(after == member.member_id for *_, after in group.pending_changes.handovers):
        member.fencing_token = group.next_token(now_ms, config.fencing_token_floor)
    if arrival is not None or not request.again:
        group.hot_state.renew(group.hot_state.sessions[member.member_id], now_ms)
    tells_all = request.member_epoch == JOIN_EPOCH or request.is_full or member.assigned != before
    yield Reply(request.reply_to, _answer(group, member, request, context, tells_all=tells_all))


# -- the sender --------------------------------------------------------------------------------------------------------


def _enter(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat, context: Context
) -> tuple[ConsumerMember, MemberJoined | MemberBack | None]:
    """Return the member that sends a heartbeat, and the event if it is new or back. Add it if it is new."""
    if request.member_epoch != JOIN_EPOCH:
        return _of_this_protocol(group, group.members[request.member_id], context), None
    member_id = _new_id(request, context) if is_blank(request.member_id) else request.member_id
    holder = group.holder_of(request.group_instance_id)
    if holder is not None:
        return _come_back(group, group.members[holder], member_id, request, context)
    session = MemberSession(NEVER_MS, context.config.group_consumer_session_timeout_ms)
    if (known := group.members.get(member_id)) is not None:
        if request.group_instance_id is not None:
            group.rename_instance(known, request.group_instance_id)
        return _of_this_protocol(group, known, context), None
    member = ConsumerMember(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        reply_to=request.reply_to,
    )
    group.add(member, session)
    record_join(group, member_id, context.now_ms, context.config)
    return member, member_event(MemberJoined, group, member, context.now_ms, reason=None)


def _of_this_protocol(group: ConsumerGroup, member: ConsumerMember, context: Context) -> ConsumerMember:
    """Return a member, changed to this protocol if it was one of the classic protocol.

    It keeps its epoch and its partitions, and begins a session.
    """
    if member.classic is None:
        return member
    hot_state, session = group.hot_state, group.hot_state.sessions[member.member_id]
    group.set_classic(member, None)
    session.is_classic = False
    session.timeout_ms = context.config.group_consumer_session_timeout_ms
    hot_state.renew(session, context.now_ms)
    hot_state.joins.pop(member.member_id, None)
    hot_state.syncs.pop(member.member_id, None)
    group.pending_changes.is_changed = True
    return member


def _come_back(
    group: ConsumerGroup, old: ConsumerMember, member_id: str, request: ConsumerGroupHeartbeat, context: Context
) -> tuple[ConsumerMember, MemberBack]:
    """Replace a static member that went away, or that uses the classic protocol, by its new process."""
    member = structs.replace(
        old,
        member_id=member_id,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
        may_be_unaware=False,
    )
    session = MemberSession(NEVER_MS, context.config.group_consumer_session_timeout_ms)
    group.replace(old, member, session)
    return member, member_event(MemberBack, group, member, context.now_ms, replaces=old.member_id)


def _new_id(request: ConsumerGroupHeartbeat, context: Context) -> str:
    """Return the id of a member that joins without one, as version 0 allows. A repeat of the request gets it again."""
    return member_suffix(context.secret, request.group_id, (request.reply_to, request.request_id))


# -- the update --------------------------------------------------------------------------------------------------------


def _handle(
    group: ConsumerGroup, member: ConsumerMember, request: ConsumerGroupHeartbeat, config: Config
) -> tuple[str | None, bool, bool]:
    """Update the member and the group from a request.

    Returns:
        The cause of a new target assignment, None without one; whether the member's subscription has changed; and
        whether the request brought news of topics.
    """
    before, vote = (member.names, member.regex), member.assignor
    _update(group, member, request)
    is_resolved = False
    if member.regex and (member.regex != before[1] or request.regex_topics is not None):
        is_resolved = topics.resolve(
            group, member.regex, member.member_id, request.regex_topics, is_authoritative=False
        )
    names = set(group.names_of(member)) if request.topics else set[str]()
    has_new_topics = topics.learn(group, request.topics, names, is_authoritative=False)
    has_changed = (member.names, member.regex) != before
    cause = None
    if member.names != before[0] or (member.regex != before[1] and not topics.is_unresolved(group, member.regex)):
        cause = "subscription_changed"
    elif is_resolved:
        cause = "regex_resolved"
    elif has_new_topics:
        cause = "topics_changed"
    elif member.assignor != vote and target_assignment.has_another_assignor(group, config, request.server_assignor):
        cause = "assignor_changed"
    return cause, has_changed, is_resolved or has_new_topics


def _update(group: ConsumerGroup, member: ConsumerMember, request: ConsumerGroupHeartbeat) -> None:
    """Update a member with the fields that a request has.

    A plain heartbeat changes neither the member's client nor its mailbox. The short path has only the hot state, and
    the cut of the log into batches decides whether a heartbeat takes it. A client with a new connection sends a full
    request.
    """
    if not request.is_plain:
        group.set_client(member, request.client_id, request.client_host)
        member.reply_to = request.reply_to
    if request.rack_id is not None:
        member.rack_id = request.rack_id
    if request.rebalance_timeout_ms != -1:
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if names is not None or regex is not None:
        all_names = member.names if names is None else tuple(sorted(set(names)))
        group.set_subscription(member, all_names, member.regex if regex is None else regex)
    if request.server_assignor is not None:
        member.assignor = request.server_assignor


def _await_revocation(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    """Set the revocation deadline of a member that has to give up partitions; remove the deadline from all others."""
    group.hot_state.revocations.pop(member.member_id, None)
    if member.state is MemberState.UNREVOKED:
        timeout_ms = max(member.rebalance_timeout_ms, 0)
        group.hot_state.revocations[member.member_id] = Session(group.hot_state.wait(now_ms, timeout_ms), timeout_ms)


# -- the answer --------------------------------------------------------------------------------------------------------


def repeats_the_assignment(group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> bool:
    """Return whether the answer repeats the member's whole assignment, although nothing may have changed."""
    return request.member_epoch == JOIN_EPOCH or request.is_full


def _answer(
    group: ConsumerGroup,
    member: ConsumerMember,
    request: ConsumerGroupHeartbeat,
    context: Context,
    *,
    tells_all: bool,
) -> ConsumerGroupHeartbeatAnswer:
    pending: Literal["none", "revoking", "waiting"] = "none"
    if member.state is MemberState.UNREVOKED:
        pending = "revoking"
    elif member.state is MemberState.UNRELEASED or (group.state is Phase.ASSIGNING and not group.hot_state.is_frozen):
        pending = "waiting"
    ask = topics.unknown(group, member)
    group.hot_state.asks = group.hot_state.asks or ask is not UNSET
    return ConsumerGroupHeartbeatAnswer(
        request_id=request.request_id,
        member_id=member.member_id,
        member_epoch=group.epoch_of(member.member_id),
        heartbeat_interval_ms=context.config.group_consumer_heartbeat_interval_ms,
        assignment=assigned_topics(group, member.assigned) if tells_all else None,
        pending=pending,
        fencing_token=member.fencing_token if tells_all else 0,
        ask=ask,
    )


def assigned_topics(group: ConsumerGroup, partitions: Mapping[str, Iterable[int]]) -> tuple[AssignedTopic, ...]:
    """Return partitions as answers list them."""
    return tuple(
        AssignedTopic(topic_id, group.name_of(topic_id), tuple(sorted(numbers)))
        for topic_id, numbers in sorted(partitions.items())
    )


def record_fencing(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat, error: ErrorCode, context: Context
) -> Iterator[Output]:
    """Yield the event of a sender that is fenced.

    A static member that was replaced is no member any more: the event has the epoch of the member that replaced it.
    """
    if error not in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID):
        return
    member = group.sender_of(request.member_id, request.group_instance_id)
    assert member is not None, "a sender is fenced by a member"
    yield event(
        EpochFenced,
        group,
        context.now_ms,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id or member.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        error=error.name,
        claimed_epoch=request.member_epoch,
        member_epoch=group.epoch_of(member.member_id),
    )
