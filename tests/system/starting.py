"""Starts and stops the coordinator again and again in one Spark session, which is quicker than a service each.

It runs in a process of its own: settings come in as lines of JSON, and for each a line goes out that says how it ended.
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
    """How a start ended.

    Args:
        is_refused: By a sentence for the user; what else is raised counts as a crash.
        told: The sentence, or the crash; empty where the query took its first batch and was stopped.
    """

    is_refused: bool
    told: str


STARTED = Ending(False, "")


class Starter:
    """Starts the coordinator in another process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, settings: Settings) -> Ending:
        """Start the coordinator, and stop it after its first batch."""
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
        return Ending(True, str(error))
    except Exception as error:
        return Ending(False, f"{type(error).__name__}: {error}")
    finally:
        coordinator.stop()
    return STARTED


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_ending(Settings(**json.loads(line)))), flush=True)
