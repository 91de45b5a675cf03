"""The answers to requests of the consumer protocol whose group is a classic one, or does not exist; KIP-848."""

from collections.abc import Iterator

from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.common.refusals import refusal
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat, GroupTopics
from coordinator.messages.outputs import Output
from coordinator.messages.responses import ConsumerGroupDescribeAnswer, ConsumerGroupHeartbeatAnswer, GroupTopicsAnswer
from coordinator.state.classic_group import Group

REASONS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "a topic of the subscription may not be described",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the group may not be read",
    ErrorCode.INVALID_REQUEST: "a field is missing, empty or out of its bounds, or does not fit the member epoch",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the server assignor is not one of group.consumer.assignors",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has no room for the member or its subscription",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no member with this member id or instance id",
    ErrorCode.FENCED_INSTANCE_ID: "another member has the instance id",
    ErrorCode.UNRELEASED_INSTANCE_ID: "a member with the instance id has not left",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member epoch is not the present one: the member must join again with epoch 0",
}
"""A sentence for each error of a heartbeat: Kafka's response has one beside each error."""

NOT_OF_CONSUMERS = "the group does not exist, or its members use the classic protocol"


def reason(request: ConsumerGroupHeartbeat, error: ErrorCode) -> str | None:
    """Return a sentence about the error of a heartbeat."""
    return request.regex_error if error is ErrorCode.INVALID_REGULAR_EXPRESSION else REASONS.get(error)


def heartbeat(group: Group | None, request: ConsumerGroupHeartbeat, context: Context) -> Iterator[Output]:
    """Reply with GROUP_ID_NOT_FOUND to a heartbeat that creates no group."""
    yield refusal(ConsumerGroupHeartbeatAnswer, request, ErrorCode.GROUP_ID_NOT_FOUND, NOT_OF_CONSUMERS)


def group_topics(group: Group | None, request: GroupTopics, context: Context) -> Iterator[Output]:
    """Reply with GROUP_ID_NOT_FOUND."""
    yield refusal(GroupTopicsAnswer, request, ErrorCode.GROUP_ID_NOT_FOUND, NOT_OF_CONSUMERS)


def describe(group: Group | None, request: ConsumerGroupDescribe, context: Context) -> Iterator[Output]:
    """Reply with GROUP_ID_NOT_FOUND. An administrator's tool then requests the description of a classic group."""
    error = ErrorCode.GROUP_ID_NOT_FOUND
    why = " not found." if group is None else " is not a consumer group."
    sentence = "Group " + request.group_id + why
    yield refusal(ConsumerGroupDescribeAnswer, request, error, sentence, group_id=request.group_id)
