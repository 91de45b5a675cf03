"""Processes whose wall clock a test steps, each apart from the machine's: see `stepping.c`.

Clocks that count the time that has passed, as those of timers and of waits, are not changed. A step of a real machine
does not change them either.
"""

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tools import needed

SOURCE = Path(__file__).with_name("stepping.c")
_STEP = struct.Struct("=q")


def compile_library(folder: Path) -> Path:
    """Compile the library into a folder. Skip the test if the machine has no C compiler."""
    library = folder / "stepping.so"
    subprocess.run([needed("cc"), "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


class SteppedClock:
    """The wall clock of the processes that were started under it."""

    def __init__(self, library: Path, file: Path) -> None:
        self._library, self._file = library, file
        self.step_to(0)

    @contextmanager
    def of_new_processes(self) -> Iterator[None]:
        """Set this clock for the processes that start while the block runs, and to their children."""
        own = {"LD_PRELOAD": str(self._library), "CLOCK_STEP_FILE": str(self._file)}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def step_to(self, ahead_ms: int) -> None:
        """Set how far the clock is ahead of the machine's; below 0 for behind."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT)
        os.pwrite(descriptor, _STEP.pack(ahead_ms), 0)
        os.close(descriptor)
