"""A member of the consumer protocol alone, with the responses that a test gives it."""

from typing import Any

from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.member.consumer_config import ConsumerProtocolConfig, Wanted
from coordinator.member.consumer_member import ConsumerProtocolMember
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, GroupTopics, OwnedPartitions, TopicFact
from coordinator.messages.requests import OffsetCommit, OffsetFetch, OffsetToCommit
from coordinator.messages.responses import (
    AssignedTopic,
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    GroupTopicsAnswer,
    HeartbeatAnswer,
)
from streaming.client.member import resource_id

T, U = resource_id("t"), resource_id("u")
FACTS = {"t": TopicFact("t", T, 4)}
WANTED = Wanted(("t",), facts=FACTS)
INTERVAL_MS = 5_000
P0 = (OffsetToCommit("t", 0, 7),)


class Talk:
    """A member, a clock, and the requests and effects so far."""

    def __init__(self, **settings: Any) -> None:
        config = ConsumerProtocolConfig(group_id="g", reply_to="inbox", member_id="me", **settings)
        self.now_ms = 0
        self.member = ConsumerProtocolMember(config, "1.", 0)
        self.sent: list[Any] = []
        self.effects: list[Any] = []

    def take(self, todos: list[Any]) -> None:
        for todo in todos:
            is_request = isinstance(todo, ConsumerGroupHeartbeat | GroupTopics | OffsetCommit | OffsetFetch)
            (self.sent if is_request else self.effects).append(todo)

    def at(self, now_ms: int) -> "Talk":
        self.now_ms = now_ms
        if self.member.deadline_ms <= now_ms:
            self.take(self.member.advance(now_ms))
        return self

    def joins(self, wanted: Wanted = WANTED) -> "Talk":
        self.member.subscribe()
        self.take(self.member.follow(wanted, self.now_ms))
        self.take(self.member.poll(self.now_ms))
        return self

    def follows(self, wanted: Wanted) -> "Talk":
        self.take(self.member.follow(wanted, self.now_ms))
        return self

    def beat(self) -> ConsumerGroupHeartbeat:
        """Return the last heartbeat."""
        found: ConsumerGroupHeartbeat = [each for each in self.sent if isinstance(each, ConsumerGroupHeartbeat)][-1]
        return found

    def hears(self, epoch: int, *partitions: int, assigns: bool = True, **fields: Any) -> "Talk":
        """Receive the response to the last heartbeat."""
        assignment = (AssignedTopic(T, "t", partitions),) if partitions else ()
        answer = ConsumerGroupHeartbeatAnswer(
            request_id=self.beat().request_id,
            member_id="me",
            member_epoch=epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment if assigns else None,
            **fields,
        )
        self.take(self.member.receive(answer, self.now_ms))
        return self

    def hears_nothing_new(self, epoch: int) -> "Talk":
        return self.hears(epoch, assigns=False)

    def hears_code(self, error: ErrorCode) -> "Talk":
        """Receive the code of the last heartbeat, which was one of many in a record."""
        answer = HeartbeatAnswer(request_id=self.beat().request_id, error=error.name, code=error.number)
        self.take(self.member.receive(answer, self.now_ms))
        return self

    def refused(self, error: ErrorCode, **fields: Any) -> "Talk":
        answer = ConsumerGroupHeartbeatAnswer(
            request_id=self.beat().request_id, error=error.name, code=error.number, **fields
        )
        self.take(self.member.receive(answer, self.now_ms))
        return self

    def topics_told(self) -> "Talk":
        """Answer the `group_topics` request that follows a join."""
        request = next(each for each in reversed(self.sent) if isinstance(each, GroupTopics))
        self.take(self.member.receive(GroupTopicsAnswer(request_id=request.request_id), self.now_ms))
        return self

    def notified(self) -> "Talk":
        notice = AssignmentNotice(request_id=None, group_id="g", member_id="me", group_epoch=9)
        self.take(self.member.receive(notice, self.now_ms))
        return self

    def reconciles(self) -> "Talk":
        assert self.member.target is not None
        self.take(self.member.reconciled(self.member.target, self.now_ms))
        return self

    def settled(self, *partitions: int) -> "Talk":
        """Join, take an assignment, acknowledge it, and forget all requests and effects."""
        self.joins().hears(2, *partitions, fencing_token=5).topics_told().reconciles().hears_nothing_new(2)
        self.sent.clear()
        self.effects.clear()
        return self


def owned(*partitions: int) -> tuple[OwnedPartitions, ...]:
    return (OwnedPartitions(T, partitions),)


def says(request: ConsumerGroupHeartbeat) -> dict[str, Any]:
    """Return the fields of a heartbeat that differ from their defaults, without those that every one has."""
    every = {"request_id", "reply_to", "group_id", "member_id"}
    plain = ConsumerGroupHeartbeat(request_id="", reply_to="", group_id="")
    return {
        name: value
        for name, value in structs.asdict(request).items()
        if name not in every and value != getattr(plain, name)
    }
