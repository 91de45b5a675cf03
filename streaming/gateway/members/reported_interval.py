"""The heartbeat interval that a client of the consumer protocol is told, and the times that follow from it.

A held response is sent as soon as the client sends any other request. The next heartbeat then comes an interval after
the one before, and a change waits for it. A client that commits often would have no held response most of the time, so
the responses to it have a short interval.
"""

from collections.abc import Callable

from msgspec.structs import replace

from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer

MARGIN_MS = 1_000
"""A response is held until this long before the client's next heartbeat at most: librdkafka waits no longer for it."""

PATIENCE_MS = 500
"""A heartbeat without an answer of the coordinator is answered with an error this long before the next one."""

SHORT_INTERVAL_MS = 2_000
"""The interval for a client whose commits end held responses: its next heartbeat comes sooner. It is not shorter,
because librdkafka waits no longer for a response than the interval."""

SHORT_FOR_S = 30.0
"""Responses have the short interval until this long after a request has last ended a held response."""

PROMPT_MS = 1_000
"""If the coordinator has not answered a heartbeat for longer, the response has the usual interval: a client with the
short one would soon give up, and would add to the load."""


class ReportedInterval:
    """The interval in the responses to one client.

    Args:
        usual_ms: The interval before a response has named one.
        clock: Returns monotonic seconds.

    Attributes:
        last_ms: The interval of the last response; None before a response.
    """

    def __init__(self, usual_ms: int, clock: Callable[[], float]) -> None:
        self._usual_ms, self._clock = usual_ms, clock
        self.last_ms: int | None = None
        self._early_end_s = self._slow_s = float("-inf")

    @property
    def patience_ms(self) -> int:
        """The time after its arrival at which a heartbeat without an answer gets an error."""
        return max((self.last_ms or self._usual_ms) - PATIENCE_MS, PATIENCE_MS)

    def limit_ms(self, answer: ConsumerGroupHeartbeatAnswer) -> int:
        """Return how long the client waits for a response that is made from an answer."""
        return min(answer.heartbeat_interval_ms, self.last_ms or answer.heartbeat_interval_ms)

    def record_early_end(self) -> None:
        """Record that the client sends other requests between its heartbeats: its responses get the short interval."""
        self._early_end_s = self._clock()

    def record_slow(self) -> None:
        """Record that the coordinator was slow: for a while the client is told the usual interval."""
        self._slow_s = self._clock()

    def reported(self, answer: ConsumerGroupHeartbeatAnswer, answer_ms: float) -> ConsumerGroupHeartbeatAnswer:
        """Return an answer with the interval for the client.

        Args:
            answer_ms: How long the coordinator took for the answer.
        """
        if answer.heartbeat_interval_ms == 0:
            return answer
        now_s = self._clock()
        if answer_ms > PROMPT_MS:
            self.record_slow()
        is_short = self._slow_s + SHORT_FOR_S <= now_s < self._early_end_s + SHORT_FOR_S
        usual_ms = answer.heartbeat_interval_ms
        self.last_ms = min(usual_ms, SHORT_INTERVAL_MS) if is_short else usual_ms
        return answer if self.last_ms == usual_ms else replace(answer, heartbeat_interval_ms=self.last_ms)
