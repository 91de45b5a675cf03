"""Members with realistic sizes of ids, subscriptions and assignments, and the requests that they send."""

from dataclasses import dataclass, field
from struct import pack
from uuid import NAMESPACE_OID, uuid5

from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    JoinGroup,
    OffsetCommit,
    OffsetToCommit,
    Protocol,
    Request,
    SyncGroup,
)
from coordinator.messages.responses import JoinGroupAnswer

HEARTBEAT_INTERVAL_S = 3
SESSION_TIMEOUT_MS = 300_000  # so that no member expires in a measurement, even if the coordinator cannot keep up
REBALANCE_TIMEOUT_MS = 300_000
TOPIC = b"orders.placed"

METADATA = pack(f">hih{len(TOPIC)}si35s", 0, 1, len(TOPIC), TOPIC, 35, b"")
"""A subscription to one topic with an assignor's own data, 60 bytes."""
assert len(METADATA) == 60

PROTOCOLS = (Protocol("range", METADATA), Protocol("cooperative-sticky", METADATA))


@dataclass
class Member:
    """A member of one of many equal groups, with the id and the generation from its last join response."""

    group_id: str
    number: int
    member_id: str = ""
    generation_id: int = -1
    leads: tuple[str, ...] = field(default=())

    @property
    def client_id(self) -> str:
        return f"consumer-{self.group_id}-{self.number}"

    @property
    def client_host(self) -> str:
        return f"/10.20.30.{self.number}"

    @property
    def inbox(self) -> str:
        """A mailbox in the form that our client draws, but the same in every run."""
        return uuid5(NAMESPACE_OID, self.client_id).hex

    def join_group(self, request_id: str) -> Request:
        return JoinGroup(
            **self._header(request_id),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=PROTOCOLS,
            require_known_member_id=False,
        )

    def take(self, answer: JoinGroupAnswer) -> None:
        """Store the member's id, its generation and, for the leader, the members of the group."""
        assert not answer.code, f"{self.client_id} was refused: {answer.error}"
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        self.leads = tuple(m.member_id for m in answer.members)

    def sync_group(self, request_id: str) -> Request:
        """Return the SyncGroup request. A leader's request has an assignment for each member."""
        return SyncGroup(
            **self._header(request_id),
            generation_id=self.generation_id,
            member_id=self.member_id,
            assignments=self.assignments(),
        )

    def assignments(self) -> tuple[Assignment, ...]:
        """Return the leader's assignments, one partition for each member. A follower has none."""
        return tuple(Assignment(member_id, _assignment(i)) for i, member_id in enumerate(self.leads))

    def heartbeat(self, request_id: str) -> Request:
        return Heartbeat(**self._header(request_id), generation_id=self.generation_id, member_id=self.member_id)

    def commit(self, request_id: str) -> Request:
        return OffsetCommit(
            **self._header(request_id),
            generation_id=self.generation_id,
            member_id=self.member_id,
            offsets=(OffsetToCommit(TOPIC.decode(), 0, 1),),
        )

    def _header(self, request_id: str) -> dict[str, str]:
        return {
            "request_id": request_id,
            "reply_to": self.inbox,
            "group_id": self.group_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
        }


def members(groups: int, each: int) -> list[Member]:
    """Make the members of `groups` groups, group by group."""
    return [Member(f"orders-{group:05}", number) for group in range(groups) for number in range(each)]


def _assignment(partition: int) -> bytes:
    return pack(f">hih{len(TOPIC)}siii", 0, 1, len(TOPIC), TOPIC, 1, partition, -1)
