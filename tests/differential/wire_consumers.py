"""The messages of the consumer protocol, from this project's requests and to this project's responses."""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from coordinator.messages.requests import Request
from coordinator.messages.responses import (
    AssignedTopic,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DescribedConsumer,
)
from streaming.gateway.protocol.definitions import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from streaming.gateway.protocol.topic_ids import id_of, id_text

NAMES = {code.number: code.name for code in ErrorCode}

CLASSIC = 0
"""The type of a member that uses the classic protocol."""


def named(code: int) -> dict[str, Any]:
    """Return the error fields of responses and their entries."""
    return {"error": NAMES.get(code, str(code)), "code": code}


def message(request: ConsumerGroupHeartbeat | ConsumerGroupDescribe) -> Any:
    """Return a request as a message."""
    if isinstance(request, ConsumerGroupDescribe):
        return ConsumerGroupDescribeRequest(group_ids=[request.group_id], include_authorized_operations=False)
    names, owned = request.subscribed_topic_names, request.topic_partitions
    topic = ConsumerGroupHeartbeatRequest.TopicPartitions
    return ConsumerGroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.group_instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else list(names),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        topic_partitions=None
        if owned is None
        else [topic(topic_id=id_of(each.topic_id), partitions=list(each.partitions)) for each in owned],
    )


def heard(request: Request, version: int, said: Any) -> ConsumerGroupHeartbeatAnswer:
    """Return the response to a heartbeat."""
    return ConsumerGroupHeartbeatAnswer(
        request_id=request.request_id,
        **named(said.error_code),
        error_message=said.error_message or UNSET,
        member_id=said.member_id,
        member_epoch=said.member_epoch,
        heartbeat_interval_ms=said.heartbeat_interval_ms,
        assignment=None if said.assignment is None else _assigned(said.assignment.topic_partitions),
    )


def described(request: Request, version: int, said: Any) -> ConsumerGroupDescribeAnswer:
    """Return the description of a group."""
    (group,) = said.groups
    members = [
        DescribedConsumer(
            member_id=m.member_id,
            group_instance_id=m.instance_id,
            rack_id=m.rack_id,
            member_epoch=m.member_epoch,
            client_id=m.client_id,
            client_host=m.client_host,
            subscribed_topic_names=tuple(m.subscribed_topic_names),
            subscribed_topic_regex=m.subscribed_topic_regex,
            assignment=_assigned(m.assignment.topic_partitions),
            target_assignment=_assigned(m.target_assignment.topic_partitions),
            is_classic=version >= 1 and m.member_type == CLASSIC,
        )
        for m in group.members
    ]
    return ConsumerGroupDescribeAnswer(
        request_id=request.request_id,
        **named(group.error_code),
        error_message=group.error_message or UNSET,
        group_id=group.group_id,
        state=Phase(group.group_state or Phase.DEAD),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.assignor_name,
        members=tuple(members),
    )


def _assigned(topics: Iterable[Any]) -> tuple[AssignedTopic, ...]:
    return tuple(
        AssignedTopic(id_text(each.topic_id.bytes), getattr(each, "topic_name", None) or "", tuple(each.partitions))
        for each in topics
    )
