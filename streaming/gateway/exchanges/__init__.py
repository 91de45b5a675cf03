"""Kafka's group APIs as this coordinator serves them: messages become requests of ours, answers become responses.

To serve another API, change two files.

1. In a module of this folder, write the function that turns a message into an `Exchange`: the questions to the
   coordinator, and the response that their answers make. The function is pure: what only a gateway knows, it asks the
   `World` that it is given.
2. Here, write the row: the classes of the request and the response, the first and the last version, the function.

The row is the only place that has the versions. Those of offset requests end where topics go by their ids alone. The
APIs that the coordinator cannot serve have rows as well, with the functions of `transactions`, which refuse.
"""

from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
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
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from streaming.gateway.exchanges import administration, membership, offsets, transactions
from streaming.gateway.exchanges.exchange import Asker, Exchange, Question, Served, World

__all__ = ["SERVED", "Asker", "Exchange", "Question", "Served", "World"]

SERVED: dict[int, Served] = {
    served.request.API_KEY: served
    for served in (
        Served(JoinGroupRequest, JoinGroupResponse, 0, 9, membership.join),
        Served(SyncGroupRequest, SyncGroupResponse, 0, 5, membership.sync),
        Served(HeartbeatRequest, HeartbeatResponse, 0, 4, membership.heartbeat),
        Served(LeaveGroupRequest, LeaveGroupResponse, 0, 5, membership.leave),
        Served(OffsetCommitRequest, OffsetCommitResponse, 2, 9, offsets.commit, offsets.topics_named),
        Served(OffsetFetchRequest, OffsetFetchResponse, 1, 9, offsets.fetch, has_large_response=True),
        Served(OffsetDeleteRequest, OffsetDeleteResponse, 0, 0, offsets.delete, offsets.topics_named),
        Served(DescribeGroupsRequest, DescribeGroupsResponse, 0, 6, administration.describe, has_large_response=True),
        Served(ListGroupsRequest, ListGroupsResponse, 0, 5, administration.list_groups, has_large_response=True),
        Served(DeleteGroupsRequest, DeleteGroupsResponse, 0, 2, administration.delete),
        Served(TxnOffsetCommitRequest, TxnOffsetCommitResponse, 0, 5, transactions.commit_offsets, is_refused=True),
        Served(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, 0, 4, transactions.add_offsets, is_refused=True),
    )
}
"""The APIs by Kafka's key."""
