"""Records of the transactions topic, written as a part of a client's own transaction.

No client library writes with the producer id of another process, so this module sends the requests itself, over
connections of kafka-python: AddPartitionsToTxn to the coordinator of the transaction, and Produce to the leader of the
partition. The brokers check the producer's epoch in both. A record has the producer's next sequence number in the
partition. The leader is asked for it before each record (DescribeProducers), because another gateway may have written
since then: a number that was used before would be taken for a repeat, and be answered with the place of that record.

The caller sets a deadline, after which nothing is written. A number that is asked for too late would be right in
whatever transaction is open then: with version 1 of transactions, a producer has the same epoch in the next one.

Offsets begin at 0 again in a topic that is made anew. So the leader is asked for the topic's id before and after each
record.

Source: KIP-98; Kafka's ProducerAppendInfo.checkSequence; KIP-664 for DescribeProducers.
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    NotLeaderForPartitionError,
    RetriableError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.structs import TopicPartition

from coordinator.base.limits import OPEN_TRANSACTIONS_WRITTEN_MAX
from streaming.config.settings import Settings
from streaming.config.timeouts import RECONNECT_BACKOFF_MAX_MS, REQUEST_TIMEOUT_MS
from streaming.kafka.starting import CONNECTION_WAITS, started

RETRY_WAIT_S = 0.05
"""The pause before a request is sent again: the end of the transaction before this one takes some milliseconds. Each
further pause has twice the length, so that many producers that are refused do not burden the brokers."""

RESPONSE_BYTES_MAX = 64 * 2**20
"""The largest response that is read. The leader describes all active producers of a partition in 37 bytes each, so this
is enough for 1.8 million. kafka-python's own limit of 1 MB is reached with 27 thousand."""

AT_ONCE = 20
"""The requests for one partition, and to one coordinator of transactions, that are at the brokers at once; the others
wait for their turns. So a broker that does not answer holds up the commits of its own partitions and transactions, and
no others."""

IN_FLIGHT_MAX = 10_000
"""Far above the requests of all partitions. kafka-python's own bound is 5, and it refuses the sixth."""

SEQUENCE_END = 2**31
"""Sequence numbers begin at 0 again after the largest positive int32."""

ADD_ONE = 3
"""The last version of AddPartitionsToTxn that clients send: it concerns one transaction."""

WITH_TOPIC_IDS = 10
"""The first version of Metadata with the ids of topics (KIP-516)."""

PRODUCE_VERSION = 9
ALL_REPLICAS = -1
FULL_BATCH_BYTES = 1_048_576

Turn = tuple[str, int]
"""What requests wait for: the leader of a partition, a broker that coordinates transactions, or any broker."""

_MOVED = (NotLeaderForPartitionError, UnknownTopicOrPartitionError)


