"""`coordinator up --observe`: it runs broker, query, gateway, page and observer in one process, as `make run` does."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.cli.services.service import SHARDS_ON_ONE_MACHINE
from streaming.config.settings import Settings
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

SOON_S = 60.0
"""Less than the waits for brokers that do not answer, together. It takes 5 to 10 s."""


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=HANG_S) as answer:
        return json.load(answer)


def await_observed(bootstrap_servers: str, log: Path) -> None:
    """Join a group of the broker's own coordinator, and wait until the observer shows its member."""
    direct = {"bootstrap.servers": bootstrap_servers, "client.id": "bo"}
    consumer = Consumer({**direct, "group.id": "own"})
    consumer.subscribe(["orders"])
    settings = Settings(bootstrap_servers=bootstrap_servers, request_partitions=SHARDS_ON_ONE_MACHINE).observing()
    reader = Reader(settings, "own")
    wait_until(
        lambda: bool(consumer.poll(0.1)) or [each for each in reader.everything().groups if each["members"]],
        account=log.read_text,
    )
    (member,) = reader.everything().groups[-1]["members"]
    assert (member["client_id"], member["assigned"]) == ("bo", {"orders": [0]})
    consumer.close()


class Up(NamedTuple):
    """A running `coordinator up`: its process, its log, the content of its ready file, and its temporary folder."""

    process: subprocess.Popen[bytes]
    log: Path
    ready: dict[str, Any]
    temporary: Path

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def up(folder: Path, *flags: str) -> Iterator[Up]:
    ready_file, log, temporary = folder / "ready", folder / "log", folder / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "streaming", "up", "--no-demo", *flags, "--ready-file", str(ready_file)]
    with log.open("wb") as out:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None, account=log.read_text)
        yield Up(process, log, json.loads(ready_file.read_text()), temporary)
    finally:
        process.kill()
        process.wait()


def is_broker(process: psutil.Process) -> bool:
    return process.status() != psutil.STATUS_ZOMBIE and "kafka.Kafka" in process.cmdline()


def test_up_ends_with_its_only_broker(tmp_path: Path) -> None:
    """Ctrl-C in the same moment does not delay it."""
    with up(tmp_path) as started:
        [broker] = filter(is_broker, started.children)
        broker.kill()
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(SOON_S) == 1, started.log.read_text()
        assert started.log.read_text().strip().splitlines()[-1].startswith("coordinator: No broker was left")


def test_up_serves_and_shows_a_stock_client_and_leaves_nothing(tmp_path: Path) -> None:
    """S23, S24."""
    with up(tmp_path, "--observe") as started:
        process, log, ready, temporary = started
        through_gateway = {"bootstrap.servers": ready["gateway"], "client.id": "ana"}
        admin = AdminClient(through_gateway)  # it must exist until its requests are answered
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(HANG_S)
        consumer = Consumer({**through_gateway, "group.id": "g"})
        consumer.subscribe(["orders"])
        wait_until(lambda: bool(consumer.poll(0.1) or consumer.assignment()), account=log.read_text)
        shown = f"{ready['dashboard']}/api/group?id=g"
        wait_until(lambda: fetched(f"{ready['dashboard']}/api/groups")["groups"], account=log.read_text)
        wait_until(lambda: fetched(shown)["summary"]["state"] == "Stable", account=log.read_text)
        (member,) = fetched(shown)["members"]
        assert (member["client_id"], member["is_leader"]) == ("ana", True)
        consumer.close()
        assert ready["observed"] == {"groups": "observed.groups", "events": "observed.events"}
        await_observed(ready["bootstrap_servers"], log)
        children = started.children
        assert children
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_S) == 0, log.read_text()
        _, alive = psutil.wait_procs(children, timeout=HANG_S)
        assert not alive
        assert not list(temporary.glob("*coordinator*"))
