"""A table of costs with round numbers, so that sizes can be computed by hand. It has no cost of a commit."""

from pathlib import Path

import pytest

from streaming.sizing.costs import Figure, read_costs

ROUND = Path(__file__).with_name("costs.json")


@pytest.fixture
def table() -> dict[str, Figure]:
    return read_costs(ROUND)
