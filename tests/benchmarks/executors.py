"""The gain of a second Spark executor and of four: the times of the stages of equal batches.

    python -m tests.benchmarks.executors

This benchmark takes a quarter of an hour, so it runs only when it is named, and not with all others. It differs from
`scaling`: no load runs beside the executors, and the driver's work between the stages is not in the measured time.
While no coordinator runs, a backlog of heartbeats of all members is appended. Then a coordinator works through it in
equal batches. A batch has two stages: one reads the requests, the other one has the operator and writes the responses.
Each stage has four tasks. One executor runs them one after the other, and four executors run them at the same time, so
the work is the same. The time of a batch is the sum of its stages, from each one's submission to its completion, as
Spark's event log has them. Runs with one executor, with two and with four alternate, on one checkpoint.

Each executor has a part of a core: a control group of Linux limits its Java, with compilers and collectors, and its
Python workers together. All executors have one core at most, so the driver and the broker have the other one for
themselves, beside one executor as beside four. The limit begins after the warm-up. Executors run without Java's
optimizing compiler: it works for longer than a run takes, once in each executor, and its work is no part of a batch.
What they still share are the disk, the caches of the processor, and the memory's bandwidth. `..._task_ms` is the sum of
the times of a batch's tasks: it shows how much longer the same tasks take beside each other.
"""

import argparse
import json
import os
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from coordinator.base.hashing import shard_of
from streaming.config.settings import Settings
from streaming.embedded.child import Child
from streaming.query.operator.durable import BATCH
from streaming.wire.records import encode_request
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, NotMeasurable, say
from tests.benchmarks.cpu_quota import limited_cores
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.load import NUMBER_DIGITS, Replies
from tests.benchmarks.members import Member, members
from tests.benchmarks.usage import Usage

GROUPS, EACH = 3_000, 10
SESSION_TIMEOUT_MS = 1_800_000  # so that no member expires between two backlogs
TASKS = 4
RUNS = (1, 2, 4, 1, 2, 4)
"""The number of executors of each run."""

CORES = 0.25
"""The part of a core that each executor may use."""

WARM_UP, SKIPPED, MEASURED = 30, 3, 20
"""The batches for each executor before the limit, those that may have run while it began, and the measured ones of each
run. A batch has one heartbeat of each member. With two executors, twice as many come before: each has done the same
work then, and has compiled as much."""

FULL = 0.95
"""The least part of a batch's requests that a measured batch has. Spark rounds down, so the last batch has the rest."""

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
LOOK_S = 0.25
BACKLOG_WAIT_S, FLUSH_WAIT_S, READ_WAIT_S = 900.0, 120.0, 60.0

_REQUESTS = re.compile(rb" requests=(\d+) ")


@dataclass
class Batch:
    """A batch in Spark's event log.

    Args:
        requests: The rows that the operator's stage has read.
        stage_ms: The sum of the wall times of its stages.
        operator_ms: The wall time of the operator's stage.
        task_ms: The sum of the wall times of its tasks.
        jvm_cpu_ms: The sum of the processor times of its tasks' threads in Java.
        executors: The ids of the executors that ran its tasks.
    """

    requests: int = 0
    stage_ms: float = 0.0
    operator_ms: float = 0.0
    task_ms: float = 0.0
    jvm_cpu_ms: float = 0.0
    executors: set[str] = field(default_factory=set)


class Run(NamedTuple):
    """One run through a backlog.

    Args:
        batches: The measured batches.
        errors: Heartbeats without a response or with an error, and surplus responses.
    """

    executors: int
    batches: Sequence[Batch]
    answered: int
    errors: int
    broker_cpu_percent: float
    others_cpu_percent: float

    def median(self, what: str) -> float:
        """Return the median of a field of the measured batches."""
        return _median(self.batches, what)


def measure(options: argparse.Namespace) -> Figures:
    """Measure how a coordinator works through backlogs of heartbeats of members that have joined."""
    if len(os.sched_getaffinity(0)) < 1 + max(RUNS) * CORES:
        raise NotMeasurable(f"It needs {max(RUNS) * CORES} cores for the executors, and one for driver and broker.")
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-executors-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        everybody = members(GROUPS, EACH)
        _settle(settings, Path(name) / "settling", everybody)
        return figures(
            [
                _measured(broker.pid, settings, Path(name) / f"run-{number}", everybody, executors)
                for number, executors in enumerate(RUNS)
            ]
        )


def figures(runs: Sequence[Run]) -> Figures:
    """Return the figures of all runs. A speed-up is a ratio of medians over the batches of all runs of a kind."""
    found: dict[str, float] = {}
    for executors in sorted({run.executors for run in runs}):
        same = [run for run in runs if run.executors == executors]
        batches = [batch for run in same for batch in run.batches]
        of_kind = {
            **{what: _median(batches, what) for what in ("stage_ms", "operator_ms", "task_ms", "jvm_cpu_ms")},
            "drift": same[-1].median("stage_ms") / same[0].median("stage_ms"),
            "batches": len(batches),
            "answered": sum(run.answered for run in same),
            "errors": sum(run.errors for run in same),
            "broker_cpu_percent": sum(run.broker_cpu_percent for run in same) / len(same),
            "others_cpu_percent": sum(run.others_cpu_percent for run in same) / len(same),
        }
        found |= {f"executors_{executors}_{what}": value for what, value in of_kind.items()}
    return found | {
        f"executors_{executors}_{name}speed_up": found[f"executors_1_{what}"] / found[f"executors_{executors}_{what}"]
        for executors in sorted({run.executors for run in runs} - {1})
        for name, what in (("", "stage_ms"), ("operator_", "operator_ms"))
    }


