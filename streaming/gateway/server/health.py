"""A gateway's health checks."""

import math
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from streaming.kafka.broker_monitor import BrokerMonitor

LOOP_WAIT_S = 2.0


class GatewayHealth:
    """The health of a gateway.

    A gateway is ready even while the coordinator is unavailable: it relays all requests that do not concern groups,
    every other gateway is in the same state, and clients without a gateway could only wait too. It is not ready while
    brokers that others reach do not answer this gateway.

    Args:
        runs_within: Returns whether the gateway's event loop runs a callback within a number of seconds.
        silence_s: Returns the seconds since the coordinator's last answer.
        unreached: Returns the reasons why other gateways can serve clients better; see `reach`.
    """

    process = "gateway"

    def __init__(
        self,
        brokers: BrokerMonitor,
        registry: CollectorRegistry,
        runs_within: Callable[[float], bool],
        silence_s: Callable[[], float],
        unreached: Callable[[], Sequence[str]],
    ) -> None:
        self._brokers, self.registry, self._runs_within, self._silence_s = brokers, registry, runs_within, silence_s
        self._unreached = unreached

    def unhealthy_reasons(self) -> Sequence[str]:
        return [] if self._runs_within(LOOP_WAIT_S) else [f"its event loop has run no callback for {LOOP_WAIT_S:.0f} s"]

    def not_ready_reasons(self) -> Sequence[str]:
        return [*self._brokers.not_ready_reasons(), *self._unreached()]

    def figures(self) -> dict[str, object]:
        silent_s = self._silence_s()
        return {"coordinator_silent_s": round(silent_s, 1) if math.isfinite(silent_s) else None}
