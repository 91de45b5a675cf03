"""`coordinator up --observe`: it runs broker, query, gateway, page and observer in one process, as `make run` does."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.cli.service import SHARDS_ON_ONE_MACHINE
from streaming.config.settings import Settings
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long


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


def test_up_serves_and_shows_a_stock_client_and_leaves_nothing(tmp_path: Path) -> None:
    """S23, S24."""
    ready_file, log, temporary = tmp_path / "ready", tmp_path / "log", tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "streaming", "up", "--no-demo", "--observe", "--ready-file", str(ready_file)]
    with log.open("wb") as out:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None, account=log.read_text)
        ready = json.loads(ready_file.read_text())
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
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_S) == 0, log.read_text()
        _, alive = psutil.wait_procs(children, timeout=HANG_S)
        assert not alive
        assert not list(temporary.glob("*coordinator*"))
    finally:
        process.kill()
        process.wait()
