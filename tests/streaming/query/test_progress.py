"""Tests of the figures of queries and of their log, without Spark: what a listener hears is stored, and logged."""

import json
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.observe.tally import Observed
from streaming.observe.tally import Tally as PartitionTally
from streaming.query.watchers.progress import ProgressLog, QueryFigures, Tallies, read_to
from streaming.wire.records import Tally

TALLY = Tally(
    shard=0, groups=1, members=2, requests=3, heartbeats=1, answered=2, oldest_ms=7, deferred=0, due_in_ms=None
).to_json()


def progress(name: str, *tallies: str, ends: dict[str, dict[str, int]] | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "batchId": 4,
        "durationMs": {"triggerExecution": 250, "addBatch": 200},
        "observedMetrics": {"coordinator": {"shards": list(tallies)}},
        "sources": [{"endOffset": ends}],
    }


def event(found: dict[str, Any]) -> Any:
    return SimpleNamespace(progress=lambda: SimpleNamespace(json=lambda: json.dumps(found)))


def of_run(run: str, name: str = "") -> Any:
    return SimpleNamespace(name=lambda: name, runId=lambda: SimpleNamespace(toString=lambda: run))


PARTITION = PartitionTally(
    partition=0, groups=2, members=3, records={"1": 5}, published=4, unnamed=[], unnamed_total=0
).to_json()


@pytest.mark.parametrize(
    ("figures", "tally", "line"),
    [
        (Tallies(), TALLY, "batch=4 duration_ms=250 requests=3 answered=2 oldest_ms=7 groups=1 members=2"),
        (Observed(), PARTITION, "batch=4 duration_ms=250 records=5 published=4 groups=2 members=3"),
    ],
)
def test_batch_of_the_own_query_is_stored_and_logged(
    figures: QueryFigures[Any, Any], tally: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Several queries run in one Java process, and each listener hears all. An idle batch is logged for debugging."""
    caplog.set_level(logging.DEBUG, "streaming.query.watchers.progress")
    listener = ProgressLog(figures, "ours")
    listener.onQueryProgress(event(progress("another", tally)))
    assert (figures.batches, figures.latest, caplog.messages) == (0, None, [])
    listener.onQueryProgress(event(progress("ours", tally)))
    listener.onQueryProgress(event(progress("ours")))
    assert [record.levelname for record in caplog.records] == ["INFO", "DEBUG"]
    assert caplog.messages[0] == line
    assert (figures.batches, figures.totals["duration_ms"]) == (2, 500)


def test_runs_of_the_own_query_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streaming.query.watchers.progress")
    listener = ProgressLog(Tallies(), "ours")
    for run, name in (("r1", "another"), ("r2", "ours")):
        listener.onQueryStarted(of_run(run, name))
    for run in ("r1", "r2"):
        listener.onQueryTerminated(of_run(run))
    assert caplog.messages == ["query=ours started run=r2", "query ended run=r2"]


def test_followers_get_the_tallies_and_threads_are_woken_after_they_are_stored() -> None:
    tallies, followed = Tallies(), list[Sequence[Tally]]()
    ended = tallies.batch_event()
    tallies.follow(followed.append)
    tallies.follow(lambda _: followed.append([]) if ended.is_set() else None)
    tallies.handle(progress("ours", TALLY))
    assert [[tally.requests for tally in each] for each in followed] == [[3]]
    assert ended.is_set()
    assert tallies.totals == {"batches": 1, "duration_ms": 250, "requests": 3, "answered": 2, "heartbeats": 1}
    assert tallies.parts_ms == {"addBatch": 200}


def test_position_of_a_batch_without_an_end_is_that_of_the_batch_before() -> None:
    tallies = Tallies()
    for ends in ({"requests": {"0": 5, "1": 8}}, None):
        tallies.handle(progress("ours", ends=ends))
    assert tallies.read_to == {0: 5, 1: 8}


def test_position_is_that_in_the_named_topic() -> None:
    found = progress("ours", ends={"source": {"0": 5}, "names": {"0": 99}})
    assert read_to(found, "source") == {0: 5}
