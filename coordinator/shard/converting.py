"""New groups, and the conversion of a group from one protocol to the other. The committed offsets stay.

    Empty group, a member of the other protocol joins   replaced; epochs and generations begin anew
    classic group, a member of the consumer protocol    its members go on in a group of the consumer protocol, with
    joins                                               their partitions; group epoch = generation
    the last member of the consumer protocol is gone    its classic members go on in a classic group; generation =
                                                        group epoch; they rebalance

The setting `group_consumer_migration_policy` allows both of the last two, one of them, or none.

Source: Kafka's GroupMetadataManager.getOrMaybeCreateConsumerGroup, convertToConsumerGroup and
convertToClassicGroup, ConsumerGroup.fromClassicGroup and toClassicGroup; KIP-848.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

from msgspec import UNSET

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import CONSUMERS, Subscription, read_assignment, read_subscription
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.classic.describe import publish, publishing
from coordinator.classic.rebalance import prepare, refuse_join, refuse_sync, subscribed, vote
from coordinator.common.events import RebalanceCause, event
from coordinator.common.refusals import refusal
from coordinator.consumer import topics
from coordinator.consumer.classic_members import UPGRADES, assignment_bytes
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import GroupConverted
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Request
from coordinator.messages.responses import Ask, ConsumerGroupHeartbeatAnswer, Reply
from coordinator.shard.budget import answer_bytes
from coordinator.shard.consumer_handlers import CONSUMER_HANDLERS
from coordinator.shard.handlers import HANDLERS
from coordinator.state.classic_group import Group, HotState, Member
from coordinator.state.consumer_group import ConsumerGroup, ConsumerHotState, Topic
from coordinator.state.consumer_member import Classic, ConsumerMember, MemberSession, Partitions
from coordinator.state.group import Session


def found(
    group: Group | ConsumerGroup, request: Request, config: Config
) -> Generator[Output, None, Group | ConsumerGroup | None]:
    """Return a new group that a request creates; None if the request is refused.

    A refused heartbeat creates no group. A refused join or commit does, as the protocol of the classic groups has it.
    """
    if isinstance(group, Group):
        yield publish(group)
    elif (refused := _refused_by(group, request, config)) is not None:
        yield refused
        return None
    return group


def _refused_by(group: Group | ConsumerGroup, request: Request, config: Config) -> Reply | None:
    """Return the refusal of a request by the group that would be made for it; None if the request passes all checks."""
    row = CONSUMER_HANDLERS[type(request)] if isinstance(group, ConsumerGroup) else HANDLERS[type(request)]
    if (refused := row.refuse_costly(group, request, group.allowance, group.hot_state.now_ms)) is not None:
        return refused
    error = row.error_of(group, request, config)
    return None if error is ErrorCode.NONE else row.refuse(request, error)


def convert(
    group: Group | ConsumerGroup, request: Request, now_ms: int, config: Config
) -> Generator[Output, None, Group | ConsumerGroup | None]:
    """Return the group of the request's protocol in place of one of the other protocol.

    Return the group itself if it can have members of both protocols; None if the request is refused. A request that the
    new group would refuse converts nothing.
    """
    other: Group | ConsumerGroup
    if group.phase is Phase.EMPTY:
        other = _replaced(group, now_ms)
    elif isinstance(group, ConsumerGroup) or not isinstance(request, ConsumerGroupHeartbeat):
        return group
    else:
        upgraded = yield from _upgrade(group, request, now_ms, config)
        if upgraded is None:
            return None
        other = upgraded
    if (refused := _refused_by(other, request, config)) is not None:
        yield refused
        return None
    if isinstance(group, Group):
        yield from _answer_parked(group)
    yield _conversion(other, group.generation_id, now_ms)
    if isinstance(other, Group):
        yield publish(other)
    return other


def _upgrade(
    group: Group, request: ConsumerGroupHeartbeat, now_ms: int, config: Config
) -> Generator[Output, None, ConsumerGroup | None]:
    """Return a classic group with members as a group of the consumer protocol; None after a refusal.

    A refusal may name many topics, so it counts against the allowance for large responses.
    """
    row = CONSUMER_HANDLERS[type(request)]
    if (refused := row.refuse_costly(group, request, group.allowance, now_ms)) is not None:
        yield refused
        return None
    upgraded = _upgraded(group, request, now_ms, config)
    if isinstance(upgraded, Refusal):
        refused = upgraded.of(request)
        group.allowance = group.allowance.with_answer(answer_bytes([refused], request.request_id), now_ms)
        yield refused
        return None
    return upgraded


def downgrade(
    group: ConsumerGroup, now_ms: int, config: Config, *, has_lost_consumer: bool
) -> Generator[Output, None, Group]:
    """Return a group without a member of the consumer protocol as a classic group.

    Its members rebalance if the target assignment is out of date.

    Args:
        has_lost_consumer: The end of the last member of the consumer protocol, or its replacement by a classic process
            with other topics, has just raised the group epoch. The generation is the epoch before, so that the members
            keep their generation, and the responses to their heartbeats ask them to rejoin.
    """
    is_stale = group.hot_state.assignment_epoch < group.hot_state.group_epoch
    group.hot_state.group_epoch -= has_lost_consumer
    classic = _downgraded(group, now_ms, config)
    yield _conversion(classic, group.generation_id, now_ms)
    if is_stale:
        yield from publishing(classic, prepare(classic, RebalanceCause("group_converted"), now_ms, config))
    else:
        yield publish(classic)
    return classic


def _conversion(group: Group | ConsumerGroup, before: int, now_ms: int) -> GroupConverted:
    """Make the event of a conversion."""
    return event(
        GroupConverted,
        group,
        now_ms,
        group_type=group.type.value,
        members=len(group.members),
        generation_before=before,
    )


# -- an Empty group ----------------------------------------------------------------------------------------------------


def _replaced(group: Group | ConsumerGroup, now_ms: int) -> Group | ConsumerGroup:
    """Return an Empty group of the other protocol. Its epochs or generations begin anew.

    An Empty group has no member whose epoch could be confused with a new one.
    """
    other: Group | ConsumerGroup
    if isinstance(group, Group):
        other = ConsumerGroup(hot_state=ConsumerHotState(), group_id=group.group_id, since_ms=now_ms)
    else:
        other = Group(hot_state=HotState(), group_id=group.group_id, since_ms=now_ms)
    _take_over(other, group, now_ms)
    return other


def _take_over(group: Group | ConsumerGroup, before: Group | ConsumerGroup, now_ms: int) -> None:
    """Copy all data that do not depend on the protocol from the group before."""
    group.version, group.token, group.allowance = before.version, before.token, before.allowance
    group.offsets, group.offsets_count = before.offsets, before.offsets_count
    group.pending_commits = before.pending_commits
    group.published_ms = before.published_ms
    _take_quarantines(group, before)
    group.hot_state.now_ms, group.hot_state.back_ms = max(now_ms, before.hot_state.now_ms), before.hot_state.back_ms
    group.schedule_offset_expiry(group.hot_state.now_ms)


def _take_quarantines(group: Group | ConsumerGroup, before: Group | ConsumerGroup) -> None:
    """Copy the quarantines, and the ends of memberships that count for them. The holds of other policies end."""
    policy_state, old = group.policy_state, before.policy_state
    policy_state.quarantined, policy_state.unstable_clients = dict(old.quarantined), old.unstable_clients
    policy_state.expiries_ms, policy_state.joined_ms = old.expiries_ms, dict(old.joined_ms)
    group.hot_state.policy_ms = group.hot_state.track_deadline(min(policy_state.quarantined.values(), default=NEVER_MS))


# -- classic to consumer -----------------------------------------------------------------------------------------------


class Refusal(NamedTuple):
    """The reason why a classic group is not converted.

    Args:
        ask: The topics of its members' partitions, if they are not known.
    """

    error: ErrorCode
    why: str
    ask: Ask | None = None

    def of(self, request: ConsumerGroupHeartbeat) -> Reply:
        """Return the reply to the heartbeat that would have converted the group."""
        ask = UNSET if self.ask is None else self.ask
        return refusal(ConsumerGroupHeartbeatAnswer, request, self.error, self.why, ask=ask)


class _ReadMember(NamedTuple):
    """The subscription and the partitions of a member of a classic group."""

    member: Member
    subscription: Subscription
    assigned: dict[str, list[int]]


def _upgraded(group: Group, request: ConsumerGroupHeartbeat, now_ms: int, config: Config) -> ConsumerGroup | Refusal:
    """Return a classic group with members as a group of the consumer protocol; the group itself does not change."""
    read_members = _read(group, config)
    if isinstance(read_members, Refusal):
        return read_members
    named = {fact.topic for fact in request.topics}
    unknown = sorted({topic for read_member in read_members for topic in read_member.assigned if topic not in named})
    if unknown:
        why = "the partitions of the group's members are not known yet"
        return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why, Ask(tuple(unknown)))
    epoch = group.generation_id
    hot_state = ConsumerHotState(group_epoch=epoch, assignment_epoch=epoch)
    other = ConsumerGroup(hot_state=hot_state, group_id=group.group_id, since_ms=now_ms)
    _take_over(other, group, now_ms)
    facts = topics.reported_topics(other, request.topics, is_authoritative=False)
    for topic in {topic: None for read_member in read_members for topic in read_member.subscription.topics}:
        if topic in facts:
            other.set_topic(topic, facts[topic])
    for read_member in read_members:
        _add_classic(other, read_member, facts, group.hot_state.sessions[read_member.member.member_id], epoch)
    other.hot_state.phase = other.state
    return other


def _read(group: Group, config: Config) -> list[_ReadMember] | Refusal:
    """Return the subscriptions and the partitions of all members; a refusal if the group may not be converted."""
    if config.group_consumer_migration_policy not in UPGRADES:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, "its members use the classic protocol, and may not be mixed")
    if group.protocol_type != CONSUMERS:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, "its members are no consumers")
    if len(group.members) > config.group_consumer_max_size:
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, "it has more members than group_consumer_max_size")
    if group.protocol_name is None or not group.generation_id:
        why = "its first join phase has not ended yet"
        return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)
    read_members = []
    for member in group.members.values():
        try:
            subscription = read_subscription(member.metadata(group.protocol_name))
            assigned, user_data = read_assignment(member.assignment)
        except ValueError:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"the data of its member {member.member_id} cannot be read")
        if user_data:
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, "its members use an assignor of their own")
        read_members.append(_ReadMember(member, subscription, assigned))
    return read_members


def _add_classic(
    group: ConsumerGroup, read_member: _ReadMember, facts: dict[str, Topic], session: Session, epoch: int
) -> None:
    """Add a member of the classic protocol with its partitions. A partition of two members stays with the first."""
    before = read_member.member
    member = ConsumerMember(
        member_id=before.member_id,
        group_instance_id=before.group_instance_id,
        client_id=before.client_id,
        client_host=before.client_host,
        reply_to=before.reply_to,
        rack_id=read_member.subscription.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms,
        names=tuple(sorted(set(read_member.subscription.topics))),
        previous_epoch=epoch,
        fencing_token=before.fencing_token,
        classic=Classic(before.protocols),
    )
    group.add(member, MemberSession(0, session.timeout_ms, epoch=epoch, is_settled=True, is_classic=True))
    group.hot_state.renew(group.hot_state.sessions[member.member_id], group.hot_state.now_ms)
    assigned: Partitions = {}
    for topic, numbers in read_member.assigned.items():
        fact = facts.get(topic, Topic())
        taken = group.holders.get(fact.topic_id or "", {})
        free = [n for n in dict.fromkeys(numbers) if 0 <= n < fact.partitions and n not in taken]
        if fact.topic_id is not None and free:
            assigned[fact.topic_id] = dict.fromkeys(sorted(free), epoch)
            if fact.topic_id not in group.names_by_id:
                group.gone_topics[fact.topic_id] = topic
    group.hold(member, assigned, {})
    group.set_target(member.member_id, {topic_id: list(numbers) for topic_id, numbers in assigned.items()})


def _answer_parked(group: Group) -> Iterator[Output]:
    """Answer the parked joins and syncs of a classic group that is converted: their members have to join again."""
    for member in group.members.values():
        if member.awaiting_join is not None:
            yield refuse_join(member.awaiting_join, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        if member.awaiting_sync is not None:
            yield refuse_sync(member.awaiting_sync, ErrorCode.REBALANCE_IN_PROGRESS)


# -- consumer to classic -----------------------------------------------------------------------------------------------


def _downgraded(group: ConsumerGroup, now_ms: int, config: Config) -> Group:
    """Return a group of classic members as a classic group. The members are assigned their targets.

    A member with partitions in its target that it did not have gets a fencing token above that of their last owners.
    """
    other = Group(
        hot_state=HotState(phase=Phase.STABLE, generation_id=group.hot_state.group_epoch),
        group_id=group.group_id,
        since_ms=now_ms,
        protocol_type=CONSUMERS,
    )
    _take_over(other, group, now_ms)
    for member in group.members.values():
        assert member.classic is not None, "only classic members stay"
        session = Session(0, group.hot_state.sessions[member.member_id].timeout_ms)
        target, token = group.targets.get(member.member_id, {}), member.fencing_token
        if any(n not in member.assigned.get(topic_id, {}) for topic_id, numbers in target.items() for n in numbers):
            token = other.next_token(now_ms, config.fencing_token_floor)
        other.adopt(
            Member(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                reply_to=member.reply_to,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocols=member.classic.protocols,
                assignment=assignment_bytes(group, member, target),
                is_new=False,
                fencing_token=token,
            ),
            session,
        )
        other.hot_state.renew(session, other.hot_state.now_ms)
    other.protocol_name = vote(other)
    other.subscribed_topics = subscribed(other)
    return other
