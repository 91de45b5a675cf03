"""The heartbeats a second that a coordinator answers: first ours, then Kafka's own, on the same cores.

Each coordinator has a fresh broker and the same groups and members. The load uses as little processor time as possible:
plain sockets, heartbeats that are all encoded beforehand, and one outstanding heartbeat for each member
(`closed_loop`). Ours is measured with a record for each heartbeat, and with a record for many of them.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streaming.config.settings import Settings
from streaming.embedded import Broker
from tests.benchmarks import bench, capacity_kafka, capacity_ours
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.loading import Run, follow, load_as_asked, loading
from tests.benchmarks.usage import Usage

BROKER_JVM = "-Xms1g -Xmx1g"
"""The heap that Kafka's own start script sets. The members take 350 MB of it. Kafka answered 42,000 heartbeats a second
with the embedded broker's 512 MB, 51,000 with this heap, and no more with twice this heap (one run each)."""

LOAD = "load_generator"
_JVM_VARIABLE = "_JAVA_OPTIONS"  # it overrides the options of the command line


def measure(options: argparse.Namespace) -> Figures:
    """Measure our coordinator, then Kafka's."""
    ours, together = (_ours(options, run) for run in (capacity_ours.run, capacity_ours.run_together))
    kafkas = _kafkas(options)
    return {
        "heartbeats_together_max_per_s": together["max_per_s"],
        "heartbeats_together_ratio": together["max_per_s"] / kafkas["max_per_s"],
        "heartbeats_together_errors": together["errors"],
        "heartbeats_ratio": ours["max_per_s"] / kafkas["max_per_s"],
        "heartbeats_ours_max_per_s": ours.pop("max_per_s"),
        "heartbeats_kafka_max_per_s": kafkas.pop("max_per_s"),
        **{f"capacity_ours_{name}": value for name, value in ours.items()},
        **{f"capacity_kafka_{name}": value for name, value in kafkas.items()},
        "capacity_seconds": options.seconds,
        "capacity_groups": options.groups,
        "capacity_members": options.members,
    }


def _ours(options: argparse.Namespace, run: Run) -> dict[str, float]:
    with (
        _broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-capacity-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        say("Starting the coordinator.")
        with bench.coordinator(settings, folder) as coordinator:
            roles = {"coordinator": coordinator.pid, "broker": broker.pid}
            found, batches_ms = _loaded(run, settings, options, roles, folder / "log")
    return {**found, "batch_p50_ms": percentile(batches_ms, 50), "batch_max_ms": batches_ms[-1]}


def _kafkas(options: argparse.Namespace) -> dict[str, float]:
    delay = {"group.initial.rebalance.delay.ms": str(capacity_kafka.INITIAL_DELAY_MS)}
    with _broker(delay) as broker:
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers)
        roles = {"broker": broker.pid}
        return _loaded(capacity_kafka.run, settings, options, roles, broker.log_file)[0]


@contextmanager
def _broker(properties: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Run a broker with the heap that Kafka's own start script gives it."""
    os.environ[_JVM_VARIABLE] = BROKER_JVM
    with bench.broker(properties) as broker:
        del os.environ[_JVM_VARIABLE]  # the query must not read it
        yield broker


def _loaded(
    run: Run, settings: Settings, options: argparse.Namespace, roles: Mapping[str, int], log_file: Path
) -> tuple[dict[str, float], list[int]]:
    """Run the load; return its figures with the use of the cores, and the times of the batches during the load."""
    wanted = load_as_asked(settings, options)
    with loading(run, wanted) as (load_pid, pipe), Usage({**roles, LOAD: load_pid}, weighed=LOAD) as usage:
        found, batches_ms = follow(pipe, usage, log_file)
    used = {f"{role}_cpu_percent": usage.cpu_percent(role) for role in (*roles, LOAD)}
    return {**found, **used, "others_cpu_percent": usage.others_cpu_percent()}, batches_ms


if __name__ == "__main__":
    bench.main(measure)
