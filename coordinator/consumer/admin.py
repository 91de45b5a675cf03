"""Requests of administrators and of the classic protocol to a group of the consumer protocol.

Source: Kafka's GroupMetadataManager.consumerGroupLeave for LeaveGroup, and KIP-848 for the other answers.
"""

from collections.abc import Iterator

from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.common.events import RebalanceCause, member_cause, member_event
from coordinator.consumer.epochs import after_removal, raise_epoch
from coordinator.consumer.leave import expel_member
from coordinator.messages.events import MemberLeft
from coordinator.messages.outputs import Output
from coordinator.messages.requests import DescribeGroup, ExpelMember, LeaveGroup, Leaving, RebalanceGroup
from coordinator.messages.responses import (
    DescribeGroupAnswer,
    ExpelMemberAnswer,
    LeaveGroupAnswer,
    LeftMember,
    RebalanceGroupAnswer,
    Reply,
)
from coordinator.policies.instability import End, record_end
from coordinator.state.consumer_group import ConsumerGroup


def names_a_member(group: ConsumerGroup, request: Leaving | ExpelMember, config: Config | None = None) -> ErrorCode:
    """UNKNOWN_MEMBER_ID: the group has no such member, or no member has the instance id.

    FENCED_INSTANCE_ID: another member has the instance id. An instance id of a member passes without a member id.
    """
    if request.group_instance_id is None:
        return ErrorCode.NONE if request.member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
    holder = group.holder_of(request.group_instance_id)
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_same = request.member_id in ("", holder)
    return ErrorCode.NONE if is_same else ErrorCode.FENCED_INSTANCE_ID


def leave(group: ConsumerGroup, request: LeaveGroup, context: Context) -> Iterator[Output]:
    """Remove members. The group epoch is raised once, whatever the number of members.

    Replies with, for each entry:
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID: as `names_a_member`.
    """
    left: list[LeftMember] = []
    cause: RebalanceCause | None = None
    for entry in request.members:
        error = names_a_member(group, entry)
        if error is ErrorCode.NONE:
            member = group.members[group.holder_of(entry.group_instance_id) or entry.member_id]
            cause = cause or member_cause(member, "member_left", entry.reason)
            record_end(group, member, End.LEFT, context.now_ms, context.config)
            group.remove(member)
            yield member_event(MemberLeft, group, member, context.now_ms, reason=entry.reason)
        left.append(LeftMember(entry.member_id, entry.group_instance_id, error.name, error.number))
    if cause is not None:
        yield from after_removal(group, cause, context.now_ms, context.config)
    yield Reply(request.reply_to, LeaveGroupAnswer(request_id=request.request_id, members=tuple(left)))


def expel(group: ConsumerGroup, request: ExpelMember, context: Context) -> Iterator[Output]:
    """Remove a member at an operator's request."""
    member = group.members[group.holder_of(request.group_instance_id) or request.member_id]
    yield from expel_member(group, member, "expelled", context.now_ms, context.config, reason=request.reason)
    cause = RebalanceCause("operator", member.member_id, request.client_id, request.client_host, request.reason)
    yield from after_removal(group, cause, context.now_ms, context.config)
    yield Reply(request.reply_to, ExpelMemberAnswer(request_id=request.request_id, member_id=member.member_id))


def rebalance(group: ConsumerGroup, request: RebalanceGroup, context: Context) -> Iterator[Output]:
    """Raise the group epoch at an operator's request, so that a new target assignment is computed."""
    if group.members:
        cause = RebalanceCause("operator", "", request.client_id, request.client_host, request.reason)
        yield from raise_epoch(group, cause, context.now_ms, context.config)
    answer = RebalanceGroupAnswer(
        request_id=request.request_id, state=group.state, generation_id=group.hot_state.group_epoch
    )
    yield Reply(request.reply_to, answer)


def describe_as_absent(group: ConsumerGroup, request: DescribeGroup, context: Context) -> Iterator[Output]:
    """Reply as if the group did not exist, with Kafka's sentence: `consumer_group_describe` shows the group."""
    why = "Group " + request.group_id + " is not a classic group."
    answer = DescribeGroupAnswer(request_id=request.request_id, group_id=request.group_id, error_message=why)
    yield Reply(request.reply_to, answer)
