"""A standalone Spark cluster on this machine: a master and workers, which run pyspark's own classes, and a driver.

The cluster gets the project as users ship it: the wheel, as `--py-files`. Driver and executors run a Python
installation that has the project's dependencies, but not the project.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
import pyspark

from streaming.config.settings import Settings
from streaming.embedded import connector, fetch
from streaming.embedded.child import Child
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Java options for daemons. These need little memory and processor time."""

EXECUTOR = {"spark.executor.cores": "1", "spark.executor.memory": "512m"}


class Cluster:
    """A master and workers of one core each, on free ports of this machine. Use it in a `with` block.

    Args:
        folder: The folder for the logs, and for the files of the executors.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._place = f"{folder.resolve()}{os.sep}"
        self._wanted = workers
        self._children: list[Child] = []
        self.workers: list[Child] = []

    def __enter__(self) -> Self:
        try:
            self.url = self._start_master()
            self.workers = [self._begin_worker(number) for number in range(self._wanted)]
            for number in range(self._wanted):
                self._await(f"worker-{number}", r"Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        orphans = self.executors()
        for child in reversed(self._children):
            child.stop(wait_s=20)
        psutil.wait_procs(orphans, timeout=HANG_S)

    def executors(self) -> list[psutil.Process]:
        """Return the running executors of all workers."""
        found = []
        for worker in self.workers:
            if worker.exit_code is None:
                found += [p for p in _children(psutil.Process(worker.pid)) if _is_executor(p)]
        return found

    def python_workers(self) -> list[psutil.Process]:
        """Return the processes that run the operator, and the daemons that forked them.

        They are found by their working folder, because a worker that outlives its daemon has no parent in the cluster.
        """
        return [p for p in psutil.process_iter() if _runs(p, "pyspark.daemon") and _folder(p).startswith(self._place)]

    def at_work(self) -> list[psutil.Process]:
        """Return the executors that have Python workers, which means that they have run tasks of the operator."""
        folders = {_folder(worker) for worker in self.python_workers()}
        return [executor for executor in self.executors() if _folder(executor) in folders]

    def _start_master(self) -> str:
        self._start("master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        return self._await("master", r"Starting Spark master at (spark://\S+)")

    def _begin_worker(self, number: int) -> Child:
        room = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"))
        return self._start(
            f"worker-{number}", WORKER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *room, self.url
        )

    def _start(self, name: str, what: str, *arguments: str) -> Child:
        daemon = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA}
        settings = [f"{key}={value}" for key, value in {**daemon, **environment()}.items()]
        command = [_program("env"), *settings, str(SPARK / "bin" / "spark-class"), what, *arguments]
        child = Child(command, folder=self._folder, log_file=self._folder / f"{name}.log", die_with_parent=True)
        self._children.append(child)
        return child

    def _await(self, name: str, pattern: str) -> str:
        """Wait for a match in a daemon's log; return its last group, or the whole match."""
        file = self._folder / f"{name}.log"

        def found() -> re.Match[str] | None:
            return re.search(pattern, file.read_text(errors="replace")) if file.exists() else None

        wait_until(found, account=lambda: file.read_text(errors="replace")[-3_000:])
        match = found()
        assert match is not None
        return match[match.re.groups]


def environment() -> dict[str, str]:
    """Return the environment of Spark's scripts, without variables of another Spark installation."""
    return {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}


def submit(
    folder: Path,
    number: int,
    settings: Settings,
    master: str,
    code: Path,
    python: Path,
    *,
    command: str = "run",
    conf: Mapping[str, str] = {},
    arguments: tuple[str, ...] = (),
) -> Service:
    """Run the coordinator with spark-submit, in client mode, as in docs/cluster.md.

    Args:
        command: The coordinator's command: `run` or `observe`.
        code: The project's wheel, as `wheel` makes it.
        python: The Python program of driver and executors.
        arguments: Additional arguments for spark-submit.
    """
    ready_file, log_file = folder / f"ready-{number}", folder / f"log-{number}"
    set_by_variables = {
        f"COORDINATOR_{name.upper()}": str(value) for name, value in settings.model_dump(exclude_unset=True).items()
    }
    options = [word for name, value in {**EXECUTOR, **conf}.items() for word in ("--conf", f"{name}={value}")]
    words = [
        *(SPARK / "bin" / "spark-submit", "--master", master, *options, *arguments),
        *("--jars", ",".join(map(str, fetch(connector()))), "--py-files", code),
        *(ROOT / "groupcoord.py", "-v", command, "--ready-file", ready_file),
    ]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("COORDINATOR_", "PYTHON"))}
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=folder,
            env={**inherited, **environment(), "PYSPARK_PYTHON": str(python), **set_by_variables},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Service(process, settings, Path(settings.checkpoint), ready_file, log_file)


def wheel(folder: Path) -> Path:
    """Build the project's wheel, rename it to `*.zip`, which `--py-files` needs, and return its path."""
    built = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run(built, check=True, timeout=HANG_S)
    (made,) = folder.glob("*.whl")
    return made.rename(made.with_suffix(".zip"))


def bare_python(folder: Path) -> Path:
    """Make an environment that has the project's dependencies, but not the project; return its Python program."""
    venv.create(folder, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # .pth files there are not read
    python = folder / "bin" / "python"
    found = subprocess.run([python, "-c", "import msgspec, streaming"], cwd=folder, capture_output=True, text=True)
    assert "No module named 'streaming'" in found.stderr, found
    return python


def _is_executor(process: psutil.Process) -> bool:
    return _runs(process, "CoarseGrainedExecutorBackend")


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def _runs(process: psutil.Process, what: str) -> bool:
    with suppress(psutil.NoSuchProcess):  # the process may end during this check
        return any(what in word for word in process.cmdline())
    return False


def _folder(process: psutil.Process) -> str:
    """Return the working folder of a process, or "" if it has ended."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, FileNotFoundError):
        return process.cwd()
    return ""


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} was not found"
    return found
