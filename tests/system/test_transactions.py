"""Offsets inside transactions, with librdkafka's producer and a real broker: who reads which offset, and when."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import IO, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import (
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from kafka.protocol.producer import EndTxnRequest, TxnOffsetCommitRequest

from coordinator.base.hashing import shard_of
from streaming.embedded import Broker
from streaming.gateway import Gateway
from streaming.kafka import transaction_log, transactional
from streaming.kafka.transactional import Transaction, TransactionWriter
from streaming.query.coordinator import Coordinator
from tests.clients import java
from tests.ports import free_gateway_port
from tests.system.conftest import Service
from tests.system.waiting import wait_until
from tests.system.wire import Wire, connect, new_producer

SOURCE, SINK = "transactions-source", "transactions-sink"
UNSTABLE = 88
INVALID = -1001
"""librdkafka's offset of a partition without one."""


@pytest.fixture(scope="module", autouse=True)
def topics(broker: Broker) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({name: {"num_partitions": 2} for name in (SOURCE, SINK)}, wait_for_metadata=True)


class Worker:
    """A consumer and a transactional producer: consume, transform, produce."""

    def __init__(self, gateway: Gateway, group_id: str, transactional_id: str, **options: Any) -> None:
        common = {"bootstrap.servers": gateway.bootstrap_servers}
        self.consumer = Consumer({**common, "group.id": group_id, "enable.auto.commit": False,
                                  "auto.offset.reset": "earliest", "isolation.level": "read_committed"})  # fmt: skip
        self.producer = Producer({**common, "transactional.id": transactional_id, **options})
        self.producer.init_transactions(60)
        self.consumer.subscribe([SOURCE])
        self._assigned: list[TopicPartition] = []
        wait_until(self.is_assigned)

    def is_assigned(self) -> bool:
        self.consumer.poll(0.1)
        self._assigned = self.consumer.assignment()
        return bool(self._assigned)

    def begin(self, offset: int, *, produces: bool = True) -> None:
        """Begin a transaction with the offset of each assigned partition, and with a record if it `produces`."""
        self.producer.begin_transaction()
        if produces:
            self.producer.produce(SINK, str(offset).encode())
        offsets = [TopicPartition(each.topic, each.partition, offset) for each in self._assigned]
        self.producer.send_offsets_to_transaction(offsets, self.consumer.consumer_group_metadata(), 60)

    def close(self) -> None:
        self.consumer.close()


class Reader:
    """Reads the committed offsets of a group in a topic of two partitions, as a tool."""

    def __init__(self, gateway: Gateway, group_id: str, topic: str = SOURCE) -> None:
        self._group_id, self._topic = group_id, topic
        self._admin = AdminClient({"bootstrap.servers": gateway.bootstrap_servers})

    def offsets(self, *, stable: bool) -> list[int]:
        """Return the offsets of both partitions.

        Raises:
            KafkaException: Stable offsets are required, and a transaction is open.
        """
        wanted = [TopicPartition(self._topic, partition) for partition in (0, 1)]
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self._group_id, wanted)], require_stable=stable, request_timeout=10
        )
        found = asked[self._group_id].result().topic_partitions
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return [each.offset for each in found]

    def has(self, *offsets: int) -> bool:
        return self.offsets(stable=False) == list(offsets)

    def is_unstable(self) -> bool:
        try:
            self.offsets(stable=True)
        except KafkaException as error:
            return int(error.args[0].code()) == UNSTABLE
        return False


@pytest.fixture
def reader(gateway: Gateway, group_id: str) -> Reader:
    return Reader(gateway, group_id)


@pytest.fixture
def worker(gateway: Gateway, group_id: str) -> Iterator[Worker]:
    worker = Worker(gateway, group_id, f"id-{group_id}")
    yield worker
    worker.close()


