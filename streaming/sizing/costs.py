"""The costs from which the size of a coordinator is computed.

`COSTS` defines the names, units and meanings. Their values are figures that were measured, in a file. One is part of
the package; `make bench` writes it. A cost that nobody has measured has no value, and what depends on it is not
computed.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import msgspec

from streaming.errors import Exit, UserError

POSITIVE = 1e-3
"""The smallest value of a cost by which a formula divides."""

VALUE_MAX = 1e9
"""The largest value of a cost: far beyond any, in its unit."""


class Cost(NamedTuple):
    """The meaning of a cost.

    Args:
        benchmark: The benchmark that measures the cost: `python -m tests.benchmarks.BENCHMARK`, in a checkout.
        value_min: The smallest value. A formula divides by a cost whose smallest value is not 0.
    """

    unit: str
    benchmark: str
    description: str
    value_min: float = 0


COSTS: Mapping[str, Cost] = {
    # the time of a batch that touches one shard
    "batch_ms": Cost("ms", "costs", "request to response at rest, p50: a batch that touches one shard", POSITIVE),
    "response_spread_ms": Cost("ms", "rest", "request to response at rest: p99 less p50"),
    # processor time of driver, JVM and Python workers
    "idle_cores": Cost("cores", "costs", "use of a core without requests"),
    "batch_core_ms": Cost("core-ms", "costs", "processor time of a batch that touches one shard"),
    "shard_core_ms": Cost("core-ms", "costs", "processor time of each further shard that a batch touches"),
    "state_core_ms_per_mb": Cost("core-ms/MB", "costs", "processor time of handing the state to Python and back"),
    "group_core_us": Cost("core-us", "costs", "processor time of each group that a batch touches"),
    "heartbeat_core_us": Cost("core-us", "costs", "processor time of a heartbeat"),
    "commit_core_us": Cost("core-us", "costs", "processor time of a commit of one offset"),
    "rejoin_core_us": Cost("core-us", "costs", "processor time of a member's JoinGroup and SyncGroup"),
    # bytes of the state, and on the brokers
    "state_bytes_per_group": Cost("bytes", "costs", "state of a Stable group, without its members"),
    "state_bytes_per_member": Cost("bytes", "costs", "state of a member of a Stable group"),
    "state_bytes_per_offset": Cost("bytes", "costs", "state of a committed offset"),
    "heartbeat_bytes": Cost("bytes", "costs", "keys and values of a heartbeat and its response"),
    "commit_bytes": Cost("bytes", "costs", "keys and values of a commit, its response and the records of the group"),
    "rejoin_bytes": Cost("bytes", "costs", "the same for a member that joins and syncs, in a group of 10"),
    # memory and files
    "memory_base_mb": Cost("MB", "costs", "memory of driver, JVM and Python workers, without state"),
    "memory_mb_per_state_mb": Cost("MB/MB", "costs", "memory of driver, JVM and Python workers for the state"),
    "checkpoint_mb_per_state_mb": Cost(
        "MB/MB", "steady", "files of the checkpoint for the state, while all members send"
    ),
    # the largest that was measured
    "cores_measured": Cost("cores", "costs", "cores of the machine that was measured"),
    "shard_state_mb_max": Cost("MB", "silent", "state of the largest shard that was measured", POSITIVE),
    "core_requests_per_s": Cost(
        "1/s", "scaling", "heartbeats that a coordinator on one core answers a second", POSITIVE
    ),
    "query_requests_per_s": Cost(
        "1/s", "capacity", "heartbeats that one query answers a second, the most measured", POSITIVE
    ),
    # the gateway
    "gateway_core_heartbeats_per_s": Cost("1/s", "gateway", "heartbeats a second for each core of a gateway", POSITIVE),
    "gateway_mb_per_connection": Cost("MB", "gateway", "memory of a gateway for each connection"),
}


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of a cost, and the measured figure that it is or that it follows from."""

    value: float
    figure: str


class CostMissing(LookupError):
    """A formula needs a cost that has no value. `args[0]` is its name."""


class Costs:
    """The values of costs by name. `used` has the names of those that were read, in the order of the first reading."""

    def __init__(self, table: Mapping[str, Figure]) -> None:
        self._table = table
        self.used: dict[str, Figure] = {}

    def __getitem__(self, name: str) -> float:
        """Return the value of a cost.

        Raises:
            CostMissing: The cost has no value.
        """
        if name not in self._table:
            raise CostMissing(name)
        return self.used.setdefault(name, self._table[name]).value

    def total(self, amounts: Mapping[str, float]) -> float:
        """Return the sum of these costs times their amounts. A cost whose amount is 0 needs no value."""
        return sum(amount * self[name] for name, amount in amounts.items() if amount)


# -- the file of costs -------------------------------------------------------------------------------------------------


SHIPPED = "costs.json"
FILE_BYTES_MAX = 2**20
"""Two dozen costs with a sentence each have some 5 KB."""

FIGURE_CHARS_MAX = 500

_decode = msgspec.json.Decoder(dict[str, Figure]).decode


class BadCosts(UserError):
    """The file contains no valid costs, or it cannot be read."""

    exit_code = Exit.NEEDS_A_PERSON


def shipped_costs() -> dict[str, Figure]:
    """Return the costs that are part of the package."""
    return parse(files(__package__).joinpath(SHIPPED).read_bytes(), SHIPPED)


def read_costs(file: Path) -> dict[str, Figure]:
    """Return the costs of a file.

    Raises:
        BadCosts: The file cannot be read, or it contains no valid costs.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadCosts(f"{str(file)!r} cannot be read ({error.strerror}).") from error
    return parse(data, str(file))


def parse(data: bytes, name: str) -> dict[str, Figure]:
    """Return the costs of a file's contents.

    Args:
        name: The file's name, for the error.

    Raises:
        BadCosts: The contents are no valid costs.
    """
    if len(data) > FILE_BYTES_MAX:
        raise BadCosts(f"{name!r} is no table of costs: it has more than {FILE_BYTES_MAX:,} bytes.")
    try:
        costs = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadCosts(f"{name!r} is no table of costs ({error}).") from error
    for cost, figure in costs.items():
        if cost not in COSTS:
            raise BadCosts(f"{name!r} has a cost {cost[:100]!r}, which does not exist.")
        if not COSTS[cost].value_min <= figure.value <= VALUE_MAX:
            bounds = f"{COSTS[cost].value_min:g} to {VALUE_MAX:g}"
            raise BadCosts(f"{name!r} has {figure.value:g} for {cost}, whose values are from {bounds}.")
        if len(figure.figure) > FIGURE_CHARS_MAX:
            raise BadCosts(f"{name!r} has a figure of more than {FIGURE_CHARS_MAX} characters for {cost}.")
    return costs


def write_costs(costs: Mapping[str, Figure], file: Path) -> None:
    """Write costs to a file, in the order of `COSTS`.

    Raises:
        BadCosts: A value is out of its range. The file is not changed.
    """
    ordered = {name: costs[name] for name in COSTS if name in costs}
    data = msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n"
    parse(data, str(file))
    file.write_bytes(data)
