"""Tests of the failpoints: the operator stops only where a test requests it, and once for each shard."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.query.operator import failpoints


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """Yield the list of received signals; each of them would stop the process."""
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGUSR1, before)


def test_production_has_no_failpoint() -> None:
    assert failpoints.reach is None


def test_each_shard_is_stopped_once_at_the_requested_point(signals: list[int], tmp_path: Path) -> None:
    reach = failpoints._failpoint(f"SIGUSR1 stepped 1,12 {tmp_path}")
    assert reach is not None
    reached = [("called", 1), ("stepped", 2), ("stepped", 1), ("stepped", 1), ("yielded", 1), ("stepped", 12)]
    stops = []
    for point, shard in reached:
        before = len(signals)
        reach(point, shard)
        stops.append(len(signals) - before)
    assert stops == [0, 0, 1, 0, 0, 1]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["1", "12"]


def test_an_unknown_failpoint_is_refused() -> None:
    with pytest.raises(AssertionError):
        failpoints._failpoint("SIGKILL nowhere 1 /tmp")
