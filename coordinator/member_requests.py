"""Requests that a member sends, made from its settings and its present membership."""

from typing import Any, Protocol

from coordinator import requests
from coordinator.heartbeats import Heartbeat
from coordinator.limits import REASON_CHARS_MAX
from coordinator.member_config import MemberConfig
from coordinator.requests import (
    Assignment,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
    TopicPartitions,
)

Sent = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | OffsetCommit | OffsetFetch


class Membership(Protocol):
    """The part of a member that its requests need."""

    config: MemberConfig
    generation_id: int
    member_id: str
    protocol_name: str | None


def join(member: Membership, request_id: str, assignors: tuple[requests.Protocol, ...], reason: str) -> JoinGroup:
    """Make a join that needs no known member id.

    Args:
        assignors: The assignors that the member offers, the preferred one first.
    """
    return JoinGroup(
        **_common(member, request_id),
        member_id=member.member_id,
        group_instance_id=member.config.group_instance_id,
        session_timeout_ms=member.config.session_timeout_ms,
        rebalance_timeout_ms=member.config.max_poll_interval_ms,
        protocol_type=member.config.protocol_type,
        protocols=assignors,
        reason=reason[:REASON_CHARS_MAX] or None,
        require_known_member_id=False,
    )


def sync(member: Membership, request_id: str, assignments: tuple[Assignment, ...]) -> SyncGroup:
    """Make a sync.

    Args:
        assignments: From a leader, the assignments of all members; from a follower, none.
    """
    return SyncGroup(
        **_in_generation(member, request_id),
        protocol_type=member.config.protocol_type,
        protocol_name=member.protocol_name,
        assignments=assignments,
    )


def heartbeat(member: Membership, request_id: str) -> Heartbeat:
    """Make a heartbeat."""
    return Heartbeat(**_in_generation(member, request_id))


def commit(member: Membership, request_id: str, offsets: tuple[OffsetToCommit, ...]) -> OffsetCommit:
    """Make an offset commit."""
    return OffsetCommit(**_in_generation(member, request_id), offsets=offsets)


def fetch(member: Membership, request_id: str, topics: tuple[TopicPartitions, ...] | None) -> OffsetFetch:
    """Make an offset fetch, of all partitions if `topics` is None."""
    return OffsetFetch(**_common(member, request_id), topics=topics, require_stable=True)


def leave(member: Membership, request_id: str, member_id: str, reason: str) -> LeaveGroup:
    """Make a leave; `member_id` may be an earlier id of the member."""
    leaving = Leaving(member_id, reason=reason[:REASON_CHARS_MAX])
    return LeaveGroup(**_common(member, request_id), members=(leaving,))


def _in_generation(member: Membership, request_id: str) -> dict[str, Any]:
    return {
        **_common(member, request_id),
        "generation_id": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": member.config.group_instance_id,
    }


def _common(member: Membership, request_id: str) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "reply_to": member.config.reply_to,
        "group_id": member.config.group_id,
        "client_id": member.config.client_id,
        "client_host": member.config.client_host,
    }
