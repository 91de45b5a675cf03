"""Tests of the figures of joins and leaves beside busy processes."""

import pytest

from tests.benchmarks.contended import figures
from tests.benchmarks.meanings import MEANINGS


def test_ratios_are_of_medians_and_each_figure_has_a_meaning() -> None:
    found = figures(
        {
            "join_ours": [1.0, 2.0, 9.0],
            "leave_ours": [3.0, 1.0, 1.5],
            "join_kafka": [4.0, 4.0, 1.0],
            "leave_kafka": [2.0, 1.0, 9.0],
        }
    )
    assert found["contended_join_ratio"] == pytest.approx(2.0 / 4.0)
    assert found["contended_leave_ratio"] == pytest.approx(1.5 / 2.0)
    assert found["contended_rebalance_samples"] == 3
    assert found.keys() <= MEANINGS.keys()
