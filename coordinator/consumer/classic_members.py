"""Members of the classic protocol in a group of the consumer protocol.

They have targets as all members have, and the requests of the classic protocol bring the changes. A heartbeat is
answered REBALANCE_IN_PROGRESS when a join would change something for the member. The join reconciles the member at
once. The response to the sync has the assignment. The group has no leader, and no member waits for the joins of other
members.

Source: Kafka's GroupMetadataManager.classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup and
classicGroupHeartbeatToConsumerGroup; KIP-848.
"""

from collections.abc import Iterator, Mapping

from msgspec import structs

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import CONSUMERS, Subscription, read_subscription, write_assignment
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import member_suffix
from coordinator.base.limits import GROUP_PROTOCOLS_BYTES_MAX, NEVER_MS
from coordinator.common.events import member_cause, member_event
from coordinator.common.handler import unless
from coordinator.common.refusals import refusal
from coordinator.consumer import quarantine, target_assignment, topics
from coordinator.consumer.checks import has_room_for, tells_of_few_partitions
from coordinator.consumer.epochs import raise_epoch
from coordinator.consumer.reconcile import Owned, is_waiting_for_free, reconcile
from coordinator.messages.consumer_requests import OwnedPartitions
from coordinator.messages.events import MemberFenced, MemberJoined
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.outputs import Output
from coordinator.messages.requests import JoinGroup, SyncGroup
from coordinator.messages.responses import HeartbeatAnswer, JoinGroupAnswer, Reply, SyncGroupAnswer
from coordinator.policies.instability import record_join
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.consumer_member import Classic, ConsumerMember, MemberSession, MemberState, subscription_bytes
from coordinator.state.group import Session

UPGRADES, DOWNGRADES = ("bidirectional", "upgrade"), ("bidirectional", "downgrade")
"""The values of `group_consumer_migration_policy` that allow a conversion to a group of the consumer protocol, and to a
classic group."""


def gets_its_id_first(group: ConsumerGroup, request: JoinGroup) -> bool:
    """Return whether a join is answered with the id to join with, before anything of it is read (KIP-394)."""
    return not request.member_id and request.group_instance_id is None and request.require_known_member_id


# -- checks ------------------------------------------------------------------------------------------------------------


def is_new_if_empty(group: ConsumerGroup, request: JoinGroup, config: Config) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the group has no members, and the sender names a member id."""
    return ErrorCode.UNKNOWN_MEMBER_ID if request.member_id and not group.members else ErrorCode.NONE


def may_be_mixed(group: ConsumerGroup, request: JoinGroup, config: Config) -> ErrorCode:
    """INCONSISTENT_GROUP_PROTOCOL: `group_consumer_migration_policy` is `disabled`."""
    is_disabled = config.group_consumer_migration_policy == "disabled"
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_disabled else ErrorCode.NONE


def has_room(group: ConsumerGroup, request: JoinGroup, config: Config) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: the group has `group_consumer_max_size` members, and the sender is none of them."""
    is_full = len(group.members) >= config.group_consumer_max_size and request.member_id not in group.members
    return ErrorCode.GROUP_MAX_SIZE_REACHED if is_full else ErrorCode.NONE


def offers_a_common_protocol(group: ConsumerGroup, request: JoinGroup, config: Config) -> ErrorCode:
    """INCONSISTENT_GROUP_PROTOCOL: the sender is no consumer, or offers no protocol that all classic members offer.

    The sender's own earlier list counts, as in a classic group.
    """
    offers = [{p.name for p in m.classic.protocols} for m in group.members.values() if m.classic is not None]
    common = set.intersection(*offers) if offers else {p.name for p in request.protocols}
    fits = request.protocol_type == CONSUMERS and any(p.name in common for p in request.protocols)
    return ErrorCode.NONE if fits else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def is_known_if_static(group: ConsumerGroup, request: JoinGroup, config: Config) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the request has a member id, and an instance id that no member has.

    FENCED_INSTANCE_ID: another member has the instance id.
    """
    if request.group_instance_id is None or not request.member_id:
        return ErrorCode.NONE
    holder = group.hot_state.instances.get(request.group_instance_id)
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if holder == request.member_id else ErrorCode.FENCED_INSTANCE_ID


def is_readable(group: ConsumerGroup, request: JoinGroup, config: Config) -> ErrorCode:
    """INCONSISTENT_GROUP_PROTOCOL: the subscription cannot be read, so the member could be assigned no partition."""
    try:
        read_subscription(request.protocols[0].metadata)
    except ValueError:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def has_room_for_its_subscription(group: ConsumerGroup, request: JoinGroup, config: Config) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: the subscriptions of all members would be too long together."""
    subscription = read_subscription(request.protocols[0].metadata)
    member = group.sender_of(request.member_id, request.group_instance_id)
    return has_room_for(group, member, subscription_bytes(set(subscription.topics), ""))


