"""Shortening of a script that breaks a promise to a short one that breaks the same promise."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from msgspec.structs import replace

from tests.simulation.audits import audit
from tests.simulation.judge import Broken, replayed
from tests.simulation.script import Batch, Happening, Script

T = TypeVar("T")

PATIENCE_S = 60.0


def broken_by(script: Script) -> Broken | None:
    """Replay and audit a script, and return the promise that it breaks, if any."""
    try:
        audit(script, replayed(script))
    except Broken as broken:
        return broken
    return None


def shrunk(script: Script, promise: str, patience_s: float = PATIENCE_S) -> Script:
    """Remove the parts of a script that are not needed to break `promise`, then the faults of its batches.

    Args:
        patience_s: The time limit, in seconds.
    """
    until = monotonic() + patience_s

    def still_breaks(happenings: Sequence[Happening]) -> bool:
        if monotonic() > until:
            return False
        broken = broken_by(replace(script, happenings=list(happenings)))
        return broken is not None and broken.promise == promise

    happenings = minimal(_up_to_the_break(script.happenings, still_breaks), still_breaks)
    for at, happening in enumerate(happenings):
        if isinstance(happening, Batch):
            plain = [*happenings[:at], Batch(happening.now_ms), *happenings[at + 1 :]]
            happenings = plain if still_breaks(plain) else happenings
    return replace(script, happenings=happenings)


def _up_to_the_break(happenings: list[Happening], breaks: Callable[[Sequence[Happening]], bool]) -> list[Happening]:
    """Remove the happenings after the break."""
    low, high = 0, len(happenings)
    while low < high:
        middle = (low + high) // 2
        if breaks(happenings[:middle]):
            high = middle
        else:
            low = middle + 1
    return happenings[:high]


def minimal(items: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> list[T]:
    """Remove items in chunks, from large chunks to small ones, as long as the rest still `holds`.

    Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (ddmin), 2002.
    """
    left = list(items)
    size = len(left) // 2
    while size:
        at, before = 0, len(left)
        while at < len(left):
            without = left[:at] + left[at + size :]
            if holds(without):
                left = without
            else:
                at += size
        if size > 1 or len(left) == before:
            size //= 2
    return left
