"""Where the time and the processor time of a batch at rest go, with one heartbeat at a time.

The parts of a batch's time are those that Spark reports, as the coordinator's metrics have them. They are parts of the
wall clock, one after another. The processor time is that of the Java process by its threads, and of the Python
processes. A part of it runs beside the batch, or after it.
"""

import argparse
import random
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from streaming.config.settings import Settings
from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member
from tests.benchmarks.rest import Client, settled
from tests.benchmarks.usage import JAVA
from tests.ports import free_port

WARM_UP, SAMPLES = 200, 300
PAUSE_S = (0.02, 0.1)
TICKS_PER_S = 100
"""The unit of the times in `/proc`: `getconf CLK_TCK`."""

PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
"""The parts of a batch, by Spark's names, in their order."""

THREADS = {
    "stream executio": "planning",
    "Executor task": "tasks",
    "C1 CompilerThre": "compilation",
    "C2 CompilerThre": "compilation",
    "Sweeper thread": "compilation",
    "dag-scheduler-e": "scheduling",
    "dispatcher-even": "scheduling",
    "task-result-get": "scheduling",
    "spark-listener-": "listeners",
    "GC Thread": "garbage",
}
"""By the beginning of a thread's name in the Java process, what it does. All others are `others`."""


def measure(options: argparse.Namespace) -> Figures:
    """Return milliseconds a batch: of the wall clock by parts, and of the processor by threads and processes."""
    port = free_port()
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-batches-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        flags = ("--health-port", str(port))
        with bench.coordinator(settings, Path(name), *flags) as running, closing(Client(settings)) as client:
            member = settled(client)
            say("Warming up.")
            _beats(client, member, WARM_UP)
            parts, used = _parts_s(port), _cpu_s(running.pid)
            say("Measuring.")
            latencies_ms = _beats(client, member, SAMPLES)
            parts, used = _parts_s(port) - parts, _cpu_s(running.pid) - used
    batches = parts.pop("batches")
    figures = {f"batch_{part}_ms": 1_000 * parts[part] / batches for part in (*PARTS, "all")}
    figures |= {f"batch_cpu_{what}_ms": 1_000 * cpu_s / batches for what, cpu_s in sorted(used.items())}
    return {**figures, "batch_reply_p50_ms": percentile(latencies_ms, 50)}


def _beats(client: Client, member: Member, count: int) -> list[float]:
    pauses, latencies_ms = random.Random(1), []
    for _ in range(count):
        time.sleep(pauses.uniform(*PAUSE_S))
        latencies_ms.append(client.ask(member.heartbeat)[1])
    return sorted(latencies_ms)


def _parts_s(port: int) -> Counter[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found: Counter[str] = Counter()
    for family in families:
        for sample in family.samples:
            if sample.name == "groupcoord_batch_part_seconds_total":
                found[sample.labels["part"]] = sample.value
            elif sample.name == "groupcoord_batches_total":
                found["batches"] = sample.value
            elif sample.name == "groupcoord_batch_seconds_total":
                found["all"] = sample.value
    return found


def _cpu_s(pid: int) -> Counter[str]:
    """Return the processor time of each kind of thread or process until now."""
    found: Counter[str] = Counter()
    driver = psutil.Process(pid)
    for process in (driver, *driver.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            if process.name() == JAVA:
                found.update(_threads_s(process.pid))
            else:
                found["driver" if process == driver else "workers"] += sum(process.cpu_times()[:2])
    return found


def _threads_s(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(") ")
            kind = next((kind for start, kind in THREADS.items() if name.startswith(start)), "others")
            found[f"java_{kind}"] += sum(map(int, rest.split()[11:13])) / TICKS_PER_S
    return found


if __name__ == "__main__":
    bench.main(measure)
