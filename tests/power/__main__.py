"""Runs losses of power and flipped bits as the package describes, and counts the results. Exits 1 if any was wrong.

A wrong run leaves its disk in the folder that is printed; `--seed` repeats it on a new recording.
"""

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests import tally
from tests.power.journal import NoCompiler
from tests.power.judge import Verdict
from tests.power.runs import CONTROL, KINDS, Recording, clean, make_recording, run
from tests.power.serving import Serving, serving

GROUPS = {"power": [kind for kind in KINDS if kind.endswith("cut")], "bits": [k for k in KINDS if k.endswith("flip")]}
RECORDED_S = 20.0
RUNS_PER_RECORDING = 60
"""The number of runs after which a new recording is made. A recording has the changes of twenty seconds."""


class Soak:
    """A series of runs, of each kind in turn, up to a time or a number of runs."""

    def __init__(self, kinds: list[str], seed: int, until_s: float, runs: int) -> None:
        self._kinds, self._seed, self._until_s, self._runs = kinds, seed, until_s, runs
        self.counts: dict[str, Counter[str]] = {}
        self.refusals: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, folder: Path) -> None:
        with serving() as other:
            for number in range(self._runs):
                if time.monotonic() > self._until_s:
                    break
                if number % RUNS_PER_RECORDING == 0:
                    recorded = folder / f"recorded-{number}"
                    recorded.mkdir()
                    recording = make_recording(recorded, RECORDED_S)
                self._one(recording, number, folder / f"run-{number}", other)

    def _one(self, recording: Recording, number: int, place: Path, other: Serving) -> None:
        kind = self._kinds[number % len(self._kinds)]
        place.mkdir()
        began_s = time.monotonic()
        done, verdict = run(recording, kind, random.Random(f"{self._seed} {number}"), place, other)
        line = f"{kind} {number}: {done}: {verdict.kind} {verdict.text}"
        print(f"{time.monotonic() - began_s:5.1f} s  {line}", file=sys.stderr, flush=True)
        self._count(kind, verdict, place)
        if verdict.kind == "wrong":
            self.wrong.append(f"{line} ({place})")
        else:
            clean(place)

    def _count(self, kind: str, verdict: Verdict, place: Path) -> None:
        found = self.counts.setdefault(kind, Counter({"runs": 0, "whole": 0, "refused": 0, "told": 0, "wrong": 0}))
        found["runs"] += 1
        found[verdict.kind] += 1
        if verdict.kind in ("refused", "told"):
            self.refusals[re.sub(r"\d+", "N", verdict.text.replace(str(place), "FOLDER"))[:160]] += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.power")
    parser.add_argument("what", choices=[*GROUPS, *KINDS, CONTROL])
    parser.add_argument("--runs", type=int, default=sys.maxsize)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--tally", type=Path, help="add the run to this file of docs/tallies")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    began_s = time.monotonic()
    soak = Soak(GROUPS.get(options.what, [options.what]), options.seed, began_s + options.minutes * 60, options.runs)
    folder = Path(tempfile.mkdtemp(prefix="power-"))
    try:
        soak.run(folder)
    except NoCompiler as error:
        print(error)
        return 0
    finally:
        if options.tally and soak.counts:
            minutes = round((time.monotonic() - began_s) / 60, 1)
            about = {"seed": options.seed, "minutes": minutes, "sentences": dict(soak.refusals.most_common())}
            tally.add(options.tally, about, soak.counts)
        for kind, counts in soak.counts.items():
            print(f"{kind}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
        print(*soak.wrong, sep="\n")
        if not soak.wrong:
            clean(folder)
    return bool(soak.wrong)


if __name__ == "__main__":
    sys.exit(main())
