"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Source: KafkaApis.handleJoinGroupRequest to handleLeaveGroupRequest, and the JSON schemas of their messages.
"""

from functools import cache
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)

from coordinator.base.consumer_protocol import CONSUMERS, subscribed_topics
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NAME_CHARS_MAX, REASON_CHARS_MAX, SUBSCRIBED_NAMES_MAX
from coordinator.messages import requests
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.responses import (
    AnyAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    SyncGroupAnswer,
)
from streaming.gateway.exchanges.exchange import Asker, Exchange, ListenerData, expected, of_one

TWO_STEPS = 4
"""From this version on, JoinGroup first gives a new member its id (KIP-394)."""

NULL_PROTOCOL = 7
"""From this version on, a failed JoinGroup has a null protocol; before, the empty string."""

SKIPS_ASSIGNMENT = 9
"""From this version on, a response can tell the leader to keep the existing assignment (KIP-814)."""

NAMES_PROTOCOL = 5
"""From this version on, SyncGroup must contain its protocol and protocol type (KIP-559)."""

MANY_LEAVE = 3
"""From this version on, LeaveGroup contains many members (KIP-345)."""


def join(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Return the exchange that joins the next generation."""
    version = message.version
    request = requests.JoinGroup(
        **asker.fields(),
        group_id=message.group_id,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=message.rebalance_timeout_ms if version else message.session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple(requests.Protocol(p.name, p.metadata) for p in message.protocols),
        reason=_cut(message.reason),
        require_known_member_id=version >= TWO_STEPS,
        supports_skipping_assignment=version >= SKIPS_ASSIGNMENT,
        topics=metadata.facts_of(topics_of(message)) if metadata.follows(message.group_id) else (),
    )
    return of_one(request, lambda answer: _joined(answer, version))


def topics_of(message: Any) -> tuple[str, ...]:
    """Return the topics to which a member subscribes, as far as they can be read. Their number is bounded."""
    if message.protocol_type != CONSUMERS or not message.protocols:
        return ()
    topics = dict.fromkeys(subscribed_topics(message.protocols[0].metadata) or ())
    return tuple(topic for topic in topics if len(topic) <= NAME_CHARS_MAX)[:SUBSCRIBED_NAMES_MAX]


def _cut(reason: str | None) -> str | None:
    """Shorten a reason, as Kafka's own clients do before they send it."""
    return None if reason is None else reason[:REASON_CHARS_MAX]


def _joined(answer: AnyAnswer, version: int) -> ApiMessage:
    said = expected(answer, JoinGroupAnswer)
    member = JoinGroupResponse.JoinGroupResponseMember
    return JoinGroupResponse(
        version=version,
        error_code=said.code,
        generation_id=said.generation_id,
        protocol_type=said.protocol_type,
        protocol_name=said.protocol_name if version >= NULL_PROTOCOL else said.protocol_name or "",
        leader=said.leader,
        skip_assignment=said.skip_assignment,
        member_id=said.member_id,
        members=[
            member(member_id=m.member_id, group_instance_id=m.group_instance_id, metadata=m.metadata)
            for m in said.members
        ],
    )


def sync(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Return the exchange that gets a member's assignment. A request without a required protocol is refused here."""
    version = message.version
    if version >= NAMES_PROTOCOL and (message.protocol_type is None or message.protocol_name is None):
        refusal = SyncGroupResponse(version=version, error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL.number)
        return Exchange((), lambda answers: refusal)
    request = requests.SyncGroup(
        **asker.fields(),
        group_id=message.group_id,
        generation_id=message.generation_id,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments=tuple(requests.Assignment(a.member_id, a.assignment) for a in message.assignments),
    )
    return of_one(request, lambda answer: _synced(answer, version))


def _synced(answer: AnyAnswer, version: int) -> ApiMessage:
    said = expected(answer, SyncGroupAnswer)
    return SyncGroupResponse(
        version=version,
        error_code=said.code,
        protocol_type=said.protocol_type,
        protocol_name=said.protocol_name,
        assignment=said.assignment,
    )


def heartbeat(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Return the exchange that renews a member's session."""
    version = message.version
    request = Heartbeat(
        **asker.fields(),
        group_id=message.group_id,
        generation_id=message.generation_id,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
    )
    return of_one(request, lambda answer: heartbeat_response(answer, version))


def heartbeat_response(answer: AnyAnswer, version: int) -> ApiMessage:
    """Return the response to a heartbeat."""
    return _alive(expected(answer, HeartbeatAnswer).code, version)


@cache
def _alive(code: int, version: int) -> ApiMessage:
    return HeartbeatResponse(version=version, error_code=code)


def leave(message: Any, asker: Asker, metadata: ListenerData) -> Exchange:
    """Return the exchange that removes members from a group; in older versions only one member."""
    version = message.version
    if version < MANY_LEAVE:
        leaving: tuple[requests.Leaving, ...] = (requests.Leaving(message.member_id),)
    else:
        leaving = tuple(requests.Leaving(m.member_id, m.group_instance_id, _cut(m.reason)) for m in message.members)
    request = requests.LeaveGroup(**asker.fields(), group_id=message.group_id, members=leaving)
    return of_one(request, lambda answer: _left(answer, version))


def _left(answer: AnyAnswer, version: int) -> ApiMessage:
    said = expected(answer, LeaveGroupAnswer)
    if version < MANY_LEAVE:
        return LeaveGroupResponse(version=version, error_code=said.code or next((m.code for m in said.members), 0))
    member = LeaveGroupResponse.MemberResponse
    return LeaveGroupResponse(
        version=version,
        error_code=said.code,
        members=[
            member(member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=m.code)
            for m in said.members
        ],
    )
