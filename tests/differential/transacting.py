"""A transactional producer's requests, which only a gateway's clients can send: as lines, messages and responses.

The core has no such requests, but for the commit of offsets, which lacks the producer's transactional id there.
"""

from collections.abc import Callable, Iterable
from typing import Any

from kafka.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    UnstableOffsetCommitError,
)
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from coordinator.messages.fields import BaseRequest
from coordinator.messages.requests import OffsetToCommit, TopicPartitions
from coordinator.messages.responses import Answer
from tests.differential.language import Line
from tests.differential.wire_consumers import named

TIMEOUT_MS = 600_000
"""No transaction may end by itself while a busy machine holds its conversation."""

BATCHED_PARTITIONS = 4
"""The first version of AddPartitionsToTxn with several transactions, which brokers send to each other."""

NOT_READY = {
    ConcurrentTransactionsError.errno,
    CoordinatorLoadInProgressError.errno,
    CoordinatorNotAvailableError.errno,
    NotCoordinatorError.errno,
}

REPEATED_WHILE: dict[str, set[int]] = {
    "init": NOT_READY,
    "partitions": NOT_READY,
    "add": NOT_READY,
    "send": NOT_READY,
    "end": NOT_READY,
    "settle": {UnstableOffsetCommitError.errno},
}
"""The errors after which a client repeats the request of a line: an earlier transaction has not ended wholly, or the
coordinator of transactions is not ready."""


class OfProducer(BaseRequest, frozen=True, kw_only=True):
    """The fields of a producer's requests."""

    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1


class InitProducer(OfProducer, frozen=True, kw_only=True):
    """Begin as a producer. An earlier producer of the same id is fenced, and its transaction is aborted."""


class AddPartitions(OfProducer, frozen=True, kw_only=True):
    """Add partitions of topics to the transaction."""

    topics: tuple[TopicPartitions, ...]


class AddOffsets(OfProducer, frozen=True, kw_only=True):
    """Add a group's offsets to the transaction."""


class SendOffsets(OfProducer, frozen=True, kw_only=True):
    """Commit offsets inside the transaction."""

    generation_id: int
    member_id: str
    group_instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]


class EndTransaction(OfProducer, frozen=True, kw_only=True):
    """Commit the transaction, or abort it."""

    is_committed: bool


class ProducerAnswer(Answer, frozen=True, kw_only=True):
    """The result of a request about a transaction. An id is unique in the cluster, so only the epoch is compared."""

    producer_id: int = -1
    producer_epoch: int = -1


# -- messages ----------------------------------------------------------------------------------------------------------


def message(request: OfProducer, version: int) -> Any:
    """Return a request as a message of that version."""
    match request:
        case InitProducer():
            return InitProducerIdRequest(
                transactional_id=request.transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
        case AddPartitions():
            topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=request.transactional_id,
                v3_and_below_producer_id=request.producer_id,
                v3_and_below_producer_epoch=request.producer_epoch,
                v3_and_below_topics=[topic(name=t.topic, partitions=list(t.partitions)) for t in request.topics],
            )
        case AddOffsets():
            return AddOffsetsToTxnRequest(**_producer(request), group_id=request.group_id)
        case EndTransaction():
            return EndTxnRequest(**_producer(request), committed=request.is_committed)
    raise ValueError(f"no request of a producer: {request}")


def _producer(request: OfProducer) -> dict[str, Any]:
    return {
        "transactional_id": request.transactional_id,
        "producer_id": request.producer_id,
        "producer_epoch": request.producer_epoch,
    }


# -- responses ---------------------------------------------------------------------------------------------------------


def _begun(request: OfProducer, version: int, said: Any) -> Answer:
    return ProducerAnswer(
        request_id=request.request_id,
        **named(said.error_code),
        producer_id=said.producer_id,
        producer_epoch=said.producer_epoch,
    )


def _done(request: OfProducer, version: int, said: Any) -> Answer:
    return ProducerAnswer(request_id=request.request_id, **named(said.error_code))


def _added(request: OfProducer, version: int, said: Any) -> Answer:
    codes = [p.partition_error_code for t in said.results_by_topic_v3_and_below for p in t.results_by_partition]
    return ProducerAnswer(request_id=request.request_id, **named(max(codes)))


READERS: dict[type, Callable[[Any, int, Any], Answer]] = {
    InitProducer: _begun,
    AddPartitions: _added,
    AddOffsets: _done,
    EndTransaction: _done,
}


def is_to_repeat(line: Line, codes: Iterable[str]) -> bool:
    """Return whether a client would send the request of the line again."""
    wanted = REPEATED_WHILE.get(line.verb, set())
    return any(int(code) in wanted for said in codes for code in said.split("/"))
