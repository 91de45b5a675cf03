"""AddOffsetsToTxn and TxnOffsetCommit: offsets that a group commits inside a producer's transaction.

The brokers' part comes first: `gateway.transactions` has written into the client's transaction when a function here is
called, and gives the result. The coordinator checks the client's rights to topics, and that it is a member.

Source: KafkaApis.handleAddOffsetsToTxnRequest and handleTxnOffsetCommitRequest.
"""

from collections.abc import Awaitable, Iterator, Sequence
from itertools import compress, repeat
from typing import Any

from kafka.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.producer.transaction import AddOffsetsToTxnResponse

from coordinator.base.access import Operation
from coordinator.base.errors import ErrorCode
from coordinator.messages import requests
from coordinator.messages.responses import AnyAnswer, TxnOffsetCommitAnswer
from streaming.gateway.exchanges.exchange import Asker, CoordinatorRequest, Exchange, ListenerData, Preparing, expected
from streaming.gateway.exchanges.offsets import (
    about_missing,
    codes_of,
    each_with_its_code,
    is_there,
    name_of,
    secret_codes,
    to_commit,
)
from streaming.gateway.protocol.definitions import TxnOffsetCommitResponse

_TOPIC = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_PARTITION = _TOPIC.TxnOffsetCommitResponsePartition

ABORTABLE_FROM = 4
"""The first version of TxnOffsetCommit whose clients know TRANSACTION_ABORTABLE (KIP-890)."""

OWN_ERRORS = 6
"""The first version of TxnOffsetCommit that has these errors; before it they are ILLEGAL_GENERATION (KIP-1319)."""

NEWER_ERRORS = {ErrorCode.GROUP_ID_NOT_FOUND.number, ErrorCode.STALE_MEMBER_EPOCH.number}


def join(preparing: Preparing, message: Any, until_s: float) -> Awaitable[Any]:
    """Start to add the group's partition to the client's transaction."""
    return preparing.join(message, until_s)


def write(preparing: Preparing, message: Any, until_s: float) -> Awaitable[Any]:
    """Start to write a record of the commit into the client's transaction."""
    return preparing.write(message, until_s)


def add_offsets(message: Any, asker: Asker, metadata: ListenerData, written: Any) -> Exchange:
    """Answer whether the group's partition is in its transaction."""
    response = AddOffsetsToTxnResponse(version=message.version, error_code=written.code)
    return Exchange((), lambda answers: response)


def commit_offsets(message: Any, asker: Asker, metadata: ListenerData, written: Any) -> Exchange:
    """Commit offsets that are pending until the transaction ends. A refused record commits nothing."""
    version = message.version
    topics = [(name_of(topic, metadata), topic) for topic in message.topics]
    named = [name for name, topic in topics for _ in topic.partitions]
    known = [is_there(metadata, name, p.partition_index) for name, topic in topics for p in topic.partitions]
    missing, about = about_missing(metadata, asker, message.group_id, Operation.READ, named, known)
    missing_code = metadata.missing_code

    def respond(codes: Iterator[int]) -> ApiMessage:
        if version < OWN_ERRORS:
            codes = map(_as_illegal_generation, codes)
        ended = each_with_its_code(message.topics, codes, _TOPIC, _PARTITION)
        return TxnOffsetCommitResponse(version=version, topics=ended)

    if written.code:
        return Exchange((), lambda answers: respond(repeat(_known(written.code, version))))

    def committed(said: TxnOffsetCommitAnswer, rest: Sequence[AnyAnswer]) -> ApiMessage:
        return respond(codes_of(named, known, said, secret_codes(missing, rest), missing_code))

    if not any(known):
        return Exchange(about, lambda answers: committed(TxnOffsetCommitAnswer(request_id=None), answers))
    request = requests.TxnOffsetCommit(
        **asker.fields(),
        group_id=message.group_id,
        generation_id=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        place=written.place,
        topic_id=written.topic_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        offsets=tuple(compress(to_commit(topics, metadata), known)),
    )
    return Exchange(
        (CoordinatorRequest(request, at=written.at), *about),
        lambda answers: committed(expected(answers[0], TxnOffsetCommitAnswer), answers[1:]),
    )


def _as_illegal_generation(code: int) -> int:
    return ErrorCode.ILLEGAL_GENERATION.number if code in NEWER_ERRORS else code


def _known(code: int, version: int) -> int:
    """Return an error of the brokers as a commit of a version has it. A fenced producer is one of an older epoch."""
    known: int = code
    if code == ProducerFencedError.errno:
        known = InvalidProducerEpochError.errno
    elif code == InvalidTxnStateError.errno and version >= ABORTABLE_FROM:
        known = TransactionAbortableError.errno
    return known
