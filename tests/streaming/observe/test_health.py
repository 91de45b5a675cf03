"""Tests of the observer's health checks and metrics, without brokers and without Spark."""

import re

from prometheus_client import generate_latest

from streaming.observe.health import ObserverHealth
from streaming.observe.observer import Observer
from streaming.query.health import QUERY_SILENT_S, STALLED_S
from tests.streaming.observe.test_watch import SETTINGS, Ends, progress, tally

NAMES = {
    "groupcoord_observe_batches_total",
    "groupcoord_observe_batch_seconds_total",
    "groupcoord_observe_records_total",
    "groupcoord_observe_unreadable_total",
    "groupcoord_observe_published_total",
    "groupcoord_observe_ids_without_name",
    "groupcoord_observe_groups",
    "groupcoord_observe_members",
    "groupcoord_observe_state_bytes",
    "groupcoord_observe_behind_records",
    "groupcoord_observe_held_back_seconds",
}


def running() -> tuple[Observer, Ends]:
    """Return an observer that has ended two batches."""
    observer, ends = Observer(SETTINGS), Ends()
    observer.observed = ends.observed
    observer.watch = ends.watch
    ends.observed.handle(progress(tally(0, unnamed=["id1"], unnamed_total=1), ends={"0": 3, "1": 5}))
    ends.observed.handle(progress(tally(1, records={"8": 2, "unreadable": 1}), batch=1, ends={"0": 3, "1": 5}))
    ends.look(0.0)
    return observer, ends


def figures(observer: Observer) -> dict[str, float]:
    text = generate_latest(ObserverHealth(observer).registry).decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


def test_metrics_have_the_names_of_the_page() -> None:
    observer, _ = running()
    assert {name.partition("{")[0] for name in figures(observer)} == NAMES


def test_metrics_are_the_figures_of_all_batches() -> None:
    observer, _ = running()
    found = figures(observer)
    assert found['groupcoord_observe_records_total{type="1"}'] == 5
    assert found['groupcoord_observe_records_total{type="8"}'] == 2
    assert found["groupcoord_observe_unreadable_total"] == 1
    assert (found["groupcoord_observe_groups"], found["groupcoord_observe_members"]) == (4, 6)
    assert (found["groupcoord_observe_behind_records"], found["groupcoord_observe_ids_without_name"]) == (2, 1)
    assert found["groupcoord_observe_batch_seconds_total"] == 0.5


def test_observer_that_has_not_started_is_not_ready() -> None:
    health = ObserverHealth(Observer(SETTINGS))
    assert health.not_ready_reasons() == ["the query has not started yet"]
    assert health.unhealthy_reasons() == []
    assert health.figures() == {"records_behind": None, "batch": None}
    assert generate_latest(health.registry)


def test_query_that_ends_no_batch_is_unhealthy() -> None:
    observer, ends = running()
    health = ObserverHealth(observer)
    ends.look(STALLED_S)
    assert health.unhealthy_reasons() == []
    ends.look(1.0)
    assert health.unhealthy_reasons() == ["no batch has ended for 901 s though 2 records wait"]


def test_spark_that_does_not_report_is_unhealthy() -> None:
    observer, _ = running()
    observer._active_s = 1.0
    (reason,) = ObserverHealth(observer).unhealthy_reasons()
    assert reason.startswith("Spark has not reported for ")
    assert observer.silent_s() > QUERY_SILENT_S


def test_figures_beside_the_reasons() -> None:
    observer, _ = running()
    found = ObserverHealth(observer).figures()
    assert found["records_behind"] == 2
    batch = found["batch"]
    assert isinstance(batch, dict)
    assert (batch["batch_id"], batch["records"], batch["unreadable"]) == (1, 3, 1)
