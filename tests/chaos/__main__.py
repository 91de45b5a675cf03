"""Runs chaos as the package describes, reports faults, and prints the results. Exits with 1 after a broken promise."""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests import tally
from tests.chaos.runs import brokers, chaos, kills, moves, restarts, takeovers

MINUTES = 20.0
COUNTED = (
    "commits acknowledged",
    "acknowledged commits lost",
    "unexpected rebalances",
    "records lost",
    "findings",
    "coordinator ended by itself",
    "members that did not come back",
    "untrue sentences",
)
"""The figures that a tally adds up, beside the kills, take-overs, moves or faults of brokers."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--restarts", type=int)
    what.add_argument("--kills", type=int)
    what.add_argument("--takeovers", type=int)
    what.add_argument("--moves", type=int)
    what.add_argument("--brokers", type=int)
    parser.add_argument("--tally", type=Path, help="add what was done to this file of docs/tallies")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    options = parser.parse_args()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")  # drivers live for seconds, as in the tests
    began_s = time.monotonic()

    def report(sentence: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {sentence}", file=sys.stderr, flush=True)

    report(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder, chance = Path(name), random.Random(options.seed)
        if options.restarts is not None:
            outcome = restarts(folder, chance, options.restarts, report)
        elif options.kills is not None:
            outcome = kills(folder, chance, options.kills, options.minutes * 60, report)
        elif options.takeovers is not None:
            outcome = takeovers(folder, chance, options.takeovers, options.minutes * 60, report)
        elif options.moves is not None:
            outcome = moves(folder, chance, options.moves, options.minutes * 60, report)
        elif options.brokers is not None:
            outcome = brokers(folder, chance, options.brokers, options.minutes * 60, report)
        else:
            outcome = chaos(folder, chance, options.minutes * 60, report)
    result = {"seed": options.seed, "seconds": round(time.monotonic() - began_s), **outcome.figures}
    print(json.dumps(result, indent=2))
    if options.tally:
        counts = {name: result.pop(name) for name in COUNTED if name in result}
        kind = next(kind for kind in ("takeovers", "moves", "kills", "brokers") if kind in result)
        tally.add(options.tally, result, {kind: result.pop(kind), "outcome": counts})
    for wrong in outcome.wrong:
        print(wrong)
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
