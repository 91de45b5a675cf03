"""Compiles the worker programs that are written in Java, and runs them with the jars of the broker."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from streaming.embedded import BROKER, fetch, find_java
from tests.clients.java import OPTIONS
from tests.tools import needed

HERE = Path(__file__).parent
COMPILE_WAIT_S = 300.0


def build(folder: Path) -> None:
    """Compile the programs into `folder`. Skip the test without a compiler."""
    sources = map(str, sorted(HERE.glob("*.java")))
    subprocess.run(
        [needed("javac"), "-proc:none", "-cp", _path(folder), "-d", str(folder), *sources],
        check=True,
        timeout=COMPILE_WAIT_S,
    )


def command(config: dict[str, Any], folder: Path) -> list[str]:
    """Return the command of the copier for a configuration."""
    return [str(find_java()), *OPTIONS, "-cp", _path(folder), "Copier", json.dumps(config)]


def _path(folder: Path) -> str:
    return os.pathsep.join(map(str, (folder, *fetch(BROKER))))