def _median(batches: Iterable[Batch], what: str) -> float:
    return percentile(sorted(map(attrgetter(what), batches)), 50)


# -- runs --------------------------------------------------------------------------------------------------------------


def _settle(settings: Settings, folder: Path, everybody: Sequence[Member]) -> None:
    """Make all members join and sync, and stop the coordinator. The checkpoint keeps the groups."""
    say(f"{len(everybody)} members join {GROUPS} groups.")
    folder.mkdir()
    with (
        patch.dict(os.environ, {"COORDINATOR_SHUFFLE_PARTITIONS": str(TASKS)}),
        bench.coordinator(settings, folder),
        Crowd(settings) as asker,
    ):
        asker.settle(everybody, SESSION_TIMEOUT_MS)


def _measured(broker: int, settings: Settings, folder: Path, everybody: Sequence[Member], executors: int) -> Run:
    """Append a backlog, and let a coordinator with so many executors work through it."""
    folder.mkdir()
    warm_up = executors * WARM_UP
    batches = warm_up + SKIPPED + MEASURED
    size = batches * len(everybody)
    say(f"Appending {size} heartbeats.")
    begins = _reply_ends(settings)
    _append(settings, everybody, batches)
    say(f"Working through them with {executors} executors.")
    limited = {"COORDINATOR_MAX_REQUESTS_PER_BATCH": str(len(everybody))}
    with (
        patch.dict(os.environ, spark_environment(folder, executors, TASKS, QUICK_COMPILER) | limited),
        bench.coordinator(settings, folder) as coordinator,
        Usage({"broker": broker, "coordinator": coordinator.pid}, weighed="broker") as usage,
    ):
        _await_handled(coordinator, folder / "log", warm_up * len(everybody))
        with _limited(coordinator.pid, executors):
            usage.begin()
            _await_handled(coordinator, folder / "log", size)
            usage.end()
    (log_file,) = (folder / "events").iterdir()
    with log_file.open() as log:
        full = [batch for batch in batches_of(log) if batch.requests >= FULL * len(everybody)]
    answered, errors = _answers(settings, begins, size)
    shares = usage.cpu_percent("broker"), usage.others_cpu_percent()
    run = Run(executors, full[warm_up + SKIPPED :], answered, errors, *shares)
    _check(run)
    took_ms, operator_ms = run.median("stage_ms"), run.median("operator_ms")
    say(f"The stages of a batch took {took_ms:.0f} ms, and the operator's stage {operator_ms:.0f} ms of this.")
    return run


QUICK_COMPILER = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


