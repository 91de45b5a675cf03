"""Requests that a member sends, made from its settings (Kafka's consumer names and defaults) and its membership."""

from typing import Any, Protocol

from msgspec import Struct

from coordinator.base.limits import REASON_CHARS_MAX
from coordinator.messages import requests
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
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


class MemberConfig(Struct, frozen=True, kw_only=True):
    """A member's identity and its timeouts.

    Args:
        reply_to: The mailbox that responses are read from.
        group_instance_id: Makes it a static member, which sends no leave request (KIP-345).
        max_poll_interval_ms: The longest time between two calls of `poll`; also the rebalance timeout.
        moments_ms: Heartbeats are sent when the member's time plus this number is a multiple of the interval. With the
            difference of the wall clock and the member's clock, members of many processes send them at the same times.
        request_timeout_ms: How long a response may take before the request is sent again.
    """

    group_id: str
    reply_to: str
    client_id: str = ""
    client_host: str = ""
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000
    moments_ms: int = 0
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def next_heartbeat_ms(self, now_ms: int, interval_ms: int = 0) -> int:
        """Return the next time for a heartbeat, at most one interval later.

        Args:
            interval_ms: The interval that the coordinator has named; 0 for that of the configuration.
        """
        interval_ms = interval_ms or self.heartbeat_interval_ms
        return now_ms + interval_ms - (now_ms + self.moments_ms) % interval_ms


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
