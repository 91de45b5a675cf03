"""A subprocess. Its end sets an event, and the kernel can kill it when our process ends."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

_WRAPPER = Path(__file__).with_name("die_with_parent.py")


class Child:
    """A running program. `ended` is set when it has ended, for whatever reason.

    A separate thread starts it and waits for it. The kernel's death signal is tied to the thread that forked, so
    that thread must live as long as the child. The child has its own session, since our process handles Ctrl-C at the
    terminal.

    Args:
        command: The program, an absolute path, and its arguments.
        folder: The program's working directory.
        log_file: The file that its output is appended to.
        die_with_parent: Whether the kernel kills it when our process ends without stopping it; on Linux only.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(self, command: Sequence[str], *, folder: Path, log_file: Path, die_with_parent: bool) -> None:
        is_wrapped = die_with_parent and sys.platform == "linux"
        wrapper = [sys.executable, "-I", "-S", str(_WRAPPER), str(os.getpid())] if is_wrapped else []
        self.ended = threading.Event()
        started: Future[subprocess.Popen[bytes]] = Future()

        def live() -> None:
            try:
                with log_file.open("ab") as log:
                    started.set_result(
                        subprocess.Popen(
                            [*wrapper, *command],
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
        """The exit code, negative for a signal; None while the program runs."""
        return self._process.returncode

    def stop(self, wait_s: float) -> None:
        """Stop the program (SIGTERM), and kill it if it has not ended after `wait_s` seconds."""
        self._process.terminate()
        if not self.ended.wait(wait_s):
            self.kill()

    def kill(self) -> None:
        """Kill the program (SIGKILL). Return when it has ended."""
        self._process.kill()
        self.ended.wait()
