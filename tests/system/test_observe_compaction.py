"""The observer reads a topic that the brokers compact at the same time: nothing that is still valid is lost."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from streaming.embedded import Broker
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.observe.observer import Observer
from tests.streaming.observe.writing import commit
from tests.system.reading import Reader
from tests.system.test_observe_kills import last_offset, start_observer
from tests.system.waiting import HANG_S, wait_until

COMPACTED = {"segment.bytes": str(2**20), "min.cleanable.dirty.ratio": "0.01"}
COMMITS = 50_000
"""They fill several segments of a mebibyte. The last segment is never compacted."""

GROUP = "compacted"


@pytest.fixture
def compacting(broker: Broker) -> Iterator[None]:
    """Make the brokers compact their topic of offsets soon, and restore its settings."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def change(operation: AlterConfigOpType) -> None:
        entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value in COMPACTED.items()]
        resource = ConfigResource(ResourceType.TOPIC, SOURCE_TOPIC, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(HANG_S)

    change(AlterConfigOpType.SET)
    yield
    change(AlterConfigOpType.DELETE)


def write_commits(address: str, first: int, commits: int) -> int:
    """Write commits of one partition as Kafka does, with rising offsets, and return the last one."""
    producer = Producer({"bootstrap.servers": address, "client.id": "__admin_client"})
    now_ms = time.time_ns() // 1_000_000
    for offset in range(first, first + commits):
        key, value = commit(GROUP, 0, offset, now_ms)
        producer.produce(SOURCE_TOPIC, value, key, partition=0, timestamp=now_ms)
        producer.poll(0)
    assert producer.flush(HANG_S) == 0
    return first + commits - 1


def commits_left(address: str) -> int:
    """Return the number of the group's commits that are still in the topic."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition(SOURCE_TOPIC, 0, 0)])
    key, _ = commit(GROUP, 0, 0, 0)
    left = 0
    while (message := consumer.poll(HANG_S)) is not None and message.error() is None:
        left += message.key() == key
    consumer.close()
    return left


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.usefixtures("compacting")
def test_the_last_commit_is_known_whatever_was_compacted(broker: Broker, observer: Observer, tmp_path: Path) -> None:
    """An observer that reads along, and one that starts when most commits are gone."""
    address, along = broker.bootstrap_servers, Reader(observer.settings, GROUP)
    last = write_commits(address, 1, COMMITS)
    wait_until(lambda: last_offset(along) == last)
    wait_until(lambda: commits_left(address) < COMMITS // 2)
    last = write_commits(address, COMMITS + 1, 10)
    wait_until(lambda: last_offset(along) == last)
    service = start_observer(address, tmp_path, "after-compaction", 0)
    service.await_ready()
    late = Reader(service.settings, GROUP)
    wait_until(lambda: last_offset(late) == last)
    (began,) = [each for each in late.events() if each["event"] == "observation_began"]
    assert (began["founded"], began["group_id"]) == (False, GROUP)
    assert service.stop() == 0, service.log
