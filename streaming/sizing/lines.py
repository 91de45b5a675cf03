"""The lines of `coordinator size`: what a load needs, with the formula and the costs behind each number."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from math import ceil
from typing import NamedTuple

import msgspec

from streaming.sizing import plan
from streaming.sizing.batches import MEDIAN, NEARLY_ALL, Batches, Load, broker_bytes_per_s, state_bytes
from streaming.sizing.costs import COSTS, CostMissing, Costs, Figure

REPLY_PARTITIONS = 16
"""The default of the setting `reply_partitions`."""

GATEWAY_CONNECTIONS = 10_000
"""The default of the setting `gateway_connections_max`."""


class Scope(StrEnum):
    """The meaning of a line's value: of each coordinator, of each and as a sum of all, or of all together."""

    each = "each"
    summed = "summed"
    total = "total"


class Sized(NamedTuple):
    """A value and what to know about it."""

    value: float
    note: str = ""


class Line(NamedTuple):
    """A line of the result.

    Args:
        of: Returns the value for the load of one coordinator; for the load of all if the scope is `total`.
    """

    unit: str
    scope: Scope
    formula: str
    of: Callable[[Load, Costs], Sized]


class Size(msgspec.Struct, frozen=True):
    """A computed line.

    Args:
        each, total: The value for one coordinator and for all together; None if the line has no such value, or if it
            cannot be computed. `note` then has the reason.
        costs: The names of the costs that the value follows from.
    """

    line: str
    each: float | None
    total: float | None
    unit: str
    note: str
    formula: str
    costs: tuple[str, ...]


class Sizes(msgspec.Struct, frozen=True):
    """All lines, and the figures of the costs that they follow from."""

    lines: tuple[Size, ...]
    costs: Mapping[str, Figure]


def _coordinators(load: Load, costs: Costs) -> Sized:
    return Sized(*plan.coordinators(load, costs))


def _cores(load: Load, costs: Costs) -> Sized:
    cores = plan.batches(load, costs).cores
    measured = costs["cores_measured"]
    return Sized(cores, f"computed; only up to {measured:.0f} were measured" if cores > measured else "")


def _of_batches(value: Callable[[Batches], float]) -> Callable[[Load, Costs], Sized]:
    """Return a line's function that computes a value from the batches of a coordinator."""
    return lambda load, costs: Sized(value(plan.batches(load, costs)))


def _state_mb(load: Load, costs: Costs) -> float:
    return state_bytes(load, costs) / 1e6


LINES: Mapping[str, Line] = {
    "coordinators": Line(
        "", Scope.total, "requests a second / the most that one query answers, rounded up", _coordinators
    ),
    "shards": Line(
        "",
        Scope.summed,
        "the larger of state / largest measured shard and 4 x requests a second / those of one core, at least 4, as a"
        " power of two",
        lambda load, costs: Sized(plan.shards(load, costs)),
    ),
    "cores": Line(
        "",
        Scope.summed,
        "the fewest with which 99 of 100 responses take no longer than the heartbeat interval and 5 s",
        _cores,
    ),
    "executors": Line(
        "",
        Scope.summed,
        "one for each core; none on one machine, where Spark's master is local[cores]",
        lambda load, costs: Sized(plan.batches(load, costs).cores),
    ),
    "cores_used": Line(
        "cores",
        Scope.summed,
        "idle + batches a second x (fixed part + touched shards + state of them + touched groups) + requests a second x"
        " each, all as processor time",
        _of_batches(Batches.cores_used),
    ),
    "driver_memory": Line(
        "MB",
        Scope.summed,
        "base + state x memory for the state: driver, JVM and Python workers together",
        lambda load, costs: Sized(costs["memory_base_mb"] + _state_mb(load, costs) * costs["memory_mb_per_state_mb"]),
    ),
    "state": Line(
        "MB",
        Scope.summed,
        "groups x bytes of a group + members x bytes of a member + offsets x bytes of an offset",
        lambda load, costs: Sized(_state_mb(load, costs)),
    ),
    "checkpoint": Line(
        "MB",
        Scope.summed,
        "state x files of the checkpoint for the state",
        lambda load, costs: Sized(_state_mb(load, costs) * costs["checkpoint_mb_per_state_mb"]),
    ),
    "broker_partitions": Line(
        "",
        Scope.summed,
        "4 x shards + 16, of each copy: requests, groups, events and transactions, and replies",
        lambda load, costs: Sized(4 * plan.shards(load, costs) + REPLY_PARTITIONS),
    ),
    "broker_bytes": Line(
        "bytes/s",
        Scope.summed,
        "heartbeats, commits and rejoins a second x bytes of each, of each copy",
        lambda load, costs: Sized(broker_bytes_per_s(load, costs)),
    ),
    "batch": Line(
        "ms",
        Scope.each,
        "(fixed part + (touched shards + state of them + touched groups) / cores) / (1 - requests a second x time of"
        " each / cores)",
        _of_batches(Batches.ms),
    ),
    "response_p50": Line(
        "ms",
        Scope.each,
        "the batch and half of the one before, if batches follow each other without a pause",
        _of_batches(lambda batches: batches.response_ms(MEDIAN)),
    ),
    "response_p99": Line(
        "ms",
        Scope.each,
        "the batch and nearly all of the one before, and the spread of responses at rest",
        _of_batches(lambda batches: batches.response_ms(NEARLY_ALL)),
    ),
    "gateways": Line(
        "",
        Scope.total,
        "members / 10,000 connections, if all members come through gateways",
        lambda load, costs: Sized(ceil(load.members_total / GATEWAY_CONNECTIONS)),
    ),
    "gateway_cores": Line(
        "",
        Scope.total,
        "heartbeats a second / those of one core of a gateway",
        lambda load, costs: Sized(ceil(load.heartbeats_per_s / costs["gateway_core_heartbeats_per_s"])),
    ),
    "gateway_memory": Line(
        "MB",
        Scope.total,
        "members x memory of a connection",
        lambda load, costs: Sized(load.members_total * costs["gateway_mb_per_connection"]),
    ),
}


def sizes(load: Load, table: Mapping[str, Figure]) -> Sizes:
    """Return what a load needs. A line whose costs have no value names the cost and the benchmark that measures it."""
    lines, used = [], dict[str, Figure]()
    for name in LINES:
        costs = Costs(table)
        lines.append(_size(name, load, costs))
        used |= costs.used
    return Sizes(tuple(lines), {name: used[name] for name in COSTS if name in used})


def _size(name: str, load: Load, costs: Costs) -> Size:
    line = LINES[name]
    each: float | None = None
    total: float | None = None
    try:
        coordinators = 1 if line.scope is Scope.total else plan.coordinators(load, costs)[0]
        value, note = line.of(load.part(coordinators), costs)
    except CostMissing as missing:
        [cost] = missing.args
        note = f"not computed without {cost}: python -m tests.benchmarks.{COSTS[cost].benchmark} measures it"
    except plan.NoSize as reason:
        note = str(reason)
    else:
        each = None if line.scope is Scope.total else _rounded(value)
        total = None if line.scope is Scope.each else _rounded(value * coordinators)
    return Size(name, each, total, line.unit, note, line.formula, tuple(costs.used))


def _rounded(value: float) -> float:
    """Return a value with six digits: far more than the figures behind it have, and the same on every machine."""
    return float(f"{value:.6g}")
