"""What a second core gains, and what a second executor does: heartbeats a second, as many as are answered.

    python -m tests.benchmarks.scaling

Eight minutes, so it runs when it is named, and not with all others. One core means that all of the coordinator's
processes are held to it, compilers and collectors of the JVM too. Executors are processes with one task at a time
beside a driver that has none. Broker and load are on the same cores, which on a machine with two of them takes from the
second what they need: `..._broker_cpu_percent` and `..._others_cpu_percent` say how much that is.
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
    """Where Spark runs, how many tasks side by side, and on how many of this machine's cores at most."""

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
    """Measure each case with a broker, a checkpoint and groups of its own."""
    found: dict[str, float] = {}
    for name, case in CASES.items():
        say(f"{case.master} on {case.cores} of the cores.")
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
    """Have what is started in this block run as the case says: children take over affinity and environment."""
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
    """Settle the members, and have each send a heartbeat whenever its last one was answered."""
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
