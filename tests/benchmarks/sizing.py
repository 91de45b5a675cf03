"""The predictions of `coordinator size`, compared with three measured loads of heartbeats.

Each load has its own broker, coordinator and load generator. The predictions are those of the same shards and members,
and of the cores that the other processes leave to the coordinator, from the table of costs: the time from request to
response, the coordinator's use of the cores, and the bytes of the state. The state is measured in the checkpoint after
the coordinator has stopped.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from streaming.config.settings import Settings
from streaming.sizing.batches import MEDIAN, Batches, Load, state_bytes
from streaming.sizing.costs import Costs, Figure, read_costs
from tests.benchmarks import bench, load
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures
from tests.benchmarks.loading import follow, load_on, loading
from tests.benchmarks.members import HEARTBEAT_INTERVAL_S
from tests.benchmarks.usage import Usage

LOADS: Mapping[str, float] = {"small": 0.03, "medium": 0.3, "large": 1.0}
"""The parts of the members that send heartbeats."""


class Sizing(NamedTuple):
    """The figures that are predicted and measured."""

    p50_ms: float
    cores: float
    state_mb: float


def measure(options: argparse.Namespace) -> Figures:
    """Measure three loads, and compare each with its prediction."""
    table = read_costs(options.costs)
    pairs, cores_left = dict[str, tuple[Sizing, Sizing]](), dict[str, float]()
    for name, part in LOADS.items():
        groups = max(1, round(part * options.groups))
        say(f"The {name} load: {groups} groups of {options.members}.")
        measured, cores_left[name], shards = _measured(groups, options)
        beating = Load(groups, options.members, 1_000 * HEARTBEAT_INTERVAL_S)
        pairs[name] = predicted(beating, shards, cores_left[name], table), measured
        say(f"Predicted {pairs[name][0]}, measured {measured}.")
    return {
        **worst_ratios(list(pairs.values())),
        **{f"size_{name}_cores_left": cores for name, cores in cores_left.items()},
        **{
            f"size_{name}_{what}_{kind}": getattr(sizing, what)
            for name, pair in pairs.items()
            for kind, sizing in zip(("predicted", "measured"), pair, strict=True)
            for what in Sizing._fields
        },
    }


def worst_ratios(pairs: list[tuple[Sizing, Sizing]]) -> Figures:
    """Return for each figure the largest ratio of prediction and measurement, whichever is larger."""
    worst = (max(max(p[i] / m[i], m[i] / p[i]) for p, m in pairs) for i in range(len(Sizing._fields)))
    return dict(zip(("size_p50_ratio", "size_cores_ratio", "size_state_ratio"), worst, strict=True))


def predicted(beating: Load, shards: int, cores: float, table: Mapping[str, Figure]) -> Sizing:
    """Return the predictions for a load on a coordinator that has these cores for itself."""
    costs = Costs(table)
    batches = Batches(beating, shards, cores, costs)
    return Sizing(batches.response_ms(MEDIAN), batches.cores_used(), state_bytes(beating, costs) / 1e6)


def _measured(groups: int, options: argparse.Namespace) -> tuple[Sizing, float, int]:
    """Return the figures of a load, the cores that the other processes left, and the coordinator's shards."""
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-sizing-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        wanted = load_on(
            settings, groups=groups, members=options.members, seconds=options.seconds, warm_up_s=options.warm_up
        )
        with (
            bench.coordinator(settings, Path(name)) as coordinator,
            loading(load.run, wanted) as (_, pipe),
            Usage({"coordinator": coordinator.pid}, weighed="coordinator") as usage,
        ):
            found, _ = follow(pipe, usage, Path(name) / "log")
        cores = usage.cpu_percent("coordinator") / 100
        left = float(psutil.cpu_count() or 1) - usage.others_cpu_percent() / 100
        state_mb = _state_mb(settings.checkpoint)
        return Sizing(found["reply_33k_p50_ms"], cores, state_mb), left, settings.request_partitions


def _state_mb(checkpoint: str) -> float:
    """Return the size of the state in a checkpoint, as `coordinator checkpoint inspect` shows it."""
    command = [sys.executable, "-m", "streaming", "checkpoint", "inspect", checkpoint, "-o", "json"]
    done = subprocess.run(command, cwd=bench.ROOT, check=True, capture_output=True, text=True)
    return sum(shard["size_bytes"] for shard in json.loads(done.stdout)["shards"]) / 1e6


if __name__ == "__main__":
    bench.main(measure)
