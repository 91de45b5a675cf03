"""`python -m tests.simulation --steps 1000000 --seed 1`: let worlds live, and say what they came to.

A step is a request that a batch has handled, or a reply that a member has heard; every promise is checked after each
batch. A world that breaks one ends the run: its trace is cut short, printed and kept. With `--bugs`, worlds live with
one bug in the core after another, each until it is found or `--steps` are over; the table says who found it.
"""

import argparse
import sys
from pathlib import Path
from time import monotonic

from tests.simulation.bugs import BUGS
from tests.simulation.bugs.hunt import hunts, table
from tests.simulation.runs import Tally, keep, live, lives, trace_of

TRACES = Path(__file__).with_name("traces")
TOLD_EVERY_S = 30.0


def main() -> int:
    """Run, print, and give back what the process ends with."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="how many at least, over all worlds")
    parser.add_argument("--seed", default="1", help="decides everything")
    parser.add_argument("--jobs", type=int, default=1, help="processes; the outcome is the same")
    parser.add_argument("--world", metavar="NAME", help="let only this one live, as SEED/NUMBER")
    parser.add_argument("--bugs", nargs="*", metavar="PART", help="put bugs in, all or those named so, and find them")
    parser.add_argument("--keep", type=Path, default=TRACES, metavar="FOLDER", help="where a trace is written to")
    asked = parser.parse_args()
    if asked.bugs is not None:
        return _hunt(asked.bugs, asked.seed, asked.steps, asked.jobs)
    tally, began = Tally(), monotonic()
    told = began
    for outcome in [live(asked.world)] if asked.world else lives(asked.seed, asked.jobs):
        tally.count(outcome)
        if outcome.broken is not None:
            print(f"seed {asked.seed}: world {outcome.name} breaks a promise after {outcome.steps} steps", flush=True)
            trace = trace_of(outcome)
            print(f"{trace}kept as {keep(trace, outcome, asked.keep)}")
            return 1
        if tally.steps >= asked.steps:
            break
        if monotonic() - told > TOLD_EVERY_S:
            told = monotonic()
            print(_so_far(tally, told - began), file=sys.stderr, flush=True)
    print(f"seed {asked.seed}: {_so_far(tally, monotonic() - began)}")
    print(f"digest {tally.digest}")
    return 0


def _hunt(parts: list[str], seed: str, steps: int, jobs: int) -> int:
    """Look for each bug whose name holds one of some parts, and print what became of that as a table."""
    names = [name for name in BUGS if not parts or any(part in name for part in parts)]
    found = []
    for ended in hunts(names, seed, steps, jobs):
        print(f"{ended.by or 'NOBODY'} after {ended.steps:,} steps: {ended.bug}", file=sys.stderr, flush=True)
        found.append(ended)
    print(table(found))
    return any(ended.by is None for ended in found)


def _so_far(tally: Tally, took_s: float) -> str:
    rate, of_a_core = tally.steps / took_s, tally.steps / tally.cpu_s
    return f"{tally.steps:,} steps, {tally.worlds:,} worlds, {rate:,.0f} steps/s, {of_a_core:,.0f} a second and core"


if __name__ == "__main__":
    sys.exit(main())
