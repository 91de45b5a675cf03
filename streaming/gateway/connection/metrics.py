"""The metrics of a gateway for Prometheus. Labels are bounded: the names of APIs, never groups or clients."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """The metrics of one gateway, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.connections = Gauge(
            "groupcoord_gateway_connections", "Open connections of clients.", registry=self.registry
        )
        self.accepted = Counter(
            "groupcoord_gateway_connections_accepted", "Connections that clients have opened.", registry=self.registry
        )
        self.refused = Counter(
            "groupcoord_gateway_connections_refused",
            "Connections closed because the client violated the protocol or exceeded a limit.",
            registry=self.registry,
        )
        self.overfull = Counter(
            "groupcoord_gateway_connections_overfull",
            "Connections closed because their clients did not read their responses, and too many bytes were held.",
            registry=self.registry,
        )
        self.answer_bytes = Gauge(
            "groupcoord_gateway_answer_bytes",
            "Bytes of responses that clients have not read yet.",
            registry=self.registry,
        )
        self.denied = Counter(
            "groupcoord_gateway_requests_denied",
            "Requests that were not relayed, because their clients lack the right to send them to the brokers.",
            registry=self.registry,
        )
        self._requests = Counter(
            "groupcoord_gateway_requests", "Requests of clients, by API.", ["api"], registry=self.registry
        )
        self._seconds = Histogram(
            "groupcoord_gateway_request_seconds",
            "Time from a request's last byte to its response, by API. Joins and syncs wait for the other members.",
            ["api"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._request_of: dict[str, Counter] = {}
        self._seconds_of: dict[str, Histogram] = {}

    def record_request(self, api: str) -> None:
        """Count a request."""
        if (counter := self._request_of.get(api)) is None:
            counter = self._request_of[api] = self._requests.labels(api)
        counter.inc()

    def answered(self, api: str, since_s: float) -> None:
        """Count a response to a request that came at this time of the monotonic clock."""
        if (histogram := self._seconds_of.get(api)) is None:
            histogram = self._seconds_of[api] = self._seconds.labels(api)
        histogram.observe(time.monotonic() - since_s)
