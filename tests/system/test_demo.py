"""The demo from its first member to the end of one round of its script. It leaves no process and no file."""

import io
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from streaming.demo import run_demo, scenario
from streaming.query.coordinator import Coordinator
from tests.system.waiting import HANG_S

pytestmark = pytest.mark.long


def workers() -> list[psutil.Process]:
    """Return the demo's members among the child processes."""
    return [p for p in psutil.Process().children(recursive=True) if "streaming.demo.worker" in _command(p)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # the broker and Spark have short-lived child processes
        return []


@pytest.mark.nightly
def test_demo_shows_joins_leaves_and_expiries_from_the_topics(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """S24: one query records groups, watches members, passes on assignments and stores offsets."""
    monkeypatch.setattr(scenario, "COMMITS_BETWEEN", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown, until_s = io.StringIO(), time.monotonic() + HANG_S

    def is_told() -> bool:
        _, _, since = shown.getvalue().partition("bo and cy come back")
        _, _, settled = since.partition("Stable")
        return all(f"{name}-" in settled for name in scenario.NAMES) or time.monotonic() > until_s

    run_demo(coordinator.settings, out=Console(file=shown, width=400), stop=is_told)

    text = shown.getvalue()
    expected = [
        "» a producer fills demo.orders, 6 partitions",
        "» ana, bo, cy start",
        "rebalance: member joined",
        "Stable, generation",
        "» bo leaves",
        'left ("shift is over")',
        "Stable, generation",
        "» kill -9",
        "was dropped: session expired after 6.0 s of silence",
        "Stable, generation",
        "» bo and cy come back",
        "Stable, generation",
    ]
    at = 0
    for happening in expected:
        at = text.find(happening, at)
        assert at >= 0, f"{happening!r} is missing, or not in its place:\n{text}"
    until_bo_leaves = text[: text.index("» bo leaves")]  # from another topic than "Stable", so before or after it
    assert "rebalanced in" in until_bo_leaves
    assert "committed offsets of demo.orders" in text
    assert "MISSING" not in text
    assert workers() == []
    assert list(tmp_path.iterdir()) == []
