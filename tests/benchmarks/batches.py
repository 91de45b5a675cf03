"""Where the time and the processor time of a batch at rest go, with one heartbeat at a time.

The parts of a batch's time are those that Spark reports, as the coordinator's metrics have them. They are parts of the
wall clock, one after another. The processor time by threads is printed, as `batch_threads` does. A part of it runs
beside the batch, or after it.
"""

import argparse
import random
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from streaming.config.settings import Settings
from tests.benchmarks import bench
from tests.benchmarks.batch_threads import cpu_s, show
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member
from tests.benchmarks.rest import Client, settled
from tests.ports import free_port

WARM_UP, SAMPLES = 200, 300
PAUSE_S = (0.02, 0.1)
PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
"""The parts of a batch, by Spark's names, in their order."""


def measure(options: argparse.Namespace) -> Figures:
    """Return milliseconds a batch: of the wall clock by parts, and of the processor."""
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
            parts, used, began_s = _parts_s(port), cpu_s(running.pid), time.monotonic()
            say("Measuring.")
            latencies_ms = _beats(client, member, SAMPLES)
            took_s = time.monotonic() - began_s
            parts, after = _parts_s(port) - parts, cpu_s(running.pid)
    used = {kind: time_s - used.get(kind, 0.0) for kind, time_s in after.items()}
    batches = round(parts["batches"])
    show(used, batches, took_s)
    return {
        **{f"batch_{part}_ms": 1_000 * parts[part] / batches for part in ("all", *PARTS)},
        "batch_cpu_ms": 1_000 * sum(used.values()) / batches,
        "batch_reply_p50_ms": percentile(latencies_ms, 50),
    }


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


if __name__ == "__main__":
    bench.main(measure)
