"""Tests of the benchmarks `costs` and `sizing` without a broker: turns that were made of costs give these costs."""

import json
from functools import partial
from pathlib import Path

import pytest

from streaming.sizing.batches import Load
from streaming.sizing.costs import COSTS, Figure, read_costs, shipped_costs
from tests.benchmarks import costs as benchmark
from tests.benchmarks.bench import BenchFailed
from tests.benchmarks.costs import (
    FROM_FIGURES,
    PARTS,
    Large,
    Measured,
    Turns,
    derived,
    touched_by_drawn,
    touched_by_whole,
)
from tests.benchmarks.crowd import Batch
from tests.benchmarks.figures import MEANINGS
from tests.benchmarks.sizing import Sizing, predicted, worst_ratios
from tests.streaming.sizing.conftest import ROUND

SHARDS, TASKS, GROUPS, MEMBERS = 16, 2, 10_000, 100_000
SIZES = {"state_bytes_per_group": 10.0, "state_bytes_per_member": 9.0}
"""1 MB of state."""

TOUCHED = {"whole": partial(touched_by_whole, GROUPS, MEMBERS), "drawn": partial(touched_by_drawn, GROUPS, MEMBERS)}


def turns(batches: list[Batch], core_s: float, memory_mb: float = 1_500) -> Turns:
    """Return 100 turns in 10 s."""
    return Turns([95.0] * 50 + [100.0] * 49 + [150.0], batches, 10, core_s, memory_mb)


def large(kind: str, core_us: float, times: int = 1) -> Large:
    """Return turns of a kind, each of one batch, that also have the cost of the groups that they touch."""
    touched = TOUCHED[kind]

    def of_size(n: int) -> Turns:
        core_s = 0.14 + (30 * (touched(n) - SHARDS) + core_us * (n - SHARDS)) / 1e6
        return turns([Batch(500, n), Batch(20, 0)] * times, 0.5 + times * core_s, memory_mb=1_550)

    return Large([of_size(int(part * MEMBERS)) for part in PARTS], touched)


def measured(commit_us: float = 70, state_ms: float = 30) -> Measured:
    """Return turns of these costs, at a coordinator that uses 0.05 cores without requests.

    Processor time: a batch 80 ms, a shard 2 ms, a MB of state 30 ms, a group 30 us, a heartbeat 10 us, a commit 70 us,
    a rejoin 800 us.
    """
    return Measured(
        GROUPS,
        MEMBERS,
        idle=turns([], 0.5),
        one=turns([Batch(100, 1)] * 100, 0.5 + 100 * 0.08),
        every=turns([Batch(130, SHARDS)] * 100, 0.5 + 100 * 0.11),
        joined=turns([*[Batch(12_630, 50_000)] * 4, Batch(50, 0)], 0.5 + 5 * 0.11 + 80),
        with_state=turns([Batch(155, SHARDS)] * 100, 0.5 + 100 * (0.11 + state_ms / 1_000)),
        whole=large("whole", 10, times=3),
        drawn=large("drawn", 10),
        commits=large("drawn", commit_us),
    )


def test_costs_follow_from_the_turns() -> None:
    found = derived(measured(), SIZES, SHARDS, TASKS)
    assert found == pytest.approx(
        {
            "batch_ms": 95,
            "idle_cores": 0.05,
            "batch_core_ms": 80,
            "shard_core_ms": 2,
            "state_core_ms_per_mb": 30,
            "group_core_us": 30,
            "heartbeat_core_us": 10,
            "commit_core_us": 70,
            "rejoin_core_us": 800,
            "memory_base_mb": 1_500,
            "memory_mb_per_state_mb": 50,
            "cores_measured": 2,
        }
    )


def test_a_cost_below_0_shows_a_disturbed_measurement() -> None:
    with pytest.raises(BenchFailed, match=r"commit_core_us -\d+$"):
        derived(measured(commit_us=-100), SIZES, SHARDS, TASKS)
    with pytest.raises(BenchFailed, match=r"state_core_ms_per_mb -?0"):
        derived(measured(state_ms=-0.1), SIZES, SHARDS, TASKS)


def test_members_that_are_drawn_touch_more_groups_than_whole_groups() -> None:
    """Half of the members of groups of 10: each group is left out with a chance of 1 in 1,024."""
    assert TOUCHED["whole"](50_000) == 5_000
    assert TOUCHED["drawn"](50_000) == pytest.approx(10_000 * (1 - 1 / 1_024))
    assert TOUCHED["drawn"](1) == pytest.approx(1, rel=1e-4)


def test_every_cost_is_measured_by_the_benchmark_that_it_names() -> None:
    own = {*derived(measured(), SIZES, SHARDS, TASKS), *benchmark.bytes_of_state_and_records()}
    assert own == {name for name, cost in COSTS.items() if cost.benchmark == "costs"}
    assert FROM_FIGURES.keys() == {name for name, cost in COSTS.items() if cost.benchmark != "costs"}
    assert {f"cost_{name}" for name in own} <= MEANINGS.keys()


def test_the_table_gets_measured_costs_and_those_of_other_benchmarks(tmp_path: Path) -> None:
    table, latest = tmp_path / "costs.json", tmp_path / "latest.json"
    table.write_bytes(ROUND.read_bytes())
    latest.write_text(json.dumps({"scaling_1_core_per_s": 31_234.5, "gateway_rss_mb_max": 200}))
    benchmark.write({"commit_core_us": 123.456}, table, latest)
    found = read_costs(table)
    assert found.pop("commit_core_us") == Figure(123, "python -m tests.benchmarks.costs")
    assert found.pop("core_requests_per_s") == Figure(31_200, "python -m tests.benchmarks.scaling")
    before = read_costs(ROUND)
    assert found == {name: figure for name, figure in before.items() if name != "core_requests_per_s"}


def test_a_new_table_begins_with_the_shipped_costs(tmp_path: Path) -> None:
    benchmark.write({"commit_core_us": 123.456}, tmp_path / "new.json", tmp_path / "none.json")
    found = read_costs(tmp_path / "new.json")
    assert found == shipped_costs() | {"commit_core_us": Figure(123, "python -m tests.benchmarks.costs")}


def test_other_benchmarks_have_the_figures_that_the_table_takes(tmp_path: Path) -> None:
    class Read(dict[str, float]):
        def __missing__(self, name: str) -> float:
            self[name] = 1.0
            return 1.0

    figures = Read()
    for derive in FROM_FIGURES.values():
        derive(figures)
    assert {name for name in figures if name not in COSTS} <= MEANINGS.keys()


def test_predictions_are_those_of_the_cores_that_are_left_and_of_the_table() -> None:
    """1,500 groups of 10: 5,000 heartbeats a second, 1.5 MB."""
    found = predicted(Load(1_500, 10, 3_000), 16, 1.6, read_costs(ROUND))
    ms = (100 + (60 + 75) / 1.6) / (1 - 0.1 / 1.6)
    assert found.state_mb == 1.5
    assert found.p50_ms == pytest.approx(1.5 * ms, rel=2e-3)
    assert found.cores == pytest.approx(0.05 + 1_000 / ms * 0.215 + 0.1, rel=2e-3)


def test_the_worst_ratio_counts_in_both_directions() -> None:
    pairs = [
        (Sizing(100, 1.0, 10), Sizing(110, 1.5, 10)),
        (Sizing(130, 2.0, 10), Sizing(100, 2.0, 11)),
    ]
    assert worst_ratios(pairs) == pytest.approx(
        {"size_p50_ratio": 1.3, "size_cores_ratio": 1.5, "size_state_ratio": 1.1}
    )
