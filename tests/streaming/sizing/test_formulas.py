"""Tests of the formulas of `coordinator size` against cases that are computed by hand."""

from math import exp, inf

import pytest

from coordinator.base.limits import ASSIGNMENTS_MAX, SESSION_TIMEOUT_MS_MAX
from streaming.config.settings import Settings
from streaming.kafka.topics import layout
from streaming.sizing import plan
from streaming.sizing.batches import (
    HEARTBEAT_INTERVAL_MS_MAX,
    HEARTBEAT_INTERVAL_MS_MIN,
    MEDIAN,
    MEMBERS_MAX,
    NEARLY_ALL,
    Batches,
    Load,
    broker_bytes_per_s,
    state_bytes,
)
from streaming.sizing.costs import COSTS, CostMissing, Costs, Figure
from streaming.sizing.lines import GATEWAY_CONNECTIONS, LINES, REPLY_PARTITIONS, Scope, sizes

Table = dict[str, Figure]
LOAD = Load(groups=1_000, members=10, heartbeat_interval_ms=5_000)
"""2,000 heartbeats a second, and 1,000 x 100 + 10,000 x 90 bytes of state: 1 MB."""

COMMIT = {"commit_core_us": Figure(100, "page: a commit")}


GROUP = {"group_core_us": Figure(50, "page: a group")}


def batches(table: Table, load: Load = LOAD, shards: int = 16, cores: int = 2) -> Batches:
    return Batches(load, shards, cores, Costs(table))


# -- the load ----------------------------------------------------------------------------------------------------------


def test_a_load_has_the_requests_of_a_second() -> None:
    load = Load(1_000, 10, 5_000, commits_per_s=500, rebalances_per_hour=720)
    assert load.heartbeats_per_s == 2_000
    assert load.rejoins_per_s == 2  # 720 x 10 members in 3,600 s
    assert load.requests_per_s == 2_504
    assert (LOAD.offsets, load.offsets) == (0, 10_000)


def test_the_parts_of_a_load_add_up() -> None:
    part = Load(1_000, 10, 5_000, 500, 720).part(4)
    assert part == Load(250, 10, 5_000, 125, 180)


# -- a batch -----------------------------------------------------------------------------------------------------------


def test_a_batch_has_a_fixed_part_and_work_that_the_cores_share(table: Table) -> None:
    """201 requests touch all of 16 shards: (100 + (15 x 4 + 1 x 50) / 2) / (1 - 0.02)."""
    assert batches(table).ms() == pytest.approx(155 / 0.98, rel=1e-4)
    assert batches(table, cores=10).ms() == pytest.approx(111 / 0.996, rel=1e-4)


def test_half_of_the_responses_wait_for_half_a_batch_more_if_batches_follow_each_other(table: Table) -> None:
    """158.2 ms of 158.7 ms are batches: 158.16 x (1 + (0.5 - 0.0032) / 0.9968)."""
    assert batches(table).response_ms(MEDIAN) == pytest.approx(237.0, rel=1e-3)
    assert batches(table).response_ms(NEARLY_ALL) == pytest.approx(314.7 + 50, rel=1e-3)


def test_half_of_the_responses_wait_for_their_own_batch_alone_at_rest(table: Table) -> None:
    """One member, a heartbeat in 5 s: (100 + 0.00019 x 50 / 4 / 2) / 1, and 98 of 100 requests find no batch."""
    alone = batches(table, Load(1, 1, 5_000), shards=4)
    assert alone.response_ms(MEDIAN) == alone.ms() == pytest.approx(100, rel=1e-3)
    assert alone.response_ms(NEARLY_ALL) == pytest.approx(100 * 1.49 + 50, rel=0.02)


def test_the_use_of_cores_has_the_batches_and_the_requests(table: Table) -> None:
    """0.05 + (1,000 / 158.66 x (80 + 15 x 4 + 50) + 2,000 x 0.02) / 1,000."""
    assert batches(table).cores_used() == pytest.approx(1.2875, rel=1e-3)


def test_a_batch_touches_as_many_shards_and_groups_as_its_requests_hit(table: Table) -> None:
    """One request begins it. The others of 100 ms are for any of the shards, or of the groups."""
    few, many = batches(table, Load(5, 10, 5_000), shards=4), batches(table)
    assert few.touched(4, 100) == pytest.approx(1 + 3 * (1 - exp(-1 / 4)))
    assert few.touched(5, 100) == pytest.approx(1 + 4 * (1 - exp(-1 / 5)))
    assert few.touched(0.25, 100) == 1
    assert many.touched(16, 100) == pytest.approx(16, rel=1e-4)
    assert many.touched(1_000, 100) == pytest.approx(1 + 999 * (1 - exp(-0.2)))
    assert many.touched(1_000, 0) == 1
    assert many.touched(1_000, inf) == 1_000