@pytest.mark.parametrize("produces", [True, False])
def test_offsets_are_committed_with_their_transaction(worker: Worker, reader: Reader, produces: bool) -> None:
    """A transaction of offsets alone has an end as well."""
    for offset in (3, 5):
        worker.begin(offset, produces=produces)
        assert reader.is_unstable()
        worker.producer.commit_transaction(60)
        wait_until(lambda offset=offset: reader.has(offset, offset))  # type: ignore[misc]
        assert reader.offsets(stable=True) == [offset, offset]


def test_a_fetch_just_after_the_end_has_the_offsets(worker: Worker, reader: Reader) -> None:
    """Also one that requires no stable offsets, as those of sarama and KafkaJS."""
    for offset in range(1, 6):
        worker.begin(offset)
        worker.producer.commit_transaction(60)
        assert reader.offsets(stable=False) == [offset, offset]


class Second:
    """A producer of the second version of transactions, which announces no partition, as raw requests."""

    def __init__(self, gateway: Gateway, group_id: str, wire: Wire) -> None:
        self._wire, self._group_id = wire, group_id
        self._who = new_producer(gateway.bootstrap_servers, f"second-{group_id}")

    def commit(self, offset: int) -> list[int]:
        """Commit an offset of both partitions in the transaction. Return the codes."""
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = topic.TxnOffsetCommitRequestPartition
        parts = [part(partition_index=n, committed_offset=offset, committed_metadata="") for n in (0, 1)]
        request = TxnOffsetCommitRequest(
            version=5, **self._who._asdict(), group_id=self._group_id, topics=[topic(name=SOURCE, partitions=parts)]
        )
        return [each.error_code for each in self._wire.call(request).topics[0].partitions]

    def end(self, *, commits: bool) -> int:
        """End the transaction; the next one has another epoch. Return the code."""
        said = self._wire.call(EndTxnRequest(version=5, **self._who._asdict(), committed=commits))
        if not said.error_code:
            self._who = self._who._replace(producer_id=said.producer_id, producer_epoch=said.producer_epoch)
        return int(said.error_code)


def test_transactions_of_version_2_may_have_offsets_alone(gateway: Gateway, group_id: str, reader: Reader) -> None:
    """The brokers see a transaction that only the gateway has added a partition to. Its end is not that of none."""
    with connect(gateway.bootstrap_servers) as wire:
        producer = Second(gateway, group_id, wire)
        for offset, commits, expected in ((3, True, 3), (5, False, 3), (7, True, 7)):
            wait_until(lambda offset=offset: producer.commit(offset) == [0, 0])  # type: ignore[misc]
            assert reader.is_unstable()
            assert producer.end(commits=commits) == 0
            assert reader.offsets(stable=False) == [expected] * 2
        now = producer._who
        producer._who = now._replace(producer_epoch=now.producer_epoch - 1)
        assert set(producer.commit(9)) == {InvalidProducerEpochError.errno}, "its transaction has ended"
        producer._who = now
        assert reader.offsets(stable=True) == [7, 7]


def transacting(gateway: Gateway, group_id: str, partition: int, offset: int) -> Producer:
    """Return a producer whose transaction has an offset of a group without members."""
    common = {"bootstrap.servers": gateway.bootstrap_servers}
    producer = Producer({**common, "transactional.id": f"id-{group_id}-{partition}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    with closing(Consumer({**common, "group.id": group_id})) as consumer:
        of_the_group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(SOURCE, partition, offset)], of_the_group, 60)
    return producer


def test_an_open_transaction_holds_back_nobody(gateway: Gateway, group_id: str, coordinator: Coordinator) -> None:
    """One of another partition of its group, and one of another group of its shard, take effect at once."""
    shards = coordinator.settings.request_partitions
    names = (f"{group_id}-{number}" for number in count())
    other = next(name for name in names if shard_of(name, shards) == shard_of(group_id, shards))
    mine, others = Reader(gateway, group_id), Reader(gateway, other)
    still = transacting(gateway, group_id, 0, 3)
    try:
        for producer in (transacting(gateway, group_id, 1, 5), transacting(gateway, other, 1, 7)):
            producer.commit_transaction(60)
        wait_until(lambda: mine.has(INVALID, 5) and others.has(INVALID, 7))
        assert others.offsets(stable=True) == [INVALID, 7]
        assert mine.is_unstable(), "its first transaction is open"
        wait_until(lambda: not coordinator.transactions.unsettled.records())
    finally:
        still.abort_transaction(60)
    wait_until(lambda: not mine.is_unstable())
    assert mine.offsets(stable=True) == [INVALID, 5]


