"""The real process from the view of a supervisor: its health, its log, its exit code, and the files that it leaves."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.system.asking import Asker
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import sampled

pytestmark = pytest.mark.long


def _hear_sighup() -> None:
    """Restore the default action of SIGHUP, which `nohup make test` ignores."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Process:
    """A `coordinator ...` in its own process, with its standard error in a log file."""

    def __init__(self, folder: Path, settings: Settings, *words: str) -> None:
        self.log_file = folder / f"log-{len(list(folder.iterdir()))}"
        names = ("bootstrap_servers", "topic_prefix", "replication_factor", "request_partitions", "checkpoint")
        environment = {f"COORDINATOR_{name.upper()}": str(getattr(settings, name)) for name in names}
        with self.log_file.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "streaming", *words],
                env={**os.environ, **environment},
                stderr=log,
                start_new_session=True,
                preexec_fn=_hear_sighup,
            )

    @property
    def lines(self) -> list[str]:
        return self.log_file.read_text().splitlines()

    def kill(self) -> None:
        if self.popen.poll() is None:
            for process in [*psutil.Process(self.popen.pid).children(recursive=True), self.popen]:
                process.kill()
            self.popen.wait(HANG_S)


@pytest.fixture
def settings(broker: Broker, tmp_path: Path) -> Settings:
    return Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix="operated",
        replication_factor=1,
        request_partitions=4,
        checkpoint=str(tmp_path / "state"),
    )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.kill()


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    """Get a path from the health port, and return status and body; the status is 0 if no process listens yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return 0, ""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.nightly
def test_from_a_start_to_a_damaged_state(settings: Settings, started: list[Process], tmp_path: Path, port: int) -> None:
    """The process is alive from the first second, ready after the first batch, and SIGTERM ends it with 0. With a
    damaged state each start ends with 78 and the same sentence, and changes no existing file (F8, F9).

    A start adds only files of the batch that fails: its plan, and the states of tasks whose own state is intact.
    """
    flags = ("--verbose", "--log-format", "json", "run", "--health-port", str(port))
    process = Process(tmp_path, settings, *flags)
    started.append(process)
    wait_until(lambda: get(port, "/healthz")[0] == 200 or process.popen.poll() is not None)
    status, told = get(port, "/readyz")
    assert status == 503
    assert "the first batch has not ended yet" in json.loads(told)["why"]

    wait_until(lambda: get(port, "/readyz")[0] == 200, account=lambda: (get(port, "/readyz"), process.lines))
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        Asker(transport, "g").alone()
    assert "groupcoord_members 1.0" in get(port, "/metrics")[1].splitlines()
    assert get(port, "/healthz")[0] == 200

    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(HANG_S) == 0
    are_objects(process.lines)

    state = tmp_path / "state"
    newest = newest_state(state)
    newest.write_bytes(newest.read_bytes()[:60])
    before = contents(state)
    sentences = []
    for _ in range(2):
        process = Process(tmp_path, settings, "run")
        started.append(process)
        assert process.popen.wait(HANG_S) == 78, process.lines
        sentences.append(process.lines[-1])
    assert sentences[0].startswith(f"coordinator: The checkpoint {state} is damaged")
    assert sentences[0] == sentences[1]
    after = contents(state)
    assert {name: after.get(name) for name in before} == before
    batch = 1 + max(int(file.name) for file in (state / "query" / "commits").iterdir() if file.name.isdigit())
    begun = re.compile(rf"query/(offsets/{batch}|state/0/\d+/\.?{batch + 1}\.delta.*)")
    assert [name for name in after.keys() - before.keys() if not begun.fullmatch(name)] == []


@pytest.mark.parametrize("number", sampled([signal.SIGTERM, signal.SIGHUP], [signal.SIGHUP]))
def test_a_signal_to_the_whole_process_group_is_a_stop(
    settings: Settings, started: list[Process], tmp_path: Path, number: signal.Signals
) -> None:
    """A supervisor and a closed terminal signal all processes of a group. Java goes on until the query has stopped.

    Java writes its standard error nowhere: a Python worker of Spark that is idle for a minute ends with a traceback.
    """
    ready_file = tmp_path / "ready"
    process = Process(tmp_path, settings, "run", "--ready-file", str(ready_file))
    started.append(process)
    wait_until(lambda: ready_file.exists() or process.popen.poll() is not None, account=lambda: process.lines)
    family = psutil.Process(process.popen.pid).children(recursive=True)
    (java,) = (child for child in family if child.name() == "java")
    assert os.readlink(f"/proc/{java.pid}/fd/2") == os.devnull
    before = len(process.lines)
    os.killpg(process.popen.pid, number)
    assert process.popen.wait(HANG_S) == 0
    assert process.lines[before:] == ["Stopping after the current batch."]
    assert psutil.wait_procs(family, timeout=HANG_S)[1] == []


def are_objects(lines: list[str]) -> None:
    """Check that each line of Python and of Spark's log is a JSON object; Java's own warnings are text."""
    told = [json.loads(line) for line in lines if not line.startswith(("WARNING: ", "OpenJDK "))]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in told)
    loggers = {line["logger"] for line in told}
    assert {"coordinator", "streaming.query.watchers.progress"} <= loggers
    assert any(logger.startswith("org.apache.") for logger in loggers), loggers


def newest_state(state: Path) -> Path:
    """Return the newest state file of the only group."""
    deltas = [file for file in (state / "query" / "state" / "0").rglob("*.delta") if file.stem.isdigit()]
    return max(deltas, key=lambda file: (int(file.stem), file.stat().st_size))


def test_gateway_serves_its_health(gateway: Gateway, port: int) -> None:
    """A gateway is alive, is ready when the brokers have answered, and serves its metrics on the health port."""
    gateway.serve_health_at("127.0.0.1", port)
    wait_until(lambda: get(port, "/readyz")[0] == 200, account=lambda: get(port, "/readyz"))
    status, told = get(port, "/healthz")
    assert (status, json.loads(told)["why"]) == (200, [])
    assert "groupcoord_gateway_connections" in get(port, "/metrics")[1]
