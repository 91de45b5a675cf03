"""The answer to a member's heartbeat, held back for a while so that it can bring the news of a rebalance.

Clients hear of a rebalance by the answer to a heartbeat, and by default send one every three seconds: most of what a
rebalance takes with Kafka is waiting for that. Here a heartbeat counts when it comes, but the answer that all is well
is kept until nearly the next one. When a rebalance begins meanwhile, the coordinator's notice turns it into
REBALANCE_IN_PROGRESS, which is what the heartbeat would hear if it came now.

A held answer never delays another one: it goes out as soon as the client asks for anything else. Nor does it wait on a
connection that carries more than a group's requests: there are clients that ask one thing at a time.
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
"""An answer is held for a third of the session at most: clients look after themselves when they hear nothing."""

OF_GROUPS = BEFORE_AUTHENTICATION | {Handling.SERVED, Handling.REWRITTEN}
"""The requests on a connection that a client keeps for its group's coordinator; librdkafka sends Metadata as well.

Only there may a heartbeat's response be held: some clients have one connection to a broker for everything, and send
nothing more on it until they have the response.
"""


class Heartbeats:
    """Those of one connection, of which the last may be held.

    Args:
        hold_ms_max: The longest that an answer is held; 0 for never.
        give: Called with a held answer that is to go out.
    """

    def __init__(self, hold_ms_max: int, give: Callable[[Slot, bytes], None]) -> None:
        self._hold_ms_max, self._give = hold_ms_max, give
        self._session_ms: dict[str, int] = {}
        self._is_of_groups = True
        self._held: tuple[Slot, str, bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def asked(self, handling: Handling) -> None:
        """Record what kind of request the client has sent. No response is held once one is not a group's."""
        self._is_of_groups &= handling in OF_GROUPS

    def joined(self, member_id: str, session_timeout_ms: int) -> None:
        """Know that notices about a member come here, because it has joined here."""
        self._session_ms[member_id] = session_timeout_ms

    def hold(self, slot: Slot, member_id: str, answer: bytes) -> bool:
        """Hold a response back, and return True; return False where it has to go out now."""
        if not self._is_of_groups:
            return False
        hold_ms = min(self._hold_ms_max, self._session_ms.get(member_id, 0) // SESSIONS_PART)
        if hold_ms == 0:
            return False
        assert self._held is None, "a heartbeat is asked after the one before was answered"
        self._held = slot, member_id, answer
        self._timer = asyncio.get_running_loop().call_later(hold_ms / 1_000, self.release)
        return True

    def tell(self, notice: RebalanceNotice) -> None:
        """Have a held answer bring the news."""
        if self._held and self._held[1] == notice.member_id:
            slot, member_id, _ = self._held
            news = HeartbeatResponse(version=slot.header.version, error_code=ErrorCode.REBALANCE_IN_PROGRESS.number)
            self._held = slot, member_id, encode(news, slot.header)
            self.release()

    def release(self) -> None:
        """Let go what is held."""
        if self._held:
            slot, _, answer = self._held
            self.forget()
            self._give(slot, answer)

    def forget(self) -> None:
        """Hold nothing any more."""
        if self._timer:
            self._timer.cancel()
        self._held = self._timer = None
