"""Hunts for bugs in simulations: the checker that finds each bug, and the number of steps until then."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context

import pytest
from msgspec import Struct

from tests.simulation.bugs import BUGS
from tests.simulation.runs import live


class Found(Struct, frozen=True):
    """The result of a hunt.

    Args:
        by: The checker or audit that raised; None if the simulations kept every promise.
        steps: The number of steps until then, over all simulations.
        simulation: The last simulation that ran.
    """

    bug: str
    by: str | None
    why: str
    steps: int
    simulation: str


def hunt(name: str, seed: str, steps_max: int) -> Found:
    """Run one simulation after another with a bug, until one breaks a promise or `steps_max` is reached."""
    steps = 0
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name].plant(patch)
        for number in count():
            outcome = live(f"{seed}/{number}")
            steps += outcome.steps
            if outcome.broken is not None:
                return Found(name, *outcome.broken, steps, outcome.name)
            if steps >= steps_max:
                return Found(name, None, "", steps, outcome.name)
    raise AssertionError("simulations never end")


def hunts(names: Iterable[str], seed: str, steps_max: int, jobs: int) -> Iterator[Found]:
    """Hunt the bugs, each in a process of its own, and yield the results in order."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("forkserver"), max_tasks_per_child=1) as pool:
        for begun in [pool.submit(hunt, name, seed, steps_max) for name in names]:
            yield begun.result()


def table(found: Iterable[Found]) -> str:
    """Return the results as a table in Markdown."""
    rows = [f"| {f.bug} | {f.by or 'not found'} | {f.steps:,} | {f.simulation} |" for f in found]
    return "\n".join(["| bug | found by | steps until found | simulation |", "| --- | --- | ---: | --- |", *rows])