def test_a_longer_batch_touches_more_groups_and_so_takes_longer(table: Table) -> None:
    """165.4 ms touch 283 of 1,000 groups, of 50 us each: (100 + (60 + 50 + 14.1) / 2) / 0.98."""
    ms = batches(table | GROUP).ms()
    groups_ms = 0.05 * (1 + 999 * (1 - exp(-2 * ms / 1_000)))
    assert ms == pytest.approx((100 + (60 + 50 + groups_ms) / 2) / 0.98, rel=1e-5)
    assert ms == pytest.approx(165.4, rel=1e-3)
    cores = 0.05 + (1_000 / (ms + 0.5) * (80 + 60 + 50 + groups_ms) + 40) / 1_000
    assert batches(table | GROUP).cores_used() == pytest.approx(cores, rel=1e-4)


def test_cores_that_cannot_keep_up_have_no_time_of_a_batch(table: Table) -> None:
    """20 us a heartbeat: one core has 50,000 a second at most."""
    at_bound = Load(10_000, 10, 2_000)
    assert batches(table, at_bound, cores=1).ms() == inf
    assert batches(table, at_bound, cores=1).response_ms(MEDIAN) == inf
    assert batches(table, at_bound, cores=2).ms() < inf


def test_commits_and_rejoins_take_the_cores_as_well(table: Table) -> None:
    """2,000 x 20 us + 500 x 100 us + 2 x 1,000 us of the cores, and 1.1 MB of state with the offsets."""
    some = batches(table | COMMIT, Load(1_000, 10, 5_000, 500, 720))
    assert some.ms() == pytest.approx((100 + (60 + 55) / 2) / (1 - 0.092 / 2), rel=1e-4)
    per_s = 1_000 / (some.ms() + 1_000 / 2_504)
    cores = 0.05 + (per_s * (80 + 60 + 55) + 40 + 50 + 2) / 1_000
    assert some.cores_used() == pytest.approx(cores, rel=1e-4)


def test_a_cost_without_value_is_named_unless_its_amount_is_0(table: Table) -> None:
    assert batches(table).ms() > 0
    with pytest.raises(CostMissing, match="commit_core_us"):
        batches(table, Load(1_000, 10, 5_000, 1)).ms()


def test_bytes_are_those_of_groups_members_offsets_and_requests(table: Table) -> None:
    load = Load(1_000, 10, 5_000, 500, 720)
    assert state_bytes(LOAD, Costs(table)) == 1_000_000
    assert state_bytes(load, Costs(table)) == 1_100_000
    assert broker_bytes_per_s(load, Costs(table)) == 2_000 * 400 + 500 * 900 + 2 * 3_000


# -- the layout --------------------------------------------------------------------------------------------------------


def test_a_second_coordinator_is_needed_beyond_the_largest_load_that_was_measured(table: Table) -> None:
    """The table has 100,000 requests a second for one query."""
    assert plan.coordinators(Load(10_000, 10, 1_000), Costs(table)) == (1, "one query carries the load")
    number, reason = plan.coordinators(Load(10_001, 10, 1_000), Costs(table))
    assert (number, reason) == (2, "100,010 requests a second; one query was measured with 100,000")


def test_a_second_coordinator_is_needed_beyond_the_state_of_the_largest_number_of_shards(table: Table) -> None:
    """1,000 shards of 2 MB, and 1,000 bytes for each group of 10."""
    assert plan.coordinators(Load(2_000_000, 10, 1_800_000), Costs(table))[0] == 1
    number, reason = plan.coordinators(Load(2_000_001, 10, 1_800_000), Costs(table))
    assert (number, reason) == (2, "2,000 MB of state; 1,000 shards hold 2,000 MB")


@pytest.mark.parametrize(
    ("load", "shards"),
    [
        (Load(1, 1, 5_000), 4),
        (Load(8_000, 10, 600_000), 4),  # 8 MB
        (Load(8_001, 10, 600_000), 8),
        (Load(1_200, 50, 1_000), 8),  # 60,000 a second: 4 x 2
        (Load(1_201, 50, 1_000), 16),
        (Load(1_025_000, 10, 1_800_000), 1_000),  # 1,025 MB would be 1,024 shards
    ],
)
def test_shards_are_a_power_of_two_for_the_state_and_the_requests(table: Table, load: Load, shards: int) -> None:
    assert plan.shards(load, Costs(table)) == shards


