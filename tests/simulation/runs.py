"""Many worlds, one after another or on several cores, until there were enough steps; what they say as one digest."""

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
from tests.simulation.world import World

STEPS_A_WORLD = 3_000


class Outcome(Struct):
    """How a world ended.

    Args:
        cpu_s: How long a core had to do with it.
        broken: The promise and how it was broken, where one was; then there is the script as well.
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
    """Look for no cycles: a world makes none, and keeps nearly all that it makes, which would be looked through."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collections()
def live(name: str, steps: int = STEPS_A_WORLD) -> Outcome:
    """Run one world, and audit its script in one way that its seed selects."""
    began_s, world = process_time(), World(name, steps)
    faults = str(world.swarm)
    try:
        world.run()
        if not world.is_crowded:  # one by one, its requests take hours
            audit(world.script, world.judge, (world.chance.choice(list(AUDITS)),))
    except Broken as broken:
        told = broken.promise, broken.why
        return Outcome(name, world.done, world.judge.digest, process_time() - began_s, told, world.script, faults)
    return Outcome(name, world.done, world.judge.digest, process_time() - began_s)


def lives(seed: int | str, jobs: int = 1) -> Iterator[Outcome]:
    """Run one world after another, without end. Their order and their behaviour do not depend on `jobs`."""
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
    """What some worlds came to."""

    def __init__(self) -> None:
        self.worlds = self.steps = 0
        self.cpu_s = 0.0
        self._digest = blake2b(digest_size=16)

    def count(self, outcome: Outcome) -> None:
        """Add a world."""
        self.worlds += 1
        self.steps += outcome.steps
        self.cpu_s += outcome.cpu_s
        self._digest.update(outcome.digest.encode())

    @property
    def digest(self) -> str:
        """A hash of all outputs and states of all worlds."""
        return self._digest.hexdigest()


def trace_of(outcome: Outcome, patience_s: float = 60.0) -> str:
    """Return the trace of a broken promise, as short as possible.

    A failure that only a running world shows, such as a group that never comes to rest, is written as it is.
    """
    assert outcome.broken is not None, f"{outcome.name} broke nothing"
    assert outcome.script is not None, "a world that breaks a promise leaves its script"
    promise, why = outcome.broken
    script = outcome.script
    again = broken_by(script)
    if again is not None and again.promise == promise:
        script = shrunk(script, promise, patience_s)
        why = getattr(broken_by(script), "why", why)
    remarks = (f"{promise}: {' '.join(why.split())}", f"found by world {outcome.name}: {outcome.faults}")
    return write(script, remarks)


def keep(trace: str, outcome: Outcome, folder: Path) -> Path:
    """Write a trace to a file, to be replayed from now on."""
    assert outcome.broken is not None, f"{outcome.name} broke nothing"
    promise = "".join(c if c.isalnum() else "_" for c in outcome.broken[0]).lower()
    path = folder / f"{promise}_{outcome.name.replace('/', '_')}.txt"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(trace)
    return path
