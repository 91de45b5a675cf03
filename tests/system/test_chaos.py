"""A minute of chaos: everything is killed, paused and started again while real members consume; nothing is lost."""

import random
from pathlib import Path

from tests.chaos.runs import chaos

SECONDS = 45
"""With what it takes to begin, and to come to rest, that is a minute and a half."""


def test_nothing_is_lost_while_everything_is_killed_paused_and_restarted(tmp_path: Path) -> None:
    """I1, I2, I5, I6, I8, I13: every record consumed, every acknowledged commit kept, one owner, one answer each."""
    seed = random.SystemRandom().randrange(2**31)
    told = [f"python -m tests.chaos --minutes {SECONDS / 60} --seed {seed}"]
    outcome = chaos(tmp_path, random.Random(seed), SECONDS, told.append)
    print(*told, outcome.figures, sep="\n")  # pytest shows it where the test fails
    assert outcome.wrong == []
    assert len(outcome.figures["faults"]) >= 3, "the machine is too slow to be harmed"
    assert outcome.figures["commits acknowledged"] > 0
