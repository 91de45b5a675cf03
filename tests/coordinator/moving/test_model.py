"""The model of moves: no promise is broken in any state, and each seeded bug is found (moving.md 6, 9)."""

import pytest

from tests.coordinator.moving.model import LARGE_WORLDS, SEEDS, WORLDS, Model, explore
from tests.tiers import sampled


@pytest.mark.parametrize("world", WORLDS)
def test_no_state_of_a_small_world_breaks_a_promise(world: str):
    states, broken = explore(Model(WORLDS[world]))
    assert broken == ""
    assert states > 50


@pytest.mark.long
@pytest.mark.parametrize("world", sampled(LARGE_WORLDS, ["one"]))
def test_no_state_of_a_large_world_breaks_a_promise(world: str):
    states, broken = explore(Model(LARGE_WORLDS[world]))
    assert broken == ""
    assert states > 10_000


@pytest.mark.parametrize("bug", SEEDS)
def test_each_seeded_bug_is_found(bug: str):
    world, promise = SEEDS[bug]
    assert explore(Model(WORLDS[world], bug))[1] == promise
