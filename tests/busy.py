"""Run a command beside busy processes, two for each core, and report how long it took and how busy the machine was.

python -m tests.busy make test
"""

import os
import subprocess
import sys
import time

BUSY_PER_CORE = 2


def main(command: list[str]) -> int:
    """Run the command, and return its exit code."""
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    cores = os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_PER_CORE * cores)]
    started_s = time.monotonic()
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for process in busy:
            process.kill()
            process.wait()
        minutes, load = (time.monotonic() - started_s) / 60, os.getloadavg()[2]
        print(f"{minutes:.1f} minutes beside {len(busy)} busy processes on {cores} cores; the load was {load:.1f}.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
