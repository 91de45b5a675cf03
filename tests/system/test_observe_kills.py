"""`coordinator observe` in its own process is killed under load, and its outputs are those of an undisturbed one."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from coordinator.base.hashing import shard_of
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.observe.observer import Observer
from tests.ports import free_port
from tests.system.conftest import Service
from tests.system.kafka_groups import KafkaGroup, kafka_group
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

KILLS = 20


def start_observer(
    bootstrap_servers: str, folder: Path, prefix: str, number: int, *options: str, **settings: Any
) -> Service:
    """Start `coordinator observe`. All processes of one folder and prefix have the same checkpoint."""
    ready_file, log_file = folder / f"{prefix}-ready-{number}", folder / f"{prefix}-log-{number}"
    wanted: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "replication_factor": 1,
        "request_partitions": 4,
        "observe_prefix": prefix,
        "observe_checkpoint": str(folder / prefix),
        "observe_every_ms": 100,
        **settings,
    }
    environment = {f"COORDINATOR_{name.upper()}": str(value) for name, value in wanted.items()}
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "streaming", "observe", "--ready-file", str(ready_file), *options],
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Service(process, Settings(**wanted).observing(), folder / prefix, ready_file, log_file)


@pytest.fixture
def group(broker: Broker) -> Iterator[KafkaGroup]:
    with kafka_group(broker.bootstrap_servers, "killed") as group:
        yield group


def check_health(port: int) -> None:
    """Check that the process is ready, and that its metrics count what it has read."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=HANG_S) as answer:
        assert json.load(answer)["well"] is True
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG_S) as answer:
        found = answer.read().decode()
    assert re.search(r'^groupcoord_observe_records_total\{type="1"\} [1-9]', found, re.MULTILINE)
    assert re.search(r"^groupcoord_observe_unreadable_total 0\.0$", found, re.MULTILINE)


