"""The page in its own process: its address, its metrics, and brokers that stop and start again."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from coordinator.base.states import Phase
from coordinator.messages.group_records import GroupRecord, Published
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.kafka.topics import ensure
from streaming.query.coordinator import Coordinator
from streaming.wire.records import OutputTopics, to_row
from tests.system.asking import Asker
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long


@contextmanager
def page_of(settings: Settings, folder: Path) -> Iterator[Callable[[str], Any]]:
    """Run `coordinator dashboard`, and yield a function that gets a path from it. After SIGTERM it must exit with 0."""
    ready_file, log = folder / "ready", folder / "log"
    command = [sys.executable, "-m", "streaming", "dashboard", "-b", settings.bootstrap_servers, "--port", "0",
               "--topic-prefix", settings.topic_prefix, "--ready-file", str(ready_file)]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ})
    try:
        wait_until(lambda: ready_file.exists() or process.poll() is not None, account=log.read_text)
        url = json.loads(ready_file.read_text())["dashboard"]

        def get(path: str) -> Any:
            with urllib.request.urlopen(url + path, timeout=HANG_S) as answer:
                body = answer.read().decode()
            return json.loads(body) if answer.headers.get_content_type() == "application/json" else body

        wait_until(lambda: get("/healthz")["phase"] == "live", account=log.read_text)
        yield get
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_metrics_agree_with_the_groups(coordinator: Coordinator, asker: Asker, tmp_path: Path) -> None:
    """S14: the test reads the metrics in the way in which Prometheus does."""
    with page_of(coordinator.settings, tmp_path) as get:
        member_id, generation = asker.alone()
        asker.commit(generation, member_id, 7)
        assert asker.leave(member_id).members[0].error == "NONE"

        def figures() -> dict[str, float]:
            families = text_string_to_metric_families(get("/metrics"))
            samples = [sample for family in families for sample in family.samples]
            return {
                "/".join([sample.name, *(v for name, v in sample.labels.items() if name != "group")]): sample.value
                for sample in samples
                if sample.labels.get("group") == asker.group_id
            }

        wait_until(lambda: figures().get("groupcoord_group_state/Empty") == 1, account=figures)
        told = figures()
        assert told["groupcoord_group_generation"] == generation + 1
        assert told["groupcoord_rebalances_total/member_joined"] == 1
        assert told["groupcoord_members_joined_total"] == told["groupcoord_members_left_total"] == 1
        assert told["groupcoord_commits_total"] == 1
        assert told["groupcoord_rebalance_duration_seconds_count"] == 1


@pytest.mark.nightly
def test_page_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    """Without brokers the page shows its last state and the phase reconnecting. Later it continues to read."""
    with Broker(tmp_path / "broker") as broker:
        settings = Settings(bootstrap_servers=broker.bootstrap_servers, replication_factor=1, request_partitions=1)
        ensure(settings)
        with page_of(settings, tmp_path) as get:
            publish(settings, "early")
            wait_until(lambda: groups(get) == ["early"])
            broker.kill()
            wait_until(lambda: get("/healthz")["phase"] == "reconnecting", account=lambda: get("/healthz"))
            assert groups(get) == ["early"]
            broker.start()
            publish(settings, "late")
            wait_until(lambda: groups(get) == ["early", "late"], account=lambda: get("/healthz"))
            wait_until(lambda: get("/healthz")["phase"] == "live", account=lambda: get("/healthz"))
            assert get("/api/groups")["alarms"] == []


def groups(get: Callable[[str], Any]) -> list[str]:
    return [group["group_id"] for group in get("/api/groups")["groups"]]


def publish(settings: Settings, group_id: str) -> None:
    """Write a group's record as the coordinator does."""
    record = GroupRecord(group_id=group_id, state=Phase.EMPTY, since_ms=1, generation_id=1, protocol_type=None,
                         protocol_name=None, leader=None, subscribed_topics=(), members=(), version=1)  # fmt: skip
    topics = OutputTopics(settings.replies_topic, settings.groups_topic, settings.events_topic, settings.requests_topic)
    row = to_row(Published(group_id, ("group", group_id), record, 1), topics, 0)
    with closing(KafkaProducer(**settings.kafka_client_arguments())) as producer:
        producer.send(row.topic, row.value, row.key, partition=0).get(30)
