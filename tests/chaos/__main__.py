"""Runs chaos as the package says, tells what it does, and prints what came of it. Exits 1 if not all is well."""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.runs import chaos, kills, restarts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--minutes", type=float)
    what.add_argument("--restarts", type=int)
    what.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    asked = parser.parse_args()
    began_s = time.monotonic()

    def tell(sentence: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {sentence}", file=sys.stderr, flush=True)

    tell(f"seed {asked.seed}")
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder, chance = Path(name), random.Random(asked.seed)
        if asked.minutes is not None:
            outcome = chaos(folder, chance, asked.minutes * 60, tell)
        elif asked.restarts is not None:
            outcome = restarts(folder, chance, asked.restarts, tell)
        else:
            outcome = kills(folder, chance, asked.kills, tell)
    print(json.dumps({"seed": asked.seed, "seconds": round(time.monotonic() - began_s), **outcome.figures}, indent=2))
    for wrong in outcome.wrong:
        print(wrong)
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
