"""The first batch of a new executor, compared with the batches before.

    python -m tests.benchmarks.new_executor

This benchmark takes some minutes, so it runs only when it is named. A cluster of two executors serves heartbeats. One
executor is killed, and Spark starts another one in its place. The time of a batch is the sum of its stages, as Spark's
event log has them. A task of a new executor loads Java's classes and starts the daemon of Python workers.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import psutil

from streaming.config.settings import Settings
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.executors import Batch, batches_of, executors_of, spark_environment
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import members
from tests.cluster.beating import Beating

GROUPS, EACH = 10, 10
SESSION_TIMEOUT_MS = 1_800_000
EXECUTORS = 2
INTERVAL_S = 0.5
WARM_UP, AFTER = 60, 20
"""The batches before the kill, and after another executor has run a task."""

COMPARED = 20
"""The last batches before the kill, whose median is the time of a warm batch."""

WAIT_S = 900.0
LOOK_S = 0.5


def measure(_: argparse.Namespace) -> Figures:
    """Kill an executor under heartbeats, and compare the batches before with the first one of its successor."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-new-executor-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        environment = spark_environment(folder, EXECUTORS, EXECUTORS)
        with patch.dict(os.environ, environment), bench.coordinator(settings, folder) as coordinator:
            _beat(settings, coordinator.pid, folder)
        return figures(_logged(folder))


def figures(batches: Sequence[Batch]) -> Figures:
    """Return the time of the first batch with an executor that was not there at the start, and of those before."""
    at_start = _executors_of(batches[: WARM_UP // 2])
    both = [number for number, batch in enumerate(batches) if batch.executors == at_start]
    warm = sorted(batch.stage_ms for batch in batches[both[-1] - COMPARED : both[-1]])
    new = [batch.stage_ms for batch in batches if batch.executors - at_start]
    if not new:
        raise BenchFailed("the new executor has run no task")
    return {
        "new_executor_warm_ms": percentile(warm, 50),
        "new_executor_first_ms": new[0],
        "new_executor_later_ms": percentile(sorted(new[1:]), 50),
        "new_executor_ratio": new[0] / percentile(warm, 50),
    }


def _executors_of(batches: Sequence[Batch]) -> set[str]:
    return set[str]().union(*(batch.executors for batch in batches))


def _logged(folder: Path) -> Sequence[Batch]:
    """Return the batches in Spark's event log, also while Spark writes it."""
    (log_file,) = (folder / "events").iterdir()
    with log_file.open() as log:
        return batches_of(line for line in log if line.endswith("\n"))


def _beat(settings: Settings, coordinator: int, folder: Path) -> None:
    everybody, log_file = members(GROUPS, EACH), folder / "log"
    with Crowd(settings) as crowd:
        crowd.settle(everybody, SESSION_TIMEOUT_MS)
        with Beating(crowd, everybody, INTERVAL_S):
            _await_batches(log_file, WARM_UP)
            (victim, *_) = executors_of(coordinator)
            say("Killing an executor.")
            victim.kill()
            psutil.wait_procs([victim])
            begun_s, before = time.monotonic(), _executors_of(_logged(folder))
            while _executors_of(_logged(folder)) <= before:
                if time.monotonic() > begun_s + WAIT_S:
                    raise BenchFailed("no other executor has run a task")
                time.sleep(LOOK_S)
            say(f"Another one has run a task after {time.monotonic() - begun_s:.1f} s.")
            _await_batches(log_file, AFTER)


def _await_batches(log_file: Path, number: int) -> None:
    """Wait until the coordinator's log has this number of further batches."""
    until_s, wanted = time.monotonic() + WAIT_S, _batches(log_file) + number
    while _batches(log_file) < wanted:
        if time.monotonic() > until_s:
            raise BenchFailed("the coordinator runs no further batches")
        time.sleep(LOOK_S)


def _batches(log_file: Path) -> int:
    return log_file.read_bytes().count(b" duration_ms=")


if __name__ == "__main__":
    bench.main(measure)