def test_offsets_of_an_aborted_transaction_are_dropped(worker: Worker, reader: Reader) -> None:
    worker.begin(3)
    worker.producer.commit_transaction(60)
    wait_until(lambda: reader.has(3, 3))
    worker.begin(7)
    assert reader.is_unstable()
    worker.producer.abort_transaction(60)
    wait_until(lambda: not reader.is_unstable())
    assert reader.has(3, 3)


def test_a_new_process_aborts_the_transaction_of_the_old_one(
    gateway: Gateway, worker: Worker, reader: Reader, group_id: str
) -> None:
    """The brokers fence the old producer: nothing that it left pending stays, and it commits nothing any more."""
    worker.begin(4)
    assert reader.is_unstable()
    other = Producer({"bootstrap.servers": gateway.bootstrap_servers, "transactional.id": f"id-{group_id}"})
    other.init_transactions(60)
    wait_until(lambda: not reader.is_unstable())
    assert reader.has(-1001, -1001)
    with pytest.raises(KafkaException):
        worker.producer.commit_transaction(60)
    assert reader.has(-1001, -1001)


def test_a_transaction_that_is_left_open_ends_by_its_timeout(gateway: Gateway, reader: Reader, group_id: str) -> None:
    """The brokers look every ten seconds. Nobody tells the gateway, and the offsets are dropped nevertheless."""
    worker = Worker(gateway, group_id, f"id-{group_id}", **{"transaction.timeout.ms": 10_000})
    worker.begin(4)
    wait_until(lambda: not reader.is_unstable())
    assert reader.has(-1001, -1001)
    worker.close()


# -- who dies ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_transaction_may_end_while_no_coordinator_runs(
    run_service: Callable[..., Service], ends: str, group_id: str
) -> None:
    """kill -9 of the driver: the next one reads how the transaction has ended."""
    service = run_service(f"transactions-{ends}")
    service.await_ready()
    with Gateway(service.settings.model_copy(update={"gateway_port": 0})) as gateway:
        worker = Worker(gateway, group_id, f"id-{group_id}")
        reader = Reader(gateway, group_id)
        worker.begin(3)
        service.kill()
        getattr(worker.producer, f"{ends}_transaction")(60)
        run_service(f"transactions-{ends}").await_ready()
        wait_until(lambda: not reader.is_unstable())
        assert reader.has(*([3, 3] if ends == "commit" else [-1001, -1001]))
        worker.close()


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_transaction_goes_on_through_another_gateway(
    coordinator: Coordinator, gateway: Gateway, ends: str, group_id: str
) -> None:
    """The first gateway ends after the commit; nothing that it knew is needed."""
    settings = coordinator.settings.model_copy(update={"gateway_port": free_gateway_port()})
    with Gateway(settings) as other:
        worker = Worker(other, group_id, f"id-{group_id}", **{"socket.timeout.ms": 10_000})
        worker.begin(3)
    reader = Reader(gateway, group_id)
    assert reader.is_unstable()
    with Gateway(settings):
        getattr(worker.producer, f"{ends}_transaction")(60)
        wait_until(lambda: not reader.is_unstable())
        assert reader.has(*([3, 3] if ends == "commit" else [-1001, -1001]))
        worker.close()


# -- the writer --------------------------------------------------------------------------------------------------------


RECORD = (b"g", b"{}")


def later() -> float:
    """Return a deadline that a test does not reach."""
    return time.monotonic() + 60


@pytest.fixture
def transaction(broker: Broker, group_id: str) -> Transaction:
    """A transaction of a new producer."""
    return new_producer(broker.bootstrap_servers, group_id)


