"""Tests of the file with the costs: what it may contain, and that the shipped one has published figures."""

import json
import re
from pathlib import Path

import pytest

from streaming.errors import Exit
from streaming.sizing.batches import MEDIAN, Batches, Load, state_bytes
from streaming.sizing.costs import (
    COSTS,
    FIGURE_CHARS_MAX,
    FILE_BYTES_MAX,
    VALUE_MAX,
    BadCosts,
    Costs,
    Figure,
    parse,
    read_costs,
    shipped_costs,
)
from streaming.sizing.costs import write_costs as write
from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks.core_bytes import bytes_of_state_and_records
from tests.docs.pages import DOCS, ROOT
from tests.streaming.sizing.conftest import ROUND


def one(value: object, figure: object = "page", name: str = "batch_ms") -> bytes:
    return json.dumps({name: {"value": value, "figure": figure}}).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is no table of costs"),
        (b"[1]", "is no table of costs"),
        (b"\xff{}", "is no table of costs"),
        (b"[" * 10_000, "is no table of costs"),
        (b'{"batch_ms": 1}', "is no table of costs"),
        (b'{"batch_ms": {"value": 1}}', "is no table of costs"),
        (b'{"batch_ms": {"value": 1, "figure": "page", "more": 1}}', "is no table of costs"),
        (b'{"batch_ms": {"value": NaN, "figure": "page"}}', "is no table of costs"),
        (one("1"), "is no table of costs"),
        (one(None), "is no table of costs"),
        (one(1, name="no_such"), "has a cost 'no_such', which does not exist"),
        (one(0.0009), "has 0.0009 for batch_ms, whose values are from 0.001 to 1e+09"),
        (one(VALUE_MAX * 1.01), "has 1.01e+09 for batch_ms"),
        (one(-1e-9, name="shard_core_ms"), "has -1e-09 for shard_core_ms, whose values are from 0 to 1e+09"),
        (one(1, "x" * (FIGURE_CHARS_MAX + 1)), "has a figure of more than 500 characters"),
        (b" " * FILE_BYTES_MAX + b"{}", "has more than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_one_sentence(data: bytes, reason: str) -> None:
    with pytest.raises(BadCosts, match=re.escape(reason)) as refused:
        parse(data, "costs.json")
    assert refused.value.exit_code is Exit.NEEDS_A_PERSON
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "data",
    [b"{}", one(0.001), one(VALUE_MAX), one(0, name="shard_core_ms"), one(1, "x" * FIGURE_CHARS_MAX)],
)
def test_values_at_their_bounds_are_accepted(data: bytes) -> None:
    assert parse(data, "costs.json") is not None


@pytest.mark.parametrize("path", ["no/such/file", "."])
def test_a_file_that_cannot_be_read_is_named(path: str, tmp_path: Path) -> None:
    with pytest.raises(BadCosts, match=r"cannot be read \("):
        read_costs(tmp_path / path)


def test_a_written_table_is_read_again_in_the_order_of_the_costs(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    table = read_costs(ROUND)
    write(dict(reversed(table.items())), file)
    assert read_costs(file) == table
    assert list(read_costs(file)) == [name for name in COSTS if name in table]


def test_no_table_is_written_that_would_be_refused(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    table = read_costs(ROUND)
    write(table, file)
    with pytest.raises(BadCosts, match="has 0 for batch_ms"):
        write(table | {"batch_ms": Figure(0, "page")}, file)
    assert read_costs(file) == table


# -- the shipped table -------------------------------------------------------------------------------------------------

PUBLISHED: dict[str, tuple[float, tuple[str, ...]]] = {
    # cost                          computed from published figures       the words of the documents
    "response_spread_ms":           (240 - 155, ("155 ms, 240 ms",)),
    "checkpoint_mb_per_state_mb":   (800 / (15_000 * 108 / 1e6), ("between 0.2 and 0.8 GB", "| 108 bytes a member |")),
    "shard_state_mb_max":           (100_000 * 300 / 16 / 1e6, ("| 100,000 silent groups of 300 bytes",)),
    "core_requests_per_s":          (28_600, ("28,600; 50,000",)),
    "query_requests_per_s":         (88_800, ("88,800; 79,700",)),
    "gateway_core_heartbeats_per_s": (12_900, ("10,900/s; 12,900; 27,200/s",)),
    "gateway_mb_per_connection":    (0.166, ("1,000 connections take 166 MB",)),
}  # fmt: skip
"""The costs that follow from published figures. `make bench` replaces them in the table."""

PAGES = " ".join((DOCS / page).read_text().replace("\n", " ") for page in ("figures.md", "operations.md"))
BENCHMARKS = {name for name in vars(benchmarks) if not name.startswith("_")} | {"scaling", "steady"}
ORIGIN = re.compile(
    r"docs/(?:figures|operations)\.md[:,] |tests/benchmarks/core_bytes\.py: |python -m tests\.benchmarks\.(\w+)"
)


def test_each_shipped_cost_names_the_figure_behind_it() -> None:
    for name, figure in shipped_costs().items():
        found = ORIGIN.match(figure.figure)
        assert found, f"{name}: {figure.figure}"
        assert found[1] in (None, COSTS[name].benchmark)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shipped_cost_follows_from_published_figures(name: str) -> None:
    figure = shipped_costs()[name]
    if figure.figure.startswith("docs/"):
        value, words = PUBLISHED[name]
        assert figure.value == pytest.approx(value, rel=5e-3)
        assert [each for each in words if each not in PAGES] == []


def test_every_benchmark_of_a_cost_exists() -> None:
    assert {cost.benchmark for cost in COSTS.values()} <= BENCHMARKS
    assert all((ROOT / "tests" / "benchmarks" / f"{cost.benchmark}.py").exists() for cost in COSTS.values())


def test_the_shipped_bytes_are_those_of_the_core() -> None:
    shipped = shipped_costs()
    for name, value in bytes_of_state_and_records().items():
        assert shipped[name].value == pytest.approx(value, rel=5e-3), name
    ten = shipped["state_bytes_per_group"].value / 10 + shipped["state_bytes_per_member"].value
    assert ten == pytest.approx(108, rel=5e-3), "docs/figures.md: state of a Stable group"


def test_every_cost_is_shipped_with_its_figure() -> None:
    assert COSTS.keys() == shipped_costs().keys()
    assert all(isinstance(figure, Figure) for figure in shipped_costs().values())


CORES_LEFT = {300: 1.65, 3_000: 1.52, 10_000: 1.45}
"""By the number of groups of 10, the cores that broker and load generator left when the loads were measured."""


def test_the_page_compares_measured_loads_with_what_the_shipped_costs_predict() -> None:
    rows = []
    for groups, cores in CORES_LEFT.items():
        load, costs = Load(groups, 10, 3_000), Costs(shipped_costs())
        batches = Batches(load, 16, cores, costs)
        p50_ms, state_mb = batches.response_ms(MEDIAN), state_bytes(load, costs) / 1e6
        rows.append((f"{p50_ms:.0f} ms", f"{cores:.2f}", f"{batches.cores_used():.2f}", f"{state_mb:.3g} MB"))
    page = (DOCS / "sizing.md").read_text().partition("## How good the predictions are")[2]
    row = r"^\| [\d,]+ members, .* \| (.*), .* \| (.*) \| (.*), .* \| (.*), .* \|$"
    assert re.findall(row, page, re.MULTILINE) == rows
