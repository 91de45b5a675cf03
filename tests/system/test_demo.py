"""The demo, from its first member to one whole turn of its story, and what it leaves behind: nothing."""

import io
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from streaming.demo import run_demo, story
from streaming.query.coordinator import Coordinator
from tests.system.waiting import HANG_S


def workers() -> list[psutil.Process]:
    """Find the demo's members among our own processes."""
    return [p for p in psutil.Process().children(recursive=True) if "streaming.demo.worker" in _command(p)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # the broker and Spark have children of their own, which come and go
        return []


def test_the_demo_shows_members_come_go_and_die_as_the_topics_tell_it(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """S24: groups are recorded, members watched, plans passed on and offsets kept, all by one query."""
    monkeypatch.setattr(story, "COMMITS_BETWEEN", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown, until_s = io.StringIO(), time.monotonic() + HANG_S

    def is_told() -> bool:
        _, _, since = shown.getvalue().partition("bo and cy come back")
        _, _, settled = since.partition("Stable")
        return all(f"{name}-" in settled for name in story.NAMES) or time.monotonic() > until_s

    run_demo(coordinator.settings, out=Console(file=shown, width=400), stop=is_told)

    text = shown.getvalue()
    story_so_far = [
        "» a producer fills demo.orders, 6 partitions",
        "» ana, bo, cy start",
        "rebalance: member joined",
        "rebalanced in",
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
    for happening in story_so_far:
        at = text.find(happening, at)
        assert at >= 0, f"{happening!r} is not told, or not in its place:\n{text}"
    assert "committed offsets of demo.orders" in text
    assert "MISSING" not in text
    assert workers() == []
    assert list(tmp_path.iterdir()) == []
