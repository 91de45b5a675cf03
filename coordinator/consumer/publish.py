"""The records, events and notices after a change of a group.

The outputs of every request and of every deadline pass through `group_after`, which compares the group before and
after. So no handler publishes a change itself, and a heartbeat without a change publishes no record.

Source: our own; Kafka's coordinator publishes none of this.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import CONSUMERS
from coordinator.base.limits import NEVER_MS, PUBLISH_BYTES_FREE, PUBLISH_BYTES_PER_S
from coordinator.base.states import GroupType, Phase
from coordinator.common.events import event
from coordinator.consumer import target_assignment, topics
from coordinator.consumer.reconcile import is_waiting_for_free
from coordinator.messages.events import AssignmentChanged, GroupEmptied, Handover, RebalanceCompleted
from coordinator.messages.group_records import GroupMember, GroupRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.responses import AssignmentNotice, RebalanceNotice, Reply
from coordinator.policies import view
from coordinator.state.consumer_group import AWAY_EPOCH, Change, ConsumerGroup, PendingChanges
from coordinator.state.consumer_member import ConsumerMember, MemberState

MEMBER_RECORD_BYTES = 500
"""The bytes that a member takes in its group's record, without its partitions."""

STATE_NAMES = {
    MemberState.STABLE: "stable",
    MemberState.UNREVOKED: "unrevoked",
    MemberState.UNRELEASED: "unreleased",
}
"""The states as published records name them."""

PARTITION_RECORD_BYTES = 12
"""The bytes that one partition takes there: in `assigned` or `revoking`, and in the target."""

SUBSCRIPTION_RECORD_FACTOR = 2
"""How often a subscription is written there: with its member, and in the list of all topics."""


def group_after(
    group: ConsumerGroup, outputs: Iterable[Output], now_ms: int, config: Config, answered: str = ""
) -> Iterator[Output]:
    """Yield the outputs of one request or deadline, and the outputs that the changes of the group cause.

    Args:
        answered: The member to which the request is answered. It needs no notice.
    """
    hot_state = group.hot_state
    before = hot_state.group_epoch, hot_state.assignment_epoch
    yield from outputs
    changes, group.pending_changes = group.pending_changes, PendingChanges()
    is_changed = changes.is_changed or (hot_state.group_epoch, hot_state.assignment_epoch) != before
    if group.phase is not Phase.DEAD and is_changed:
        yield from _publish_changes(
            group, changes, now_ms, config, answered, is_planned=hot_state.assignment_epoch > before[1]
        )
    hot_state.asks = topics.has_orphans(group) or (hot_state.asks and topics.has_unknown_names(group))


def _publish_changes(
    group: ConsumerGroup, changes: PendingChanges, now_ms: int, config: Config, answered: str, *, is_planned: bool
) -> Iterator[Output]:
    """Yield the events, the notices and the record after a change of a group."""
    if changes.handovers:
        handovers = tuple(
            Handover(group.name_of(topic_id), number, was, now) for topic_id, number, was, now in changes.handovers
        )
        yield event(AssignmentChanged, group, now_ms, handovers=handovers)
    if changes.has_unsubscribed or not group.members:
        topics.forget_unused(group)
        group.schedule_offset_expiry(now_ms)  # those of topics without a subscriber may expire
    yield from _enter_state(group, now_ms)
    target_assignment.schedule(group, now_ms, config)
    yield from _notices(group, _all_unreconciled(group) if is_planned else _all_waiting(group, changes), answered)
    yield from publish_at_a_bounded_rate(group, now_ms)


def _enter_state(group: ConsumerGroup, now_ms: int) -> Iterator[Output]:
    """Note the state that follows from the change, and yield the event of a rebalance that is complete."""
    hot_state, state = group.hot_state, group.state
    if state is not hot_state.phase:
        hot_state.phase, group.since_ms = state, now_ms
        if state is Phase.EMPTY:
            # From Kafka 4.4 on, an emptied group waits for no target assignment.
            hot_state.assignment_epoch, hot_state.plan_ms = hot_state.group_epoch, NEVER_MS
            yield event(GroupEmptied, group, now_ms)
            group.schedule_offset_expiry(now_ms)
    change = group.change
    if change is None:
        return
    is_held = group.held is not None and change.planned_ms > 0 and not hot_state.unsettled
    if state is Phase.EMPTY:
        group.change = None
    elif state is Phase.STABLE or is_held:
        group.change = None
        yield _completed(group, change, now_ms)


def _completed(group: ConsumerGroup, change: Change, now_ms: int) -> RebalanceCompleted:
    """Make the event of a complete rebalance. A policy may hold the target assignment of a later group epoch."""
    planned_ms = change.planned_ms or change.started_ms
    completed = event(
        RebalanceCompleted,
        group,
        now_ms,
        duration_ms=now_ms - change.started_ms,
        joins_ms=planned_ms - change.started_ms,
        syncs_ms=now_ms - planned_ms,
        protocol_name=group.assignor,
        leader=None,
        members_before=change.before,
        members_after=tuple(group.members),
        joined=tuple(m for m in group.members if m not in set(change.before)),
        gone=tuple(m for m in change.before if m not in group.members),
        fencing_token=group.token,
    )
    return structs.replace(completed, generation_id=group.hot_state.assignment_epoch)


