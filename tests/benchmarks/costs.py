"""The costs of `coordinator size`, measured with a real broker and coordinator, and written to its table.

    make bench BENCH=costs

Turns of requests are sent together, and each turn ends when all are answered. Turns that touch one shard, then all
shards, then all shards with the state of all members, give the fixed part of a batch, the part of a shard and the part
of the state. Turns of the heartbeats of whole groups, and of members drawn from all groups, differ in the groups that
they touch. So they give the part of a group and the part of a heartbeat. All of these are processor times: the time of
a batch also contains that of the processes that send the turns. `core_bytes` computes the bytes.

The table also has costs that other benchmarks measure. They are taken from the figures in `latest.json`, if it has
them; else the table keeps its value. A new table begins with the shipped costs.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from coordinator.messages.requests import Request
from streaming.config.settings import Settings
from streaming.sizing.costs import COSTS, Figure, read_costs, write_costs
from tests.benchmarks import bench, crowd, figures
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.core_bytes import bytes_of_state_and_records
from tests.benchmarks.crowd import Ask, Crowd
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member, members
from tests.benchmarks.usage import Usage

RUN = "python -m tests.benchmarks."
WARM_UP = 100  # turns of each kind; a young JVM compiles for that long
TURNS = 100
SESSION_TIMEOUT_MS = 1_800_000  # so that members that send nothing do not expire in the meantime
LARGE_TURNS = 6  # of each size
PARTS = (0.05, 0.1, 0.25, 0.5)  # of all members, in one turn
IDLE_S = 20.0
HEARTBEAT_INTERVAL_S = 3  # of the members of `steady`

FROM_FIGURES: Mapping[str, Callable[[Figures], float]] = {
    # cost                           from the figures of the benchmark that `COSTS` names
    "response_spread_ms": lambda f: f["reply_rest_p99_ms"] - f["reply_rest_p50_ms"],
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
        response_ms: Of small turns, the times from the first request to the last response, sorted.
        core_s: The coordinator's processor time.
    """

    response_ms: list[float]
    batches: list[crowd.Batch]
    seconds: float
    core_s: float
    memory_mb: float

    def core_ms(self, idle_cores: float) -> float:
        """Return the processor time, less that of a coordinator without requests."""
        return 1_000 * (self.core_s - idle_cores * self.seconds)


class Large(NamedTuple):
    """Turns of many requests, for each size.

    Args:
        touched: Returns the number of groups that a batch of this number of requests touches.
    """

    sizes: Sequence[Turns]
    touched: Callable[[int], float]


class Measured(NamedTuple):
    """The turns of each kind, of groups with this number of members in total.

    Args:
        one, every: Turns of one heartbeat, and of one in each shard, without other groups.
        with_state: The same as `every`, with the state of all groups.
        whole, drawn: Turns of heartbeats, of whole groups and of members that are drawn from all groups.
        commits: Turns of commits, of members that are drawn from all groups.
    """

    groups: int
    members: int
    idle: Turns
    one: Turns
    every: Turns
    joined: Turns
    with_state: Turns
    whole: Large
    drawn: Large
    commits: Large


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
    costs = _core_times(measured, state_mb, shards) | {
        "batch_ms": percentile(measured.one.response_ms, 50),
        "memory_base_mb": measured.every.memory_mb,
        "memory_mb_per_state_mb": (measured.drawn.sizes[-1].memory_mb - measured.every.memory_mb) / state_mb,
        "cores_measured": tasks,
    }
    if wrong := [f"{name} {value:.3g}" for name, value in costs.items() if value <= 0]:
        raise BenchFailed(f"other work disturbed the measurement: {', '.join(wrong)}")
    return costs


def _core_times(measured: Measured, state_mb: float, shards: int) -> dict[str, float]:
    """Return the costs that are processor times."""
    idle_cores = measured.idle.core_s / measured.idle.seconds
    one_ms, all_ms, state_ms = (
        turns.core_ms(idle_cores) / len(turns.batches) for turns in (measured.one, measured.every, measured.with_state)
    )

    def rows(large: Large) -> list[Row]:
        return [_row(turns.batches, large.touched, turns.core_ms(idle_cores)) for turns in large.sizes]

    batch = Row(1, shards, shards, state_ms)
    heartbeat_us, group_us = of_request_and_group([*rows(measured.whole), *rows(measured.drawn)], batch)
    joined = measured.joined
    return {
        "idle_cores": idle_cores,
        "batch_core_ms": one_ms,
        "shard_core_ms": (all_ms - one_ms) / (shards - 1),
        "state_core_ms_per_mb": (state_ms - all_ms) / state_mb,
        "group_core_us": group_us,
        "heartbeat_core_us": heartbeat_us,
        "commit_core_us": of_request(rows(measured.commits), batch, group_us),
        "rejoin_core_us": 1_000 * (joined.core_ms(idle_cores) - len(joined.batches) * all_ms) / measured.members,
    }