def has_room_for_its_metadata(group: ConsumerGroup, request: JoinGroup, config: Config) -> ErrorCode:
    """GROUP_MAX_SIZE_REACHED: a classic group of the same members would be too large for its leader's response."""
    member = group.sender_of(request.member_id, request.group_instance_id)
    before, size = member.protocols_bytes if member else 0, Classic(request.protocols).protocols_bytes
    fits = size <= before or group.protocols_bytes - before + size <= GROUP_PROTOCOLS_BYTES_MAX
    return ErrorCode.NONE if fits else ErrorCode.GROUP_MAX_SIZE_REACHED


def is_a_classic_member(group: ConsumerGroup, request: SyncGroup | Heartbeat, config: Config) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the group has no such member of the classic protocol, or no member has the instance id.

    FENCED_INSTANCE_ID: another member has the instance id.
    """
    if request.group_instance_id is not None:
        holder = group.hot_state.instances.get(request.group_instance_id)
        if holder is not None and holder != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    member = group.members.get(request.member_id)
    is_one = member is not None and member.classic is not None
    return ErrorCode.NONE if is_one else ErrorCode.UNKNOWN_MEMBER_ID


def is_of_this_epoch(group: ConsumerGroup, request: SyncGroup | Heartbeat, config: Config) -> ErrorCode:
    """ILLEGAL_GENERATION: the generation is not the member's epoch."""
    is_current = request.generation_id == group.epoch_of(request.member_id)
    return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION


def names_its_protocol(group: ConsumerGroup, request: SyncGroup, config: Config) -> ErrorCode:
    """INCONSISTENT_GROUP_PROTOCOL: the protocol is not the first one of the member's join, or its type is another."""
    classic = group.members[request.member_id].classic
    assert classic is not None, "only classic members sync"
    is_other = request.protocol_name not in (None, classic.protocols[0].name)
    is_no_consumer = request.protocol_type not in (None, CONSUMERS)
    return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if is_other or is_no_consumer else ErrorCode.NONE


JOIN_CHECKS = (
    is_new_if_empty,
    may_be_mixed,
    has_room,
    has_room_for_its_metadata,
    offers_a_common_protocol,
    is_known_if_static,
    *unless(gets_its_id_first, is_readable, has_room_for_its_subscription, tells_of_few_partitions),
)
HEARTBEAT_CHECKS = (is_a_classic_member, is_of_this_epoch)
SYNC_CHECKS = (*HEARTBEAT_CHECKS, names_its_protocol)

# -- joins -------------------------------------------------------------------------------------------------------------


