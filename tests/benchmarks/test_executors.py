"""Tests of the times of batches that are read from Spark's event log, and of the figures."""

import json
from typing import Any

import pytest

from tests.benchmarks.executors import Batch, Run, batches_of, figures
from tests.benchmarks.meanings import MEANINGS


def line(event: str, **fields: Any) -> str:
    return json.dumps({"Event": f"SparkListener{event}", **fields}) + "\n"


def job(batch: int | None, *stages: int) -> str:
    properties = {} if batch is None else {"streaming.sql.batchId": str(batch)}
    return line("JobStart", **{"Job ID": stages[0], "Stage IDs": stages, "Properties": properties})


def stage(number: int, begun_ms: int, ended_ms: int, *parents: int) -> str:
    times = {"Submission Time": begun_ms, "Completion Time": ended_ms}
    return line("StageCompleted", **{"Stage Info": {"Stage ID": number, "Parent IDs": parents, **times}})


def task(stage: int, executor: str, begun_ms: int, ended_ms: int, requests: int = 0) -> str:
    info = {"Executor ID": executor, "Launch Time": begun_ms, "Finish Time": ended_ms}
    metrics = {"Executor CPU Time": 2_500_000, "Shuffle Read Metrics": {"Total Records Read": requests}}
    return line("TaskEnd", **{"Stage ID": stage, "Task Info": info, "Task Metrics": metrics})


LOG = (
    line("LogStart"),
    job(None, 0),
    task(0, "driver", 0, 500),
    stage(0, 0, 500),
    job(8, 3, 4),
    task(3, "0", 1_005, 1_100),
    task(3, "1", 1_005, 1_090),
    stage(3, 1_000, 1_101),
    task(4, "1", 1_112, 1_300, requests=20),
    task(4, "0", 1_112, 1_410, requests=10),
    stage(4, 1_110, 1_411, 3),
    job(7, 1),
    stage(1, 900, 950),
    line("TaskEnd", **{"Stage ID": 4, "Task Info": {}, "Task Metrics": None}),
)


def test_times_are_those_of_the_stages_and_tasks_of_a_batch() -> None:
    first, second = batches_of(LOG)
    assert first == Batch(stage_ms=50)
    assert second.stage_ms == (1_101 - 1_000) + (1_411 - 1_110)
    assert second.operator_ms == 1_411 - 1_110
    assert second.task_ms == 95 + 85 + 188 + 298
    assert second.jvm_cpu_ms == pytest.approx(4 * 2.5)
    assert (second.requests, second.executors) == (30, {"0", "1"})


def run(executors: int, *stage_ms: float) -> Run:
    return Run(executors, [Batch(stage_ms=ms, operator_ms=ms / 2) for ms in stage_ms], 100, 1, 20.0, 3.0)


def test_a_speed_up_is_of_medians_and_each_figure_has_a_meaning() -> None:
    found = figures([run(1, 90, 100, 900), run(2, 50, 60), run(1, 110, 120), run(2, 40, 50, 55)])
    assert found["executors_1_stage_ms"] == 110
    assert found["executors_2_stage_ms"] == 50
    assert found["executors_2_speed_up"] == pytest.approx(110 / 50)
    assert found["executors_2_operator_speed_up"] == pytest.approx(110 / 50)
    assert found["executors_1_drift"] == pytest.approx(110 / 100)
    assert (found["executors_2_batches"], found["executors_2_answered"], found["executors_2_errors"]) == (5, 200, 2)
    assert found.keys() <= MEANINGS.keys()
