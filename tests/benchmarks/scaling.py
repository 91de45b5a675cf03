"""The gain of a second core, and of a second executor, in heartbeats a second that are answered.

    python -m tests.benchmarks.scaling

This benchmark takes eight minutes, so it runs only when it is named, and not with all others. One core means that all
of the coordinator's processes run on that core, with the compilers and collectors of the JVM. An executor is a process
that runs one task at a time, beside a driver that runs none. The broker and the load run on the same cores. On a
machine with two cores, they use a part of the second core: `..._broker_cpu_percent` and `..._others_cpu_percent` show
this part.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from streaming.config.settings import Settings
from tests.benchmarks import bench, capacity_ours, closed_loop
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures
from tests.benchmarks.load import BEGIN, END, Load
from tests.benchmarks.loading import load_on
from tests.benchmarks.usage import Usage

GROUPS, EACH = 3_000, 10
WARM_UP_S = 45
SECONDS = 30


class Case(NamedTuple):
    """Spark's master, the number of parallel tasks, and the largest number of this machine's cores to use."""

    master: str
    tasks: int
    cores: int


CASES: Mapping[str, Case] = {
    "1_core": Case("local[1]", 1, 1),
    "2_cores": Case("local[2]", 2, 2),
    "1_executor": Case("local-cluster[1,1,1024]", 1, 2),
    "2_executors": Case("local-cluster[2,1,1024]", 2, 2),
}
SPEED_UPS = {"cores": ("2_cores", "1_core"), "executors": ("2_executors", "1_executor")}


def measure(options: argparse.Namespace) -> Figures:
    """Measure each case with its own broker, checkpoint and groups."""
    found: dict[str, float] = {}
    for name, case in CASES.items():
        say(f"Measuring {case.master} on {case.cores} of the cores.")
        found |= {f"scaling_{name}_{what}": value for what, value in _measured(case).items()}
    return {
        **found,
        **{
            f"scaling_{what}_speed_up": found[f"scaling_{two}_per_s"] / found[f"scaling_{one}_per_s"]
            for what, (two, one) in SPEED_UPS.items()
        },
    }


def _measured(case: Case) -> Figures:
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-scaling-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        with ExitStack() as stack:
            with _starting(case):
                coordinator = stack.enter_context(bench.coordinator(settings, Path(name)))
            roles = {"broker": broker.pid, "coordinator": coordinator.pid}
            with Usage(roles, weighed="coordinator") as usage:
                beaten = _beat(
                    load_on(settings, groups=GROUPS, members=EACH, seconds=SECONDS, warm_up_s=WARM_UP_S), usage
                )
    return {
        "per_s": beaten["max_per_s"],
        "errors": beaten["errors"] + beaten["unmatched"],
        "cpu_percent": usage.cpu_percent("coordinator"),
        "broker_cpu_percent": usage.cpu_percent("broker"),
        "others_cpu_percent": usage.others_cpu_percent(),
    }


@contextmanager
def _starting(case: Case) -> Iterator[None]:
    """Apply the case to the processes that are started in this block. They inherit affinity and environment."""
    cores, environment = os.sched_getaffinity(0), dict(os.environ)
    os.environ |= {"COORDINATOR_MASTER": case.master, "COORDINATOR_SHUFFLE_PARTITIONS": str(case.tasks)}
    os.sched_setaffinity(0, sorted(cores)[: case.cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        os.environ.clear()
        os.environ.update(environment)


def _beat(load: Load, usage: Usage) -> Mapping[str, float]:
    """Make the members join and sync. Then each member sends a heartbeat whenever its last one was answered."""
    around = {BEGIN: usage.begin, END: usage.end}
    settled = capacity_ours.Settled(load, say)
    crowd = capacity_ours.Crowd(load, settled.by_shard(), settled.reply_ends())
    settled.close()
    members = load.groups * load.members
    return closed_loop.run(
        crowd, members, load.warm_up_s, load.seconds, lambda said: around.get(said, lambda: say(said))()
    )


if __name__ == "__main__":
    bench.main(measure)
