"""The writer of records in the transactions of clients, shared by all connections of a gateway."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from kafka.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
)
from msgspec import json

from coordinator.errors import ErrorCode
from streaming.config.settings import Settings
from streaming.kafka.transactional import Transaction, TransactionWriter

log = logging.getLogger(__name__)

WRITERS = 16
"""The maximum number of requests that are at the brokers at once; the others wait. A connection has one at most."""

NO_PLACE = -1
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE.number

_PASSED_ON = frozenset(
    error.errno
    for error in (
        ConcurrentTransactionsError,
        InvalidProducerEpochError,
        InvalidProducerIdMappingError,
        InvalidTxnStateError,
        ProducerFencedError,
    )
)
"""Errors of the brokers that concern the client's own transaction. All others are this gateway's, and the client tries
again."""


class Written(NamedTuple):
    """The result of a request to the brokers: an error, or the offset of a record."""

    code: int
    place: int = NO_PLACE


class Transactions:
    """The writer of all connections of a gateway.

    Args:
        settings: The settings with the gateway's own access to the brokers.
    """

    def __init__(self, settings: Settings) -> None:
        self._writer = TransactionWriter(settings, settings.transactions_topic)
        self._threads = ThreadPoolExecutor(WRITERS, thread_name_prefix="gateway transactions")

    async def join(self, transaction: Transaction, shard: int) -> Written:
        """Add a shard's partition to a transaction."""
        return await self._try(self._writer.join, transaction, shard)

    async def write(self, transaction: Transaction, shard: int, group_id: str) -> Written:
        """Write a record about a commit into a transaction."""
        value = json.encode({"group_id": group_id, "producer_id": transaction.producer_id})
        return await self._try(self._writer.write, transaction, shard, group_id.encode(), value)

    async def _try(self, send: Any, *arguments: Any) -> Written:
        try:
            place = await asyncio.get_running_loop().run_in_executor(self._threads, send, *arguments)
        except KafkaError as error:
            if isinstance(error, BrokerResponseError) and error.errno in _PASSED_ON:
                return Written(error.errno)
            log.warning("the brokers do not take a commit into a transaction: %s", error)
            return Written(NOT_AVAILABLE)
        return Written(0, NO_PLACE if place is None else place)

    def close(self) -> None:
        """Close the connections to the brokers. Requests that wait are dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._writer.close()