class Row(NamedTuple):
    """What some batches did, and the milliseconds that it took."""

    batches: int
    groups: float
    requests: int
    ms: float


def _row(batches: Iterable[crowd.Batch], touched: Callable[[int], float], ms: float) -> Row:
    """Return the sum of the batches that have requests."""
    requests = [batch.requests for batch in batches if batch.requests]
    return Row(len(requests), sum(map(touched, requests)), sum(requests), ms)


def _more(row: Row, batch: Row) -> Row:
    """Return what a row has more than as many batches of a heartbeat in each shard."""
    n = row.batches
    return Row(0, row.groups - n * batch.groups, row.requests - n * batch.requests, row.ms - n * batch.ms)


def of_request_and_group(rows: Iterable[Row], batch: Row) -> tuple[float, float]:
    """Return the microseconds of a request and of a touched group that fit the rows best.

    Args:
        batch: A batch with one heartbeat in each shard.
    """
    more = [_more(row, batch) for row in rows]
    amounts = [(row.requests, row.groups) for row in more]
    request_ms, group_ms = np.linalg.lstsq(np.array(amounts), np.array([row.ms for row in more]), rcond=None)[0]
    return 1_000 * float(request_ms), 1_000 * float(group_ms)


def of_request(rows: Iterable[Row], batch: Row, group_us: float) -> float:
    """Return the microseconds of a request, where those of a touched group are known."""
    more = [_more(row, batch) for row in rows]
    ms = sum(row.ms - group_us * row.groups / 1_000 for row in more)
    return 1_000 * ms / sum(row.requests for row in more)


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
        self._large(everybody, groups)  # the JVM compiles what only large batches need
        with_state = self._small([beating])
        say("All members send heartbeats, then commits.")
        whole, drawn = self._large(everybody, groups), self._large(everybody, groups, is_drawn=True)
        commits = self._large(everybody, groups, is_drawn=True, ask=Member.commit)
        return Measured(groups, len(everybody), idle[0], one, every, joined[0], with_state, whole, drawn, commits)

    def _small(self, turns: Sequence[Sequence[Member]]) -> Turns:
        """Send turns of a few heartbeats."""
        with self._measuring() as measured:
            took_ms = [self._turn([m.heartbeat for m in some]) for some in islice(cycle(turns), TURNS)]
        return measured[0]._replace(response_ms=sorted(took_ms))

    def _large(
        self,
        everybody: Sequence[Member],
        groups: int,
        *,
        is_drawn: bool = False,
        ask: Callable[[Member, str], Request] = Member.heartbeat,
    ) -> Large:
        """Send turns of different sizes, all of the same kind of request, of whole groups or of drawn members."""
        chance, measured = Random(1), list[Turns]()
        for size in (int(part * len(everybody)) for part in PARTS):
            begins = [chance.randrange(len(everybody) - size) for _ in range(1 + LARGE_TURNS)]
            turns = [chance.sample(everybody, size) if is_drawn else everybody[i : i + size] for i in begins]
            first, *others = ([partial(ask, member) for member in turn] for turn in turns)
            self._turn(first)  # the JVM compiles what only this kind of request needs
            with self._measuring() as found:
                for turn in others:
                    self._turn(turn)
            measured.append(found[0])
        touched = touched_by_drawn if is_drawn else touched_by_whole
        return Large(measured, partial(touched, groups, len(everybody)))

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


def touched_by_whole(groups: int, members: int, requests: int) -> float:
    """Return the number of groups that requests of whole groups touch."""
    return requests * groups / members


def touched_by_drawn(groups: int, members: int, requests: int) -> float:
    """Return the mean number of groups that requests of members touch that are drawn from all groups."""
    untouched: float = (1 - requests / members) ** (members / groups)
    return groups * (1 - untouched)


if __name__ == "__main__":
    bench.main(measure)
