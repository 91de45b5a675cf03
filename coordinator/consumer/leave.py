"""Members that leave a group of the consumer protocol, are removed from it, or go away for a while.

Source: Kafka's GroupMetadataManager.consumerGroupLeave, consumerGroupStaticMemberGroupLeave and
consumerGroupFenceMember; KIP-848.
"""

from collections.abc import Iterator

from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.common.events import member_cause, member_event
from coordinator.consumer.epochs import after_removal
from coordinator.consumer.quarantine import record_removal
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import MemberAway, MemberExpired, MemberLeft
from coordinator.messages.outputs import Output
from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer, Reply
from coordinator.policies.instability import End, record_end
from coordinator.state.consumer_group import AWAY_EPOCH, ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember


def leave(group: ConsumerGroup, request: ConsumerGroupHeartbeat, context: Context) -> Iterator[Output]:
    """Remove a member at its own request. The epochs are not compared."""
    member = group.members[request.member_id]
    record_end(group, member, End.LEFT, context.now_ms, context.config)
    group.remove(member)
    yield member_event(MemberLeft, group, member, context.now_ms, reason=None)
    yield from after_removal(group, member_cause(member, "member_left"), context.now_ms, context.config)
    yield _leave_response(request)


def go_away(group: ConsumerGroup, request: ConsumerGroupHeartbeat, context: Context) -> Iterator[Output]:
    """Keep a static member that goes away for a while. Its session is not renewed.

    Its partitions in `revoking` are free at once. Its partitions in `assigned` remain its own.
    """
    member = group.members[request.member_id]
    assigned = {topic_id: dict.fromkeys(numbers, 0) for topic_id, numbers in member.assigned.items()}
    group.hold(member, assigned, {})
    group.hot_state.revocations.pop(member.member_id, None)
    group.move_to(member, AWAY_EPOCH)
    until_ms = group.hot_state.sessions[member.member_id].deadline_ms
    yield member_event(MemberAway, group, member, context.now_ms, until_ms=until_ms)
    yield _leave_response(request)


def _leave_response(request: ConsumerGroupHeartbeat) -> Reply:
    answer = ConsumerGroupHeartbeatAnswer(
        request_id=request.request_id, member_id=request.member_id, member_epoch=request.member_epoch
    )
    return Reply(request.reply_to, answer)


def expel_member(
    group: ConsumerGroup,
    member: ConsumerMember,
    why: str,
    now_ms: int,
    config: Config,
    *,
    silence_ms: int | None = None,
    reason: str | None = None,
) -> Iterator[Output]:
    """Remove a member that did not leave by itself."""
    record_removal(group, member, why, now_ms, config)
    group.remove(member)
    yield member_event(MemberExpired, group, member, now_ms, why=why, silence_ms=silence_ms, reason=reason)
