"""Kafka's group APIs as this coordinator serves them, by requests to the coordinator and responses from its answers.

To serve another API, change two files.

1. In a module of this folder, write the function that converts a message to an `Exchange`: the questions to the
   coordinator, and the function that makes the response from their answers. The function is pure: it gets the data
   that only a gateway has from its argument, a `ListenerData`.
2. In this file, write the row: the classes of the request and the response, the first and the last version, the
   function.

Only the row has the versions. A row of an API with a part in a client's transaction has a `prepare`, which writes that
part before the exchange begins.
"""

from kafka.protocol.admin.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

from streaming.gateway.exchanges import administration, consumer_groups, membership, offsets, transactions
from streaming.gateway.exchanges.exchange import Asker, CoordinatorRequest, Exchange, ListenerData, Served
from streaming.gateway.protocol.definitions import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

__all__ = ["SERVED", "Asker", "CoordinatorRequest", "Exchange", "ListenerData", "Served"]

SERVED: dict[int, Served] = {
    served.request.API_KEY: served
    for served in (
        Served(JoinGroupRequest, JoinGroupResponse, 0, 9, membership.join),
        Served(SyncGroupRequest, SyncGroupResponse, 0, 5, membership.sync),
        Served(HeartbeatRequest, HeartbeatResponse, 0, 4, membership.heartbeat),
        Served(LeaveGroupRequest, LeaveGroupResponse, 0, 5, membership.leave),
        Served(
            OffsetCommitRequest,
            OffsetCommitResponse,
            2,
            10,
            offsets.commit,
            offsets.topics_named,
            offsets.ids_committed,
        ),
        Served(
            OffsetFetchRequest,
            OffsetFetchResponse,
            1,
            10,
            offsets.fetch,
            topic_ids=offsets.ids_fetched,
            topics_fetched=offsets.topics_fetched,
            groups_fetched=offsets.groups_fetched,
            has_large_response=True,
        ),
        Served(OffsetDeleteRequest, OffsetDeleteResponse, 0, 0, offsets.delete, offsets.topics_named),
        Served(DescribeGroupsRequest, DescribeGroupsResponse, 0, 6, administration.describe, has_large_response=True),
        Served(ListGroupsRequest, ListGroupsResponse, 0, 5, administration.list_groups, has_large_response=True),
        Served(DeleteGroupsRequest, DeleteGroupsResponse, 0, 3, administration.delete),
        Served(
            ConsumerGroupHeartbeatRequest,
            ConsumerGroupHeartbeatResponse,
            0,
            1,
            consumer_groups.heartbeat,
            subscription=consumer_groups.subscription,
        ),
        Served(
            ConsumerGroupDescribeRequest,
            ConsumerGroupDescribeResponse,
            0,
            1,
            consumer_groups.describe,
            has_large_response=True,
        ),
        Served(
            TxnOffsetCommitRequest,
            TxnOffsetCommitResponse,
            0,
            6,
            transactions.commit_offsets,
            offsets.topics_named,
            offsets.ids_committed,
            prepare=transactions.write,
        ),
        Served(
            AddOffsetsToTxnRequest,
            AddOffsetsToTxnResponse,
            0,
            4,
            transactions.add_offsets,
            prepare=transactions.join,
        ),
    )
}
"""The APIs by Kafka's key."""
