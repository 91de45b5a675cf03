"""The demo's members as processes: hired, sent home, killed; none of them outlives the demo."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from streaming.config.settings import Settings
from streaming.embedded.child import Child

GOODBYE_WAIT_S = 5.0
"""How long a worker may take to leave before it is killed."""


class Crew:
    """The workers that run. Leaving a `with` block ends them all."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="coordinator-demo-")
        self._workers: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.send_home, self.names))
        self._folder.cleanup()

    @property
    def names(self) -> list[str]:
        return list(self._workers)

    def log_file(self, name: str) -> Path:
        """Where a worker's log is."""
        return Path(self._folder.name) / f"{name}.log"

    def start(self, *names: str) -> None:
        """Start workers."""
        for name in names:
            command = [sys.executable, "-m", "streaming.demo.worker", "--name", name,
                       "--bootstrap-servers", self._settings.bootstrap_servers,
                       "--topic-prefix", self._settings.topic_prefix]  # fmt: skip
            log_file = self.log_file(name)
            self._workers[name] = Child(command, folder=Path.cwd(), log_file=log_file, die_with_parent=True)

    def send_home(self, name: str) -> None:
        """Have a worker leave the group and end, as a service does on SIGTERM."""
        self._workers.pop(name).stop(GOODBYE_WAIT_S)

    def kill(self, name: str) -> None:
        """End a worker as a crash does (SIGKILL): nobody hears of it from the worker itself."""
        self._workers.pop(name).kill()

    def pid(self, name: str) -> int:
        """The process of a worker."""
        return self._workers[name].pid

    def fallen(self) -> list[str]:
        """Take out the workers that have ended by themselves, and name them."""
        ended = [name for name, worker in self._workers.items() if worker.ended.is_set()]
        for name in ended:
            del self._workers[name]
        return ended
