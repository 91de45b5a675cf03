"""Some of the kills that `make soak KIND=kills` and `KIND=moves` repeat many times."""

import random
from pathlib import Path

import pytest

from tests.chaos.runs import kills, moves

TIMES, SECONDS = 2, 30.0


@pytest.mark.long
@pytest.mark.nightly
def test_kills_lose_no_commit_and_cause_no_rebalance(tmp_path: Path) -> None:
    """I13, I21: drivers, executors, Python workers and gateways are killed while members keep running."""
    seed = random.SystemRandom().randrange(2**31)
    lines = [f"python -m tests.chaos --kills {TIMES} --seed {seed}"]
    outcome = kills(tmp_path, random.Random(seed), TIMES, SECONDS, lines.append)
    print(*lines, outcome.figures, sep="\n")  # pytest shows these lines if the test fails
    assert outcome.wrong == []
    assert sum(outcome.figures["kills"].values()) >= 1
    assert outcome.figures["commits acknowledged"] > 0


@pytest.mark.long
@pytest.mark.nightly
def test_kills_in_the_middle_of_moves_lose_no_commit_and_cause_no_rebalance(tmp_path: Path) -> None:
    """moving.md 5: source, target and gateways are killed while all groups move, and members keep running."""
    seed = random.SystemRandom().randrange(2**31)
    lines = [f"python -m tests.chaos --moves {TIMES} --seed {seed}"]
    outcome = moves(tmp_path, random.Random(seed), TIMES, SECONDS, lines.append)
    print(*lines, outcome.figures, sep="\n")
    assert outcome.wrong == []
    assert sum(outcome.figures["moves"].values()) >= 1
    assert outcome.figures["commits acknowledged"] > 0