class Load:
    """Commits of a simple group, one after the other, until `stop`. Each one is above the one before."""

    def __init__(self, group: KafkaGroup) -> None:
        self._group, self._stopping = group, threading.Event()
        self.group_id = f"{group.group_id}-load"
        self.committed = 0
        self._thread = threading.Thread(target=self._commit, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop, and return the last committed offset."""
        self._stopping.set()
        self._thread.join(HANG_S)
        return self.committed

    def _commit(self) -> None:
        while not self._stopping.wait(0.005):
            offsets = [TopicPartition(self._group.topic, 0, self.committed + 1)]
            asked = ConsumerGroupTopicPartitions(self.group_id, offsets)
            self._group.admin.alter_consumer_group_offsets([asked])[self.group_id].result(HANG_S)
            self.committed += 1


def in_transactions(group: KafkaGroup) -> str:
    """Return the id of the group whose offsets are committed in transactions."""
    return f"{group.group_id}-in-transactions"


def aborted_and_committed(
    broker: Broker, group: KafkaGroup, aborted: int, committed: int, await_observers: Callable[[], None]
) -> None:
    """Commit an offset in a transaction that is aborted, then another one in a transaction that is committed.

    Args:
        await_observers: Called between the two, to wait until a batch has read the first one.
    """
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": in_transactions(group)})
    producer = Producer({**servers, "transactional.id": in_transactions(group)})
    producer.init_transactions(HANG_S)
    for offset, end in ((aborted, producer.abort_transaction), (committed, producer.commit_transaction)):
        producer.begin_transaction()
        offsets = [TopicPartition(group.topic, 1, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), HANG_S)
        end(HANG_S)
        await_observers()
    consumer.close()


def values_by_version(settings: Settings, group_id: str) -> dict[int, set[bytes]]:
    """Return all values that were written under each version of a group."""
    reader, found = Reader(settings, group_id), defaultdict[int, set[bytes]](set)
    for topic in (settings.groups_topic, settings.events_topic):
        for record in reader.records(topic):
            value = json.loads(record.value or b"{}")  # a tombstone is of another group
            if value.get("group_id") == group_id:
                found[value["version"]].add(record.value)
    return found


def last_offset(reader: Reader) -> int:
    return max((offset for each in reader.everything().offsets for offset in each.values()), default=0)


def story(settings: Settings, group_id: str) -> tuple[list[Any], dict[tuple[str, int], int]]:
    """Return a group's events and records without versions, in the order of their versions, and its last offsets."""
    told, offsets = [], {}
    for _, values in sorted(values_by_version(settings, group_id).items()):
        (value,) = map(json.loads, values)
        del value["version"]
        if "partition" in value and "offset" in value:
            offsets[value["topic"], value["partition"]] = value["offset"]
        else:
            told.append(value)
    return told, offsets


class Killed:
    """An observer that is killed again and again while groups commit, join and leave."""

    def __init__(self, broker: Broker, observer: Observer, group: KafkaGroup, folder: Path) -> None:
        self._broker, self._group, self._folder = broker, group, folder
        self._undisturbed = observer.settings
        self.port = free_port()
        self.service = self._start(0)
        self.load = Load(group)

    def _start(self, number: int) -> Service:
        servers = self._broker.bootstrap_servers
        service = start_observer(servers, self._folder, self._group.group_id, number, health_port=self.port)
        service.await_ready()
        return service

    def await_observers(self) -> None:
        """Wait until both show a commit that comes after this moment, in the same partition of the source."""
        after = self.load.committed + 1
        for settings in (self.service.settings, self._undisturbed):
            reader = Reader(settings, self.load.group_id)
            wait_until(lambda reader=reader: last_offset(reader) > after)  # type: ignore[misc]

    def run(self) -> None:
        """Kill the observer and restart it `KILLS` times; a member joins and one leaves each time."""
        members = [self._group.join("ana").await_owned(0, 1, 2, 3)]
        aborted_and_committed(self._broker, self._group, 666, 7, self.await_observers)
        for number in range(1, KILLS + 1):
            self.service.kill()
            members.append(self._group.join(f"m{number}"))
            wait_until(lambda: all(member.owned for member in members), account=lambda: [m.owned for m in members])
            self.service = self._start(number)
            members.pop(0).close()
        for member in members:
            member.close()
        last = self.load.stop()
        for settings in (self.service.settings, self._undisturbed):
            of_load, of_members = Reader(settings, self.load.group_id), Reader(settings, self._group.group_id)
            wait_until(lambda reader=of_load: last_offset(reader) == last)  # type: ignore[misc]
            wait_until(lambda reader=of_members: is_empty(reader))  # type: ignore[misc]


def is_empty(reader: Reader) -> bool:
    published = reader.everything()
    return "group_emptied" in [each["event"] for each in published.events] and published.groups[-1]["state"] == "Empty"


def test_killed_observer_writes_what_an_undisturbed_one_writes(
    broker: Broker, observer: Observer, group: KafkaGroup, tmp_path: Path
) -> None:
    """Walkthrough 12: no gap and no other repeat; an aborted commit is never seen; SIGTERM repeats nothing.

    A kill repeats a batch only if it strikes between the output of the batch and the end of it.
    """
    killed = Killed(broker, observer, group, tmp_path)
    killed.run()
    settings = killed.service.settings
    for group_id in (group.group_id, killed.load.group_id, in_transactions(group)):
        assert story(settings, group_id) == story(observer.settings, group_id)
        versions = values_by_version(settings, group_id)
        assert sorted(versions) == list(range(1, len(versions) + 1)), "no gap"
        assert {len(values) for values in versions.values()} == {1}, "what is repeated is equal"
        home = shard_of(group_id, settings.request_partitions)
        assert {record.partition for record in Reader(settings, group_id).records(settings.events_topic)} == {home}
    _, offsets = story(settings, in_transactions(group))
    assert offsets == {(group.topic, 1): 7}
    shown = Reader(settings, in_transactions(group)).everything().offsets
    assert {offset for each in shown for offset in each.values()} == {7}
    check_health(killed.port)
    assert killed.service.stop() == 0, killed.service.log
