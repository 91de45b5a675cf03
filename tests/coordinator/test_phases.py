"""The table of moves: every pair of phase and cause, legal or not (S51, S53; protocol.md 2.1)."""

from itertools import product

import pytest

from coordinator.base.errors import CoordinatorError, IllegalMove
from coordinator.base.states import MOVES, Cause, Phase, move

EMPTY, PREPARING, COMPLETING, STABLE, DEAD, ASSIGNING, RECONCILING, NOT_READY = Phase
CHANGED, JOINED, NOBODY, SYNCED, FORGOTTEN = Cause

LEGAL = {
    # from protocol.md 2.1, not from the code
    (EMPTY, CHANGED): PREPARING,
    (STABLE, CHANGED): PREPARING,
    (COMPLETING, CHANGED): PREPARING,
    (PREPARING, JOINED): COMPLETING,
    (PREPARING, NOBODY): EMPTY,
    (COMPLETING, SYNCED): STABLE,
    (EMPTY, FORGOTTEN): DEAD,
}


@pytest.mark.parametrize(("phase", "cause"), [*product(Phase, Cause)], ids=lambda x: x.name.lower())
def test_every_pair_moves_as_in_the_protocol_or_raises(phase: Phase, cause: Cause):
    """S51: each arrow of the diagram, and no other."""
    if (phase, cause) in LEGAL:
        assert move(phase, cause) is LEGAL[phase, cause]
    else:
        with pytest.raises(IllegalMove, match=rf"{phase.value} when {cause.value}"):
            move(phase, cause)


def test_the_table_has_no_further_rows():
    assert MOVES == LEGAL


def test_every_phase_is_reached_and_all_but_the_last_are_left():
    """S46 to S50: only Dead has no move out. Phases of the consumer protocol follow from its epochs."""
    classic = set(Phase) - {ASSIGNING, RECONCILING, NOT_READY}
    assert {*MOVES.values(), EMPTY} == classic
    assert {phase for phase, _ in MOVES} == classic - {DEAD}


def test_phases_have_kafkas_names():
    assert [p.value for p in Phase] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
        "Assigning",
        "Reconciling",
        "NotReady",
    ]


def test_an_illegal_move_raises():
    assert issubclass(IllegalMove, CoordinatorError)