@pytest.fixture
def writers(coordinator: Coordinator) -> Iterator[list[TransactionWriter]]:
    """Writers of two gateways."""
    settings = coordinator.settings
    writers = [TransactionWriter(settings, settings.transactions_topic) for _ in range(2)]
    yield writers
    for writer in writers:
        writer.close()


def write(writer: TransactionWriter, transaction: Transaction) -> int:
    """Write a record, and return its offset."""
    return asyncio.run(writer.write(transaction, 1, *RECORD, later())).offset


def test_gateways_write_for_one_producer_in_turn(writers: list[TransactionWriter], transaction: Transaction) -> None:
    """The brokers would take a sequence number that the other gateway has used for a repeat of its record."""
    one, two = writers
    asyncio.run(one.join(transaction, 1, later()))
    places = [write(writer, transaction) for writer in (one, one, two, one, two, two, one)]
    assert [place - places[0] for place in places] == list(range(7))


def test_a_record_outside_of_a_transaction_is_refused(
    writers: list[TransactionWriter], transaction: Transaction
) -> None:
    with pytest.raises(InvalidTxnStateError):
        write(writers[0], transaction)


def test_a_fenced_producer_is_refused(
    broker: Broker, writers: list[TransactionWriter], transaction: Transaction
) -> None:
    writer, _ = writers
    asyncio.run(writer.join(transaction, 1, later()))
    write(writer, transaction)
    new_producer(broker.bootstrap_servers, transaction.transactional_id)
    with pytest.raises((InvalidProducerEpochError, ProducerFencedError)):
        asyncio.run(writer.join(transaction, 0, later()))
    with pytest.raises((InvalidProducerEpochError, ProducerFencedError)):
        write(writer, transaction)


@pytest.fixture
def own_writer(broker: Broker, coordinator: Coordinator, group_id: str) -> Iterator[TransactionWriter]:
    """A writer of a topic that nobody else writes to."""
    name = f"{group_id}.transactions"
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({name: {"num_partitions": 2}}, wait_for_metadata=True)
    with closing(TransactionWriter(coordinator.settings, name)) as writer:
        yield writer


