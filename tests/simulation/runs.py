"""Runs of many simulations, one after another or on several cores, with one digest of all their outputs."""

import gc
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import process_time

from msgspec import Struct

from tests.simulation.audits import AUDITS, audit
from tests.simulation.judge import Broken
from tests.simulation.script import Script, write
from tests.simulation.shrink import broken_by, shrunk
from tests.simulation.simulation import Simulation

STEPS_A_SIMULATION = 3_000


class Outcome(Struct):
    """The outcome of a simulation.

    Args:
        cpu_s: The processor time that it took.
        broken: The broken promise and the reason, if a promise was broken. Then `script` is set as well.
    """

    name: str
    steps: int
    digest: str
    cpu_s: float
    broken: tuple[str, str] | None = None
    script: Script | None = None
    faults: str = ""


@contextmanager
def _without_collections() -> Iterator[None]:
    """Turn garbage collection off. A simulation makes no cycles, and a collection would scan all that it keeps."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collections()
def live(name: str, steps: int = STEPS_A_SIMULATION) -> Outcome:
    """Run one simulation, and audit its script in one way that its seed selects."""
    began_s, simulation = process_time(), Simulation(name, steps)
    faults = str(simulation.swarm)
    try:
        simulation.run()
        if not simulation.is_crowded:  # the audit "one by one" of such a simulation takes hours
            audit(simulation.script, simulation.judge, (simulation.chance.choice(list(AUDITS)),))
    except Broken as broken:
        reason = broken.promise, broken.why
        return Outcome(
            name, simulation.done, simulation.judge.digest, process_time() - began_s, reason, simulation.script, faults
        )
    return Outcome(name, simulation.done, simulation.judge.digest, process_time() - began_s)


def lives(seed: int | str, jobs: int = 1) -> Iterator[Outcome]:
    """Run one simulation after another, without end. Their order and their behaviour do not depend on `jobs`."""
    names = (f"{seed}/{n}" for n in count())
    if jobs == 1:
        yield from map(live, names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("forkserver")) as pool:
        begun: deque[Future[Outcome]] = deque(pool.submit(live, next(names)) for _ in range(2 * jobs))
        try:
            while True:
                outcome = begun.popleft().result()
                begun.append(pool.submit(live, next(names)))
                yield outcome
        finally:
            for future in begun:
                future.cancel()


class Tally:
    """The totals of some simulations."""

    def __init__(self) -> None:
        self.simulations = self.steps = 0
        self.cpu_s = 0.0
        self._digest = blake2b(digest_size=16)

    def count(self, outcome: Outcome) -> None:
        """Add the outcome of a simulation."""
        self.simulations += 1
        self.steps += outcome.steps
        self.cpu_s += outcome.cpu_s
        self._digest.update(outcome.digest.encode())

    @property
    def digest(self) -> str:
        """A hash of all outputs and states of all simulations."""
        return self._digest.hexdigest()


def trace_of(outcome: Outcome, patience_s: float = 60.0) -> str:
    """Return the trace of a broken promise, as short as possible.

    A failure that a replay does not repeat, such as a group that never comes to rest, is written in full.
    """
    assert outcome.broken is not None, f"{outcome.name} broke no promise"
    assert outcome.script is not None, "a simulation that breaks a promise leaves its script"
    promise, why = outcome.broken
    script = outcome.script
    again = broken_by(script)
    if again is not None and again.promise == promise:
        script = shrunk(script, promise, patience_s)
        why = getattr(broken_by(script), "why", why)
    remarks = (f"{promise}: {' '.join(why.split())}", f"found by simulation {outcome.name}: {outcome.faults}")
    return write(script, remarks)


def keep(trace: str, outcome: Outcome, folder: Path) -> Path:
    """Write a trace to a file, which the tests replay from then on."""
    assert outcome.broken is not None, f"{outcome.name} broke no promise"
    promise = "".join(c if c.isalnum() else "_" for c in outcome.broken[0]).lower()
    path = folder / f"{promise}_{outcome.name.replace('/', '_')}.txt"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(trace)
    return path
