"""Where tests stop the operator: nowhere unless asked for, and then once for each shard."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.query import failpoints


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """Count the signals that would stop us."""
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGUSR1, before)


def test_in_production_there_is_nothing_to_call() -> None:
    assert failpoints.reach is None


def test_each_shard_is_stopped_once_where_it_was_asked_for(signals: list[int], tmp_path: Path) -> None:
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


def test_a_point_that_there_is_not_is_refused() -> None:
    with pytest.raises(AssertionError):
        failpoints._failpoint("SIGKILL nowhere 1 /tmp")
