"""Installs Quix Streams into an environment of its own: it needs an older confluent-kafka than this project."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

VERSION = "3.28.1"
PLACE = "quix"
"""The folder of the environment, beside the Go programs."""

INSTALL_WAIT_S = 900.0


def install(folder: Path) -> None:
    """Make the environment below `folder`. The first time needs the network; pip keeps what it has downloaded."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / PLACE], check=True, timeout=INSTALL_WAIT_S)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(_python(folder))]
    installed = subprocess.run(
        [*pip, "install", "--only-binary", ":all:", f"quixstreams=={VERSION}"],
        capture_output=True,
        text=True,
        timeout=INSTALL_WAIT_S,
        check=False,
    )
    assert installed.returncode == 0, f"pip could not install Quix Streams (needs the network): {installed.stderr}"


def command(config: dict[str, Any], folder: Path) -> list[str]:
    """Return the command of the copier for a configuration. Its state is in a folder of its own."""
    own = {"state": str(folder / f"{config['client_id']}-state")}
    return [str(_python(folder)), "-m", "tests.clients.copying_with_quix", json.dumps(config | own)]


def _python(folder: Path) -> Path:
    return folder / PLACE / "bin" / "python"
