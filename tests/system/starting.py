"""A process that starts and stops the coordinator many times in one Spark session.

This is quicker than a service for each start. The process reads settings as lines of JSON. For each line it starts the
coordinator and writes a line with the outcome.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.query.coordinator import Coordinator
from tests.system.waiting import HANG_S


class Ending(NamedTuple):
    """The outcome of a start.

    Args:
        is_refused: Whether the start raised a `UserError`, whose text is for the user. Any other exception is a crash.
        told: The text of the error or of the crash. Empty if the query finished its first batch and was stopped.
        exit_code: The exit code that the command line would have after such an error.
    """

    is_refused: bool
    told: str
    exit_code: int = 0


STARTED = Ending(False, "")


class Starter:
    """A client of the process that starts coordinators."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, settings: Settings) -> Ending:
        """Start the coordinator, stop it after its first batch, and return the outcome."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(settings.model_dump_json() + "\n")
        self._process.stdin.flush()
        return Ending(*json.loads(self._process.stdout.readline()))


@contextmanager
def starter() -> Iterator[Starter]:
    command = [sys.executable, "-m", "tests.system.starting"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Starter(process)
        process.stdin.close()  # type: ignore[union-attr]
        assert process.wait(HANG_S) == 0


def _ending(settings: Settings) -> Ending:
    coordinator = Coordinator(settings)
    try:
        coordinator.start()
    except UserError as error:
        return Ending(True, str(error), error.exit_code)
    except Exception as error:
        return Ending(False, f"{type(error).__name__}: {error}")
    finally:
        coordinator.stop()
    return STARTED


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_ending(Settings(**json.loads(line)))), flush=True)
