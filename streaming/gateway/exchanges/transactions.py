"""TxnOffsetCommit and AddOffsetsToTxn: both are refused, because offsets of transactions are not supported.

UNSUPPORTED_VERSION is fatal to a transactional producer. It does not commit its transaction, so no consumer reads
records whose offsets are missing.
"""

from itertools import repeat
from typing import Any

from kafka.protocol.producer.transaction import AddOffsetsToTxnResponse, TxnOffsetCommitResponse

from coordinator.errors import ErrorCode
from streaming.gateway.exchanges.exchange import Asker, Exchange, GatewayData
from streaming.gateway.exchanges.offsets import each_with_its_code

REFUSED = ErrorCode.UNSUPPORTED_VERSION.number

_TOPIC = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_PARTITION = _TOPIC.TxnOffsetCommitResponsePartition


def commit_offsets(message: Any, asker: Asker, world: GatewayData) -> Exchange:
    """Refuse each offset of a transaction."""
    topics = each_with_its_code(message.topics, repeat(REFUSED), _TOPIC, _PARTITION)
    response = TxnOffsetCommitResponse(version=message.version, topics=topics)
    return Exchange((), lambda answers: response)


def add_offsets(message: Any, asker: Asker, world: GatewayData) -> Exchange:
    """Refuse to add a group's offsets to a transaction."""
    response = AddOffsetsToTxnResponse(version=message.version, error_code=REFUSED)
    return Exchange((), lambda answers: response)
