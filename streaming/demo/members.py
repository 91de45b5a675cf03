"""The demo's members as processes: started, stopped, killed. No member outlives the demo."""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from streaming.config.settings import Settings
from streaming.embedded.child import Child

GOODBYE_WAIT_S = 5.0
"""The time for which a stopped worker may take to leave before it is killed."""


class DemoMembers:
    """The running workers. The end of a `with` block stops all of them."""

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
        """Return the path of a worker's log."""
        return Path(self._folder.name) / f"{name}.log"

    def start(self, *names: str) -> None:
        for name in names:
            command = [sys.executable, "-m", "streaming.demo.worker", "--name", name,
                       "--bootstrap-servers", self._settings.bootstrap_servers,
                       "--topic-prefix", self._settings.topic_prefix]  # fmt: skip
            log_file = self.log_file(name)
            self._workers[name] = Child(command, folder=Path.cwd(), log_file=log_file, die_with_parent=True)

    def send_home(self, name: str) -> None:
        """Stop a worker as a service is stopped (SIGTERM): it leaves the group."""
        self._workers.pop(name).stop(GOODBYE_WAIT_S)

    def kill(self, name: str) -> None:
        """Kill a worker as a crash does (SIGKILL), so that it cannot leave the group."""
        self._workers.pop(name).kill()

    def pid(self, name: str) -> int:
        """Return the process id of a worker."""
        return self._workers[name].pid

    def fallen(self) -> list[str]:
        """Remove the workers that have ended by themselves, and return their names."""
        ended = [name for name, worker in self._workers.items() if worker.ended.is_set()]
        for name in ended:
            del self._workers[name]
        return ended
