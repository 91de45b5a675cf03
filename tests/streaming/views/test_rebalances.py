"""Tests of the rebalances in a history that a real shard has written."""

import random

import pytest

from streaming.views.history.rebalances import latest, rebalances
from tests.streaming.views.test_views import folded, raws
from tests.streaming.views.written import WrittenTopics, converse


@pytest.mark.parametrize("seed", range(10))
def test_latest_returns_the_last_rebalance(seed: int) -> None:
    """This holds for every end of the history, and for every missing beginning."""
    chance = random.Random(seed)
    world = WrittenTopics(["a", "b"])
    converse(world, chance, 40)
    for group in folded(raws(world)).groups.values():
        for end in range(len(group.events) + 1):
            events = group.events[chance.randrange(end + 1) : end]
            assert [latest(events)] == (rebalances(events)[-1:] or [None])
