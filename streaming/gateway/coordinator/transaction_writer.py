"""The writer of records in the transactions of clients, shared by all connections of a gateway."""

import asyncio
import logging
import time
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from kafka.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
)
from msgspec import json

from coordinator.base.errors import ErrorCode
from streaming.config.settings import Settings
from streaming.gateway.coordinator.routing import ShardAddress
from streaming.gateway.coordinator.transaction_ends import Ends
from streaming.kafka.transactional import Transaction, TransactionWriter, WrittenRecord

log = logging.getLogger(__name__)

WRITE_WAIT_S = 5.0
"""The longest time from the arrival of a client's request to the acknowledgement of its record. After it the client
gets an error and nothing is written: clients give up after 30 s or more, and may then begin the producer's next
transaction, to which a later record would belong."""

NO_PLACE = -1
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE.number

_PASSED_ON = frozenset(
    error.errno
    for error in (
        ConcurrentTransactionsError,
        CoordinatorLoadInProgressError,
        InvalidProducerEpochError,
        InvalidProducerIdMappingError,
        InvalidTxnStateError,
        ProducerFencedError,
    )
)
"""Errors that concern the client's own transaction, or the bound of open ones. All others concern this gateway, and the
client sends its request again."""


class Written(NamedTuple):
    """The result of a request to the brokers: an error, or the offset of a record.

    Args:
        topic_id: The id of the topic with the record.
        at: The prefix of the coordinator in whose topic the record is.
    """

    code: int
    place: int = NO_PLACE
    topic_id: str = ""
    at: str | None = None


class Transactions:
    """The writer of all connections of a gateway.

    Attributes:
        ends: The transactions that clients have ended.

    Args:
        settings: The settings with the gateway's own access to the brokers.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.ends = Ends()
        self._writers: dict[str, TransactionWriter] = {}
        self._turns = WeakValueDictionary[tuple[str, int], asyncio.Lock]()

    async def join(self, transaction: Transaction, shard_address: ShardAddress, until_s: float) -> Written:
        """Add a shard's partition to a transaction, before a monotonic time."""
        return await self._in_turn(
            transaction, until_s, self._writer_at(shard_address.prefix).join, shard_address.shard
        )

    async def write(
        self,
        transaction: Transaction,
        shard_address: ShardAddress,
        group_id: str,
        until_s: float,
        *,
        joins: bool = False,
    ) -> Written:
        """Write a record about a commit into a transaction, before a monotonic time.

        Args:
            joins: Whether the shard's partition is added to the transaction first: the client has not added it, or may
                have added that of another coordinator.
        """
        value = json.encode({"group_id": group_id, "producer_id": transaction.producer_id})
        if joins:
            joined = await self.join(transaction, shard_address, until_s)
            if joined.code:
                return joined
        write = self._writer_at(shard_address.prefix).write
        written = await self._in_turn(transaction, until_s, write, shard_address.shard, group_id.encode(), value)
        return written if written.code else written._replace(at=shard_address.prefix)

    def _writer_at(self, prefix: str) -> TransactionWriter:
        if prefix not in self._writers:
            settings = self._settings.model_copy(update={"topic_prefix": prefix})
            self._writers[prefix] = TransactionWriter(settings, settings.transactions_topic)
        return self._writers[prefix]

    async def _in_turn(self, transaction: Transaction, until_s: float, send: Any, *arguments: Any) -> Written:
        """Send a producer's requests one after another. A client may claim the producer id of another one."""
        turn = self._turns.setdefault((transaction.transactional_id, transaction.producer_id), asyncio.Lock())
        try:
            await asyncio.wait_for(turn.acquire(), until_s - time.monotonic())
        except TimeoutError:
            log.warning("a commit into a transaction waited too long for its producer's earlier requests")
            return Written(NOT_AVAILABLE)
        try:
            return await self._try(send, transaction, *arguments, until_s)
        finally:
            turn.release()

    async def _try(self, send: Any, *arguments: Any) -> Written:
        try:
            place: WrittenRecord | None = await send(*arguments)
        except KafkaError as error:
            if isinstance(error, BrokerResponseError) and error.errno in _PASSED_ON:
                return Written(error.errno)
            log.warning("the brokers do not take a commit into a transaction: %s", error)
            return Written(NOT_AVAILABLE)
        return Written(0) if place is None else Written(0, place.offset, place.topic_id)

    def close(self) -> None:
        """Close the connections to the brokers."""
        for writer in list(self._writers.values()):
            writer.close()
