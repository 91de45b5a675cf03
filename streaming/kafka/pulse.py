"""What the query and the gateway say when they are asked how they are, through `health`."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streaming.config.settings import Settings
from streaming.query.progress import Tallies

if TYPE_CHECKING:
    from streaming.gateway.server import Gateway
    from streaming.query.coordinator import Coordinator

log = logging.getLogger(__name__)
kafka_log = logging.getLogger("kafka.librdkafka")

ASK_EVERY_S = 5.0
ANSWER_WAIT_S = 5.0

BROKERS_SILENT_S = 20.0
"""Brokers that have not answered for so long are away."""

QUERY_SILENT_S = 60.0
"""A query that has not said for so long whether it is active hangs, or its Java does."""

STALLED_S = 900.0
"""A batch that takes longer, while requests wait, will not end. Only one that has hours of requests to read may take
minutes: a process that is ended for that would begin anew each time, so this is long, and the brokers' patience longer
than `broker_wait_ms`."""

LOOP_WAIT_S = 2.0


class Pulse:
    """Asks the brokers every few seconds how long the request topic is, from `start` to `stop`.

    Args:
        ask: Returns the end of each partition; raises what librdkafka raises.
        tallies: How far the query is, where it runs in this process.
    """

    def __init__(self, ask: Callable[[], Mapping[int, int]], tallies: Tallies | None = None) -> None:
        self._ask, self._tallies = ask, tallies
        self._answered_s = self._moved_s = time.monotonic()
        self._has_answered = False
        self._batches = 0
        self.waiting: int | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pulse", daemon=True)

    @classmethod
    def of(cls, settings: Settings, tallies: Tallies | None = None) -> Self:
        """Ask the brokers that these settings name."""
        admin = AdminClient({**settings.librdkafka_arguments(), "client.id": "coordinator-pulse"}, logger=kafka_log)
        wanted: dict[TopicPartition, Any] = {
            TopicPartition(settings.requests_topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for partition in range(settings.request_partitions)
        }

        def ask() -> dict[int, int]:
            answers = admin.list_offsets(wanted, request_timeout=ANSWER_WAIT_S)
            return {asked.partition: answer.result(2 * ANSWER_WAIT_S).offset for asked, answer in answers.items()}

        return cls(ask, tallies)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()  # the thread may wait for brokers that are away; the process does not wait for it

    def brokers_silent_s(self) -> float | None:
        """How long ago the brokers last answered; None where they never have."""
        return time.monotonic() - self._answered_s if self._has_answered else None

    def stalled_s(self) -> float:
        """How long the query has ended no batch although requests wait."""
        return time.monotonic() - self._moved_s if self.waiting else 0.0

    def look(self) -> None:
        """Ask once."""
        try:
            ends = self._ask()
        except (KafkaException, TimeoutError) as error:
            log.warning("the brokers do not say how long the request topic is: %s", error)
            self.waiting, self._moved_s = None, time.monotonic()  # it is they who are away, not the query
            return
        self._answered_s, self._has_answered = time.monotonic(), True
        if self._tallies is None or not (read_to := self._tallies.read_to):
            return
        batches = self._tallies.totals.batches
        self.waiting = sum(max(0, end - read_to.get(partition, 0)) for partition, end in ends.items())
        if not self.waiting or batches != self._batches:
            self._batches, self._moved_s = batches, time.monotonic()

    def _watch(self) -> None:
        while True:
            self.look()
            if self._closing.wait(ASK_EVERY_S):
                return


class _Subject:
    """What both have in common: brokers that answer, or do not."""

    def __init__(self, pulse: Pulse, metrics: CollectorRegistry) -> None:
        self._pulse, self.registry = pulse, metrics

    def lacks(self) -> Sequence[str]:
        silent_s = self._pulse.brokers_silent_s()
        if silent_s is None:
            return ["no Kafka broker has answered yet"]
        return [f"no Kafka broker has answered for {silent_s:.0f} s"] if silent_s > BROKERS_SILENT_S else []


class QueryHealth(_Subject):
    """How the query is."""

    def __init__(self, coordinator: "Coordinator", pulse: Pulse) -> None:
        registry = CollectorRegistry()
        registry.register(_Figures(coordinator.tallies, pulse))
        super().__init__(pulse, registry)
        self._coordinator = coordinator

    def ails(self) -> Sequence[str]:
        wrong = []
        if (silent_s := self._coordinator.silent_s()) > QUERY_SILENT_S:
            wrong.append(f"Spark has not said for {silent_s:.0f} s whether the query is active")
        if (stalled_s := self._pulse.stalled_s()) > STALLED_S:
            wrong.append(f"no batch has ended for {stalled_s:.0f} s though {self._pulse.waiting} requests wait")
        return wrong

    def lacks(self) -> Sequence[str]:
        first = [] if self._coordinator.tallies.latest else ["the first batch has not ended yet"]
        return [*first, *super().lacks()]

    def figures(self) -> dict[str, object]:
        latest = self._coordinator.tallies.latest
        return {"requests_waiting": self._pulse.waiting, "batch": latest._asdict() if latest else None}


class GatewayHealth(_Subject):
    """How a gateway is.

    It is ready though the coordinator is away: it serves all that is no group's, every other gateway is in the same
    case, and clients that find none can do nothing but wait as well.
    """

    def __init__(self, gateway: "Gateway", pulse: Pulse) -> None:
        super().__init__(pulse, gateway.metrics.registry)
        self._gateway = gateway

    def ails(self) -> Sequence[str]:
        return [] if self._gateway.turns_within(LOOP_WAIT_S) else [f"it has done nothing for {LOOP_WAIT_S:.0f} s"]

    def figures(self) -> dict[str, object]:
        silent_s = self._gateway.asking.silence_s()
        return {"coordinator_silent_s": round(silent_s, 1) if math.isfinite(silent_s) else None}


class _Figures(Collector):
    """The query's figures, read when Prometheus asks. They have no labels: groups are chosen by strangers."""

    def __init__(self, tallies: Tallies, pulse: Pulse) -> None:
        self._tallies, self._pulse = tallies, pulse

    def collect(self) -> Iterable[Metric]:
        totals, latest = self._tallies.totals, self._tallies.latest
        yield CounterMetricFamily("groupcoord_batches", "Batches ended.", totals.batches)
        yield CounterMetricFamily("groupcoord_batch_seconds", "What they took.", totals.duration_ms / 1_000)
        yield CounterMetricFamily("groupcoord_requests", "Requests handled.", totals.requests)
        yield CounterMetricFamily("groupcoord_heartbeats", "Heartbeats among them.", totals.heartbeats)
        yield CounterMetricFamily("groupcoord_answers", "Replies written.", totals.answered)
        parts = CounterMetricFamily("groupcoord_batch_part_seconds", "Spark's own parts of them.", labels=["part"])
        for part, took_ms in totals.parts_ms.items():
            parts.add_metric([part], took_ms / 1_000)
        yield parts
        if latest:
            yield GaugeMetricFamily("groupcoord_groups", "Groups, in shards called since the start.", latest.groups)
            yield GaugeMetricFamily("groupcoord_members", "Members of these groups.", latest.members)
            yield GaugeMetricFamily(
                "groupcoord_oldest_request_seconds",
                "How long the oldest request of the last batch had waited for it.",
                latest.oldest_ms / 1_000,
            )
            yield GaugeMetricFamily("groupcoord_state_bytes", "What the states take in memory.", latest.state_bytes)
        if self._pulse.waiting is not None:
            yield GaugeMetricFamily(
                "groupcoord_requests_waiting",
                "Records of the request topic that no ended batch has read.",
                self._pulse.waiting,
            )
