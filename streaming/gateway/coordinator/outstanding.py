"""The heartbeats of members of the consumer protocol that the coordinator has not answered, over all connections.

While the brokers are away, the requests of a gateway wait in its producer. A client gives up much sooner: it connects
again and repeats its heartbeat, and again. All copies would be written when the brokers are back. Kafka accepts a
heartbeat with the epoch before the member's, because one answer may have been lost. But if a copy follows after the
plan has changed, the member no longer has all partitions that the copy names, and is fenced. So while a member's
heartbeat has no answer, its heartbeats over other connections wait. The last of them is sent when the answer has come,
if its client is still there and has had no error.

Source: Kafka's GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat

MEMBERS_MAX = 100_000
"""The members whose heartbeats are stored; beyond it the oldest is dropped, and its next heartbeat is sent."""

LOST_AFTER_S = 30.0
"""The time after which an answer counts as lost. The producer gives up a request after this time."""

Key = tuple[str, str, str | None]
"""The ids of a group and of a member, and the principal: no heartbeat waits for one of another principal."""


def key_of(request: ConsumerGroupHeartbeat) -> Key:
    """Return the key of a heartbeat's member."""
    return request.group_id, request.member_id, request.principal


@dataclass
class _Outstanding:
    """A heartbeat that was sent.

    Args:
        then: Sends the heartbeat that waits; None if none does.
    """

    request_id: str
    since_s: float
    then: Callable[[], object] | None = None


class OutstandingHeartbeats:
    """The last heartbeat of each member that has no answer.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_member: dict[Key, _Outstanding] = {}
        self._members: dict[str, Key] = {}

    def __len__(self) -> int:
        return len(self._by_member)

    def sent(self, key: Key, request_id: str) -> None:
        """Store that a heartbeat was sent, or that it waits for the next tick. One that waits is stored once more."""
        last = self._by_member.get(key)
        if last is not None and last.request_id == request_id:
            last.since_s = self._clock()
            return
        self._remove(key)
        self._by_member[key] = _Outstanding(request_id, self._clock())
        self._members[request_id] = key
        if len(self._by_member) > MEMBERS_MAX:
            self._remove(next(iter(self._by_member)))

    def answered(self, request_id: str | None) -> None:
        """Remove a heartbeat, and send the one that waits: its answer has come, or the brokers did not accept it."""
        if request_id is None or (key := self._members.get(request_id)) is None:
            return
        then = self._by_member[key].then
        self._remove(key)
        if then is not None:
            then()

    def wait(self, key: Key, then: Callable[[], object]) -> bool:
        """Return whether a heartbeat of the member has no answer yet, which may still come. Then call `then` after it.

        It takes the place of an earlier one that waits.
        """
        last = self._by_member.get(key)
        if last is None or self._clock() >= last.since_s + LOST_AFTER_S:
            return False
        last.then = then
        return True

    def _remove(self, key: Key) -> None:
        if (last := self._by_member.pop(key, None)) is not None:
            del self._members[last.request_id]
