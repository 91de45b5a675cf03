"""An S3 server for tests: moto, which keeps all objects in memory.

It has an environment of its own in the folder of downloads, because it needs other versions of packages than the
product. `requirements.txt` pins them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType

from streaming.embedded.jars import default_cache_dir
from tests.ports import free_port
from tests.system.waiting import HANG_S, wait_until

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
HOST = "127.0.0.1"
BUCKET = "checkpoints"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
"""The environment of a process that uses the server, which accepts any key."""


def environment() -> Path:
    """Return the folder of the server's environment. Make it first if it is missing."""
    version = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = default_cache_dir() / "tests" / f"moto-{version}-python{sys.version_info[0]}.{sys.version_info[1]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="moto-", dir=folder.parent))
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True, timeout=HANG_S)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", made / "bin/python"]
        subprocess.run([*pip, "install", "--no-deps", "-r", REQUIREMENTS], check=True, timeout=HANG_S)
        try:
            made.replace(folder)
        except OSError:
            if not folder.exists():
                raise
            shutil.rmtree(made)  # another process has made it meanwhile
    return folder


class Server:
    """A running server with an empty bucket. It ends with the block."""

    def __init__(self) -> None:
        self.port = free_port()
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._process = subprocess.Popen(
            [environment() / "bin/python", "-m", "moto.server", "--host", HOST, "--port", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=variables,
        )
        wait_until(self._makes_the_bucket)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _makes_the_bucket(self) -> bool:
        assert self._process.poll() is None, "the S3 server has ended"
        made = urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT")
        try:
            with urllib.request.urlopen(made, timeout=HANG_S):
                return True
        except OSError:
            return False

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
