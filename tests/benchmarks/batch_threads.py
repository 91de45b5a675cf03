"""The processor time of a batch by the threads that use it, with 1,000 members at rest as `at_rest` has them.

    python -m tests.benchmarks.batch_threads --warm-up 600

A JVM compiles for many minutes if little is done, so the warm-up is long, and the compilers have a line of their own.
It runs on Linux, which counts the time of each thread, and is started by hand.
"""

import argparse
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

import psutil

from streaming.config.settings import Settings
from tests.benchmarks import bench, crowd
from tests.benchmarks.at_rest import resting
from tests.benchmarks.bench import say

THREADS = (
    # beginning of a thread's name   what it does
    ("stream executio", "driver: offsets, planning, the files of the checkpoint"),
    ("Executor task", "tasks: Kafka's records, the exchange, state, rows to and from Python, the sink"),
    ("C1 Compiler", "compilers of Java"),
    ("C2 Compiler", "compilers of Java"),
    ("GC Thread", "garbage collector"),
    ("kafka-", "Kafka's clients"),
    ("state-store-mai", "maintenance of the state store"),
    ("dag-scheduler", "Spark's scheduler and events"),
    ("dispatcher", "Spark's scheduler and events"),
    ("task-result", "Spark's scheduler and events"),
    ("spark-listener", "Spark's scheduler and events"),
    ("element-trackin", "Spark's scheduler and events"),
    ("Spark Context C", "Spark's scheduler and events"),
)
OTHERS = "other threads of Java"
PYTHON, WORKERS = "driver in Python", "workers in Python"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run a coordinator with members at rest, and print the processor time of a batch by kind of thread."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.batch_threads")
    parser.add_argument("--warm-up", type=float, default=600.0, help="seconds before the measurement")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of the measurement")
    options = parser.parse_args()
    with (
        bench.broker({"group.initial.rebalance.delay.ms": "3000"}) as broker,
        tempfile.TemporaryDirectory(prefix="bench-threads-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        with bench.coordinator(settings, folder) as coordinator, resting(broker.bootstrap_servers, folder):
            say(f"Warming up for {options.warm_up:.0f} s, then measuring for {options.seconds:.0f} s.")
            time.sleep(options.warm_up)
            with crowd.batches(folder / "log") as batches:
                before = cpu_s(coordinator.pid)
                time.sleep(options.seconds)
                after = cpu_s(coordinator.pid)
    show({kind: time_s - before.get(kind, 0.0) for kind, time_s in after.items()}, len(batches), options.seconds)


def cpu_s(driver: int) -> Mapping[str, float]:
    """Return the processor time of a coordinator until now by kind of thread, in seconds."""
    found: defaultdict[str, float] = defaultdict(float)
    first = psutil.Process(driver)
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                for thread in Path(f"/proc/{process.pid}/task").iterdir():
                    name, time_s = _thread(thread)
                    found[name] += time_s
            else:
                times = process.cpu_times()
                found[PYTHON if process is first else WORKERS] += times.user + times.system
    return found


def _thread(folder: Path) -> tuple[str, float]:
    """Return the kind of a thread, and its processor time in seconds (proc(5), `stat`)."""
    try:
        before, _, after = (folder / "stat").read_text().rpartition(")")
    except OSError:
        return OTHERS, 0.0  # it has ended
    name, fields = before.partition("(")[2], after.split()
    kind = next((kind for begins, kind in THREADS if name.startswith(begins)), OTHERS)
    return kind, (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def show(used: Mapping[str, float], batches: int, seconds: float) -> None:
    """Print the table."""
    print(f"{batches} batches in {seconds:.0f} s; {sum(used.values()) / seconds:.3f} core")
    for kind, time_s in sorted(used.items(), key=itemgetter(1), reverse=True):
        print(f"{1_000 * time_s / max(batches, 1):7.1f} ms a batch  {time_s / seconds:6.4f} core  {kind}")


if __name__ == "__main__":
    main()
