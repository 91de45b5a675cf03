"""Tests of the figures about the first batch of a new executor."""

from collections.abc import Sequence

import pytest

from tests.benchmarks.bench import BenchFailed
from tests.benchmarks.executors import Batch
from tests.benchmarks.meanings import MEANINGS
from tests.benchmarks.new_executor import COMPARED, WARM_UP, figures


def batches(number: int, stage_ms: float, executors: str) -> Sequence[Batch]:
    return [Batch(stage_ms=stage_ms, executors=set(executors))] * number


BEFORE = [*batches(WARM_UP - COMPARED, 900, "01"), *batches(COMPARED + 1, 100, "01")]


def test_the_first_batch_of_the_new_executor_is_compared_with_the_last_ones_before_the_kill() -> None:
    """Batches of the executor that is left alone are neither."""
    found = figures([*BEFORE, *batches(3, 400, "1"), *batches(1, 250, "12"), *batches(5, 110, "12")])
    assert (found["new_executor_warm_ms"], found["new_executor_first_ms"]) == (100, 250)
    assert found["new_executor_later_ms"] == 110
    assert found["new_executor_ratio"] == pytest.approx(2.5)
    assert found.keys() <= MEANINGS.keys()


def test_a_new_executor_without_tasks_is_an_error() -> None:
    with pytest.raises(BenchFailed, match="has run no task"):
        figures([*BEFORE, *batches(3, 400, "1")])
