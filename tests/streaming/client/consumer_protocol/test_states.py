"""Each state of a member with each cause: a move of the table, or an error."""

import itertools

import pytest

from coordinator.member.consumer_member import IN_GROUP, MOVES, Cause, State, move


@pytest.mark.parametrize(("state", "cause"), [*itertools.product(State, Cause)], ids=lambda each: each.name)
def test_only_the_moves_of_the_table_are_possible(state: State, cause: Cause) -> None:
    if (state, cause) in MOVES:
        assert move(state, cause) is MOVES[state, cause]
    else:
        with pytest.raises(AssertionError, match=f"{cause.name} in {state.name}"):
            move(state, cause)


def test_every_state_can_be_reached_and_left() -> None:
    """9.1: a member that the coordinator refuses for good is one again only after it has left."""
    assert set(MOVES.values()) == set(State)
    assert {state for state, _ in MOVES} == set(State)
    assert [cause for state, cause in MOVES if state is State.FATAL] == [Cause.LEFT]


def test_a_membership_ends_in_the_same_way_in_every_state_of_a_group() -> None:
    for cause, after in ((Cause.FENCED, State.FENCED), (Cause.NOT_POLLED, State.STALE), (Cause.REFUSED, State.FATAL)):
        assert {state for (state, by), to in MOVES.items() if by is cause and to is after} == set(IN_GROUP)
