"""The query's health checks and its metrics for Prometheus, and the health of any query."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streaming.kafka.broker_monitor import BrokerMonitor
from streaming.moments import monotonic_ms
from streaming.query.coordinator import Coordinator
from streaming.query.running_query import RunningQuery
from streaming.query.watchers.progress import Tallies
from streaming.query.watchers.settling import Unsettled

QUERY_SILENT_S = 60.0
"""The longest time between two reports of Spark that the query is active. After it, the query or its Java counts as
hung."""

STALLED_S = 900.0
"""The longest duration of a batch while requests wait. A longer batch counts as stalled. Only a batch that reads hours
of requests may take minutes. A process that is ended for such a batch would restart it each time. So this limit is
long, and it is longer than the default of `broker_wait_ms`, the time that the query waits for brokers."""

SLOW_S = 20.0
"""The longest duration of a batch while requests wait, before the query is not ready. Groups get no answers meanwhile,
whatever the reason, and a restart would not help."""


def hung_reasons(query: RunningQuery, monitor: BrokerMonitor | None, records: str) -> list[str]:
    """Return why a query counts as hung.

    Args:
        monitor: The monitor of its source, once it runs.
        records: The records of its source, in the plural.
    """
    wrong = []
    if (silent_s := query.silent_s()) > QUERY_SILENT_S:
        wrong.append(f"Spark has not reported for {silent_s:.0f} s whether the query is active")
    if monitor is not None and (stalled_s := monitor.stalled_s()) > STALLED_S:
        wrong.append(stalled(monitor, stalled_s, records))
    return wrong


def stalled(monitor: BrokerMonitor, stalled_s: float, records: str) -> str:
    """Return the reason about a query that has ended no batch for some seconds."""
    return f"no batch has ended for {stalled_s:.0f} s though {monitor.records_behind} {records} wait"


class QueryHealth:
    """The health of the query."""

    process = "coordinator"

    def __init__(self, coordinator: Coordinator, brokers: BrokerMonitor) -> None:
        self._coordinator, self._brokers = coordinator, brokers
        self.registry = CollectorRegistry()
        self.registry.register(_Figures(coordinator.tallies, coordinator.transactions.unsettled, brokers))

    def unhealthy_reasons(self) -> Sequence[str]:
        return hung_reasons(self._coordinator, self._brokers, "requests")

    def not_ready_reasons(self) -> Sequence[str]:
        is_first_over = self._coordinator.tallies.latest or self._coordinator.is_standing_by
        wrong = [] if is_first_over else ["the first batch has not ended yet"]
        if SLOW_S < (stalled_s := self._brokers.stalled_s()) <= STALLED_S:
            wrong.append(stalled(self._brokers, stalled_s, "requests"))
        return [*wrong, *self._coordinator.not_ready_reasons(), *self._brokers.not_ready_reasons()]

    def figures(self) -> dict[str, object]:
        latest = self._coordinator.tallies.latest
        role = "stand by" if self._coordinator.is_standing_by else "active"
        batch = latest._asdict() if latest else None
        return {"role": role, "requests_waiting": self._brokers.records_behind, "batch": batch}


class _Figures(Collector):
    """The query's metrics, collected when Prometheus asks. They have no names of groups as labels, because clients
    choose these."""

    def __init__(self, tallies: Tallies, unsettled: Unsettled, brokers: BrokerMonitor) -> None:
        self._tallies, self._unsettled, self._brokers = tallies, unsettled, brokers

    def collect(self) -> Iterable[Metric]:
        totals, latest = self._tallies.totals, self._tallies.latest
        yield CounterMetricFamily("groupcoord_batches", "Batches ended.", totals["batches"])
        yield CounterMetricFamily(
            "groupcoord_batch_seconds", "Duration of these batches.", totals["duration_ms"] / 1_000
        )
        yield CounterMetricFamily("groupcoord_requests", "Requests handled.", totals["requests"])
        yield CounterMetricFamily("groupcoord_heartbeats", "Heartbeats among these requests.", totals["heartbeats"])
        yield CounterMetricFamily("groupcoord_answers", "Responses written.", totals["answered"])
        parts = CounterMetricFamily("groupcoord_batch_part_seconds", "Parts of these durations.", labels=["part"])
        for part, took_ms in self._tallies.parts_ms.items():
            parts.add_metric([part], took_ms / 1_000)
        yield parts
        if latest:
            yield GaugeMetricFamily("groupcoord_groups", "Groups, in shards called since the start.", latest.groups)
            yield GaugeMetricFamily("groupcoord_members", "Members of these groups.", latest.members)
            yield GaugeMetricFamily(
                "groupcoord_oldest_request_seconds",
                "Waiting time of the oldest request of the last batch.",
                latest.oldest_ms / 1_000,
            )
            yield GaugeMetricFamily("groupcoord_state_bytes", "Memory of the shards' states.", latest.state_bytes)
        yield from self._of_transactions()
        if self._brokers.records_behind is not None:
            yield GaugeMetricFamily(
                "groupcoord_requests_waiting",
                "Records of the request topic that no ended batch has read.",
                self._brokers.records_behind,
            )

    def _of_transactions(self) -> Iterator[Metric]:
        records = GaugeMetricFamily(
            "groupcoord_transactions_unsettled_records",
            "Records of the transactions topic after the last settled one, while a transaction has ended, by shard.",
            labels=["shard"],
        )
        waited = GaugeMetricFamily(
            "groupcoord_transactions_unsettled_seconds",
            "Time for which these shards have settled nothing, although transactions have ended.",
            labels=["shard"],
        )
        for shard, number in self._unsettled.records().items():
            records.add_metric([str(shard)], number)
        for shard, waited_ms in self._unsettled.waited_ms(monotonic_ms()).items():
            waited.add_metric([str(shard)], waited_ms / 1_000)
        yield records
        yield waited
