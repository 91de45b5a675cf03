"""Tests of the benchmarks `costs` and `sizing` without a broker: turns that were made of costs give these costs."""

import json
from pathlib import Path

import pytest

from streaming.config.settings import Settings
from streaming.sizing.costs import COSTS, Figure
from streaming.sizing.table import read_costs, shipped_costs
from tests.benchmarks import costs as benchmark
from tests.benchmarks.bench import BenchFailed
from tests.benchmarks.costs import FROM_FIGURES, Measured, Turns, derived, slope
from tests.benchmarks.crowd import Batch
from tests.benchmarks.figures import MEANINGS
from tests.benchmarks.sizing import Sizing, predicted, worst_ratios
from tests.streaming.sizing.conftest import ROUND

SHARDS, TASKS, GROUPS, MEMBERS = 16, 2, 1_000, 10_000
SIZES = {"state_bytes_per_group": 100.0, "state_bytes_per_member": 90.0}
"""1 MB of state."""


def turns(batches: list[Batch], core_s: float, memory_mb: float = 1_500) -> Turns:
    """Return 100 turns in 10 s."""
    return Turns([95.0] * 50 + [100.0] * 49 + [150.0], batches, 10, core_s, memory_mb)


def measured(commit_ms: float = 0.05, state_ms: int = 25) -> Measured:
    """Return turns of these costs, at a coordinator that uses 0.05 cores without requests.

    Time of a task: a shard 4 ms, a MB of state 50 ms, a heartbeat 20 us, a commit 100 us, a rejoin 1,000 us.
    Processor time: a batch 80 ms, a shard 2 ms, a MB of state 30 ms, a heartbeat 10 us, a commit 70 us, a rejoin
    800 us.
    """
    every_ms = 100 + 15 * 4 // TASKS
    large = [0, 500, 2_000, 5_000, 10_000]  # 17,500 requests, in 5 batches of 140 core-ms
    return Measured(
        GROUPS,
        MEMBERS,
        idle=turns([], 0.5),
        one=turns([Batch(100, 1)] * 100, 0.5 + 100 * 0.08),
        every=turns([Batch(every_ms, SHARDS)] * 100, 0.5 + 100 * 0.11),
        joined=turns([*[Batch(every_ms + 1_250, 5_000)] * 4, Batch(50, 0)], 0.5 + 5 * 0.11 + 8),
        with_state=turns([Batch(every_ms + state_ms, SHARDS)] * 100, 0.5 + 100 * 0.14),
        heartbeats=turns([Batch(155 + n // 100, n) for n in large], 0.5 + 5 * 0.14 + 0.175, memory_mb=1_550),
        commits=turns([Batch(int(155 + commit_ms * n), n) for n in large], 0.5 + 5 * 0.14 + 1.225),
    )


def test_costs_follow_from_the_turns() -> None:
    found = derived(measured(), SIZES, SHARDS, TASKS)
    assert found == pytest.approx(
        {
            "batch_ms": 95,
            "response_spread_ms": 5,
            "shard_ms": 4,
            "state_ms_per_mb": 50,
            "heartbeat_us": 20,
            "commit_us": 100,
            "rejoin_us": 1_000,
            "idle_cores": 0.05,
            "batch_core_ms": 80,
            "shard_core_ms": 2,
            "state_core_ms_per_mb": 30,
            "heartbeat_core_us": 10,
            "commit_core_us": 70,
            "rejoin_core_us": 800,
            "memory_base_mb": 1_500,
            "memory_mb_per_state_mb": 50,
            "cores_measured": 2,
        }
    )


def test_a_cost_below_0_shows_a_disturbed_measurement() -> None:
    with pytest.raises(BenchFailed, match=r"commit_us -100$"):
        derived(measured(commit_ms=-0.05), SIZES, SHARDS, TASKS)
    with pytest.raises(BenchFailed, match=r"state_ms_per_mb 0"):
        derived(measured(state_ms=0), SIZES, SHARDS, TASKS)


def test_turns_of_more_than_one_batch_have_no_time() -> None:
    """Of 100 turns, 49 are one batch of 16 requests."""
    split = turns([Batch(100, 16)] * 49 + [Batch(50, 8)] * 102, 1)
    with pytest.raises(BenchFailed, match="49 of 100 turns were one batch of 16 requests"):
        split.batch_ms(16)


def test_the_cost_of_a_request_needs_batches_of_several_sizes_that_touch_all_shards() -> None:
    few = [Batch(100, 10), Batch(110, 63), Batch(120, 64), Batch(200, 5_000)]
    with pytest.raises(BenchFailed, match="2 of 4 batches touch all shards"):
        slope(few, SHARDS)
    assert slope([*few, Batch(300, 9_936)], SHARDS) == pytest.approx(0.0182, rel=0.01)


def test_every_cost_is_measured_by_the_benchmark_that_it_names() -> None:
    own = {*derived(measured(), SIZES, SHARDS, TASKS), *benchmark.bytes_of_state_and_records()}
    assert own == {name for name, cost in COSTS.items() if cost.benchmark == "costs"}
    assert FROM_FIGURES.keys() == {name for name, cost in COSTS.items() if cost.benchmark != "costs"}
    assert {f"cost_{name}" for name in own} <= MEANINGS.keys()


def test_the_table_gets_measured_costs_and_those_of_other_benchmarks(tmp_path: Path) -> None:
    table, latest = tmp_path / "costs.json", tmp_path / "latest.json"
    table.write_bytes(ROUND.read_bytes())
    latest.write_text(json.dumps({"scaling_1_core_per_s": 31_234.5, "gateway_rss_mb_max": 200}))
    benchmark.write({"commit_us": 123.456}, table, latest)
    found = read_costs(table)
    assert found.pop("commit_us") == Figure(123, "python -m tests.benchmarks.costs")
    assert found.pop("core_requests_per_s") == Figure(31_200, "python -m tests.benchmarks.scaling")
    before = read_costs(ROUND)
    assert found == {name: figure for name, figure in before.items() if name != "core_requests_per_s"}


def test_a_new_table_begins_with_the_shipped_costs(tmp_path: Path) -> None:
    benchmark.write({"commit_us": 123.456}, tmp_path / "new.json", tmp_path / "none.json")
    found = read_costs(tmp_path / "new.json")
    assert found == shipped_costs() | {"commit_us": Figure(123, "python -m tests.benchmarks.costs")}


def test_other_benchmarks_have_the_figures_that_the_table_takes(tmp_path: Path) -> None:
    class Read(dict[str, float]):
        def __missing__(self, name: str) -> float:
            self[name] = 1.0
            return 1.0

    figures = Read()
    for derive in FROM_FIGURES.values():
        derive(figures)
    assert {name for name in figures if name not in COSTS} <= MEANINGS.keys()


def test_predictions_are_those_of_the_settings_and_the_table() -> None:
    """1,500 groups of 10: 5,000 heartbeats a second, 1.5 MB. (100 + (60 + 75) / 2) / (1 - 0.05), 1.5 times."""
    found = predicted(1_500, 10, Settings(request_partitions=16, shuffle_partitions=2), read_costs(ROUND))
    assert found.state_mb == 1.5
    assert found.p50_ms == pytest.approx(1.5 * 167.5 / 0.95, rel=2e-3)
    assert found.cores == pytest.approx(0.05 + 1_000 / 176.5 * 0.155 + 0.05, rel=2e-3)


def test_the_worst_ratio_counts_in_both_directions() -> None:
    pairs = [
        (Sizing(100, 1.0, 10), Sizing(110, 1.5, 10)),
        (Sizing(130, 2.0, 10), Sizing(100, 2.0, 11)),
    ]
    assert worst_ratios(pairs) == pytest.approx(
        {"size_p50_ratio": 1.3, "size_cores_ratio": 1.5, "size_state_ratio": 1.1}
    )
