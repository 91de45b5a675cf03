"""A gateway stands still with a TxnOffsetCommit, for longer than its client waits for the response.

The client closes the connection, commits through another gateway, ends the transaction and begins its next one. With
the first version of transactions the next one has the same producer epoch, so the brokers do not refuse a record that
comes late: it becomes a part of the wrong transaction. Then offsets go back, and records are processed twice.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.errors import CoordinatorNotAvailableError, InvalidProducerEpochError
from kafka.protocol.metadata import ApiVersionsRequest

from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.kafka.transactional import TransactionWriter
from streaming.query.coordinator import Coordinator
from tests.chaos.gateways import GatewayProcess
from tests.system.raw_producer import RawProducer
from tests.system.test_transactions import Reader
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import Wire, connect
from tests.tiers import NIGHTLY

TOPIC = "late-source"
NO_OFFSET = -1001
ENDED, TOO_LATE = InvalidProducerEpochError.errno, CoordinatorNotAvailableError.errno
OLD, NEW = 10, 20
"""The offsets of the first transaction and of the next one."""


@pytest.fixture(scope="module", autouse=True)
def topic(broker: Broker) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({TOPIC: {"num_partitions": 2}}, wait_for_metadata=True)


@pytest.fixture
def stopped(coordinator: Coordinator, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway in its own process, which the test stops and continues."""
    gateway = GatewayProcess(tmp_path, 0)
    gateway.start(coordinator.settings.bootstrap_servers, coordinator.settings.topic_prefix)
    gateway.await_ready()
    yield gateway
    gateway.kill()


@pytest.mark.parametrize("first_ends", [pytest.param("commit", marks=NIGHTLY), "abort"])
def test_a_gateway_that_is_stopped_writes_nothing_into_the_next_transaction(
    broker: Broker, gateway: Gateway, stopped: GatewayProcess, first_ends: str, group_id: str
) -> None:
    """SIGSTOP before the gateway reads the request, SIGCONT in the producer's next transaction.

    The last commit through the gateway, for the other partition, is answered after the late one was written or refused.
    """
    assert stopped.process is not None
    with connect(gateway.bootstrap_servers) as wire:
        producer = RawProducer(broker.bootstrap_servers, group_id, TOPIC)
        late = Wire(stopped.address)
        assert late.call(ApiVersionsRequest(version=2)).error_code == 0
        producer.begin(wire)
        os.kill(stopped.process.pid, signal.SIGSTOP)
        late.send(producer.offsets({0: OLD}))
        late.close()
        if first_ends == "commit":
            producer.commit_offsets(wire, {0: OLD})
        producer.end(wire, committed=first_ends == "commit")
        producer.begin(wire)
        if first_ends == "commit":
            producer.commit_offsets(wire, {0: NEW})
        os.kill(stopped.process.pid, signal.SIGCONT)
        with connect(stopped.address) as again:
            producer.commit_offsets(again, {1: NEW})
        producer.end(wire, committed=True)
    reader = Reader(gateway, group_id, TOPIC)
    wait_until(lambda: not reader.is_unstable())
    assert reader.offsets(stable=True) == [NEW if first_ends == "commit" else NO_OFFSET, NEW]


class Stall:
    """Holds the first write of a group, until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, group_id: str, *, before: bool) -> None:
        self.begun, self._goes_on, self._done = threading.Event(), threading.Event(), threading.Event()
        written = TransactionWriter.write

        async def write(writer: TransactionWriter, *arguments: Any, **options: Any) -> Any:
            if group_id not in str(arguments) or self.begun.is_set():
                return await written(writer, *arguments, **options)
            try:
                if before:
                    await asyncio.to_thread(self._hold)
                place = await written(writer, *arguments, **options)
                if not before:
                    await asyncio.to_thread(self._hold)
                return place
            finally:
                self._done.set()

        monkeypatch.setattr(TransactionWriter, "write", write)

    def _hold(self) -> None:
        self.begun.set()
        assert self._goes_on.wait(HANG_S)

    def go_on(self) -> None:
        self._goes_on.set()
        assert self._done.wait(HANG_S)


@pytest.fixture
def still(coordinator: Coordinator) -> Iterator[Gateway]:
    """A second gateway in this process, which stands still."""
    with Gateway(coordinator.settings.model_copy(update={"gateway_port": 0})) as gateway:
        yield gateway


def test_a_gateway_that_stands_still_before_its_record_writes_nothing_late(
    broker: Broker, gateway: Gateway, still: Gateway, monkeypatch: pytest.MonkeyPatch, group_id: str
) -> None:
    """The gateway has read the request; then its client gives up, and commits through another gateway."""
    stall = Stall(monkeypatch, group_id, before=True)
    with connect(gateway.bootstrap_servers) as wire:
        producer = RawProducer(broker.bootstrap_servers, group_id, TOPIC)
        producer.begin(wire)
        with connect(still.bootstrap_servers) as late:
            late.send(producer.offsets({0: OLD}))
            assert stall.begun.wait(HANG_S)
        producer.commit_offsets(wire, {0: OLD})
        producer.end(wire, committed=True)
        producer.begin(wire)
        producer.commit_offsets(wire, {0: NEW})
        stall.go_on()
        with connect(still.bootstrap_servers) as again:
            producer.commit_offsets(again, {1: NEW})
        producer.end(wire, committed=True)
    reader = Reader(gateway, group_id, TOPIC)
    wait_until(lambda: not reader.is_unstable())
    assert reader.offsets(stable=True) == [NEW, NEW]


def test_a_gateway_that_stands_still_after_its_record_is_refused(
    broker: Broker, gateway: Gateway, still: Gateway, monkeypatch: pytest.MonkeyPatch, group_id: str
) -> None:
    """Its record belongs to the first transaction, whose end the coordinator knows.

    The answer is INVALID_PRODUCER_EPOCH, or COORDINATOR_NOT_AVAILABLE if the gateway notices that it is late.
    """
    stall = Stall(monkeypatch, group_id, before=False)
    reader = Reader(gateway, group_id, TOPIC)
    with connect(gateway.bootstrap_servers) as wire, connect(still.bootstrap_servers) as late:
        producer = RawProducer(broker.bootstrap_servers, group_id, TOPIC)
        producer.begin(wire)
        late.send(producer.offsets({0: OLD}))
        assert stall.begun.wait(HANG_S)
        producer.commit_offsets(wire, {0: OLD})
        producer.end(wire, committed=True)
        wait_until(lambda: reader.has(OLD, NO_OFFSET))
        producer.begin(wire)
        producer.commit_offsets(wire, {0: NEW})
        stall.go_on()
        (answer,) = late.read().topics
        assert answer.partitions[0].error_code in (ENDED, TOO_LATE)
        producer.end(wire, committed=True)
    wait_until(lambda: not reader.is_unstable())
    assert reader.offsets(stable=True) == [NEW, NO_OFFSET]
