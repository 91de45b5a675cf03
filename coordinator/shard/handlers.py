"""The table of all kinds of requests. The shard handles a request by its row; `handler.RequestSpec` explains the
columns.

To add a kind of request, change these files in this order:

    1. messages/requests.py   the request: a class with a tag of its own, added to the union `Request`
    2. messages/responses.py  the answer: a class with the same tag, added to the union `AnyAnswer`
    3. shard/handlers.py      the row, with the handler in the module of its subject (`join`, `offsets`, ...)

The shard calls a handler when all checks of the row have passed. `handler(subject, request, context)` changes the
subject and yields the outputs, in most cases with the reply as the last one. Without a right in its row, every client
may send the request. A new check belongs in `checks`; its docstring begins with the error of the response if the check
fails, and `coordinator tables checks` prints it.

The tests of the table fail while a request or an answer has no row.
"""

from msgspec import Struct

from coordinator.base.access import Operation, Resource
from coordinator.base.errors import ErrorCode
from coordinator.base.states import GroupType
from coordinator.classic import admin, checks, describe, join, leave
from coordinator.common import authorizer, offsets, refusals, transactions
from coordinator.common.handler import RequestSpec, Right, Subject, TopicRight, always, unless
from coordinator.consumer import checks as consumer_checks
from coordinator.consumer import not_found
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat, GroupTopics
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.move_requests import (
    CancelMove,
    CheckAdoption,
    DescribeSlots,
    ImportGroup,
    ReleaseGroup,
    ReleaseSlots,
    TakeBack,
)
from coordinator.messages.requests import (
    CheckAccess,
    DeleteGroup,
    DescribeAccess,
    DescribeGroup,
    DescribePolicies,
    ExpelMember,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetTopics,
    RebalanceGroup,
    RepublishGroup,
    SetAccess,
    SetPolicies,
    SettleTransactions,
    StopCoordinator,
    SyncGroup,
    TxnOffsetCommit,
)
from coordinator.messages.responses import (
    CancelMoveAnswer,
    CheckAccessAnswer,
    CheckAdoptionAnswer,
    CommittedPartition,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DeletedPartition,
    DeleteGroupAnswer,
    DescribeAccessAnswer,
    DescribeGroupAnswer,
    DescribePoliciesAnswer,
    DescribeSlotsAnswer,
    ExpelMemberAnswer,
    FetchedOffset,
    GroupTopicsAnswer,
    HeartbeatAnswer,
    HeartbeatsAnswer,
    ImportGroupAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    OffsetTopicsAnswer,
    RebalanceGroupAnswer,
    ReleaseGroupAnswer,
    ReleaseSlotsAnswer,
    RepublishGroupAnswer,
    SetAccessAnswer,
    SetPoliciesAnswer,
    SettleTransactionsAnswer,
    StopCoordinatorAnswer,
    SyncGroupAnswer,
    TakeBackAnswer,
    TxnOffsetCommitAnswer,
)
from coordinator.moves import imports, slot_source, slot_target, source, target
from coordinator.policies import store
from coordinator.shard import republish

READ_GROUP = Right(Operation.READ, Resource.GROUP)
DELETE_GROUP = Right(Operation.DELETE, Resource.GROUP)
DESCRIBE_GROUP = Right(Operation.DESCRIBE, Resource.GROUP)
DESCRIBE_CLUSTER = Right(Operation.DESCRIBE, Resource.CLUSTER)
ALTER_CLUSTER = Right(Operation.ALTER, Resource.CLUSTER)

