"""Kafka's group APIs as this coordinator serves them: messages to requests of ours, our answers to responses.

Pure: what only a gateway knows is asked of the `World` that it brings. A row of `EXCHANGES` is all that there is to an
API; what we cannot do is in it too, and refused in `transactions`.
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

__all__ = ["EXCHANGES", "Asker", "Exchange", "Question", "Served", "World"]

EXCHANGES: dict[int, Served] = {
    served.request.API_KEY: served
    for served in (
        Served(JoinGroupRequest, JoinGroupResponse, 0, 9, membership.join),
        Served(SyncGroupRequest, SyncGroupResponse, 0, 5, membership.sync),
        Served(HeartbeatRequest, HeartbeatResponse, 0, 4, membership.heartbeat),
        Served(LeaveGroupRequest, LeaveGroupResponse, 0, 5, membership.leave),
        Served(OffsetCommitRequest, OffsetCommitResponse, 2, 9, offsets.commit, offsets.topics_named),
        Served(OffsetFetchRequest, OffsetFetchResponse, 1, 9, offsets.fetch),
        Served(OffsetDeleteRequest, OffsetDeleteResponse, 0, 0, offsets.delete, offsets.topics_named),
        Served(DescribeGroupsRequest, DescribeGroupsResponse, 0, 6, administration.describe),
        Served(ListGroupsRequest, ListGroupsResponse, 0, 5, administration.list_groups),
        Served(DeleteGroupsRequest, DeleteGroupsResponse, 0, 2, administration.delete),
        Served(TxnOffsetCommitRequest, TxnOffsetCommitResponse, 0, 5, transactions.commit_offsets),
        Served(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, 0, 4, transactions.add_offsets),
    )
}
"""The APIs by Kafka's key."""
