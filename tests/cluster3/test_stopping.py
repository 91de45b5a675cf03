"""Each service ends within 30 s of SIGTERM, whatever the brokers do, and `up` notices the end of its own brokers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from streaming.errors import Exit
from streaming.query.watchers.outages import AGAIN_AFTER_S
from tests.cluster3.brokers import IDS, ThreeBrokers
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

STOP_S = 30.0
UP_STOP_S = 30.0
"""It takes less than 10 s where nothing else runs."""

NOTICE_S = 5.0
REQUESTS_S = 3.0
"""The time for which requests are written before a fault: some batches."""

SERVICES = {
    "run": ["run"],
    "observe": ["observe"],
    "gateway": ["gateway", "--port", "0"],
    "dashboard": ["dashboard", "--port", "0"],
}


class Process:
    """A `coordinator` command in a process of its own."""

    def __init__(self, folder: Path, arguments: list[str], **variables: str) -> None:
        folder.mkdir()
        self.ready, self._log = folder / "ready", folder / "log"
        command = [sys.executable, "-m", "streaming", *arguments, "--ready-file", str(self.ready)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **variables}, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def await_ready(self) -> None:
        wait_until(lambda: self.ready.exists() or self.process.poll() is not None, account=lambda: self.log)
        assert self.process.poll() is None, self.log

    @property
    def brokers(self) -> list[psutil.Process]:
        """The embedded brokers of the process. Children that have ended are passed over."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if "kafka.Kafka" in child.cmdline():
                    found.append(child)
        return found

    def kill(self) -> None:
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
        self.process.wait()


@pytest.fixture
def services(three: ThreeBrokers, tmp_path: Path) -> Iterator[list[Process]]:
    """All services, ready."""
    variables = {
        "COORDINATOR_BOOTSTRAP_SERVERS": three.bootstrap_servers,
        "COORDINATOR_TOPIC_PREFIX": "stopping",
        "COORDINATOR_OBSERVE_PREFIX": "stopping-observed",
        "COORDINATOR_REQUEST_PARTITIONS": "4",
        "COORDINATOR_CHECKPOINT": str(tmp_path / "state"),
        "COORDINATOR_OBSERVE_CHECKPOINT": str(tmp_path / "observed"),
    }
    started: list[Process] = []
    try:
        for name, arguments in SERVICES.items():
            started.append(Process(tmp_path / name, arguments, **variables))
            if name == "run":
                started[-1].await_ready()
        three.make_offsets_topic()
        for service in started:
            service.await_ready()
        yield started
    finally:
        for service in started:
            service.kill()


@pytest.mark.parametrize("fault", ["suspend", "kill"])
def test_services_end_in_time_though_no_broker_answers(
    three: ThreeBrokers, services: list[Process], fault: str
) -> None:
    for number in IDS:
        getattr(three, fault)(number)
    began_s = time.monotonic()
    for service in services:
        service.process.send_signal(signal.SIGTERM)
    for name, service in zip(SERVICES, services, strict=True):
        service.process.wait(HANG_S)
        assert time.monotonic() - began_s < STOP_S, (name, service.log)
        assert service.process.returncode in (0, 1), (name, service.log)


@contextmanager
def requests_written(three: ThreeBrokers) -> Iterator[None]:
    """Write requests all the time, so that the query is in a batch or has one to begin: an idle one notices nothing."""
    producer, stopping = Producer({"bootstrap.servers": three.bootstrap_servers}), threading.Event()

    def write() -> None:
        while not stopping.wait(0.01):
            producer.produce("stopping.requests", key=b"g", value=b"no request")
            producer.poll(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        time.sleep(REQUESTS_S)
        yield
    finally:
        stopping.set()
        writer.join()


def test_query_that_waits_for_two_brokers_of_three_ends_in_time(three: ThreeBrokers, services: list[Process]) -> None:
    """Their leaders stay, because no majority of the controllers is left. The query waits for them before it begins
    again, as long as they would need to move."""
    query = services[0]
    with requests_written(three):
        three.suspend(1)
        three.suspend(2)
    wait_until(lambda: "The query begins again." in query.log, account=lambda: query.log)
    stopped_s = time.monotonic() + AGAIN_AFTER_S + 2.0  # in the middle of the new begin
    while time.monotonic() < stopped_s:
        time.sleep(0.1)
    query.process.send_signal(signal.SIGTERM)
    query.process.wait(HANG_S)
    assert time.monotonic() - stopped_s < STOP_S, query.log
    assert query.process.returncode == Exit.DONE, query.log


def test_up_notices_the_end_of_its_brokers_and_ends(tmp_path: Path) -> None:
    up = Process(tmp_path / "up", ["up", "--brokers", "3", "--no-demo"])
    try:
        up.await_ready()
        servers = json.loads(up.ready.read_text())["bootstrap_servers"].split(",")
        brokers = up.brokers
        assert len(servers) == len(brokers) == len(IDS)
        brokers[0].kill()
        wait_until(lambda: "has ended. It is started again in 30 s." in up.log, NOTICE_S * 4)
        assert up.process.poll() is None, "the others go on"
        killed_s = time.monotonic()
        for broker in brokers[1:]:
            broker.kill()
        up.process.wait(HANG_S)
        assert time.monotonic() - killed_s < UP_STOP_S + NOTICE_S, up.log
        assert up.process.returncode == 1
        assert "No broker was left" in up.log
    finally:
        up.kill()


def test_up_without_a_majority_of_its_brokers_ends_in_order(tmp_path: Path) -> None:
    """Neither the demo's producer nor a batch waits for brokers that do not come back, and no traceback is printed."""
    up = Process(tmp_path / "up", ["up", "--brokers", "3", "--observe"])
    try:
        up.await_ready()
        for broker in up.brokers[:2]:
            broker.kill()
        wait_until(lambda: up.log.count("has ended. It is started again in 30 s.") == 2, account=lambda: up.log)
        up.process.send_signal(signal.SIGINT)
        up.process.wait(HANG_S)
        assert up.process.returncode == Exit.DONE, up.log
        assert "Traceback" not in up.log
    finally:
        up.kill()