def join(group: ConsumerGroup, request: JoinGroup, context: Context) -> Iterator[Output]:
    """Add or update a member of the classic protocol. The reply comes at once.

    Replies with:
        MEMBER_ID_REQUIRED: the member is new. The reply has the id to join with, which is not stored.
    """
    now_ms, config = context.now_ms, context.config
    if gets_its_id_first(group, request):
        member_id = _new_id(request, context)
        yield refusal(JoinGroupAnswer, request, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        return
    subscription = read_subscription(request.protocols[0].metadata)
    member, arrival = _enter(group, request, context)
    if arrival is not None:
        yield arrival
    cause, has_changed, has_learned = _handle(group, member, request, subscription)
    if isinstance(arrival, MemberJoined):
        yield from quarantine.quarantine(group, member, now_ms, config)
        cause = _cause_of_arrival(group, member, cause, has_learned=has_learned)
    if cause is not None:
        yield from raise_epoch(group, member_cause(member, cause, request.reason), now_ms, config)
    is_left_to_its_leader = (
        must_downgrade(group, config) and group.hot_state.assignment_epoch < group.hot_state.group_epoch
    )
    if not is_left_to_its_leader:
        if target_assignment.is_due(group, now_ms, config):
            yield from target_assignment.make_plan(group, now_ms, config)
        reconcile(group, member, _owned(group, subscription.owned), has_changed=has_changed)
    is_given_some = any(after == member.member_id for *_, after in group.pending_changes.handovers)
    if is_given_some and not isinstance(arrival, MemberFenced):  # such a member has a new token, which the event names
        member.fencing_token = group.next_token(now_ms, config.fencing_token_floor)
    _await_sync(group, member, now_ms)
    answer = JoinGroupAnswer(
        request_id=request.request_id,
        generation_id=0 if is_left_to_its_leader else group.epoch_of(member.member_id),
        protocol_type=CONSUMERS,
        protocol_name=request.protocols[0].name,
        member_id=member.member_id,
    )
    yield Reply(request.reply_to, answer)


def _cause_of_arrival(
    group: ConsumerGroup, member: ConsumerMember, cause: str | None, *, has_learned: bool
) -> str | None:
    """Return the cause for which a new member raises the group epoch; None for none.

    Args:
        cause: The cause that its join would be of a member that is known.
        has_learned: The join brought a fact about topics.
    """
    if member.member_id in group.policy_state.quarantined:
        return "topics_changed" if has_learned else None
    return "member_joined" if cause is not None else None


def _await_sync(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    """Renew the session of a member that has joined, and begin to wait for its sync."""
    hot_state = group.hot_state
    hot_state.renew(hot_state.sessions[member.member_id], now_ms)
    hot_state.revocations.pop(member.member_id, None)
    hot_state.joins.pop(member.member_id, None)
    hot_state.syncs[member.member_id] = _wait(group, member, now_ms)


def _enter(
    group: ConsumerGroup, request: JoinGroup, context: Context
) -> tuple[ConsumerMember, MemberJoined | MemberFenced | None]:
    """Return the member that joins, and the event if it is new or takes the place of another process.

    For a repeated first join, the member is the one that the first request added.
    """
    classic = Classic(request.protocols)
    holder = group.holder_of(request.group_instance_id)
    member_id = request.member_id or _new_id(request, context)
    known = group.members.get(member_id)
    session = MemberSession(NEVER_MS, request.session_timeout_ms, is_classic=True)
    if known is not None:
        group.set_classic(known, classic)
        group.hot_state.sessions[known.member_id].timeout_ms = request.session_timeout_ms
        group.hot_state.sessions[known.member_id].is_classic = True
        return known, None
    if holder is None:
        member = ConsumerMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            reply_to=request.reply_to,
            classic=classic,
        )
        group.add(member, session)
        record_join(group, member_id, context.now_ms, context.config)
        return member, member_event(MemberJoined, group, member, context.now_ms, reason=request.reason)
    return _replace_away(group, group.members[holder], member_id, session, request, context)


def _replace_away(
    group: ConsumerGroup,
    old: ConsumerMember,
    member_id: str,
    session: MemberSession,
    request: JoinGroup,
    context: Context,
) -> tuple[ConsumerMember, MemberFenced]:
    """Replace a static member by its new process, which uses the classic protocol."""
    member = structs.replace(old, member_id=member_id, classic=Classic(request.protocols))
    group.replace(old, member, session)
    member.fencing_token = group.next_token(context.now_ms, context.config.fencing_token_floor)
    fenced = member_event(
        MemberFenced,
        group,
        old,
        context.now_ms,
        replaced_by=member_id,
        replaced_by_client_id=request.client_id,
        replaced_by_client_host=request.client_host,
        fencing_token=member.fencing_token,
    )
    return member, fenced


def _new_id(request: JoinGroup, context: Context) -> str:
    """Return the id of a new member. A repeat of the request gets the same one."""
    return member_suffix(context.secret, request.group_id, (request.reply_to, request.request_id))


def _handle(
    group: ConsumerGroup, member: ConsumerMember, request: JoinGroup, subscription: Subscription
) -> tuple[str | None, bool, bool]:
    """Update the member and the group from a join.

    Returns:
        The cause of a new target assignment, None without one; whether the member's subscription has changed; and
        whether the join brought news of topics.
    """
    before = member.names, member.regex
    group.set_client(member, request.client_id, request.client_host)
    member.reply_to = request.reply_to
    member.rebalance_timeout_ms, member.rack_id = request.rebalance_timeout_ms, subscription.rack_id
    member.assignor = None
    group.set_subscription(member, tuple(sorted(set(subscription.topics))), "")
    has_new_topics = topics.learn(group, request.topics, set(member.names), is_authoritative=False)
    has_changed = (member.names, member.regex) != before
    if has_changed:
        return "subscription_changed", True, has_new_topics
    return ("topics_changed" if has_new_topics else None), False, has_new_topics


def _owned(group: ConsumerGroup, owned: Mapping[str, object]) -> Owned:
    """Return the owned partitions of a subscription, by the ids of their topics."""
    return [
        OwnedPartitions(topic.topic_id, tuple(numbers))  # type: ignore[arg-type]
        for name, numbers in owned.items()
        if (topic := group.topics.get(name)) is not None and topic.topic_id is not None
    ]


def _wait(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> Session:
    """Return a wait for the member's rebalance timeout."""
    timeout_ms = max(member.rebalance_timeout_ms, 0)
    return Session(group.hot_state.wait(now_ms, timeout_ms), timeout_ms)


# -- syncs and heartbeats ----------------------------------------------------------------------------------------------


def sync(group: ConsumerGroup, request: SyncGroup, context: Context) -> Iterator[Output]:
    """Reply with the member's assignment, in the version of its own subscription.

    Replies with:
        REBALANCE_IN_PROGRESS: a later target assignment was computed since the member joined.
    """
    member = group.members[request.member_id]
    is_behind = group.hot_state.assignment_epoch > group.epoch_of(member.member_id)
    if is_behind and member.state is not MemberState.UNREVOKED:
        _expect_join(group, member, context.now_ms)
        yield refusal(SyncGroupAnswer, request, ErrorCode.REBALANCE_IN_PROGRESS)
        return
    group.hot_state.syncs.pop(member.member_id, None)
    group.hot_state.renew(group.hot_state.sessions[member.member_id], context.now_ms)
    answer = SyncGroupAnswer(
        request_id=request.request_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(group, member, member.assigned),
        fencing_token=member.fencing_token,
    )
    yield Reply(request.reply_to, answer)


def assignment_bytes(group: ConsumerGroup, member: ConsumerMember, partitions: Mapping[str, object]) -> bytes:
    """Return partitions as the assignment of a classic member, in the version of its subscription."""
    assert member.classic is not None, "only classic members have such an assignment"
    version = int.from_bytes(member.classic.protocols[0].metadata[:2], "big", signed=True)
    named = {group.name_of(topic_id): list(numbers) for topic_id, numbers in partitions.items()}  # type: ignore[call-overload]
    return write_assignment(named, None, min(max(version, 0), 3))


def heartbeat(group: ConsumerGroup, request: Heartbeat, context: Context) -> Iterator[Output]:
    """Renew the session.

    Replies with:
        REBALANCE_IN_PROGRESS: a join would change something for the member.
    """
    member = group.members[request.member_id]
    group.hot_state.renew(group.hot_state.sessions[member.member_id], context.now_ms)
    if must_join(group, member):
        _expect_join(group, member, context.now_ms)
        yield refusal(HeartbeatAnswer, request, ErrorCode.REBALANCE_IN_PROGRESS)
    else:
        yield Reply(request.reply_to, HeartbeatAnswer(request_id=request.request_id))


def must_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether a join would change something for a classic member."""
    if group.epoch_of(member.member_id) < group.hot_state.assignment_epoch or member.state is MemberState.UNREVOKED:
        return True
    return is_waiting_for_free(group, member)


def must_downgrade(group: ConsumerGroup, config: Config) -> bool:
    """Return whether a group has only members of the classic protocol, and may become a classic group."""
    if config.group_consumer_migration_policy not in DOWNGRADES or not group.members:
        return False
    is_classic = all(member.classic is not None for member in group.members.values())
    return is_classic and len(group.members) <= config.group_max_size


def _expect_join(group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
    """Set the join deadline of a member that was answered REBALANCE_IN_PROGRESS, unless it is set already."""
    if member.member_id not in group.hot_state.joins:
        group.hot_state.joins[member.member_id] = _wait(group, member, now_ms)
