"""A program that runs beside ours, is waited for by an event, and need not outlive us."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

_LEASH = Path(__file__).with_name("leash.py")


class Child:
    """A running program; `ended` is set when it has ended, for whatever reason.

    It is started and waited for by one thread of its own: the kernel's leash is tied to the thread that forked, so that
    thread must live as long as the child. It has its own session, since Ctrl-C at the terminal is for us to act on.

    Args:
        command: The program, an absolute path, and its arguments.
        folder: Where the program runs.
        log_file: Where its output is appended.
        die_with_parent: Have the kernel kill it when our process ends without stopping it; on Linux only.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(self, command: Sequence[str], *, folder: Path, log_file: Path, die_with_parent: bool) -> None:
        leashed = die_with_parent and sys.platform == "linux"
        leash = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid())] if leashed else []
        self.ended = threading.Event()
        started: Future[subprocess.Popen[bytes]] = Future()

        def live() -> None:
            try:
                with log_file.open("ab") as log:
                    started.set_result(
                        subprocess.Popen(
                            [*leash, *command],
                            cwd=folder,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                            start_new_session=True,
                        )
                    )
            except OSError as error:
                started.set_exception(error)
                return
            started.result().wait()
            self.ended.set()

        threading.Thread(target=live, name=f"child {Path(command[0]).name}", daemon=True).start()
        self._process = started.result()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with, negative for a signal; None while it runs."""
        return self._process.returncode

    def stop(self, wait_s: float) -> None:
        """Ask it to end (SIGTERM), and kill it when it has not after `wait_s` seconds."""
        self._process.terminate()
        if not self.ended.wait(wait_s):
            self.kill()

    def kill(self) -> None:
        """End it at once (SIGKILL), and return when it has ended."""
        self._process.kill()
        self.ended.wait()
