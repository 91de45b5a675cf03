"""The costs of `coordinator size`, measured with a real broker and coordinator, and written to its table.

    make bench BENCH=costs

Turns of requests are sent together, and each turn ends when all are answered. Turns that touch one shard, then all
shards, then all shards with the state of all members, give the fixed part of a batch, the part of a shard and the part
of the state. The slope of the time of batches over their requests gives the time of a request. Times that tasks share
are multiplied by the number of tasks. The processor time of the same turns gives the use of the cores. `core_bytes`
computes the bytes.

The table also has costs that other benchmarks measure. They are taken from the figures in `latest.json`, if it has
them; else the table keeps its value. A new table begins with the shipped costs.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streaming.config.settings import Settings
from streaming.sizing.costs import COSTS, Figure
from streaming.sizing.table import read_costs, write_costs
from tests.benchmarks import bench, crowd, figures
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.core_bytes import bytes_of_state_and_records
from tests.benchmarks.crowd import Ask, Crowd
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member, members
from tests.benchmarks.usage import Usage

RUN = "python -m tests.benchmarks."
WARM_UP = 100  # turns of each kind; a young JVM compiles for that long
TURNS = 60
SESSION_TIMEOUT_MS = 1_800_000  # so that members that send nothing do not expire in the meantime
LARGE_TURNS = 4  # of each size
PARTS = (0.1, 0.25, 0.5)  # of all members, in one turn
IDLE_S = 20.0
TOUCHES_ALL = 4  # requests for each shard, so that a batch touches nearly all shards
HEARTBEAT_INTERVAL_S = 3  # of the members of `steady`

FROM_FIGURES: Mapping[str, Callable[[Figures], float]] = {
    # cost                           from the figures of the benchmark that `COSTS` names
    "checkpoint_mb_per_state_mb": lambda f: f["steady_checkpoint_mb"] / _steady_state_mb(f),
    "shard_state_mb_max": lambda f: f["silent_bytes_per_group"] * 100_000 / 16 / 1e6,
    "core_requests_per_s": lambda f: f["scaling_1_core_per_s"],
    "query_requests_per_s": lambda f: f["heartbeats_ours_max_per_s"],
    "gateway_core_heartbeats_per_s": lambda f: f["gateway_heartbeats_per_core_s"],
    "gateway_mb_per_connection": lambda f: f["gateway_rss_mb_max"] / f["gateway_connections"],
}


def _steady_state_mb(found: Figures) -> float:
    return found["steady_heartbeats_per_s"] * HEARTBEAT_INTERVAL_S * found["state_bytes_per_member"] / 1e6


def measure(options: argparse.Namespace) -> Figures:
    """Measure the costs, and write them to the table."""
    sizes = bytes_of_state_and_records()
    costs = {**_measured(options, sizes), **sizes}
    write(costs, options.costs)
    say(f"The costs are in {options.costs}.")
    return {f"cost_{name}": value for name, value in costs.items()}


def write(costs: Figures, file: Path, latest: Path = figures.LATEST) -> None:
    """Write measured costs to a table, and those that follow from the figures of other benchmarks."""
    others = json.loads(latest.read_text()) if latest.exists() else {}
    table = read_costs(file if file.exists() else bench.SHIPPED_COSTS)
    for name, derive in FROM_FIGURES.items():
        try:
            value = derive(others)
        except KeyError:
            continue  # the benchmark has not run here
        table[name] = Figure(_rounded(value), f"{RUN}{COSTS[name].benchmark}")
    table |= {name: Figure(_rounded(value), f"{RUN}costs") for name, value in costs.items()}
    write_costs(table, file)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _measured(options: argparse.Namespace, sizes: Figures) -> dict[str, float]:
    with (
        bench.broker() as broker,
        tempfile.TemporaryDirectory(prefix="bench-costs-", ignore_cleanup_errors=True) as name,
    ):
        settings = Settings.load(bootstrap_servers=broker.bootstrap_servers, checkpoint=f"{name}/checkpoint")
        say("Starting the coordinator.")
        with bench.coordinator(settings, Path(name)) as coordinator, Crowd(settings) as asker:
            roles = {"broker": broker.pid, "coordinator": coordinator.pid}
            shards = settings.request_partitions
            measured = _Measurement(asker, roles, Path(name) / "log").turns(shards, options.groups, options.members)
    return derived(measured, sizes, shards, settings.shuffle_partitions)


class Turns(NamedTuple):
    """What some turns took.

    Args:
        response_ms: The times from a turn's first request to its last response, sorted.
        core_s: The coordinator's processor time.
    """

    response_ms: list[float]
    batches: list[crowd.Batch]
    seconds: float
    core_s: float
    memory_mb: float

    def batch_ms(self, requests: int) -> float:
        """Return the median time of the batches with this number of requests.

        Raises:
            BenchFailed: Fewer than half of the turns were one batch.
        """
        took_ms = sorted(batch.duration_ms for batch in self.batches if batch.requests == requests)
        if len(took_ms) < len(self.response_ms) / 2:
            raise BenchFailed(f"{len(took_ms)} of {len(self.response_ms)} turns were one batch of {requests} requests")
        return percentile(took_ms, 50)

    def core_ms(self, idle_cores: float) -> float:
        """Return the processor time, less that of a coordinator without requests."""
        return 1_000 * (self.core_s - idle_cores * self.seconds)


class Measured(NamedTuple):
    """The turns of each kind, of groups with this number of members in total.

    Args:
        one, every: Turns of one heartbeat, and of one in each shard, without other groups.
        with_state: The same as `every`, with the state of all groups.
    """

    groups: int
    members: int
    idle: Turns
    one: Turns
    every: Turns
    joined: Turns
    with_state: Turns
    heartbeats: Turns
    commits: Turns


def derived(measured: Measured, sizes: Figures, shards: int, tasks: int) -> dict[str, float]:
    """Return the costs that follow from the turns.

    Args:
        sizes: The bytes of the state, as `bytes_of_state_and_records` returns them.
        tasks: The number of parallel tasks.

    Raises:
        BenchFailed: A cost is not above 0, so other work disturbed the measurement.
    """
    state_mb = (
        measured.groups * sizes["state_bytes_per_group"] + measured.members * sizes["state_bytes_per_member"]
    ) / 1e6
    costs = {**_times(measured, state_mb, shards, tasks), **_core_times(measured, state_mb, shards)}
    costs |= {
        "memory_base_mb": measured.every.memory_mb,
        "memory_mb_per_state_mb": (measured.heartbeats.memory_mb - measured.every.memory_mb) / state_mb,
        "cores_measured": tasks,
    }
    if wrong := [f"{name} {value:.3g}" for name, value in costs.items() if value <= 0]:
        raise BenchFailed(f"other work disturbed the measurement: {', '.join(wrong)}")
    return costs


def _times(measured: Measured, state_mb: float, shards: int, tasks: int) -> dict[str, float]:
    """Return the costs that are times. The tasks share the work of a batch, so each takes a part of its time."""
    one, every, joined = measured.one, measured.every, measured.joined
    all_ms = every.batch_ms(shards)
    joining_ms = sum(max(0, batch.duration_ms - all_ms) for batch in joined.batches)
    return {
        "batch_ms": percentile(one.response_ms, 50),
        "response_spread_ms": percentile(one.response_ms, 99) - percentile(one.response_ms, 50),
        "shard_ms": tasks * (all_ms - one.batch_ms(1)) / (shards - 1),
        "state_ms_per_mb": tasks * (measured.with_state.batch_ms(shards) - all_ms) / state_mb,
        "heartbeat_us": tasks * 1_000 * slope(measured.heartbeats.batches, shards),
        "commit_us": tasks * 1_000 * slope(measured.commits.batches, shards),
        "rejoin_us": tasks * 1_000 * joining_ms / measured.members,
    }


def _core_times(measured: Measured, state_mb: float, shards: int) -> dict[str, float]:
    """Return the costs that are processor times."""
    idle_cores = measured.idle.core_s / measured.idle.seconds
    one_ms, all_ms, state_ms = (
        turns.core_ms(idle_cores) / len(turns.batches) for turns in (measured.one, measured.every, measured.with_state)
    )

    def us(turns: Turns, batch_ms: float, requests: int) -> float:
        return 1_000 * (turns.core_ms(idle_cores) - len(turns.batches) * batch_ms) / requests

    def asked(turns: Turns) -> int:
        return sum(batch.requests for batch in turns.batches)

    return {
        "idle_cores": idle_cores,
        "batch_core_ms": one_ms,
        "shard_core_ms": (all_ms - one_ms) / (shards - 1),
        "state_core_ms_per_mb": (state_ms - all_ms) / state_mb,
        "heartbeat_core_us": us(measured.heartbeats, state_ms, asked(measured.heartbeats)),
        "commit_core_us": us(measured.commits, state_ms, asked(measured.commits)),
        "rejoin_core_us": us(measured.joined, all_ms, measured.members),
    }


class _Measurement:
    """The turns of members at a running coordinator."""

    def __init__(self, asker: Crowd, roles: Mapping[str, int], log_file: Path) -> None:
        self._asker, self._roles, self._log_file = asker, roles, log_file

    def turns(self, shards: int, groups: int, each: int) -> Measured:
        """Send the turns of each kind, and return what they took."""
        beating = crowd.one_in_each_shard(shards)
        self._asker.settle(beating, SESSION_TIMEOUT_MS)
        say("Warming up.")
        for _ in range(WARM_UP):
            self._turn([beating[0].heartbeat])
            self._turn([member.heartbeat for member in beating])
        with self._measuring() as idle:
            time.sleep(IDLE_S)
        one, every = self._small([[member] for member in beating]), self._small([beating])
        everybody = members(groups, each)
        say(f"{len(everybody):,} members join.")
        with self._measuring() as joined:
            self._asker.settle(everybody, SESSION_TIMEOUT_MS)
        with_state = self._small([beating])
        say("All members send heartbeats, then commits.")
        heartbeats, commits = (
            self._large([ask(m) for m in everybody]) for ask in (lambda m: m.heartbeat, lambda m: m.commit)
        )
        return Measured(groups, len(everybody), idle[0], one, every, joined[0], with_state, heartbeats, commits)

    def _small(self, turns: Sequence[Sequence[Member]]) -> Turns:
        """Send turns of a few heartbeats."""
        with self._measuring() as measured:
            took_ms = [self._turn([m.heartbeat for m in some]) for some in islice(cycle(turns), TURNS)]
        return measured[0]._replace(response_ms=sorted(took_ms))

    def _large(self, asks: Sequence[Ask]) -> Turns:
        """Send turns of different sizes, all of the same kind of request."""
        sizes = [max(1, int(part * len(asks))) for part in PARTS]
        for size in sizes:
            self._turn(asks[:size])  # the JVM compiles what only large batches need
        with self._measuring() as measured:
            took_ms = [self._turn(asks[:size]) for size in sizes for _ in range(LARGE_TURNS)]
        return measured[0]._replace(response_ms=sorted(took_ms))

    def _turn(self, asks: Sequence[Ask]) -> float:
        """Send requests, wait for all responses, and return the milliseconds."""
        begun_s = time.perf_counter()
        crowd.check_no_errors(self._asker.ask(*asks))
        return 1_000 * (time.perf_counter() - begun_s)

    @contextmanager
    def _measuring(self) -> Iterator[list[Turns]]:
        """Measure the block. Afterwards, the yielded list has what its turns took."""
        measured: list[Turns] = []
        with crowd.batches(self._log_file) as batches, Usage(self._roles, weighed="coordinator") as usage:
            begun_s = time.perf_counter()
            usage.begin()
            yield measured
            usage.end()
            seconds = time.perf_counter() - begun_s
        measured.append(Turns([], batches, seconds, usage.cpu_s("coordinator"), usage.memory_mb_max))


def slope(batches: Sequence[crowd.Batch], shards: int) -> float:
    """Return the milliseconds that one more request adds to a batch that touches all shards.

    It is the slope of the line that fits the times of the batches best.

    Raises:
        BenchFailed: Too few batches have different numbers of requests.
    """
    large = [batch for batch in batches if batch.requests >= TOUCHES_ALL * shards]
    if len({batch.requests for batch in large}) < len(PARTS):
        raise BenchFailed(f"{len(large)} of {len(batches)} batches touch all shards, too few for the cost of a request")
    return float(np.polyfit([b.requests for b in large], [b.duration_ms for b in large], 1)[0])


if __name__ == "__main__":
    bench.main(measure)
