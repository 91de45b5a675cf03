"""`coordinator doctor` at a real broker: topics as needed, topics that are not, and a lost checkpoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from streaming.config.settings import Settings
from streaming.doctor import Case, Level, Report, examine, folder
from streaming.embedded import Broker
from streaming.kafka import topics
from streaming.kafka.clients import producer
from tests.system.waiting import HANG_S, wait_until


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


def settings_of(broker: Broker, prefix: str, **more: Any) -> Settings:
    return Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=prefix,
        observe_prefix=f"{prefix}-observed",
        replication_factor=1,
        request_partitions=2,
        reply_partitions=2,
        **more,
    )


def of(report: Report, subject: str) -> list[tuple[Level, str]]:
    return [(row.level, row.text) for row in report.rows if row.subject == subject]


def test_good_topics_brokers_and_the_controllers_clock_are_fine(broker: Broker, tmp_path: Path) -> None:
    settings = settings_of(broker, "doctor-good", checkpoint=str(tmp_path / "main"))
    topics.ensure(settings)
    report = examine(Case(settings))
    assert [row for row in report.rows if row.level is Level.WRONG] == []
    assert of(report, "topics") == [
        (Level.OK, f"{name} is as needed: partitions 2, copies 1.") for name in settings.topics
    ]
    version, features, controller, clock = of(report, "brokers")
    assert version[1].startswith(f"Broker 1 answers at {broker.bootstrap_servers}: Kafka 4.")
    assert "metadata.version=" in features[1]
    assert "transaction.version=2" in features[1]
    assert controller == (Level.OK, "The active controller is node 1.")
    assert clock[1].startswith("The clock of the active controller is between ")
    assert of(report, "checkpoint") == [
        (Level.OK, f"There is no folder {tmp_path / 'main'}: a start begins a new checkpoint.")
    ]


def test_bad_topics_and_a_lost_checkpoint_are_wrong(broker: Broker, admin: KafkaAdminClient, tmp_path: Path) -> None:
    settings = settings_of(broker, "doctor-bad", checkpoint=str(tmp_path))
    wanted: dict[str, Any] = {
        settings.requests_topic: {"num_partitions": 3, "configs": {"message.timestamp.type": "LogAppendTime"}},
        settings.groups_topic: {"num_partitions": 2, "configs": {"unclean.leader.election.enable": "true"}},
        settings.events_topic: {"num_partitions": 2, "configs": {"max.message.bytes": "1000"}},
        settings.replies_topic: {"num_partitions": 2},
    }
    before = set(admin.list_topics())
    admin.create_topics(wanted, wait_for_metadata=True)
    client = producer(settings, "test")
    client.produce(settings.events_topic, b"of a batch")
    client.flush(HANG_S)
    wait_until(lambda: set(admin.list_topics()) == before | set(wanted))
    report = examine(Case(settings))
    found = of(report, "topics")
    assert (Level.WARNING, "Missing: doctor-bad.transactions.") in found
    assert (Level.OK, "doctor-bad.replies is as needed: partitions 2, copies 1.") in found
    wrong = "; ".join(text for level, text in found if level is Level.WRONG)
    assert "doctor-bad.requests has 3 partitions where request_partitions is 2" in wrong
    assert "doctor-bad.groups has cleanup.policy=delete where compact is needed" in wrong
    assert "doctor-bad.events has max.message.bytes=1000 where " in wrong
    assert (Level.WARNING, "Acknowledged records may be lost while brokers fail.") in found
    assert of(report, "checkpoint") == [
        (Level.WRONG, f"{tmp_path} has no batch, and doctor-bad.events has records of batches.")
    ]
    on_purpose = examine(
        Case(settings.model_copy(update={"checkpoint_may_be_empty": True})), {"checkpoint": folder.check}
    )
    assert of(on_purpose, "checkpoint") == [
        (Level.WARNING, f"{tmp_path} has no batch: a start gives the groups of doctor-bad.events up.")
    ]
    assert set(admin.list_topics()) == before | set(wanted), "nothing was created"
    assert list(tmp_path.iterdir()) == []


def test_a_prefix_without_topics_is_told_from_one_that_lost_some(broker: Broker) -> None:
    report = examine(Case(settings_of(broker, "doctor-none")))
    assert of(report, "topics") == [
        (Level.WARNING, "There is no coordinator with the prefix doctor-none: none of its topics exists.")
    ]
    assert report.count(Level.WRONG) == 0
