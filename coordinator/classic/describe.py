"""A group's record on the groups topic, and the response to a `describe_group` request."""

from collections.abc import Iterator

from msgspec import UNSET

from coordinator.base.connect_protocol import CONNECT, work_of
from coordinator.base.consumer_protocol import assigned_partitions
from coordinator.base.context import Context
from coordinator.base.limits import NEVER_MS, PUBLISH_BYTES_FREE, PUBLISH_BYTES_PER_S
from coordinator.base.states import Phase
from coordinator.messages.group_records import GroupMember, GroupRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import DescribeGroup
from coordinator.messages.responses import DescribedMember, DescribeGroupAnswer, Reply
from coordinator.policies import view
from coordinator.state.classic_group import Group, Member


def publish(group: Group) -> Published:
    """Make the group's record, under its next version."""
    group.published_ms, group.hot_state.publish_ms, group.is_policy_state_changed = (
        group.hot_state.now_ms,
        NEVER_MS,
        False,
    )
    version = group.next_version()
    record = GroupRecord(
        group_id=group.group_id,
        state=group.phase,
        since_ms=group.since_ms,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id,
        subscribed_topics=group.all_topics,
        members=tuple(_published(group, m) for m in group.members.values()),
        version=version,
        hold=view.hold_of(group),
    )
    return Published(group.group_id, ("group", group.group_id), record, version)


def publish_at_a_bounded_rate(group: Group, now_ms: int) -> Iterator[Output]:
    """Publish the group now. If its record is large and was written recently, set a deadline for it instead.

    Otherwise each of many members that are replaced one after another would cause a record.
    """
    wait_ms = 0
    if group.record_bytes > PUBLISH_BYTES_FREE:
        wait_ms = group.record_bytes * 1_000 // PUBLISH_BYTES_PER_S
    due_ms = group.published_ms + wait_ms
    if due_ms <= now_ms:
        yield publish(group)
    else:
        group.hot_state.publish_ms = group.hot_state.track_deadline(due_ms)


def publishing(group: Group, outputs: Iterator[Output]) -> Iterator[Output]:
    """Yield the outputs of one request or deadline, and publish the group if its phase or generation has changed.

    A change of its seats is published at a bounded rate.
    """
    before = group.phase, group.generation_id
    yield from outputs
    if group.phase is not Phase.DEAD and (group.phase, group.generation_id) != before:
        yield publish(group)
    elif group.is_policy_state_changed:
        group.is_policy_state_changed = False
        yield from publish_at_a_bounded_rate(group, group.hot_state.now_ms)


def _published(group: Group, member: Member) -> GroupMember:
    is_connect = group.protocol_type == CONNECT
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=group.hot_state.sessions[member.member_id].timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignment=member.assignment,
        assigned=assigned_partitions(member.assignment) if group.is_readable else None,
        fencing_token=member.fencing_token,
        standing=view.standing_of(group, member),
        work=work_of(member.metadata(group.protocol_name), member.assignment) if is_connect else UNSET,
    )


def describe(group: Group | None, request: DescribeGroup, context: Context) -> Iterator[Output]:
    """Reply with the group as it is now. A group that does not exist is Dead.

    The protocol and the subscriptions are shown only in Stable, where they are settled. Assignments are always shown:
    until the leader's assignments come, those from before the rebalance.

    Source: Kafka's ClassicGroup.describe.
    """
    if group is None:
        yield Reply(request.reply_to, DescribeGroupAnswer(request_id=request.request_id, group_id=request.group_id))
        return
    is_settled = group.phase is Phase.STABLE
    members = group.members.values()
    not_joined = [m.member_id for m in group.visible if not m.awaiting_join] + list(group.hot_state.pending)
    waits_for = {
        Phase.PREPARING: (group.hot_state.joins_ms, not_joined),
        Phase.COMPLETING: (group.hot_state.syncs_ms, [m.member_id for m in members if m.owes_sync]),
    }
    deadline_ms, awaited = waits_for.get(group.phase, (NEVER_MS, []))
    answer = DescribeGroupAnswer(
        request_id=request.request_id,
        group_id=group.group_id,
        state=group.phase,
        since_ms=group.since_ms,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_settled else "",
        leader=group.leader_id,
        subscribed_topics=group.all_topics,
        members=tuple(_described(group, m, is_settled) for m in members),
        awaited=tuple(awaited),
        deadline_ms=None if deadline_ms >= NEVER_MS else deadline_ms,
        policy=view.policy_of(context.config),
        hold=view.described_hold_of(group),
    )
    yield Reply(request.reply_to, answer)


def _described(group: Group, member: Member, is_settled: bool) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=group.hot_state.sessions[member.member_id].timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        metadata=member.metadata(group.protocol_name) if is_settled else b"",
        assignment=member.assignment,
        awaiting="join" if member.awaiting_join else "sync" if member.awaiting_sync else None,
    )
