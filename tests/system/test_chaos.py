"""45 s of chaos: all processes are killed, paused and restarted while real members consume; nothing is lost."""

import random
from pathlib import Path

import pytest

from tests.chaos.runs import chaos

pytestmark = pytest.mark.long

SECONDS = 45
"""The duration of the faults. With the start and the end of the run the test takes a minute and a half."""


@pytest.mark.nightly
def test_nothing_is_lost_while_all_processes_are_killed_paused_and_restarted(tmp_path: Path) -> None:
    """I1, I2, I5, I6, I8, I13: no record and no acknowledged commit is lost; one owner, one response per request."""
    seed = random.SystemRandom().randrange(2**31)
    told = [f"python -m tests.chaos --minutes {SECONDS / 60} --seed {seed}"]
    outcome = chaos(tmp_path, random.Random(seed), SECONDS, told.append)
    print(*told, outcome.figures, sep="\n")  # pytest shows it where the test fails
    assert outcome.wrong == []
    assert len(outcome.figures["faults"]) >= 3, "the machine is too slow for three faults"
    assert outcome.figures["commits acknowledged"] > 0
