"""The response to a member's heartbeat, which is held for a while so that it can report a rebalance.

Clients learn about a rebalance from the response to a heartbeat, and by default send one every three seconds. With
Kafka, a rebalance consists mostly of this wait. Here a heartbeat counts when it arrives, but a response without an
error is held until shortly before the next heartbeat. When a rebalance begins meanwhile, the coordinator's notice
changes the response to REBALANCE_IN_PROGRESS, the response that a heartbeat would get at that time.

A heartbeat of a settled member may also wait before it is sent, for the next tick: see `batching`.

A held response never delays another one: it is sent, or the heartbeat that waits is,
as soon as the client sends any other request. No response is held
on a connection with other requests than a group's, because some clients send one request at a time. None is held
either when the client is about to authenticate again (KIP-368): librdkafka sends nothing more before it has all
responses.
"""

import asyncio
import time
from collections.abc import Callable

from kafka.protocol.consumer.group import HeartbeatResponse

from coordinator.base.errors import ErrorCode
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.responses import RebalanceNotice
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.coordinator.batching import ticks_to_wait
from streaming.gateway.protocol.api import BEFORE_AUTHENTICATION, Handling
from streaming.gateway.protocol.messages import encode

SESSIONS_PART = 3
"""A response is held for a third of the session timeout at most, because a client that gets none acts on its own."""

OF_GROUPS = BEFORE_AUTHENTICATION | {Handling.SERVED, Handling.REWRITTEN}
"""The requests on a connection that a client uses only for its group's coordinator. librdkafka sends Metadata as well.

A heartbeat's response is held only on such a connection. Some clients have one connection to a broker for all requests,
and send no other request before they have the response.
"""


class HeartbeatHolds:
    """The heartbeats of one connection. The response to the last one may be held.

    Args:
        hold_ms_max: The longest time that a response is held; 0 for never.
        give: Called with a held response that must be sent.
        count: Called with a heartbeat that a notice answers while it waits for the next tick.
        send_now: Called with a heartbeat that waits for the next tick and must not wait any longer.
        tick_ms: The time between two ticks; 0 if no heartbeat waits for one.
        authenticates_soon: Returns whether the client may authenticate again at any time.
    """

    def __init__(
        self,
        hold_ms_max: int,
        give: Callable[[InFlightRequest, bytes], None],
        count: Callable[[InFlightRequest], None] = lambda _: None,
        send_now: Callable[[Heartbeat], None] = lambda _: None,
        tick_ms: int = 0,
        authenticates_soon: Callable[[], bool] = lambda: False,
    ) -> None:
        self._hold_ms_max, self._give, self._count, self._send_now = hold_ms_max, give, count, send_now
        self._tick_ms, self._authenticates_soon = tick_ms, authenticates_soon
        self._session_ms: dict[str, int] = {}
        self._sent_s: dict[str, float] = {}
        self._waiting: tuple[InFlightRequest, Heartbeat] | None = None
        self._is_of_groups = True
        self._held: tuple[InFlightRequest, str, bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def may_hold(self) -> bool:
        """Whether the client uses this connection only for its groups, and will not authenticate again soon."""
        return self._is_of_groups and not self._authenticates_soon()

    def record_request(self, handling: Handling) -> None:
        """Record the handling of a request. After a request that is not a group's, no response is held any more."""
        self._is_of_groups &= handling in OF_GROUPS

    def stop_holding(self) -> None:
        """Hold no response any more, because the connection ends."""
        self._is_of_groups = False

    def joined(self, member_id: str, session_timeout_ms: int) -> None:
        """Register a member that has joined on this connection, so that responses to it may be held."""
        self._session_ms[member_id] = session_timeout_ms
        self._sent_s.pop(member_id, None)

    def ticks_to_wait(self, in_flight: InFlightRequest, heartbeat: Heartbeat, *, is_only: bool) -> int:
        """Return for how many ticks a heartbeat may wait; 0 for none. It then waits until `answered` or `release`.

        It may wait if the member's last heartbeat over this connection was answered without an error, if no notice has
        come since, if no other request waits for a response, and if the session does not end soon: the session counts
        from the time of the heartbeat's record, up to these ticks after the client has sent it.
        """
        sent_s = self._sent_s.pop(heartbeat.member_id, None)
        if sent_s is None or not (self.may_hold and is_only):
            return 0
        session_ms = self._session_ms.get(heartbeat.member_id, 0)
        ticks = ticks_to_wait(self._tick_ms, session_ms, session_ms - (in_flight.since_s - sent_s) * 1_000)
        if ticks:
            self._waiting = in_flight, heartbeat
        return ticks

    def answered(self, in_flight: InFlightRequest, member_id: str, code: int) -> bool:
        """Record the response to a heartbeat. Return False if a notice has answered it already."""
        if self._waiting and self._waiting[0] is in_flight:
            self._waiting = None
        if in_flight.answer is not None:
            return False
        if not code:
            self._sent_s[member_id] = in_flight.since_s
        return True

    def hold(self, in_flight: InFlightRequest, member_id: str, answer: bytes) -> bool:
        """Hold a response and return True; return False if it must be sent now."""
        if not self.may_hold:
            return False
        hold_ms = min(self._hold_ms_max, self._session_ms.get(member_id, 0) // SESSIONS_PART)
        hold_ms -= int((time.monotonic() - in_flight.since_s) * 1_000)
        if hold_ms <= 0:
            return False
        assert self._held is None, "a heartbeat comes after the response to the one before"
        self._held = in_flight, member_id, answer
        self._timer = asyncio.get_running_loop().call_later(hold_ms / 1_000, self.release)
        return True

    def tell(self, notice: RebalanceNotice) -> None:
        """Send the response REBALANCE_IN_PROGRESS, if the heartbeat of the notice's member is held or waits.

        Without one, the member's next heartbeat does not wait.
        """
        self._sent_s.pop(notice.member_id, None)
        if self._held and self._held[1] == notice.member_id:
            in_flight = self._held[0]
            self.forget()
            self._give(in_flight, _rebalancing(in_flight))
        elif self._waiting and self._waiting[1].member_id == notice.member_id:
            in_flight = self._waiting[0]
            self._waiting = None
            self._count(in_flight)
            self._give(in_flight, _rebalancing(in_flight))

    def release(self) -> None:
        """Send the held response, or the heartbeat that waits for the next tick."""
        if self._waiting:
            self._send_now(self._waiting[1])
            self._waiting = None
        if self._held:
            in_flight, _, answer = self._held
            self.forget()
            self._give(in_flight, answer)

    def forget(self) -> None:
        """Discard the held response."""
        if self._timer:
            self._timer.cancel()
        self._held = self._timer = None


def _rebalancing(in_flight: InFlightRequest) -> bytes:
    news = HeartbeatResponse(version=in_flight.header.version, error_code=ErrorCode.REBALANCE_IN_PROGRESS.number)
    return encode(news, in_flight.header)
