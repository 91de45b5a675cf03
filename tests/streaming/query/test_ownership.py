"""The reasons why a batch is another driver's, from the files of a checkpoint."""

import json
from pathlib import Path

from streaming.query.operator.ownership import objections, take_over


def plan(checkpoint: Path, batch: int, planned_ms: int) -> None:
    offsets = checkpoint / "query" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch)).write_text(f"v1\n{json.dumps({'batchTimestampMs': planned_ms})}\n{{}}")


def test_batch_with_its_own_plan_is_the_drivers(tmp_path: Path) -> None:
    plan(tmp_path, 3, 1_000)
    take_over(tmp_path, "ana")
    assert list(objections(tmp_path, 3, 1_000, "ana")) == []
    assert list(objections(tmp_path, 3, 1_000, None)) == [], "a driver without a lease has no id"
    assert list(objections(tmp_path, 4, 1_000, "ana")) == [], "Spark itself reports a plan that is missing"


def test_replaced_plan_is_another_drivers(tmp_path: Path) -> None:
    plan(tmp_path, 3, 1_001)
    assert list(objections(tmp_path, 3, 1_000, None)) == [
        "was planned for 1001 by another driver, and for 1000 by this one"
    ]


def test_finished_batch_is_another_drivers(tmp_path: Path) -> None:
    plan(tmp_path, 3, 1_000)
    (tmp_path / "query" / "commits").mkdir()
    (tmp_path / "query" / "commits" / "3").write_text("v1\n{}")
    assert list(objections(tmp_path, 3, 1_000, None)) == ["was finished by another driver"]


def test_batch_after_a_take_over_is_another_drivers(tmp_path: Path) -> None:
    plan(tmp_path, 3, 1_000)
    take_over(tmp_path, "ana")
    take_over(tmp_path, "bo")
    assert list(objections(tmp_path, 3, 1_000, "ana")) == ["comes after driver bo has taken over"]
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["driver"]
