"""A standalone Spark cluster on this machine: a master and workers, which run pyspark's own classes, and a driver.

The cluster gets the project as users ship it: the wheel, as `--py-files`. Driver and executors run a Python
installation that has the project's dependencies, but not the project.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self
from zipfile import ZipFile

import psutil
import pyspark

from streaming.config.settings import Settings
from streaming.embedded import connector, fetch
from streaming.embedded.child import Child
from streaming.query.spark.session import CONNECTOR_PACKAGE
from tests.hosts.network import HERE, Host
from tests.system.conftest import Service
from tests.system.waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
WORKER_DAEMON = "streaming.query.operator.worker_daemon"
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Java options for daemons. These need little memory and processor time."""

SUBMITTED = re.compile(
    r"^PYSPARK_PYTHON=\S+ (spark-submit --master spark:.*? --py-files .*?groupcoord\.py run)", re.M | re.S
)
"""The command in docs/cluster.md that submits shipped code, up to the coordinator's own options."""


class Cluster:
    """A master and workers of one core each, on free ports. Use it in a `with` block.

    Args:
        folder: The folder for the logs, and for the files of the executors.
        master: The host of the master.
        workers: The hosts of the workers, one worker each.
    """

    def __init__(self, folder: Path, *, master: Host = HERE, workers: Sequence[Host] = (HERE, HERE)) -> None:
        self._folder = folder
        self._place = f"{folder.resolve()}{os.sep}"
        self._master, self._wanted = master, workers
        self._children: list[Child] = []
        self.workers: list[Child] = []

    def __enter__(self) -> Self:
        try:
            self.url = self._start_master()
            self.workers = [self._begin_worker(number, host) for number, host in enumerate(self._wanted)]
            for number in range(len(self._wanted)):
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
        return [p for p in psutil.process_iter() if _runs(p, WORKER_DAEMON) and _folder(p).startswith(self._place)]

    def at_work(self) -> list[psutil.Process]:
        """Return the executors that have Python workers, which means that they have run tasks of the operator."""
        folders = {_folder(worker) for worker in self.python_workers()}
        return [executor for executor in self.executors() if _folder(executor) in folders]

    def _start_master(self) -> str:
        self._start("master", self._master, MASTER)
        return self._await("master", r"Starting Spark master at (spark://\S+)")

    def _begin_worker(self, number: int, host: Host) -> Child:
        room = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"))
        return self._start(f"worker-{number}", host, WORKER, *room, self.url)

    def _start(self, name: str, host: Host, what: str, *arguments: str) -> Child:
        daemon = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA}
        settings = [f"{key}={value}" for key, value in {**daemon, **environment(host)}.items()]
        ports = ("--host", host.address, "--port", "0", "--webui-port", "0")
        spark = str(SPARK / "bin" / "spark-class")
        command = [*host.prefix, _program("env"), *settings, spark, what, *ports, *arguments]
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


def environment(host: Host = HERE) -> dict[str, str]:
    """Return the environment of Spark's scripts, without variables of another Spark installation."""
    return {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": host.address}


def submit(
    folder: Path,
    number: int,
    settings: Settings,
    master: str,
    code: Path,
    python: Path,
    *,
    host: Host = HERE,
    command: str = "run",
    conf: Mapping[str, str] = {},
    arguments: tuple[str, ...] = (),
) -> Service:
    """Run the coordinator with the command of docs/cluster.md: its words, with this machine's paths and addresses.

    Args:
        host: The driver's host.
        command: The coordinator's command: `run` or `observe`.
        code: The project's wheel, as `wheel` makes it.
        python: The Python program of driver and executors.
        arguments: Additional arguments for spark-submit.
    """
    ready_file, log_file = folder / f"ready-{number}", folder / f"log-{number}"
    set_ones = settings.model_dump(exclude_unset=True)
    set_by_variables = {f"COORDINATOR_{name.upper()}": str(value) for name, value in set_ones.items()}
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    words = documented_words(
        {
            "spark-submit": [*host.prefix, SPARK / "bin" / "spark-submit", *options, *arguments],
            "spark://master:7077": [master],
            "dist/coordinator.zip": [code],
            "run": [command, "--ready-file", ready_file],
        }
    )
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("COORDINATOR_", "PYTHON"))}
    variables = {**inherited, **environment(host), "PYSPARK_PYTHON": str(python), **set_by_variables}
    with log_file.open("wb") as log:
        process = subprocess.Popen(list(map(str, words)), cwd=folder, env=variables, stdout=log, stderr=log)
    return Service(process, settings, Path(settings.checkpoint), ready_file, log_file)


def documented_words(stands_for: Mapping[str, list[object]]) -> list[object]:
    """Return the words of the command in docs/cluster.md that submits shipped code to a standalone cluster.

    Args:
        stands_for: What stands on this machine for words of the page, beside the ones that are the same in each test.
    """
    found = SUBMITTED.search((ROOT / "docs" / "cluster.md").read_text())
    assert found is not None, "docs/cluster.md has no such command"
    here = {
        "spark.executor.memory=1g": ["spark.executor.memory=512m"],
        "--packages": ["--jars"],
        CONNECTOR_PACKAGE: [",".join(map(str, fetch(connector())))],
        "groupcoord.py": [ROOT / "groupcoord.py", "-v"],
        **stands_for,
    }
    documented = shlex.split(found[1].replace("\\\n", " "))
    return [word for each in documented for word in here.get(each, [each])]


def wheel(folder: Path) -> Path:
    """Build the project's wheel, rename it to `*.zip`, which `--py-files` needs, and return its path."""
    built = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run(built, check=True, timeout=HANG_S)
    (made,) = folder.glob("*.whl")
    return made.rename(made.with_suffix(".zip"))


def zipped(file: Path) -> Path:
    """Write what the wheel has to a zip file, and return its path. It takes less time than a wheel."""
    with ZipFile(file, "w") as archive:
        for package in ("coordinator", "streaming"):
            for each in (ROOT / package).rglob("*"):
                if "__pycache__" not in each.parts:
                    archive.write(each, each.relative_to(ROOT))
        archive.write(ROOT / "groupcoord.py", "groupcoord.py")
    return file


def bare_python(folder: Path) -> Path:
    """Make an environment that has the project's dependencies, but not the project; return its Python program."""
    venv.create(folder, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # .pth files there are not read
    python = folder / "bin" / "python"
    importing = [python, "-I", "-c", "import msgspec, streaming"]
    found = subprocess.run(importing, cwd=folder, capture_output=True, text=True)
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
