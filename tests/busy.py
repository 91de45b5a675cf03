"""Run a command beside busy processes, two for each core, and report how long it took and how busy the machine was.

python -m tests.busy --tally docs/tallies/busy.json make test

A tally gets the date, the minutes, the load and the exit code of each run.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from streaming.embedded.child import Child
from tests import tally

BUSY_PER_CORE = 2
CORES = os.cpu_count() or 1
BUSY = (sys.executable, "-c", "while True: pass")


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.busy")
    parser.add_argument("--tally", type=Path, help="add the run to this file of docs/tallies")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("which command?")
    started_s = time.monotonic()
    with busy_processes() as busy:
        code = subprocess.run(options.command, check=False).returncode
    minutes, load = round((time.monotonic() - started_s) / 60, 1), round(os.getloadavg()[2], 1)
    print(f"{minutes} minutes beside {len(busy)} busy processes on {CORES} cores; the load was {load}.")
    if options.tally:
        run = {"command": " ".join(options.command), "minutes": minutes, "load": load, "exit code": code}
        tally.add(options.tally, run, {"runs": {"green": int(code == 0), "red": int(code != 0)}})
    return code


@contextmanager
def busy_processes() -> Iterator[list[Child]]:
    """Run the busy processes during the block. On Linux, the kernel kills them if this process is killed."""
    with ExitStack() as stack:
        busy = []
        for _ in range(BUSY_PER_CORE * CORES):
            busy.append(Child(BUSY, folder=Path(), log_file=Path(os.devnull), die_with_parent=True))
            stack.callback(busy[-1].kill)
        yield busy


if __name__ == "__main__":
    sys.exit(main())
