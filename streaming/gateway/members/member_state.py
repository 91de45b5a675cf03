"""The state of members, as far as one connection shows it: all that a member has said, and the partitions that it owns.

A client acknowledges an assignment with its next heartbeat, which names all partitions that it owns then. So a response
that assigns something is never held, and neither is one to a member that owes an acknowledgement.
"""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.responses import AssignedTopic, ConsumerGroupHeartbeatAnswer

K = TypeVar("K")
V = TypeVar("V")

MEMBERS_MAX = 100
"""The members of one connection about which something is stored; beyond it the oldest is dropped. A client has one."""

Owned = frozenset[tuple[str, tuple[int, ...]]]
"""Partitions, by the ids of their topics."""

PASSING = frozenset(
    error.number
    for error in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
)
"""Errors after which a client remains a member, and keeps its partitions."""

_OPTIONAL = (
    "group_instance_id",
    "rack_id",
    "subscribed_topic_names",
    "subscribed_topic_regex",
    "server_assignor",
    "topic_partitions",
)


def is_gone(request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> bool:
    """Return whether the client is no member any more after an answer, or begins anew."""
    return request.member_epoch < 0 or (answer.code != 0 and answer.code not in PASSING)


def store_newest(stored: dict[K, V], member: K, value: V) -> None:
    """Store a value of a member as the newest one. Beyond `MEMBERS_MAX` members the oldest is dropped."""
    stored.pop(member, None)
    stored[member] = value
    if len(stored) > MEMBERS_MAX:
        del stored[next(iter(stored))]


def merged(said: ConsumerGroupHeartbeat, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeat:
    """Return all that a member has said. A field that is null is as it was before."""
    changes = {name: value for name in _OPTIONAL if (value := getattr(request, name)) is not None}
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.member_epoch != said.member_epoch:
        changes["member_epoch"] = request.member_epoch
    return replace(said, **changes) if changes else said


class Acknowledgements:
    """The last assignments of the members of one connection, and the partitions that they own."""

    def __init__(self) -> None:
        self._owned: dict[str, Owned] = {}
        self._assigned: dict[str, Owned] = {}

    def record(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """Store the partitions that the member owns, and those that the answer assigns to it."""
        member_id = answer.member_id or request.member_id
        if is_gone(request, answer):
            self._owned.pop(member_id, None)
            self._assigned.pop(member_id, None)
            return
        if request.topic_partitions is not None:
            store_newest(self._owned, member_id, _partitions(request.topic_partitions))
        self.record_assignment(member_id, answer)

    def record_assignment(self, member_id: str, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """Store the partitions that an answer assigns to a member."""
        if answer.assignment is not None:
            store_newest(self._assigned, member_id, _partitions(answer.assignment))

    def may_hold(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> bool:
        """Return whether a response may be held: it has no change, and its member owes no acknowledgement.

        The response to a join is held if the member's partitions will come soon.
        """
        if answer.code or request.member_epoch < 0:
            return False
        if request.member_epoch == 0:
            return answer.assignment == () and answer.pending == "waiting"
        member_id = request.member_id
        is_acknowledged = self._assigned.get(member_id, Owned()) == self._owned.get(member_id, Owned())
        return is_acknowledged and answer.assignment is None and answer.pending != "revoking"


def _partitions(topics: Iterable[OwnedPartitions | AssignedTopic]) -> Owned:
    return frozenset((each.topic_id, tuple(sorted(each.partitions))) for each in topics if each.partitions)
