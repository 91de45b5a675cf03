"""Runs chaos as the package describes, reports each fault, and prints the results. Exits 1 if a promise was broken."""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests import tally
from tests.chaos.runs import chaos, kills, restarts

MINUTES = 20.0
COUNTED = (
    "commits acknowledged",
    "acknowledged commits lost",
    "unexpected rebalances",
    "records lost",
    "findings",
    "coordinator ended by itself",
)
"""What a tally adds up beside the kills."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--restarts", type=int)
    what.add_argument("--kills", type=int)
    parser.add_argument("--tally", type=Path, help="a file of docs/tallies that kills are added to")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    asked = parser.parse_args()
    began_s = time.monotonic()

    def tell(sentence: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {sentence}", file=sys.stderr, flush=True)

    tell(f"seed {asked.seed}")
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder, chance = Path(name), random.Random(asked.seed)
        if asked.restarts is not None:
            outcome = restarts(folder, chance, asked.restarts, tell)
        elif asked.kills is not None:
            outcome = kills(folder, chance, asked.kills, asked.minutes * 60, tell)
        else:
            outcome = chaos(folder, chance, asked.minutes * 60, tell)
    told = {"seed": asked.seed, "seconds": round(time.monotonic() - began_s), **outcome.figures}
    print(json.dumps(told, indent=2))
    if asked.tally:
        counts = {name: told.pop(name) for name in COUNTED if name in told}
        tally.add(asked.tally, told, {"kills": told.pop("kills"), "outcome": counts})
    for wrong in outcome.wrong:
        print(wrong)
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
