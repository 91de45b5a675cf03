"""The messages that kafka-python has no classes for: those of the consumer protocol, DeleteGroups with
version 3, and TxnOffsetCommit with version 6.

The files beside this module define their fields, in the form of kafka-python's own definitions.

Source: KIP-848, KIP-1319, and Kafka's files of these names.
"""

import sys

from streaming.kafka.definitions import message_class

_HERE = sys.modules[__name__]

ConsumerGroupHeartbeatRequest = message_class(_HERE, "ConsumerGroupHeartbeatRequest")
ConsumerGroupHeartbeatResponse = message_class(_HERE, "ConsumerGroupHeartbeatResponse")
ConsumerGroupDescribeRequest = message_class(_HERE, "ConsumerGroupDescribeRequest")
ConsumerGroupDescribeResponse = message_class(_HERE, "ConsumerGroupDescribeResponse")
DeleteGroupsRequest = message_class(_HERE, "DeleteGroupsRequest")
DeleteGroupsResponse = message_class(_HERE, "DeleteGroupsResponse")
TxnOffsetCommitRequest = message_class(_HERE, "TxnOffsetCommitRequest")
TxnOffsetCommitResponse = message_class(_HERE, "TxnOffsetCommitResponse")
