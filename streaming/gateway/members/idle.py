"""Members of the consumer protocol at rest: their heartbeats wait for the next tick before they are sent.

`batching` sends the heartbeats of all connections together. A heartbeat waits if its response will most likely have no
more than a code: it is bare, and the member's last one over this connection was answered without an assignment. The
coordinator refuses it if the group has changed since, and it is then sent in a record of its own.

A heartbeat that waits is sent at once when a notice for its member comes, or when the client sends another request.
"""

import time
from collections.abc import Callable

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.responses import AnyAnswer, AssignmentNotice, ConsumerGroupHeartbeatAnswer, HeartbeatAnswer
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.coordinator.batching import ticks_to_wait
from streaming.gateway.coordinator.routing import HeartbeatBatchers

MEMBERS_MAX = 100
"""The members at rest of one connection; beyond it the oldest is dropped, and its next heartbeat does not wait. A
client has one."""


class IdleMembers:
    """The members at rest of one connection, and the heartbeat that waits.

    Args:
        batchers: Sends the heartbeats that wait at the next tick.
        session_ms: The session timeout of members.
        interval_ms: The heartbeat interval before an answer of the coordinator has named one.
        send_now: Called with a heartbeat that must not wait any longer.
    """

    def __init__(
        self,
        batchers: HeartbeatBatchers,
        session_ms: int,
        interval_ms: int,
        send_now: Callable[[ConsumerGroupHeartbeat], None],
    ) -> None:
        self._batchers, self._send_now = batchers, send_now
        self._session_ms, self._interval_ms = session_ms, interval_ms
        self._came_s: dict[str, float] = {}
        self._waiting: tuple[InFlightRequest, ConsumerGroupHeartbeat] | None = None

    def ticks_to_wait(self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat, patience_ms: float) -> int:
        """Return for how many ticks a heartbeat may wait; 0 for none. If it may, it waits until its tick or `release`.

        The session counts from the time of the heartbeat's record, up to a tick after the client has sent it. So it
        waits only if the session, and the client, leave room for a tick and for the record's way to the broker.

        Args:
            patience_ms: The time for which the client waits for a response; 0 if the heartbeat must not wait.
        """
        came_s = self._came_s.pop(request.member_id, None)
        if came_s is None or not request.is_bare:
            return 0
        left_ms = self._session_ms - (in_flight.since_s - came_s) * 1_000
        ticks = ticks_to_wait(self._batchers.tick_ms, self._session_ms, min(left_ms, patience_ms))
        if ticks:
            self._waiting = in_flight, request
            in_flight.waited_ms = self._batchers.until_tick_ms(ticks)
        return ticks

    def complete(self, request: ConsumerGroupHeartbeat, answer: AnyAnswer) -> AnyAnswer:
        """Return the answer to a heartbeat. If the coordinator has answered it by a code alone, add all else."""
        if not isinstance(answer, HeartbeatAnswer) or answer.code:
            return answer
        return ConsumerGroupHeartbeatAnswer(
            request_id=request.request_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=self._interval_ms,
        )

    def record(self, in_flight: InFlightRequest, request: ConsumerGroupHeartbeat, answer: AnyAnswer) -> None:
        """Note that a member is at rest, if the answer to its heartbeat has no news."""
        if not isinstance(answer, ConsumerGroupHeartbeatAnswer) or answer.code or request.member_epoch <= 0:
            return
        self._interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is None and answer.pending == "none" and not answer.ask:
            self._came_s[request.member_id] = in_flight.since_s
            if len(self._came_s) > MEMBERS_MAX:
                del self._came_s[next(iter(self._came_s))]

    def tell(self, notice: AssignmentNotice) -> None:
        """Note that a member is not at rest. Its heartbeat does not wait any longer."""
        self._came_s.pop(notice.member_id, None)
        if self._waiting and self._waiting[1].member_id == notice.member_id:
            self.release()

    def release(self) -> None:
        """Send the heartbeat that waits for the next tick. After the tick this has no effect."""
        if self._waiting:
            in_flight, request = self._waiting
            in_flight.waited_ms = min(in_flight.waited_ms, (time.monotonic() - in_flight.since_s) * 1_000)
            self._waiting = None
            self._send_now(request)
