"""The benchmark of a million members, with a few of them."""

import pytest

from tests.benchmarks import million
from tests.benchmarks.million import Load, run


def test_members_live_on_while_others_are_lost_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group loses one member, and its rebalance ends with the session of that member. The last ones have time."""
    monkeypatch.setattr(million, "LOSS_EVERY_S", 600)
    found = run(Load(groups=1_600, each=3, seconds=600 + 60), 0)
    groups = -(-found.members // 3)
    assert groups > 10
    assert groups <= found.deaths <= 2 * groups, "the first ones have their second turn"
    assert groups <= found.expired <= found.deaths
    assert found.expired - 3 <= found.rebalances <= found.expired, "one for each lost member, and none without"
    assert found.requests > found.members * 600 // 3
    assert found.longest_s >= found.p99_s > 0
    assert found.state_bytes > 100 * found.members
