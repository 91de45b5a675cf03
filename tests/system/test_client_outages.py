"""Clients during an outage of the brokers that is longer than the time for which a request waits for them."""

import asyncio
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from streaming.client import AsyncGroupConsumer, AsyncGroupMember, GroupConsumer, GroupMember, sending
from streaming.client.sending import Outage, RequestProducer
from streaming.config.settings import Settings
from streaming.embedded import Broker
from tests.system.conftest import Service
from tests.system.reading import Reader
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

SESSION_MS = 6_000
REQUEST_MS = 1_000
DELIVERY_MS = 3_000
TURN_S = 0.05

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 1_000},
    "consumer": {"group_protocol": "consumer", "metadata_refresh_ms": 1_000},
}
KINDS = (GroupConsumer, AsyncGroupConsumer, GroupMember, AsyncGroupMember)


class Client:
    """A client of one kind, alone in its group. A consumer has a topic of one partition; the names are the group's."""

    def __init__(self, kind: type, protocol: str, settings: Settings) -> None:
        self.group_id = f"{kind.__name__}-{protocol}"
        self._reads, self._servers, self._group = kind in KINDS[:2], settings.bootstrap_servers, settings
        self._wanted = {"gate"}
        config: dict[str, Any] = {
            "group_id": self.group_id, "bootstrap_servers": settings.bootstrap_servers,
            "topic_prefix": settings.topic_prefix, "request_timeout_ms": REQUEST_MS, **PROTOCOLS[protocol],
        }  # fmt: skip
        if self._reads:
            self._create_topic()
            reading = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 200}
            self.client: Any = kind(self.group_id, **config, **reading)
        else:
            self.client = kind(self._wanted, **config)
        self.read: list[int] = []

    def _create_topic(self) -> None:
        with KafkaAdminClient(bootstrap_servers=self._servers) as admin:
            topic = {self.group_id: {"num_partitions": 1, "replication_factor": 1}}
            admin.create_topics(topic, wait_for_metadata=True)

    async def poll(self) -> None:
        match self.client:
            case AsyncGroupConsumer():
                polled = await self.client.getmany()
            case AsyncGroupMember():
                polled = await self.client.poll()
            case _:
                polled = self.client.poll()
        if self._reads:
            self.read += [record.offset for records in polled.values() for record in records]

    def ask_for_more(self) -> None:
        """Write a record for a consumer, or add a resource for a member, which needs a rebalance."""
        if self._reads:
            with KafkaProducer(bootstrap_servers=self._servers) as producer:
                producer.send(self.group_id, b"work").get(HANG_S)
        else:
            self._wanted = {"gate", "yard"}
            member = self.client._member if isinstance(self.client, AsyncGroupMember) else self.client
            member.subscribe(self._wanted)

    def has(self, records: int) -> bool:
        """Return whether a consumer has read and committed its records, and whether a member owns its resources."""
        if not self._reads:
            return set(self.client.assignment) == self._wanted
        partition = TopicPartition(self.group_id, 0)
        if self.client.assignment() != {partition} or len(set(self.read)) < records:
            return False
        committed = Reader(self._group, self.group_id).everything().offsets
        return bool(committed) and committed[-1] == {tuple(partition): records}


async def until(clients: list[Client], is_true: Callable[[], bool]) -> None:
    """Poll with all clients until a condition holds."""
    async with asyncio.timeout(HANG_S):
        while not is_true():
            for client in clients:
                await client.poll()
            await asyncio.sleep(TURN_S)


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Broker]:
    """A broker of its own, for a test that freezes or kills it."""
    with Broker(tmp_path / "broker") as broker:
        yield broker
        broker.kill()


@pytest.mark.nightly
def test_all_clients_continue_after_requests_have_expired(
    run_service: Callable[..., Service],
    failing: Broker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests that a broker has got, and does not answer, expire; then it dies, and comes back.

    kafka-python's idempotent producer sends nothing any more after that.
    """
    monkeypatch.setattr(sending, "DELIVERY_WAIT_MS", DELIVERY_MS)
    service = run_service("outages", bootstrap_servers=failing.bootstrap_servers)
    service.await_ready()

    def logged(pattern: str, level: str) -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.levelname == level]
        return [line for line in lines if re.search(pattern, line)]

    async def test() -> None:
        clients = [Client(kind, protocol, service.settings) for kind in KINDS for protocol in PROTOCOLS]
        async with AsyncExitStack() as stack:
            for each in clients:
                if isinstance(each.client, AsyncGroupConsumer | AsyncGroupMember):
                    await stack.enter_async_context(each.client)
                else:
                    stack.enter_context(each.client)
                if each._reads:
                    each.ask_for_more()
            await until(clients, lambda: all(each.has(1) for each in clients))

            os.kill(failing.pid, signal.SIGSTOP)
            await until(clients, lambda: bool(logged("was not sent: .*Expiring", "WARNING")))
            failing.kill()
            accepted_none = f"The brokers at {failing.bootstrap_servers} have accepted no request"
            await until(clients, lambda: bool(logged(accepted_none, "ERROR")))
            failing.start()

            for each in clients:
                each.ask_for_more()
            for each in clients:  # one after the other, so that a failure names the client
                await until(clients, lambda each=each: each.has(2))  # type: ignore[misc]
            assert len(logged(accepted_none, "ERROR")) == 1, "one line for all members of a process"
            assert len(logged("accept requests again", "WARNING")) == 1
            for each in clients:
                assert Reader(service.settings, each.group_id).everything().groups[-1]["state"] == "Stable"

    asyncio.run(test())
    assert service.process.poll() is None, service.log


# -- the producer of requests ------------------------------------------------------------------------------------------


def producer_for(broker: Broker, topic: str, **topic_configs: str) -> RequestProducer:
    """Create a topic of one partition, and return a producer."""
    servers = broker.bootstrap_servers
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        wanted = {"num_partitions": 1, "replication_factor": 1, "configs": topic_configs}
        admin.create_topics({topic: wanted}, wait_for_metadata=True)
    config = {"bootstrap_servers": servers, "kafka_client": KafkaConsumer.DEFAULT_CONFIG["kafka_client"]}
    return RequestProducer(config, Outage(servers))


def offset_after(broker: Broker, topic: str) -> int:
    """Return the number of records in a topic."""
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        return int(consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)])


def test_a_refused_record_does_not_stop_the_records_of_others(broker: Broker) -> None:
    """All later records of kafka-python's idempotent producer fail with the error of the first one."""
    topic = "refused-record"
    producer = producer_for(broker, topic, **{"max.message.bytes": "1000"})
    errors: list[BaseException] = []
    producer.send(topic, b"g", bytes(2_000), 0, errors.append)
    wait_until(lambda: errors)
    producer.send(topic, b"g", b"small", 0, errors.append)
    producer.close()
    assert [type(error) for error in errors] == [MessageSizeTooLargeError]
    assert offset_after(broker, topic) == 1


def test_closing_during_an_outage_raises_nothing_and_leaves_no_thread(
    failing: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "DELIVERY_WAIT_MS", DELIVERY_MS)
    before = set(threading.enumerate())
    producer = producer_for(failing, "closing")
    assert producer.partitions_for("closing") == {0}
    errors: list[BaseException] = []
    failing.kill()
    producer.send("closing", b"g", b"late", 0, errors.append)
    producer.close(timeout=0.2)
    assert "the last requests were not sent within 0.2 s, and are sent if the brokers return soon" in caplog.messages
    wait_until(lambda: set(threading.enumerate()) <= before, account=threading.enumerate)
    assert [type(error) for error in errors] == [KafkaTimeoutError]