class Transaction(NamedTuple):
    """The producer of an open transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class WrittenRecord(NamedTuple):
    """The place of a record.

    Args:
        topic_id: The id of the topic, as Kafka's tools write it.
    """

    offset: int
    topic_id: str


class TransactionWriter:
    """A writer of one topic. It connects when it is first used. One event loop awaits its methods.

    Requests for one producer may not run at the same time: two records would get the same number, and one place.

    Args:
        settings: The settings with the gateway's own access to the brokers.
        topic: The name of the topic.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self._manager: KafkaConnectionManager | None = None
        self._net: NetworkSelector | None = None
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="connection of transactions")
        self._opening = threading.Lock()
        self._at_once = defaultdict[Turn, asyncio.Semaphore](partial(asyncio.Semaphore, AT_ONCE))
        self._closing = threading.Event()

    async def join(self, transaction: Transaction, partition: int, until_s: float) -> None:
        """Add a partition of the topic to a transaction. A partition that it has already makes no difference.

        Args:
            until_s: The monotonic time after which no request is sent.

        Raises:
            KafkaError: The brokers refuse it, or do not answer.
        """

        async def attempt(manager: KafkaConnectionManager) -> None:
            find = partial(_coordinator_of, transactional_id=transaction.transactional_id)
            node_id = await self._send(manager, find, ("any broker", -1), until_s)
            join = partial(self._join, node_id=node_id, transaction=transaction, partition=partition, until_s=until_s)
            await self._send(manager, join, ("coordinator", node_id), until_s)

        await self._try(attempt, until_s)

    async def write(
        self, transaction: Transaction, partition: int, key: bytes, value: bytes, until_s: float
    ) -> WrittenRecord:
        """Write a record as a part of a transaction, and return its place.

        Args:
            until_s: The monotonic time after which no record is sent.

        Raises:
            KafkaError: The brokers refuse it, or do not answer. The record may have been written nevertheless.
        """
        write = partial(self._write, transaction=transaction, partition=partition, record=(key, value), until_s=until_s)
        place: WrittenRecord = await self._try(
            lambda manager: self._send(manager, write, ("leader", partition), until_s), until_s
        )
        return place

    def close(self) -> None:
        """Close all connections. No method opens one again."""
        self._closing.set()
        self._opener.shutdown(wait=False, cancel_futures=True)
        with self._opening:
            if self._manager is not None and self._net is not None:
                self._manager.close()
                self._net.stop()
            self._manager = self._net = None

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _try(self, attempt: Callable[[KafkaConnectionManager], Awaitable[Any]], until_s: float) -> Any:
        """Try something, again after an error that may pass. Raise the last error at the deadline."""
        pause_s = RETRY_WAIT_S
        while True:
            try:
                return await attempt(await self._open(until_s))
            except KafkaError as error:
                if not _may_pass(error) or time.monotonic() + pause_s > until_s or self._closing.is_set():
                    raise
            await asyncio.sleep(pause_s)
            pause_s *= 2

    @asynccontextmanager
    async def _in_turn(self, turn: Turn, until_s: float) -> AsyncIterator[None]:
        """Wait until not too many other requests for the same are at the brokers."""
        at_once = self._at_once[turn]
        try:
            await asyncio.wait_for(at_once.acquire(), max(until_s - time.monotonic(), 0))
        except TimeoutError as error:
            raise KafkaTimeoutError("too many earlier requests are at the brokers") from error
        try:
            yield
        finally:
            at_once.release()

    async def _open(self, until_s: float) -> KafkaConnectionManager:
        """Return the connections, after they were opened in another thread. Other callers wait meanwhile."""
        if self._manager is not None:
            return self._manager
        try:
            opened = self._opener.submit(self._connect_once, until_s)
        except RuntimeError as error:
            raise KafkaConnectionError("the writer is closed") from error
        try:
            return await asyncio.wait_for(asyncio.wrap_future(opened), until_s - time.monotonic())
        except TimeoutError as error:
            raise KafkaTimeoutError("the brokers could not be reached in time") from error

    def _connect_once(self, until_s: float) -> KafkaConnectionManager:
        with self._opening:
            if self._closing.is_set():
                raise KafkaConnectionError("the writer is closed")
            if self._manager is None:
                self._connect(until_s)
            return self._manager

    async def _send(
        self,
        manager: KafkaConnectionManager,
        send: Callable[[KafkaConnectionManager], Awaitable[Any]],
        turn: Turn,
        until_s: float,
    ) -> Any:
        """Send requests in their turn, in the thread of kafka-python's connections. Wait for their end until the
        deadline."""
        async with self._in_turn(turn, until_s):
            done = Future[Any]()
            done.set_running_or_notify_cancel()
            try:
                sent = manager.call_soon(send, manager)
            except RuntimeError as error:
                raise KafkaConnectionError("the writer is closed") from error
            sent.add_callback(done.set_result)
            sent.add_errback(done.set_exception)
            try:
                return await asyncio.wait_for(asyncio.wrap_future(done), max(until_s - time.monotonic(), 0))
            except TimeoutError as error:
                raise KafkaTimeoutError("the brokers did not answer in time") from error

    def _connect(self, until_s: float) -> None:
        options = {
            **self._settings.kafka_client_arguments(),
            "client_id": "coordinator-gateway-transactions",
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            **CONNECTION_WAITS,
            "reconnect_backoff_max_ms": RECONNECT_BACKOFF_MAX_MS,
            "receive_message_max_bytes": RESPONSE_BYTES_MAX,
            "max_in_flight_requests_per_connection": IN_FLIGHT_MAX,
        }
        net = NetworkSelector(**options)
        net.start()
        manager = KafkaConnectionManager(net, **options)
        try:
            manager.cluster.set_topics([self._topic])
            started(lambda attempt: attempt.connect(manager), until_s - time.monotonic(), self._closing)
        except KafkaError:
            manager.close()
            net.stop()
            raise
        self._manager, self._net = manager, net

    # -- requests; these run in the thread of kafka-python's connections -----------------------------------------------

    async def _join(
        self, manager: KafkaConnectionManager, node_id: int, transaction: Transaction, partition: int, until_s: float
    ) -> None:
        """Add a partition to a transaction at the broker that coordinates it."""
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            max_version=ADD_ONE,
            v3_and_below_transactional_id=transaction.transactional_id,
            v3_and_below_producer_id=transaction.producer_id,
            v3_and_below_producer_epoch=transaction.producer_epoch,
            v3_and_below_topics=[topic(name=self._topic, partitions=[partition])],
        )
        _check_time(until_s)
        response = await manager.send(request, node_id=node_id)
        for result in response.results_by_topic_v3_and_below:
            for each in result.results_by_partition:
                _refuse(each.partition_error_code, "the transaction does not take the partition")

    async def _write(
        self,
        manager: KafkaConnectionManager,
        transaction: Transaction,
        partition: int,
        record: tuple[bytes, bytes],
        until_s: float,
    ) -> WrittenRecord:
        leader = await self._leader_of(manager, partition)
        try:
            topic_id = await self._topic_id(manager, leader)
            sequence = await self._next_sequence(manager, leader, transaction, partition)
            _check_time(until_s)
            offset = await self._produce(manager, leader, transaction, partition, sequence, record)
            if await self._topic_id(manager, leader) != topic_id:  # the record may be in either topic
                raise UnknownTopicOrPartitionError(f"the topic {self._topic} was made anew")
            return WrittenRecord(offset, str(topic_id))
        except _MOVED:
            await manager.cluster.refresh_metadata()
            raise

    async def _produce(
        self,
        manager: KafkaConnectionManager,
        leader: int,
        transaction: Transaction,
        partition: int,
        sequence: int,
        record: tuple[bytes, bytes],
    ) -> int:
        batch = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=True,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            base_sequence=sequence,
            batch_size=FULL_BATCH_BYTES,
        )
        key, value = record
        batch.append(0, int(time.time() * 1000), key, value, [])
        topic = ProduceRequest.TopicProduceData
        data = topic.PartitionProduceData(index=partition, records=bytes(batch.build()))
        request = ProduceRequest(
            max_version=PRODUCE_VERSION,
            transactional_id=transaction.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[topic(name=self._topic, partition_data=[data])],
        )
        response = await manager.send(request, node_id=leader)
        (answer,) = response.responses[0].partition_responses
        _refuse(answer.error_code, answer.error_message)
        offset: int = answer.base_offset
        return offset

    async def _next_sequence(
        self, manager: KafkaConnectionManager, leader: int, transaction: Transaction, partition: int
    ) -> int:
        """Return the sequence number that the leader expects of a producer.

        Raises:
            CoordinatorLoadInProgressError: The partition has too many open transactions of other producers.
        """
        topic = DescribeProducersRequest.TopicRequest
        request = DescribeProducersRequest(topics=[topic(name=self._topic, partition_indexes=[partition])])
        response = await manager.send(request, node_id=leader)
        (answer,) = response.topics[0].partitions
        _refuse(answer.error_code, answer.error_message)
        others_open, sequence = 0, 0
        for each in answer.active_producers:
            if each.producer_id != transaction.producer_id:
                others_open += each.current_txn_start_offset >= 0
            elif each.producer_epoch == transaction.producer_epoch:
                sequence = int(each.last_sequence + 1) % SEQUENCE_END
        if others_open >= OPEN_TRANSACTIONS_WRITTEN_MAX:
            raise CoordinatorLoadInProgressError(f"{others_open} transactions are open in {self._topic}-{partition}")
        return sequence

    async def _topic_id(self, manager: KafkaConnectionManager, leader: int) -> UUID:
        """Return the id of the topic as the leader knows it: a broker knows of a topic before it takes its records."""
        topic = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=[topic(name=self._topic)], allow_auto_topic_creation=False, min_version=WITH_TOPIC_IDS
        )
        (found,) = (await manager.send(request, node_id=leader)).topics
        _refuse(found.error_code, None)
        topic_id: UUID = found.topic_id
        return topic_id

    async def _leader_of(self, manager: KafkaConnectionManager, partition: int) -> int:
        place = TopicPartition(self._topic, partition)
        leader = manager.cluster.leader_for_partition(place)
        if leader is None or leader == -1:
            await manager.cluster.refresh_metadata()
            leader = manager.cluster.leader_for_partition(place)
        if leader is None or leader == -1:
            raise NotLeaderForPartitionError(f"{self._topic} has no leader for partition {partition}")
        return int(leader)


def _check_time(until_s: float) -> None:
    """Raise an error if the deadline is over. A request that is sent later could belong to the next transaction."""
    if time.monotonic() >= until_s:
        raise KafkaTimeoutError("the brokers did not answer in time, so nothing is written")


async def _coordinator_of(manager: KafkaConnectionManager, transactional_id: str) -> int:
    """Return the broker that coordinates a transaction."""
    request = FindCoordinatorRequest(
        key_type=CoordinatorType.TRANSACTION.value, coordinator_keys=[transactional_id], min_version=4
    )
    (found,) = (await manager.send(request)).coordinators
    _refuse(found.error_code, found.error_message)
    if manager.cluster.broker_metadata(found.node_id) is None:
        await manager.cluster.refresh_metadata()
    return int(found.node_id)


def _refuse(error_code: int, why: str | None) -> None:
    """Raise the error of a response, unless it has none."""
    error = for_code(error_code)
    if error is not NoError:
        raise error(why or error.description)


def _may_pass(error: KafkaError) -> bool:
    """Return whether a request may succeed when it is sent again."""
    is_refusal = isinstance(error, BrokerResponseError) and not isinstance(error, (RetriableError, *_MOVED))
    return not is_refusal and not isinstance(error, KafkaTimeoutError)
