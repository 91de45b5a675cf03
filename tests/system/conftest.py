"""The fixtures of the system tests: clients that ask the coordinator, and services in their own processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.observe.observer import Observer
from streaming.observe.source import have_source_made
from streaming.query.coordinator import Coordinator
from tests.system.asking import Asker
from tests.system.staging import MakeStage, Stage
from tests.system.waiting import HANG_S, wait_until


@pytest.fixture(scope="session")
def transport(coordinator: Coordinator) -> Iterator[Transport]:
    settings = coordinator.settings
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        yield transport


@pytest.fixture
def asker(transport: Transport, request: pytest.FixtureRequest) -> Asker:
    """Return an asker for a group that no other test uses."""
    return Asker(transport, group_id=request.node.name[:200])


@pytest.fixture
def group_id(request: pytest.FixtureRequest) -> str:
    """Return the id of a group that no other test uses."""
    return str(request.node.name)[:200]


@pytest.fixture(scope="session")
def observer(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observer]:
    """The real observer of the shared broker's own groups, with the default prefix."""
    settings = Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        replication_factor=1,
        request_partitions=4,
        observe_checkpoint=str(tmp_path_factory.mktemp("observe")),
        observe_every_ms=100,
    )
    have_source_made(settings)
    observer = Observer(settings.observing())
    observer.start()
    yield observer
    observer.stop()


def kill_family(pid: int) -> None:
    """Kill a process and all processes that it has started, at the same time, and wait until they have ended."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=HANG_S)


LOG_LINES = 100


@dataclass
class Service:
    """A `coordinator run` in its own process."""

    process: subprocess.Popen[bytes]
    settings: Settings
    checkpoint: Path
    ready_file: Path
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def await_ready(self) -> None:
        wait_until(lambda: self.ready_file.exists() or self.process.poll() is not None, account=lambda: self.log)
        assert self.process.poll() is None, self.log

    def kill(self) -> None:
        """Kill the driver with SIGKILL: the Python process and its Java process at the same time."""
        kill_family(self.process.pid)
        self.process.wait(HANG_S)

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.terminate()
        return self.process.wait(HANG_S)


@pytest.fixture
def stage(coordinator: Coordinator) -> Iterator[MakeStage]:
    """Return a function that makes a stage with a given number of partitions, for tests of consumers."""
    with ExitStack() as stack:
        yield lambda partitions: stack.enter_context(Stage(coordinator.settings, partitions))


def start_service(folder: Path, number: int = 0, command: str = "run", **settings: object) -> Service:
    """Start `coordinator run`, or another command. All services of one folder have the same checkpoint."""
    ready_file, log_file = folder / f"ready-{number}", folder / f"log-{number}"
    wanted = {"replication_factor": 1, "request_partitions": 4, "checkpoint": str(folder / "state"), **settings}
    checkpoint = Path(str(wanted["checkpoint"]))
    texts = {name: json.dumps(value) if isinstance(value, tuple) else str(value) for name, value in wanted.items()}
    environment = {f"COORDINATOR_{name.upper()}": text for name, text in texts.items()}
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "streaming", command, "--ready-file", str(ready_file)],
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Service(process, Settings(**wanted), checkpoint, ready_file, log_file)  # type: ignore[arg-type]


@pytest.fixture
def run_service(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Return a function that starts `coordinator run` on the shared broker, with topics of the given prefix.

    The end of each log is printed, so that pytest shows it with a test that fails.
    """
    started: list[Service] = []

    def run(topic_prefix: str, **settings: object) -> Service:
        wanted = {
            "bootstrap_servers": broker.bootstrap_servers,
            "topic_prefix": topic_prefix,
            "group_initial_rebalance_delay_ms": 100,
            **settings,
        }
        started.append(start_service(tmp_path, len(started), **wanted))
        return started[-1]

    yield run
    for service in started:
        print(
            f"-- {service.log_file.name}, exit code {service.process.poll()}",
            *service.log.splitlines()[-LOG_LINES:],
            sep="\n",
        )
        if service.process.poll() is None:
            service.kill()


def batches(checkpoint: Path, kind: str) -> list[int]:
    """Return the numbers of the batches that a checkpoint has planned (`offsets`) or finished (`commits`)."""
    return sorted(int(file.name) for file in (checkpoint / "query" / kind).iterdir() if file.name.isdigit())


def ready(file: Path) -> dict[str, object]:
    return dict(json.loads(file.read_text()))


@pytest.fixture
def jvm(coordinator: Coordinator) -> Any:
    """Spark's Java process, which runs a coordinator."""
    return SparkSession.builder.getOrCreate()._jvm
