"""The product as users install it: the built wheel in environments of its own, started from an empty folder."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streaming import __version__
from tests.deploy.reading import ROOT
from tests.system.waiting import HANG_S, wait_until


def build(folder: Path) -> Path:
    """Build the sdist, and the wheel from the sdist, as users do. Return the wheel."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, timeout=HANG_S)
    assert (folder / f"groupcoord-{__version__}.tar.gz").exists()
    return folder / f"groupcoord-{__version__}-py3-none-any.whl"


class Environment:
    """A virtual environment that contains the wheel with its dependencies, and neither pip nor the checkout.

    Args:
        folder: The place of the environment. It does not exist yet, or is empty.
        extra: The installed extra; none unless given.
        python: The interpreter of the environment.
        constraints: The file with the versions of the dependencies.
    """

    def __init__(
        self,
        folder: Path,
        wheel: Path,
        extra: str = "",
        *,
        python: str | Path = sys.executable,
        constraints: Path = ROOT / "constraints.txt",
    ) -> None:
        self.folder, self.extra = folder, extra
        self.empty = folder / "empty"
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True, timeout=HANG_S)
        self.empty.mkdir()
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        pip: list[str | Path] = [
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "--python",
            self._python,
        ]
        subprocess.run([*pip, "install", "--no-compile", "--constraint", constraints, what], check=True, timeout=HANG_S)

    @property
    def _python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def size_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.folder.rglob("site-packages/**/*") if file.is_file())

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self._run(self.folder / "bin" / "groupcoord", *words)

    def python(self, program: str, *words: str) -> str:
        done = self._run(self._python, "-c", program, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def script(self, file: Path, *words: str) -> str:
        done = self._run(self._python, file, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def serving(self, *words: str) -> Iterator[dict[str, Any]]:
        """Run a command, and yield the content of its ready file. After SIGTERM the command must exit with 0."""
        process, log, ready = self.start(*words)
        try:
            yield ready
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANG_S) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()

    def start(self, *words: str) -> "tuple[subprocess.Popen[bytes], Path, dict[str, Any]]":
        """Start a command, and return its process, its log, and the content of its ready file."""
        ready_file, log = self.folder / f"{words[0]}.json", self.folder / f"{words[0]}.log"
        ready_file.unlink(missing_ok=True)
        command: list[str | Path] = [self.folder / "bin" / "groupcoord", *words, "--ready-file", ready_file]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=self._variables, cwd=self.empty
            )
        try:
            wait_until(lambda: ready_file.exists() or process.poll() is not None, account=log.read_text)
            assert process.poll() is None, log.read_text()
            return process, log, json.loads(ready_file.read_text())
        except BaseException:
            process.kill()
            process.wait()
            raise

    @property
    def _variables(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}

    def _run(self, *command: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, env=self._variables, cwd=self.empty, capture_output=True, text=True, timeout=HANG_S, check=False
        )