# -- notices -----------------------------------------------------------------------------------------------------------


def _all_unreconciled(group: ConsumerGroup) -> Iterator[ConsumerMember]:
    """Yield the members below the assignment epoch, unless they have to confirm a release first."""
    for member in group.members.values():
        is_behind = group.epoch_of(member.member_id) < group.hot_state.assignment_epoch
        if is_behind and member.state is not MemberState.UNREVOKED:
            yield member


def _all_waiting(group: ConsumerGroup, changes: PendingChanges) -> Iterator[ConsumerMember]:
    """Yield the members that wait for a partition that is free now."""
    freed = [(topic_id, number) for topic_id, number, _, after in changes.handovers if after is None]
    waiting = dict.fromkeys(group.planned.get(topic_id, {}).get(number, "") for topic_id, number in freed)
    for member in (group.members[member_id] for member_id in waiting if member_id in group.members):
        if is_waiting_for_free(group, member):
            yield member


def _notices(group: ConsumerGroup, members: Iterable[ConsumerMember], answered: str) -> Iterator[Reply]:
    for member in members:
        if member.member_id != answered and group.epoch_of(member.member_id) != AWAY_EPOCH:
            yield Reply(member.reply_to, _notice(group, member))


def _notice(group: ConsumerGroup, member: ConsumerMember) -> AssignmentNotice | RebalanceNotice:
    """Return the notice after which a member sends a heartbeat at once; a classic member joins again."""
    group_id, member_id, epoch = group.group_id, member.member_id, group.hot_state.group_epoch
    if member.classic is not None:
        return RebalanceNotice(request_id=None, group_id=group_id, member_id=member_id, generation_id=epoch)
    return AssignmentNotice(request_id=None, group_id=group_id, member_id=member_id, group_epoch=epoch)


# -- the group's record ------------------------------------------------------------------------------------------------


def publish_at_a_bounded_rate(group: ConsumerGroup, now_ms: int) -> Iterator[Output]:
    """Publish the group now. If its record is large and was written recently, set a deadline for it instead."""
    due_ms = group.published_ms + _wait_ms(group)
    if due_ms <= now_ms:
        yield publish(group)
    else:
        group.hot_state.publish_ms = group.hot_state.track_deadline(min(group.hot_state.publish_ms, due_ms))


def _wait_ms(group: ConsumerGroup) -> int:
    partitions = sum(map(len, group.holders.values())) + sum(map(len, group.planned.values()))
    size = MEMBER_RECORD_BYTES * len(group.members) + PARTITION_RECORD_BYTES * partitions
    size += SUBSCRIPTION_RECORD_FACTOR * group.subscriptions_bytes + group.resolutions_bytes
    return size * 1_000 // PUBLISH_BYTES_PER_S if size > PUBLISH_BYTES_FREE else 0


def publish(group: ConsumerGroup) -> Published:
    """Make the group's record, under its next version."""
    group.published_ms, group.hot_state.publish_ms = group.hot_state.now_ms, NEVER_MS
    version = group.next_version()
    record = GroupRecord(
        group_id=group.group_id,
        state=group.phase,
        since_ms=group.since_ms,
        generation_id=group.hot_state.group_epoch,
        protocol_type=CONSUMERS,
        protocol_name=group.assignor or None,
        leader=None,
        subscribed_topics=tuple(sorted(group.subscribed)),
        members=tuple(_published(group, member) for member in group.members.values()),
        version=version,
        type="consumer",
        assignment_epoch=group.hot_state.assignment_epoch,
        hold=view.hold_of_consumers(group),
    )
    return Published(group.group_id, ("group", group.group_id), record, version)


def _published(group: ConsumerGroup, member: ConsumerMember) -> GroupMember:
    session = group.hot_state.sessions[member.member_id]
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=session.timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignment=b"",
        assigned=by_name(group, member.assigned),
        fencing_token=member.fencing_token,
        rack_id=member.rack_id,
        protocol=(GroupType.CONSUMER if member.classic is None else GroupType.CLASSIC).value,
        member_epoch=session.epoch,
        state=STATE_NAMES[member.state],
        subscribed_topics=member.names,
        regex=member.regex,
        revoking=by_name(group, member.revoking),
        target=by_name(group, group.targets.get(member.member_id, {})),
        standing=view.standing_of_consumer(group, member),
    )


def by_name(group: ConsumerGroup, partitions: Mapping[str, Iterable[int]]) -> dict[str, list[int]]:
    """Return partitions by the names of their topics. The partitions of two topics with one name are joined."""
    named: dict[str, list[int]] = {}
    for topic_id, numbers in partitions.items():
        named.setdefault(group.name_of(topic_id), []).extend(numbers)
    return {name: sorted(numbers) for name, numbers in sorted(named.items())}