def test_a_partition_takes_a_bounded_number_of_open_transactions(
    broker: Broker, own_writer: TransactionWriter, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer beyond the bound waits until another one has ended its transaction."""
    monkeypatch.setattr(transactional, "OPEN_TRANSACTIONS_WRITTEN_MAX", 1)
    one, other = (new_producer(broker.bootstrap_servers, f"{group_id}-{number}") for number in range(2))
    for transaction in (one, other):
        asyncio.run(own_writer.join(transaction, 1, later()))
    write(own_writer, one)
    with pytest.raises(CoordinatorLoadInProgressError):
        asyncio.run(own_writer.write(other, 1, *RECORD, time.monotonic() + 0.5))
    assert write(own_writer, one), "an open transaction goes on"
    new_producer(broker.bootstrap_servers, one.transactional_id)
    write(own_writer, other)


def test_a_record_has_the_id_of_the_topic_that_it_is_in(
    broker: Broker, own_writer: TransactionWriter, group_id: str
) -> None:
    """The topic is made anew, and the writer has known the one before."""
    topic = f"{group_id}.transactions"
    places, ids = [], []
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        for number in range(2):
            producer = new_producer(broker.bootstrap_servers, f"{group_id}-{number}")
            asyncio.run(own_writer.join(producer, 1, later()))
            places.append(asyncio.run(own_writer.write(producer, 1, *RECORD, later())))
            ids.append(admin.describe_topics([topic])[0]["topic_id"])
            if not number:
                admin.delete_topics([topic])
                admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
    assert [place.topic_id for place in places] == list(map(str, ids))
    assert ids[0] != ids[1]


def test_a_partition_is_read_on_after_its_pause(broker: Broker, coordinator: Coordinator, group_id: str) -> None:
    """The pause begins in the middle of a response, and others are read meanwhile (a fault of kafka-python)."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({group_id: {"num_partitions": 2}}, wait_for_metadata=True)
        topic_id = str(admin.describe_topics([group_id])[0]["topic_id"])
    one_by_one = {"batch.num.messages": 1, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": group_id, **one_by_one})
    producer.init_transactions(60)
    wanted = {0: 2 * transaction_log.BATCHES_AT_ONCE, 1: 10}
    for partition, records in wanted.items():
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(group_id, b"x", partition=partition)
            producer.poll(0)
        producer.commit_transaction(60)
    read = {0: 0, 1: 0}
    with transaction_log.TransactionLog(coordinator.settings, group_id, topic_id, range(2), group_id) as log:

        def has_read(partition: int, records: int) -> bool:
            for batch in log.read(0.1):
                read[batch.partition] += 1
            return read[partition] >= records

        wait_until(lambda: has_read(0, 1))
        log.pause({0})
        before = read[0]
        assert before < wanted[0]
        wait_until(lambda: has_read(1, wanted[1] + 1))
        assert read[0] == before, "nothing is read during the pause"
        log.pause(set())
        wait_until(lambda: has_read(0, wanted[0] + 1))


def test_many_producers_write_at_once(broker: Broker, writers: list[TransactionWriter], group_id: str) -> None:
    """Writes for different producers do not wait for each other, and each has a place of its own."""
    transactions = [new_producer(broker.bootstrap_servers, f"{group_id}-{number}") for number in range(10)]

    def write_some(transaction: Transaction) -> list[int]:
        asyncio.run(writers[0].join(transaction, 1, later()))
        return [write(writers[0], transaction) for _ in range(5)]

    with ThreadPoolExecutor(len(transactions)) as threads:
        places = [place for some in threads.map(write_some, transactions) for place in some]
    assert len(set(places)) == 50


# -- the Java client ---------------------------------------------------------------------------------------------------

COPIED = 500
"""The records of each partition that copiers copy."""


def announced(gateway: Gateway) -> float:
    """Return the number of AddOffsetsToTxn so far, which transactions of version 2 do without."""
    asked = gateway.metrics.registry.get_sample_value("groupcoord_gateway_requests_total", {"api": "AddOffsetsToTxn"})
    return asked or 0.0


@pytest.mark.long
@pytest.mark.nightly
def test_copiers_copy_each_record_once(broker: Broker, gateway: Gateway, group_id: str, tmp_path: Path) -> None:
    """Kafka's own copier, two processes in one group, with random aborts; one of them is killed with SIGKILL."""
    source, sink = "copied-from", "copied-to"
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({name: {"num_partitions": 2} for name in (source, sink)}, wait_for_metadata=True)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    values = {f"{partition}-{number}".encode() for partition in (0, 1) for number in range(COPIED)}
    for value in values:
        producer.produce(source, value, partition=int(value[:1]))
    producer.flush()

    before = announced(gateway)

    def copier(name: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        command = java.copier(gateway.bootstrap_servers, source, sink, group_id, f"{group_id}-{name}")
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    found: list[bytes] = []
    options = {"group.id": "unused", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with ExitStack() as opened:
        logs = [opened.enter_context((tmp_path / name).open("wb")) for name in "ab"]
        killed, other = (copier(name, log) for name, log in zip("ab", logs, strict=True))
        opened.callback(killed.kill)
        opened.callback(other.kill)
        reader = opened.enter_context(closing(Consumer({"bootstrap.servers": broker.bootstrap_servers, **options})))
        reader.assign([TopicPartition(sink, partition, 0) for partition in (0, 1)])

        def has(records: int) -> bool:
            found.extend(m.value() or b"" for m in reader.consume(1_000, 0.2) if m.error() is None)
            return len(found) >= records

        wait_until(lambda: has(200), account=lambda: (tmp_path / "a").read_text())
        killed.kill()
        wait_until(lambda: has(len(values)), account=lambda: (tmp_path / "b").read_text())
        assert not has(len(values) + 1)
    assert sorted(found) == sorted(values), "each record is copied once"
    assert announced(gateway) == before
