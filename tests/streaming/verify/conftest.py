"""A group at the coordinator A, and the same group after its move to B."""

import pytest

from tests.streaming.verify.writing import START_MS, WritingPair


@pytest.fixture
def pair() -> WritingPair:
    pair = WritingPair.blank()
    a = pair.a.at(START_MS)
    for name in ("c1", "c2", "c1"):
        a.join(name, session_timeout_ms=45_000, rebalance_timeout_ms=40_000)
    a.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}}).sync("c2").is_("Stable")
    a.commit("c1", {("t", 0): 5}).commit("c2", {("t", 1): 8})
    pair.know()
    return pair


@pytest.fixture
def moved(pair: WritingPair) -> WritingPair:
    """A group that has moved from A to B, where a member has committed."""
    pair.a.at(START_MS + 1_000).release()
    pair.carry_on(START_MS + 1_500)
    pair.b.at(START_MS + 2_000).commit("c2", {("t", 1): 9})
    return pair
