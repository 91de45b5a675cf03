"""The rows of the requests to a group of the consumer protocol. A request that is not here has its row in `handlers`.

A row differs from that of a classic group in its checks and its handler; the answer and the rights are the same. The
tests of the table fail while a request to one group has no row here.
"""

from typing import Any

from msgspec import Struct

from coordinator.classic.checks import is_empty
from coordinator.common import offsets, transactions
from coordinator.common.handler import RequestSpec, always
from coordinator.consumer import admin, classic_members, describe, heartbeat
from coordinator.consumer.checks import (
    GROUP_CHECKS,
    check_pattern_size,
    may_commit,
    may_commit_in_transaction,
    may_fetch,
    tells_of_few_partitions,
)
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat, GroupTopics
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    DeleteGroup,
    DescribeGroup,
    ExpelMember,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetTopics,
    RebalanceGroup,
    RepublishGroup,
    SyncGroup,
    TxnOffsetCommit,
)
from coordinator.shard import republish
from coordinator.shard.handlers import HANDLERS


def _row(request: type[Struct], handler: Any, *of_the_group: Any, **columns: Any) -> RequestSpec:
    """Return the row of a classic group with other checks and another handler.

    Args:
        columns: Further columns. Those of the classic group that concern only its own members are not taken over.
    """
    classic = HANDLERS[request]
    return RequestSpec(
        classic.answer,
        handler,
        right=classic.right,
        topic_right=classic.topic_right,
        visible=classic.visible,
        needs_group_id=classic.needs_group_id,
        on_its_own=classic.on_its_own,
        of_the_group=of_the_group,
        refusal_fields=classic.refusal_fields,
        reason=classic.reason,
        **columns,
    )


CONSUMER_HANDLERS: dict[type[Struct], RequestSpec] = {
    # -- members -------------------------------------------------------------------------------------------------------
    ConsumerGroupHeartbeat: _row(
        ConsumerGroupHeartbeat,
        heartbeat.heartbeat,  # the short path of nearly all heartbeats is `answer_heartbeat`
        *GROUP_CHECKS,
        is_costly=heartbeat.repeats_the_assignment,
        on_refusal=heartbeat.record_fencing,
    ),
    GroupTopics: _row(GroupTopics, describe.report_topics, tells_of_few_partitions, check_pattern_size),
    # -- the classic protocol ------------------------------------------------------------------------------------------
    JoinGroup: _row(JoinGroup, classic_members.join, *classic_members.JOIN_CHECKS),
    SyncGroup: _row(SyncGroup, classic_members.sync, *classic_members.SYNC_CHECKS),
    Heartbeat: _row(Heartbeat, classic_members.heartbeat, *classic_members.HEARTBEAT_CHECKS),
    LeaveGroup: _row(LeaveGroup, admin.leave),
    # -- offsets -------------------------------------------------------------------------------------------------------
    OffsetCommit: _row(
        OffsetCommit,
        offsets.store,
        may_commit,
        answers_at_once=offsets.commit_nothing,
        on_refusal=offsets.record_rejection,
    ),
    TxnOffsetCommit: _row(
        TxnOffsetCommit,
        transactions.commit,
        may_commit_in_transaction,
        transactions.has_room,
        answers_at_once=transactions.refuse_late,
    ),
    OffsetFetch: _row(OffsetFetch, offsets.fetch, may_fetch, is_costly=offsets.is_for_all_partitions),
    OffsetDelete: _row(OffsetDelete, offsets.delete),
    # -- administration ------------------------------------------------------------------------------------------------
    ConsumerGroupDescribe: _row(ConsumerGroupDescribe, describe.describe, is_costly=always),
    DescribeGroup: _row(DescribeGroup, admin.describe_as_absent),
    DeleteGroup: _row(DeleteGroup, offsets.delete_group, is_empty),
    RebalanceGroup: _row(RebalanceGroup, admin.rebalance),
    ExpelMember: _row(ExpelMember, admin.expel, admin.names_a_member),
    RepublishGroup: _row(RepublishGroup, republish.republish),
    OffsetTopics: _row(OffsetTopics, offsets.report),
}
