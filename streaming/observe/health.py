"""The observer's health checks and its metrics for Prometheus."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streaming.observe.observer import Observer
from streaming.observe.tally import UNREADABLE
from streaming.query.health import hung_reasons


class ObserverHealth:
    """The health of the observer."""

    process = "observer"

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.registry = CollectorRegistry()
        self.registry.register(_Figures(observer))

    def unhealthy_reasons(self) -> Sequence[str]:
        return hung_reasons(self._observer, self._observer.watch, "records")

    def not_ready_reasons(self) -> Sequence[str]:
        watch = self._observer.watch
        if watch is None:
            return ["the query has not started yet"]
        return [*self._observer.not_ready_reasons(), *watch.not_ready_reasons()]

    def figures(self) -> dict[str, object]:
        latest, watch = self._observer.observed.latest, self._observer.watch
        return {
            "records_behind": watch.records_behind if watch else None,
            "batch": latest._asdict() if latest else None,
        }


class _Figures(Collector):
    """The observer's metrics, collected when Prometheus asks. Labels have no names that clients choose."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def collect(self) -> Iterable[Metric]:
        observed, watch = self._observer.observed, self._observer.watch
        totals = observed.totals
        yield CounterMetricFamily("groupcoord_observe_batches", "Batches ended.", totals["batches"])
        yield CounterMetricFamily(
            "groupcoord_observe_batch_seconds", "Duration of these batches.", totals["duration_ms"] / 1_000
        )
        records = CounterMetricFamily(
            "groupcoord_observe_records", "Records of the source, by the number of their type.", labels=["type"]
        )
        for kind, number in sorted(observed.records.items()):
            if kind != UNREADABLE:
                records.add_metric([kind], number)
        yield records
        yield CounterMetricFamily(
            "groupcoord_observe_unreadable", "Records that could not be read.", observed.records.get(UNREADABLE, 0)
        )
        yield CounterMetricFamily("groupcoord_observe_published", "Records and events written.", totals["published"])
        yield GaugeMetricFamily(
            "groupcoord_observe_ids_without_name", "Topic ids without a name.", observed.unnamed_total
        )
        if latest := observed.latest:
            yield GaugeMetricFamily("groupcoord_observe_groups", "Groups, in partitions that were read.", latest.groups)
            yield GaugeMetricFamily("groupcoord_observe_members", "Members of these groups.", latest.members)
            yield GaugeMetricFamily("groupcoord_observe_state_bytes", "Memory of the states.", latest.state_bytes)
        if watch is not None and watch.records_behind is not None:
            yield GaugeMetricFamily("groupcoord_observe_behind_records", "Records that wait.", watch.records_behind)
        if watch is not None:
            yield GaugeMetricFamily(
                "groupcoord_observe_held_back_seconds",
                "Time for which open transactions have held a partition back, at the longest.",
                max(watch.held_back.values(), default=0.0),
            )
