"""Starts the coordinator on one disk after another, in one Spark session, until it has handled all requests.

It runs in its own process. It reads settings as lines of JSON, and writes one line with the result for each.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select

from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.query.coordinator import Coordinator
from tests.system.conftest import batches
from tests.system.replaying import RequestLog, ends, plan_of
from tests.system.starting import STARTED, Ending
from tests.system.waiting import HANG_S

ANSWER_S_MAX = 2 * HANG_S
LOOK_EVERY_S = 0.1
FIRST_ROUND = 1_000
"""The number of the first round of requests after the loss. No earlier round has this number."""


class Serving:
    """The process that runs coordinators. `serve` starts it again if it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def serve(self, settings: Settings, *, ask_late: bool) -> Ending:
        """Start the coordinator, wait until it has handled all requests, and stop it.

        Args:
            ask_late: Whether requests are also appended after its start.
        """
        if self._process is None:
            command = [sys.executable, "-m", "tests.power.serving"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([settings.model_dump(mode="json"), ask_late]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline() if select([self._process.stdout], [], [], ANSWER_S_MAX)[0] else ""
        if line:
            return Ending(*json.loads(line))
        self.close()
        return Ending(False, f"the coordinator neither served nor refused within {ANSWER_S_MAX:.0f} s")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def serving() -> Iterator[Serving]:
    other = Serving()
    try:
        yield other
    finally:
        other.close()


def ask(settings: Settings) -> None:
    """Append requests of clients, as after the loss."""
    log = RequestLog(settings)
    log.round = log.silent = FIRST_ROUND
    log.append()


def _ending(settings: Settings, ask_late: bool) -> Ending:
    coordinator = Coordinator(settings)
    gone = threading.Event()
    try:
        coordinator.start()
        if ask_late:
            ask(settings)
        asked = ends(settings, settings.requests_topic)
        watcher = threading.Thread(target=_stop_when_taken, args=(coordinator, asked, gone), daemon=True)
        watcher.start()
        coordinator.wait()
        taken = _has_taken(settings, asked)
    except UserError as error:
        return Ending(True, str(error))
    except Exception as error:
        return Ending(False, f"{type(error).__name__}: {error}")
    finally:
        gone.set()
        coordinator.stop()
    return STARTED if taken else Ending(False, f"requests up to {asked} are not handled within {HANG_S:.0f} s")


def _stop_when_taken(coordinator: Coordinator, asked: dict[int, int], gone: threading.Event) -> None:
    try:
        for _ in range(int(HANG_S / LOOK_EVERY_S)):
            if gone.wait(LOOK_EVERY_S) or _has_taken(coordinator.settings, asked):
                break
    finally:
        coordinator.ask_to_stop()


def _has_taken(settings: Settings, asked: dict[int, int]) -> bool:
    folder = Path(settings.checkpoint)
    finished = batches(folder, "commits")
    if not finished:
        return False
    taken = plan_of(folder, finished[-1]).ends
    return all(taken.get(partition, 0) >= end for partition, end in asked.items())


if __name__ == "__main__":
    for line in sys.stdin:
        fields, ask_late = json.loads(line)
        print(json.dumps(_ending(Settings(**fields), ask_late)), flush=True)
