"""`python -m tests.simulation --steps 1000000 --seed 1`: run simulations, and print their results.

A step is a request that a batch has handled, or a response that a member has received. Every promise is checked after
each batch. A simulation that breaks a promise ends the run: its trace is shortened, printed and kept. With `--bugs`,
simulations run with one bug in the core after another, each until it is found or `--steps` are over. The table names
the checker that found each bug.
"""

import argparse
import sys
from pathlib import Path
from time import monotonic

from tests.simulation.bugs import BUGS
from tests.simulation.bugs.hunt import hunts, table
from tests.simulation.runs import Tally, keep, live, lives, trace_of

TRACES = Path(__file__).with_name("traces")
REPORT_EVERY_S = 30.0


def main() -> int:
    """Run the command, and return the exit status of the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="number of steps at least, over all simulations")
    parser.add_argument("--seed", default="1", help="seed of all random choices")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes; the outcome is the same")
    parser.add_argument("--only", metavar="NAME", help="run only the simulation SEED/NUMBER")
    parser.add_argument(
        "--bugs", nargs="*", metavar="PART", help="put in all bugs, or those whose name contains PART, and find them"
    )
    parser.add_argument("--keep", type=Path, default=TRACES, metavar="FOLDER", help="folder for traces")
    asked = parser.parse_args()
    if asked.bugs is not None:
        return _hunt(asked.bugs, asked.seed, asked.steps, asked.jobs)
    tally, began = Tally(), monotonic()
    reported_s = began
    for outcome in [live(asked.only)] if asked.only else lives(asked.seed, asked.jobs):
        tally.count(outcome)
        if outcome.broken is not None:
            print(
                f"seed {asked.seed}: simulation {outcome.name} breaks a promise after {outcome.steps} steps", flush=True
            )
            trace = trace_of(outcome)
            print(f"{trace}kept as {keep(trace, outcome, asked.keep)}")
            return 1
        if tally.steps >= asked.steps:
            break
        if monotonic() - reported_s > REPORT_EVERY_S:
            reported_s = monotonic()
            print(_so_far(tally, reported_s - began), file=sys.stderr, flush=True)
    print(f"seed {asked.seed}: {_so_far(tally, monotonic() - began)}")
    print(f"digest {tally.digest}")
    return 0


def _hunt(parts: list[str], seed: str, steps: int, jobs: int) -> int:
    """Hunt each bug whose name contains one of `parts`, and print the results as a table."""
    names = [name for name in BUGS if not parts or any(part in name for part in parts)]
    found = []
    for ended in hunts(names, seed, steps, jobs):
        print(f"{ended.by or 'NOT FOUND'} after {ended.steps:,} steps: {ended.bug}", file=sys.stderr, flush=True)
        found.append(ended)
    print(table(found))
    return any(ended.by is None for ended in found)


def _so_far(tally: Tally, took_s: float) -> str:
    rate, of_a_core = tally.steps / took_s, tally.steps / tally.cpu_s
    counts = f"{tally.steps:,} steps, {tally.simulations:,} simulations"
    return f"{counts}, {rate:,.0f} steps/s, {of_a_core:,.0f} a second and core"


if __name__ == "__main__":
    sys.exit(main())
