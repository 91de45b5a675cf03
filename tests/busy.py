"""Run a command beside busy processes, two for each core, and report how long it took and how busy the machine was.

python -m tests.busy --tally docs/tallies/busy.json make test

A tally gets the date, the minutes, the load and the exit code of each run.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from tests import tally

BUSY_PER_CORE = 2


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.busy")
    parser.add_argument("--tally", type=Path, help="add the run to this file of docs/tallies")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("which command?")
    cores = os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_PER_CORE * cores)]
    started_s = time.monotonic()
    try:
        code = subprocess.run(options.command, check=False).returncode
    finally:
        for process in busy:
            process.kill()
            process.wait()
    minutes, load = round((time.monotonic() - started_s) / 60, 1), round(os.getloadavg()[2], 1)
    print(f"{minutes} minutes beside {len(busy)} busy processes on {cores} cores; the load was {load}.")
    if options.tally:
        run = {"command": " ".join(options.command), "minutes": minutes, "load": load, "exit code": code}
        tally.add(options.tally, run, {"runs": {"green": int(code == 0), "red": int(code != 0)}})
    return code


if __name__ == "__main__":
    sys.exit(main())
