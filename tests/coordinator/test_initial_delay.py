"""The initial rebalance delay, exact to the millisecond (W15, S79 to S81; protocol.md 4.1)."""

import pytest

from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from tests.coordinator.scenario import Scenario

TABLE = [
    # D     R      joins at               the timer fires at          completes at
    (3000, 10000, (0,),                   (3000,),                    3000),
    (3000, 9000,  (0, 2999),              (3000, 6000),               6000),
    (3000, 6000,  (0, 0, 3001),           (3000, 6000),               6000),
    (3000, 5000,  (0, 0, 0),              (3000, 5000),               5000),
    (3000, 10000, (0, 2000, 5000, 8000),  (3000, 6000, 9000, 10000),  10000),
    (3000, 2000,  (0, 1),                 (3000,),                    3000),
    (0,    10000, (0,),                   (),                         0),
]  # fmt: skip


@pytest.mark.parametrize(("delay_ms", "rebalance_ms", "joins", "fires", "completes_ms"), TABLE)
def test_when_it_fires_and_when_it_completes(delay_ms, rebalance_ms, joins, fires, completes_ms):
    """W15, S79, S80, S81: the timer fires, and the round completes, at these times."""
    s = Scenario(delay_ms=delay_ms)
    fired = []
    for number, at_ms in enumerate(joins):
        fired += let_pass(s, at_ms)
        s.at(at_ms).join(f"c{number}", rebalance_timeout_ms=rebalance_ms)
    fired += let_pass(s, NEVER_MS - 1)
    assert tuple(fired) == fires
    s.is_("CompletingRebalance", generation=1)
    assert s.group.since_ms == completes_ms
    assert len(s.group.members) == len(joins)


def let_pass(s: Scenario, until_ms: int) -> list[int]:
    """Run until `until_ms`, and return the times at which the timer fired. No response comes earlier."""
    fired = []
    while s.outputs and s.group.phase is Phase.PREPARING and s.group.hot_state.joins_ms <= until_ms:
        fired.append(s.group.hot_state.joins_ms)
        s.until(fired[-1] - 1).is_parked().until(fired[-1])
    return fired


def test_a_known_member_that_joins_again_does_not_extend_it():
    """S81; protocol.md 4.1: each new member extends the delay, a rejoin of a known member does not."""
    s = Scenario(delay_ms=3_000).join("a").at(1_000).join("a").until(3_000).is_("CompletingRebalance")
    assert s.group.since_ms == 3_000


def test_the_first_members_timeout_bounds_the_delay():
    """S80: R is the group's rebalance timeout when the rebalance starts."""
    s = Scenario(delay_ms=3_000).join("a", rebalance_timeout_ms=3_000).join("b", rebalance_timeout_ms=60_000)
    s.until(3_000).is_("CompletingRebalance", members="a b")


def test_only_a_rebalance_from_empty_has_the_delay():
    """S79: a rebalance from another phase has no initial delay."""
    s = Scenario(delay_ms=3_000).join("a").until(3_000).sync("a", plan={"a": {"t": [0]}}).is_("Stable")
    s.join("b").join("a").is_("CompletingRebalance", generation=2)
    assert s.group.since_ms == 3_000


def test_an_emptied_group_has_the_delay_again():
    """S79, S81: each rebalance from Empty has the delay, not only that of generation 0 (protocol.md 10 row 5)."""
    s = Scenario(delay_ms=3_000).join("a").until(3_000).leave("a").is_("Empty", generation=2)
    s.at(5_000).join("b").at(6_000).join("c").until(8_000).is_("PreparingRebalance").until(11_000)
    s.is_("CompletingRebalance", generation=3, members="b c")
