"""Tests of `coordinator size`: its output, compared whole with files in `golden_sizes`, and the refused inputs.

Set WRITE_GOLDEN=1 to write the files, and read the difference before it is committed.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streaming.cli.lib.times import BadTime
from streaming.cli.main import app
from streaming.errors import Exit
from streaming.sizing.batches import (
    COMMITS_PER_S_MAX,
    GROUPS_MAX,
    HEARTBEAT_INTERVAL_MS_MAX,
    MEMBERS_MAX,
    MEMBERS_TOTAL_MAX,
    REBALANCES_PER_HOUR_MAX,
)
from tests.streaming.sizing.conftest import ROUND

GOLDEN = Path(__file__).with_name("golden_sizes")
LOAD = {"--groups": "30000", "--members": "10", "--heartbeat-interval": "2s", "--rebalances-per-hour": "720"}
WITH_COMMITS = {**LOAD, "--commits-per-second": "500"}

CASES = {
    "table": (LOAD, ()),
    "wide": (LOAD, ("-o", "wide")),
    "csv": (LOAD, ("-o", "csv")),
    "json": (LOAD, ("-o", "json")),
    "commits": (WITH_COMMITS, ()),
}


def run(flags: dict[str, str], *more: str, table: Path | None = ROUND) -> Any:
    words = [word for flag in flags.items() for word in flag]
    words += [*more, *(("--costs", str(table)) if table else ())]
    return CliRunner().invoke(app, ["size", *words], env={"COLUMNS": "200"})


@pytest.mark.parametrize("name", CASES)
def test_the_output_equals_the_golden_file(name: str) -> None:
    flags, more = CASES[name]
    done = run(flags, *more)
    assert done.exit_code == 0, done.output
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(done.stdout)
    assert done.stdout == file.read_text()


def test_every_golden_file_is_compared() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == CASES.keys()


def test_without_a_table_the_shipped_costs_are_used() -> None:
    done = run(LOAD, "-o", "json", table=None)
    found = json.loads(done.stdout)
    assert found["load"]["groups"] == 30_000
    assert found["costs"]["batch_ms"]["value"] > 0
    assert [line["note"] for line in found["lines"] if line["line"] == "response_p50"] == [""]


@pytest.mark.parametrize(
    ("flag", "largest", "beyond"),
    [
        ("--groups", GROUPS_MAX, GROUPS_MAX + 1),
        ("--groups", 1, 0),
        ("--groups", 1, -1),
        ("--members", MEMBERS_MAX, MEMBERS_MAX + 1),
        ("--members", MEMBERS_MAX, 10**12),
        ("--members", 1, 0),
        ("--commits-per-second", COMMITS_PER_S_MAX, COMMITS_PER_S_MAX + 1),
        ("--commits-per-second", 0, -1),
        ("--rebalances-per-hour", REBALANCES_PER_HOUR_MAX, REBALANCES_PER_HOUR_MAX + 1),
        ("--rebalances-per-hour", 0, -1),
    ],
)
def test_numbers_are_accepted_up_to_their_bounds(flag: str, largest: int, beyond: int) -> None:
    flags = {"--groups": "1", "--members": "1"}
    assert run({**flags, flag: str(largest)}).exit_code == 0
    refused = run({**flags, flag: str(beyond)})
    assert (refused.exit_code, refused.stdout) == (Exit.USAGE, "")
    assert flag in refused.stderr


@pytest.mark.parametrize("text", ["1e12", "ten", "nan", "inf", "", "1.5"])
def test_other_texts_than_numbers_are_refused(text: str) -> None:
    assert run({"--groups": text, "--members": "1"}).exit_code == Exit.USAGE


def test_the_members_of_all_groups_are_bounded() -> None:
    assert run({"--groups": str(MEMBERS_TOTAL_MAX // 10), "--members": "10"}).exit_code == 0
    refused = run({"--groups": str(MEMBERS_TOTAL_MAX // 10), "--members": "11"})
    assert refused.exit_code == Exit.USAGE
    assert "100,000,000 members" in refused.stderr


@pytest.mark.parametrize("text", ["500ms", "3s", "PT3S", f"{HEARTBEAT_INTERVAL_MS_MAX}ms", "30m"])
def test_heartbeat_intervals_are_durations(text: str) -> None:
    assert run({**LOAD, "--heartbeat-interval": text}).exit_code == 0


@pytest.mark.parametrize("text", ["499ms", "0s", f"{HEARTBEAT_INTERVAL_MS_MAX + 1}ms", "999999999999999w"])
def test_heartbeat_intervals_have_bounds(text: str) -> None:
    refused = run({**LOAD, "--heartbeat-interval": text})
    assert (refused.exit_code, refused.stdout) == (Exit.USAGE, "")
    assert "500ms to 30m" in refused.stderr


@pytest.mark.parametrize("text", ["3", "-3s", "", "soon"])
def test_other_texts_than_durations_are_refused(text: str) -> None:
    refused = run({**LOAD, "--heartbeat-interval": text})
    assert isinstance(refused.exception, BadTime)
    assert refused.exception.exit_code is Exit.USAGE


def test_the_costs_of_a_file_are_shown_without_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    costs = json.loads(ROUND.read_text())
    file.write_text(json.dumps({**costs, "batch_ms": {"value": 100, "figure": "page\x1b[2J"}}))
    for output in ("table", "wide", "csv", "json"):
        assert "\x1b" not in run(LOAD, "-o", output, table=file).stdout