def spark_environment(
    folder: Path, executors: int, tasks: int, config: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the variables of a coordinator that writes Spark's event log, and write the file that they name.

    Args:
        config: Further settings of Spark.
    """
    (events := folder / "events").mkdir()
    logged = {"enabled": "true", "compress": "false", "rolling.enabled": "false", "dir": events.as_uri()}
    (conf := folder / "conf").mkdir()
    lines = {f"spark.eventLog.{name}": value for name, value in logged.items()} | config
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    return {
        "SPARK_CONF_DIR": str(conf),
        "COORDINATOR_MASTER": f"local-cluster[{executors},1,1024]",
        "COORDINATOR_SHUFFLE_PARTITIONS": str(tasks),
    }


@contextmanager
def _limited(coordinator: int, executors: int) -> Iterator[None]:
    """Limit each executor to its part of a core, with all of its Python workers."""
    found = executors_of(coordinator)
    if len(found) != executors:
        raise BenchFailed(f"Spark has started {len(found)} executors, not {executors}")
    with ExitStack() as stack:
        for number, executor in enumerate(found):
            pids = (executor.pid, *(child.pid for child in executor.children(recursive=True)))
            stack.enter_context(limited_cores(f"executor-{number}", CORES, pids))
        yield


def executors_of(coordinator: int) -> list[psutil.Process]:
    """Return the executors that a coordinator has started."""
    return [process for process in psutil.Process(coordinator).children(recursive=True) if _is_executor(process)]


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return EXECUTOR in process.cmdline()
    return False


def _await_handled(coordinator: Child, log_file: Path, requests: int) -> None:
    """Wait until the coordinator's log has batches with so many requests. This does not disturb the broker."""
    until_s = time.monotonic() + BACKLOG_WAIT_S
    while (handled := sum(map(int, _REQUESTS.findall(log_file.read_bytes())))) < requests:
        if coordinator.ended.wait(LOOK_S) or time.monotonic() > until_s:
            raise BenchFailed(f"the coordinator has handled {handled} of {requests} requests, and no more")


def _check(run: Run) -> None:
    """Check that there are enough batches, and that all executors had tasks.

    Raises:
        BenchFailed: There are not, or they had not.
    """
    if len(run.batches) < MEASURED / 2:
        raise BenchFailed(f"only {len(run.batches)} batches were full and are measured")
    if len(used := set[str]().union(*(batch.executors for batch in run.batches))) != run.executors:
        raise BenchFailed(f"{len(used)} executors had tasks, not {run.executors}")


# -- Spark's event log -------------------------------------------------------------------------------------------------


def batches_of(log: Iterable[str]) -> list[Batch]:
    """Return the batches of a query from the lines of its event log, in their order."""
    batch_of_stage: dict[int, int] = {}
    found: defaultdict[int, Batch] = defaultdict(Batch)

    def note(event: Mapping[str, Any], stage: int, add: Callable[[Batch, Mapping[str, Any]], None]) -> None:
        if stage in batch_of_stage:  # else it is part of a job at the start, which belongs to no batch
            add(found[batch_of_stage[stage]], event)

    for line in log:
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerJobStart" if BATCH in (event.get("Properties") or {}):
                batch_of_stage |= dict.fromkeys(event["Stage IDs"], int(event["Properties"][BATCH]))
            case "SparkListenerStageCompleted":
                note(event["Stage Info"], event["Stage Info"]["Stage ID"], _add_stage)
            case "SparkListenerTaskEnd" if event.get("Task Metrics"):
                note(event, event["Stage ID"], _add_task)
    return [found[number] for number in sorted(found)]


def _add_stage(batch: Batch, stage: Mapping[str, Any]) -> None:
    took_ms = stage["Completion Time"] - stage["Submission Time"]
    batch.stage_ms += took_ms
    if stage["Parent IDs"]:  # it reads what another stage has written: the operator is there
        batch.operator_ms += took_ms


def _add_task(batch: Batch, ended: Mapping[str, Any]) -> None:
    task, metrics = ended["Task Info"], ended["Task Metrics"]
    batch.task_ms += task["Finish Time"] - task["Launch Time"]
    batch.jvm_cpu_ms += metrics["Executor CPU Time"] / 1e6
    batch.requests += metrics["Shuffle Read Metrics"]["Total Records Read"]
    batch.executors.add(task["Executor ID"])


# -- requests and responses --------------------------------------------------------------------------------------------


def _append(settings: Settings, everybody: Sequence[Member], times: int) -> None:
    """Append heartbeats of each member to the request topic. Their request ids are their numbers."""
    room = {"queue.buffering.max.messages": 2 * len(everybody), "queue.buffering.max.kbytes": 2_000_000}
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 5, **room})
    prepared = list(_prepared(everybody, settings.request_partitions))
    order = random.Random(1).sample(prepared, len(prepared))
    for turn in range(times):
        for number, (shard, key, head, tail) in enumerate(order, turn * len(order)):
            value = b"%b%0*d%b" % (head, NUMBER_DIGITS, number, tail)
            producer.produce(settings.requests_topic, value, key, partition=shard)
        if producer.flush(FLUSH_WAIT_S):
            raise BenchFailed("the broker does not accept the heartbeats")
    producer.close()


def _prepared(everybody: Iterable[Member], shards: int) -> Iterator[tuple[int, str, bytes, bytes]]:
    """Yield each member's shard, its group and its encoded heartbeat, without the number between the two parts."""
    mark = "?" * NUMBER_DIGITS
    for member in everybody:
        head, _, tail = encode_request(member.heartbeat(mark)).partition(mark.encode())
        yield shard_of(member.group_id, shards), member.group_id, head, tail


def _reply_ends(settings: Settings) -> list[int]:
    """Return the end offset of each partition of the topic of responses."""
    with closing(_consumer(settings)) as consumer:
        places = (TopicPartition(settings.replies_topic, number) for number in range(settings.reply_partitions))
        return [consumer.get_watermark_offsets(place)[1] for place in places]


def _answers(settings: Settings, begins: Sequence[int], size: int) -> tuple[int, int]:
    """Read all responses to a backlog; return the numbers of heartbeats without an error, and of errors."""
    replies = Replies(size)
    left = sum(_reply_ends(settings)) - sum(begins)
    until_s = time.monotonic() + READ_WAIT_S
    with closing(_consumer(settings)) as consumer:
        consumer.assign([TopicPartition(settings.replies_topic, place, begin) for place, begin in enumerate(begins)])
        while left > 0:
            messages = consumer.consume(min(left, 20_000), 1.0)
            if time.monotonic() > until_s or any(message.error() for message in messages):
                raise BenchFailed(f"{left} responses cannot be read")
            replies.take(messages, time.monotonic())
            left -= len(messages)
    return size - replies.awaited, max(replies.awaited, replies.errors) + replies.repeated


def _consumer(settings: Settings) -> Consumer:
    unused_group = {"group.id": "executors", "enable.auto.commit": False}  # a consumer requires an id
    return Consumer({"bootstrap.servers": settings.bootstrap_servers, **unused_group})


if __name__ == "__main__":
    bench.main(measure)
