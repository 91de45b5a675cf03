"""Installs the worker programs that are written in JavaScript: those of the folder `node`, which pins its versions.

npm keeps what it has downloaded in the user's cache. So only the first installation needs the network.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.tools import needed

SOURCE = Path(__file__).with_name("node")
PLACE = "node"
"""The folder of the programs and their modules, beside the Go programs."""

INSTALL_WAIT_S = 900.0


def install(folder: Path) -> None:
    """Install the programs below `folder`, or fail with npm's own message. Skip the test without Node.js."""
    shutil.copytree(SOURCE, folder / PLACE)
    installed = subprocess.run(
        [needed("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"],
        cwd=folder / PLACE,
        capture_output=True,
        text=True,
        timeout=INSTALL_WAIT_S,
        check=False,
    )
    assert installed.returncode == 0, f"npm could not install the clients (needs the network): {installed.stderr}"


def command(config: dict[str, Any], folder: Path) -> list[str]:
    """Return the command of the copier for a configuration."""
    return [needed("node"), str(folder / PLACE / "copying.js"), json.dumps(config)]


def version(package: str) -> str:
    """Return the version of a package that `package-lock.json` pins."""
    locked = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    return str(locked[f"node_modules/{package}"]["version"])
