"""TxnOffsetCommit and AddOffsetsToTxn: offsets that a transaction brings are not kept here, and both say so.

UNSUPPORTED_VERSION is fatal to a transactional producer: its transaction is not committed, so nobody sees records whose
offsets are missing.
"""

from itertools import repeat
from typing import Any

from kafka.protocol.producer.transaction import AddOffsetsToTxnResponse, TxnOffsetCommitResponse

from coordinator.errors import ErrorCode
from streaming.gateway.exchanges.exchange import Asker, Exchange, World
from streaming.gateway.exchanges.offsets import each_with_its_code

REFUSED = ErrorCode.UNSUPPORTED_VERSION.number

_TOPIC = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_PARTITION = _TOPIC.TxnOffsetCommitResponsePartition


def commit_offsets(message: Any, asker: Asker, world: World) -> Exchange:
    """Refuse the offsets of a transaction, each of them."""
    topics = each_with_its_code(message.topics, repeat(REFUSED), _TOPIC, _PARTITION)
    response = TxnOffsetCommitResponse(version=message.version, topics=topics)
    return Exchange((), lambda answers: response)


def add_offsets(message: Any, asker: Asker, world: World) -> Exchange:
    """Refuse to make a group's offsets part of a transaction."""
    response = AddOffsetsToTxnResponse(version=message.version, error_code=REFUSED)
    return Exchange((), lambda answers: response)