def test_cores_are_the_fewest_with_responses_in_time(table: Table) -> None:
    """8 MB and 80,000 heartbeats a second: 4 cores have batches of (100 + 460 / 4) / 0.6 ms, 3 of 543 ms."""
    load = Load(8_000, 10, 1_000)
    found = plan.batches(load, Costs(table))
    fewer = batches(table, load, found.shards, found.cores - 1)
    assert (found.shards, found.cores) == (16, 4)
    assert (found.ms(), fewer.ms()) == (pytest.approx(358.3, rel=1e-3), pytest.approx(542.9, rel=1e-3))
    assert found.response_ms(NEARLY_ALL) <= 1_000 < fewer.response_ms(NEARLY_ALL)


def test_no_number_of_cores_shortens_the_fixed_part_of_a_batch(table: Table) -> None:
    slow = table | {"batch_ms": Figure(300, "page: a slow batch")}
    with pytest.raises(plan.NoSize, match=r"with 4 cores, one for each shard, 99 of 100 responses still .* 500 ms"):
        plan.batches(Load(100, 10, 500), Costs(slow))


@pytest.mark.parametrize(("interval_ms", "goal_ms"), [(3_000, 3_000), (5_000, 5_000), (600_000, 5_000)])
def test_responses_are_due_within_the_heartbeat_interval_and_the_late_notice(interval_ms: int, goal_ms: int) -> None:
    assert plan.response_ms_max(Load(1, 1, interval_ms)) == goal_ms


def test_the_constants_are_those_of_the_settings() -> None:
    properties, settings = Settings.model_json_schema()["properties"], Settings()
    assert properties["request_partitions"]["maximum"] == plan.SHARDS_MAX
    assert settings.late_notice_ms == plan.RESPONSE_MS_MAX
    assert settings.reply_partitions == REPLY_PARTITIONS
    assert settings.gateway_connections_max == GATEWAY_CONNECTIONS
    assert properties["group_consumer_heartbeat_interval_ms"]["minimum"] == HEARTBEAT_INTERVAL_MS_MIN
    assert (HEARTBEAT_INTERVAL_MS_MAX, MEMBERS_MAX) == (SESSION_TIMEOUT_MS_MAX, ASSIGNMENTS_MAX)


# -- the lines ---------------------------------------------------------------------------------------------------------


def test_the_partitions_are_those_of_the_topics(table: Table) -> None:
    [line] = [each for each in sizes(LOAD, table).lines if each.line == "broker_partitions"]
    settings = Settings(request_partitions=plan.shards(LOAD, Costs(table)))
    assert line.each == sum(topic.partitions for topic in layout(settings))


def test_a_line_without_its_cost_names_the_benchmark(table: Table) -> None:
    found = {each.line: each for each in sizes(Load(1_000, 10, 5_000, 1), table).lines}
    assert found["cores"].each is found["cores"].total is None
    assert found["cores"].note == "not computed without commit_core_us: python -m tests.benchmarks.costs measures it"
    assert found["shards"].total == 4


def test_without_any_cost_each_line_names_one_or_needs_none() -> None:
    lines = sizes(LOAD, {}).lines
    assert [line.line for line in lines if line.total is not None] == ["gateways"]
    named = [line.note for line in lines if line.line != "gateways"]
    assert all(note.startswith("not computed without ") for note in named)


def test_each_value_names_the_costs_that_change_it(table: Table) -> None:
    """A line that does not name a cost does not depend on it."""
    full = table | COMMIT | GROUP
    load = Load(30_000, 10, 1_000, 500, 720)
    before = {line.line: line for line in sizes(load, full).lines}
    for name in COSTS:
        more = full | {name: Figure(full[name].value * 1.7, "page")}
        for line in sizes(load, more).lines:
            was = before[line.line]
            assert name in was.costs or (line.each, line.total) == (was.each, was.total), (line.line, name)


def test_sums_are_those_of_all_coordinators(table: Table) -> None:
    for line in sizes(Load(30_000, 10, 1_000), table).lines:
        scope = LINES[line.line].scope
        assert (line.each is None, line.total is None) == (scope is Scope.total, scope is Scope.each)
        if scope is Scope.summed:
            assert line.total == pytest.approx(3 * (line.each or 0), rel=1e-5)