HANDLERS: dict[type[Struct], RequestSpec] = {
    # -- members -------------------------------------------------------------------------------------------------------
    JoinGroup: RequestSpec(
        JoinGroupAnswer,
        join.join,
        right=READ_GROUP,
        needs_group_id=True,
        on_its_own=(checks.session_timeout_is_allowed,),
        absent=ErrorCode.UNKNOWN_MEMBER_ID,
        of_the_group=(
            checks.has_room,
            checks.has_room_for_its_metadata,
            checks.check_protocol,
            checks.is_not_pending_and_static,
            checks.check_member_known,
        ),
        founds=GroupType.CLASSIC,
        creates_group=join.is_of_a_newcomer,
        is_costly=join.is_answered_with_all_members,
        answers_at_once=join.repeated,
        on_refusal=join.reject_join,
        refusal_fields=refusals.member_id,
    ),
    SyncGroup: RequestSpec(
        SyncGroupAnswer,
        join.sync,
        right=READ_GROUP,
        needs_group_id=True,
        absent=ErrorCode.UNKNOWN_MEMBER_ID,
        of_the_group=(*checks.of_hot_state(*checks.OF_A_MEMBER), checks.names_our_protocol, checks.syncs_are_taken),
    ),
    Heartbeat: RequestSpec(
        HeartbeatAnswer,
        join.heartbeat,  # the short path of nearly all heartbeats is `answer_heartbeat`
        right=READ_GROUP,
        needs_group_id=True,
        absent=ErrorCode.UNKNOWN_MEMBER_ID,
        of_the_group=checks.of_hot_state(*checks.OF_A_MEMBER),
    ),
    Heartbeats: RequestSpec(  # each heartbeat is handled by the row above, and needs its right
        HeartbeatsAnswer,
        join.answer,
        subject=Subject.HEARTBEATS,
        on_its_own=(checks.has_even_columns,),
    ),
    LeaveGroup: RequestSpec(
        LeaveGroupAnswer,
        leave.leave,
        right=READ_GROUP,
        needs_group_id=True,
    ),
    ConsumerGroupHeartbeat: RequestSpec(
        ConsumerGroupHeartbeatAnswer,
        not_found.heartbeat,  # `consumer_handlers` has the rows of groups of the consumer protocol
        right=READ_GROUP,
        limited=authorizer.limited_heartbeat,
        on_its_own=consumer_checks.OWN_CHECKS,
        founds=GroupType.CONSUMER,
        creates_group=consumer_checks.is_of_a_newcomer,
        reason=not_found.reason,
    ),
    GroupTopics: RequestSpec(
        GroupTopicsAnswer,
        not_found.group_topics,
        right=READ_GROUP,
        needs_group_id=True,
    ),
    # -- offsets -------------------------------------------------------------------------------------------------------
    OffsetCommit: RequestSpec(
        OffsetCommitAnswer,
        offsets.commit,
        right=READ_GROUP,
        topic_right=TopicRight(Operation.READ, "offsets", CommittedPartition),
        absent=ErrorCode.GROUP_ID_NOT_FOUND,
        of_the_group=unless(
            checks.is_from_outside, *checks.of_hot_state(*checks.OF_A_MEMBER), checks.commits_are_taken
        ),
        creates_group=offsets.is_from_no_member,
        answers_at_once=offsets.commit_nothing,
        on_refusal=offsets.record_rejection,
        refusal_fields=refusals.every_commit,
    ),
    TxnOffsetCommit: RequestSpec(
        TxnOffsetCommitAnswer,
        transactions.commit,
        right=READ_GROUP,
        needs_signature=True,  # its place is that of a record which a gateway has written
        topic_right=TopicRight(Operation.READ, "offsets", CommittedPartition),
        needs_group_id=True,
        absent=ErrorCode.GROUP_ID_NOT_FOUND,
        of_the_group=(
            *unless(transactions.is_from_outside, *checks.of_hot_state(*checks.OF_A_MEMBER)),
            transactions.has_room,
        ),
        creates_group=transactions.is_from_no_member,
        answers_at_once=transactions.refuse_late,
        refusal_fields=refusals.every_commit,
    ),
    SettleTransactions: RequestSpec(
        SettleTransactionsAnswer,
        transactions.settle,
        subject=Subject.TRANSACTIONS,
        right=ALTER_CLUSTER._replace(holder=authorizer.COORDINATOR),
    ),
    OffsetFetch: RequestSpec(
        OffsetFetchAnswer,
        offsets.fetch,
        right=DESCRIBE_GROUP,
        topic_right=TopicRight(Operation.DESCRIBE, "topics", FetchedOffset),
        visible=authorizer.visible_offsets,
        is_costly=offsets.is_for_all_partitions,
        refusal_fields=refusals.every_offset,
    ),
    OffsetDelete: RequestSpec(
        OffsetDeleteAnswer,
        offsets.delete,
        right=DELETE_GROUP,
        topic_right=TopicRight(Operation.READ, "topics", DeletedPartition),
        needs_group_id=True,
        absent=ErrorCode.GROUP_ID_NOT_FOUND,
        of_the_group=(checks.is_of_consumers_or_empty,),
    ),
    # -- administration ------------------------------------------------------------------------------------------------
    DescribeGroup: RequestSpec(
        DescribeGroupAnswer,
        describe.describe,
        right=DESCRIBE_GROUP,
        is_costly=always,
        refusal_fields=refusals.group_id,
    ),
    ConsumerGroupDescribe: RequestSpec(
        ConsumerGroupDescribeAnswer,
        not_found.describe,
        right=DESCRIBE_GROUP,
        visible=authorizer.visible_description,
        needs_group_id=True,
        refusal_fields=refusals.group_id,
    ),
    ListGroups: RequestSpec(
        ListGroupsAnswer,
        admin.list_groups,
        subject=Subject.GROUPS,
        visible=authorizer.visible_groups,
        is_costly=always,
    ),
    DeleteGroup: RequestSpec(
        DeleteGroupAnswer,
        offsets.delete_group,
        right=DELETE_GROUP,
        absent=ErrorCode.GROUP_ID_NOT_FOUND,
        of_the_group=(checks.is_empty,),
    ),
    RebalanceGroup: RequestSpec(
        RebalanceGroupAnswer,
        admin.rebalance,
        right=READ_GROUP,
        needs_group_id=True,
        absent=ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    ExpelMember: RequestSpec(
        ExpelMemberAnswer,
        leave.expel,
        right=READ_GROUP,
        needs_group_id=True,
        absent=ErrorCode.GROUP_ID_NOT_FOUND,
        of_the_group=checks.of_hot_state(checks.names_a_member),
    ),
    RepublishGroup: RequestSpec(
        RepublishGroupAnswer,
        republish.republish,
        right=ALTER_CLUSTER._replace(holder=authorizer.COORDINATOR),
    ),
    OffsetTopics: RequestSpec(
        OffsetTopicsAnswer,
        offsets.report,
        right=ALTER_CLUSTER._replace(holder=authorizer.COORDINATOR),
    ),
    # -- access rules --------------------------------------------------------------------------------------------------
    SetAccess: RequestSpec(
        SetAccessAnswer,
        authorizer.set_access,
        subject=Subject.RULES,
        right=ALTER_CLUSTER,
    ),
    DescribeAccess: RequestSpec(
        DescribeAccessAnswer,
        authorizer.describe_access,
        subject=Subject.RULES,
        right=DESCRIBE_CLUSTER,
    ),
    CheckAccess: RequestSpec(
        CheckAccessAnswer,
        authorizer.check_access,
        subject=Subject.RULES,
    ),
    # -- policies ------------------------------------------------------------------------------------------------------
    SetPolicies: RequestSpec(
        SetPoliciesAnswer,
        store.set_policies,
        subject=Subject.POLICIES,
        right=ALTER_CLUSTER,
    ),
    DescribePolicies: RequestSpec(
        DescribePoliciesAnswer,
        store.describe_policies,
        subject=Subject.POLICIES,
        right=DESCRIBE_CLUSTER,
    ),
    # -- the coordinator itself ----------------------------------------------------------------------------------------
    StopCoordinator: RequestSpec(
        StopCoordinatorAnswer,
        admin.stop,
        subject=Subject.RULES,  # as a check of rights: the driver does the rest
        right=ALTER_CLUSTER,
    ),
    # -- moves between coordinators ------------------------------------------------------------------------------------
    ReleaseGroup: RequestSpec(
        ReleaseGroupAnswer,
        source.release,
        subject=Subject.MOVES,
        right=ALTER_CLUSTER,
    ),
    CancelMove: RequestSpec(
        CancelMoveAnswer,
        target.cancel,
        subject=Subject.MOVES,
        right=ALTER_CLUSTER,
    ),
    TakeBack: RequestSpec(
        TakeBackAnswer,
        source.take_back,
        subject=Subject.MOVES,
        right=ALTER_CLUSTER,
    ),
    CheckAdoption: RequestSpec(
        CheckAdoptionAnswer,
        target.check,
        subject=Subject.MOVES,
        right=DESCRIBE_CLUSTER,
    ),
    ImportGroup: RequestSpec(
        ImportGroupAnswer,
        imports.import_group,
        subject=Subject.MOVES,
        right=ALTER_CLUSTER,
    ),
    ReleaseSlots: RequestSpec(
        ReleaseSlotsAnswer,
        slot_source.release_slots,
        subject=Subject.SLOTS,
        right=ALTER_CLUSTER,
    ),
    DescribeSlots: RequestSpec(
        DescribeSlotsAnswer,
        slot_target.describe_slots,
        subject=Subject.SLOTS,
        right=DESCRIBE_CLUSTER,
    ),
}
