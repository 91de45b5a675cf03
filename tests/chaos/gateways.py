"""A gateway in its own process. It has the same address after each restart."""

import os
import subprocess
import sys
from pathlib import Path

from streaming.embedded.broker import HOST
from tests.ports import free_gateway_port
from tests.system.waiting import wait_until


class GatewayProcess:
    """A process that runs `coordinator gateway`, and can be killed and started again.

    Args:
        folder: The folder of its log and its ready files.
        number: The number of this gateway in the folder.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._port = free_gateway_port()
        self._started = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._settings: dict[str, str] = {}

    @property
    def address(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def log(self) -> str:
        return (self._folder / f"gateway-{self._number}.log").read_text(errors="replace")

    def start(self, bootstrap_servers: str, topic_prefix: str, **variables: str) -> None:
        self._settings = {
            "COORDINATOR_BOOTSTRAP_SERVERS": bootstrap_servers, "COORDINATOR_TOPIC_PREFIX": topic_prefix, **variables
        }  # fmt: skip
        self.start_again()

    def start_again(self) -> None:
        """Start the gateway as it was started before."""
        self._started += 1
        command = [sys.executable, "-m", "streaming", "gateway", "--port", str(self._port)]
        with (self._folder / f"gateway-{self._number}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(self._ready_file)],
                env={**os.environ, **self._settings},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def _ready_file(self) -> Path:
        return self._folder / f"gateway-{self._number}-ready-{self._started}"

    def await_ready(self) -> None:
        assert self.process is not None
        process = self.process
        wait_until(lambda: self._ready_file.exists() or process.poll() is not None, account=lambda: self.log)
        assert process.poll() is None, self.log

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
