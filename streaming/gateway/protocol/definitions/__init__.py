"""The messages that kafka-python has no classes for: those of the consumer protocol, DeleteGroups with
version 3, and TxnOffsetCommit with version 6.

The files beside this module define their fields, in the form of kafka-python's own definitions.

Source: KIP-848, KIP-1319, and Kafka's files of these names.
"""

import sys
from types import new_class
from typing import Any

from kafka.protocol.api_message import ApiMessage


def _message(name: str) -> Any:
    """Return the class of the message that the file of this name defines."""
    own = {"__module__": __name__}
    return new_class(name, (ApiMessage,), {"load_json": sys.modules[__name__]}, lambda body: body.update(own))


ConsumerGroupHeartbeatRequest = _message("ConsumerGroupHeartbeatRequest")
ConsumerGroupHeartbeatResponse = _message("ConsumerGroupHeartbeatResponse")
ConsumerGroupDescribeRequest = _message("ConsumerGroupDescribeRequest")
ConsumerGroupDescribeResponse = _message("ConsumerGroupDescribeResponse")
DeleteGroupsRequest = _message("DeleteGroupsRequest")
DeleteGroupsResponse = _message("DeleteGroupsResponse")
TxnOffsetCommitRequest = _message("TxnOffsetCommitRequest")
TxnOffsetCommitResponse = _message("TxnOffsetCommitResponse")
