"""The response to a member's heartbeat, which is held for a while so that it can report a rebalance.

Clients learn about a rebalance from the response to a heartbeat, and by default send one every three seconds. With
Kafka, a rebalance consists mostly of this wait. Here a heartbeat counts when it arrives, but a response without an
error is held until shortly before the next heartbeat. When a rebalance begins meanwhile, the coordinator's notice
changes the response to REBALANCE_IN_PROGRESS, the response that a heartbeat would get at that time.

A held response never delays another one: it is sent as soon as the client sends any other request. No response is held
on a connection with other requests than a group's, because some clients send one request at a time.
"""

import asyncio
from collections.abc import Callable

from kafka.protocol.consumer.group import HeartbeatResponse

from coordinator.errors import ErrorCode
from coordinator.outputs import RebalanceNotice
from streaming.gateway.apis import BEFORE_AUTHENTICATION, Handling
from streaming.gateway.messages import encode
from streaming.gateway.slots import Slot

SESSIONS_PART = 3
"""A response is held for a third of the session timeout at most, because a client that gets none acts on its own."""

OF_GROUPS = BEFORE_AUTHENTICATION | {Handling.SERVED, Handling.REWRITTEN}
"""The requests on a connection that a client uses only for its group's coordinator. librdkafka sends Metadata as well.

A heartbeat's response is held only on such a connection. Some clients have one connection to a broker for all requests,
and send no other request before they have the response.
"""


class Heartbeats:
    """The heartbeats of one connection. The response to the last one may be held.

    Args:
        hold_ms_max: The longest time that a response is held; 0 for never.
        give: Called with a held response that must be sent.
    """

    def __init__(self, hold_ms_max: int, give: Callable[[Slot, bytes], None]) -> None:
        self._hold_ms_max, self._give = hold_ms_max, give
        self._session_ms: dict[str, int] = {}
        self._is_of_groups = True
        self._held: tuple[Slot, str, bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def may_hold(self) -> bool:
        """Whether the client uses this connection only for its groups."""
        return self._is_of_groups

    def asked(self, handling: Handling) -> None:
        """Record the handling of a request. After a request that is not a group's, no response is held any more."""
        self._is_of_groups &= handling in OF_GROUPS

    def joined(self, member_id: str, session_timeout_ms: int) -> None:
        """Register a member that has joined on this connection, so that responses to it may be held."""
        self._session_ms[member_id] = session_timeout_ms

    def hold(self, slot: Slot, member_id: str, answer: bytes) -> bool:
        """Hold a response and return True; return False if it must be sent now."""
        if not self._is_of_groups:
            return False
        hold_ms = min(self._hold_ms_max, self._session_ms.get(member_id, 0) // SESSIONS_PART)
        if hold_ms == 0:
            return False
        assert self._held is None, "a heartbeat comes after the response to the one before"
        self._held = slot, member_id, answer
        self._timer = asyncio.get_running_loop().call_later(hold_ms / 1_000, self.release)
        return True

    def tell(self, notice: RebalanceNotice) -> None:
        """Change the held response to REBALANCE_IN_PROGRESS if it belongs to the notice's member, and send it."""
        if self._held and self._held[1] == notice.member_id:
            slot, member_id, _ = self._held
            news = HeartbeatResponse(version=slot.header.version, error_code=ErrorCode.REBALANCE_IN_PROGRESS.number)
            self._held = slot, member_id, encode(news, slot.header)
            self.release()

    def release(self) -> None:
        """Send the held response."""
        if self._held:
            slot, _, answer = self._held
            self.forget()
            self._give(slot, answer)

    def forget(self) -> None:
        """Discard the held response."""
        if self._timer:
            self._timer.cancel()
        self._held = self._timer = None
