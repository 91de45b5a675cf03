"""`coordinator run` and `coordinator observe` stop while no broker answers, and lose nothing.

Spark's reader of offsets waits for brokers without a limit: its thread cannot be stopped, so it is abandoned.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.observe.source import have_source_made
from tests.system.asking import Asker
from tests.system.conftest import Service, batches, start_service
from tests.system.kafka_groups import KafkaGroup, kafka_group
from tests.system.reading import Reader
from tests.system.test_observe_kills import last_offset, start_observer, values_by_version
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

STOP_S = 30.0

SILENT_S = 20.0
"""The time without brokers before the signal: the last request of each query has failed, and its next one waits."""

COMMITS = 5


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as broker:
        yield broker


class Services:
    """Both services on one broker, with checkpoints that they continue."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._broker, self._folder, self._number = broker, folder, 0
        self.run: Service
        self.observe: Service

    def start(self) -> None:
        servers, self._number = self._broker.bootstrap_servers, self._number + 1
        self.run = start_service(self._folder, self._number, bootstrap_servers=servers, topic_prefix="alone")
        self.observe = start_observer(servers, self._folder, "watching", self._number)
        for service in self.all:
            service.await_ready()

    @property
    def all(self) -> list[Service]:
        return [self.run, self.observe]

    def kill(self) -> None:
        for service in self.all:
            if service.process.poll() is None:
                service.kill()


@pytest.fixture
def services(own_broker: Broker, tmp_path: Path) -> Iterator[Services]:
    services = Services(own_broker, tmp_path)
    have_source_made(Settings(bootstrap_servers=own_broker.bootstrap_servers))
    services.start()
    try:
        yield services
    finally:
        for service in services.all:
            print(service.log)
        services.kill()


def commit(broker: Broker, group: KafkaGroup, offset: int) -> None:
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})  # a new one, as after a restart
    asked = ConsumerGroupTopicPartitions(group.group_id, [TopicPartition(group.topic, 0, offset)])
    admin.alter_consumer_group_offsets([asked])[group.group_id].result(HANG_S)


def await_seen(service: Service, group_id: str, offset: int) -> None:
    reader = Reader(service.settings, group_id)
    wait_until(lambda: last_offset(reader) == offset, account=lambda: service.log)


def stopped(services: list[Service], number: signal.Signals) -> None:
    """Send a signal to services, and check that they and their Java processes end in time."""
    families = [psutil.Process(service.process.pid).children(recursive=True) for service in services]
    began_s = time.monotonic()
    for service in services:
        service.process.send_signal(number)
    for service in services:
        service.process.wait(HANG_S)
        assert time.monotonic() - began_s < STOP_S, service.log
        assert service.process.returncode == Exit.DONE, service.log
        assert "Traceback" not in service.log
    left = [process for family in families for process in family]
    assert psutil.wait_procs(left, timeout=STOP_S)[1] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_services_stop_though_no_broker_answers_and_continue(
    own_broker: Broker, services: Services, number: signal.Signals
) -> None:
    with kafka_group(own_broker.bootstrap_servers, "g") as group:
        for offset in range(1, COMMITS):
            commit(own_broker, group, offset)
        await_seen(services.observe, group.group_id, COMMITS - 1)
        with Transport(services.run.settings.kafka_client_arguments(), "alone") as transport:
            Asker(transport, "ours").alone()
        own_broker.stop()
        time.sleep(SILENT_S)
        stopped(services.all, number)
        before = batches(services.run.checkpoint, "commits")

        own_broker.start()
        services.start()
        commit(own_broker, group, COMMITS)
        await_seen(services.observe, group.group_id, COMMITS)
        versions = values_by_version(services.observe.settings, group.group_id)
        assert sorted(versions) == list(range(1, len(versions) + 1)), "no gap"
        assert {len(values) for values in versions.values()} == {1}, "what is repeated is equal"
        with Transport(services.run.settings.kafka_client_arguments(), "alone") as transport:
            Asker(transport, "others").alone()
        assert batches(services.run.checkpoint, "commits")[-1] > before[-1]
    stopped(services.all, number)
