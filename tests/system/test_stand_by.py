"""A driver that stands by takes over under live members, and one that was suspended ends by itself."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.runs import takeovers
from tests.system.conftest import Service

pytestmark = pytest.mark.long

Run = Callable[..., Service]


def test_no_commit_is_lost_and_no_group_rebalances_while_drivers_take_over(tmp_path: Path) -> None:
    """I13, I21: five take-overs with two drivers that stand by; `verify` finds nothing."""
    outcome = takeovers(tmp_path, random.Random(5), 5, 600, print)
    assert outcome.wrong == []
    assert sum(outcome.figures["takeovers"].values()) == 5
    assert outcome.figures["commits acknowledged"] > 0
