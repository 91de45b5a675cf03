"""The requests of clients, one type for each kind; records of the request topic are parsed into these types.

A record's value is one JSON object whose `kind` names the type; bytes are base64; unknown fields are refused. Bounds
come from `limits`. If a field occurs twice, its last value counts.

Source: KIP-62, KIP-345, KIP-394, KIP-800 and Kafka's message schemas JoinGroupRequest.json to OffsetFetchRequest.json.
"""

from typing import Annotated

from msgspec import Meta, Struct

from coordinator.base import limits
from coordinator.base.access import Operation, Resource, Rules, Time
from coordinator.base.policies import Entries
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat, GroupTopics, TopicFact
from coordinator.messages.fields import BaseRequest, Id, Int32, Int64, Name, Reason, TopicId
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.move_requests import (
    CancelMove,
    CheckAdoption,
    DescribeSlots,
    ImportGroup,
    PeerRecord,
    ReleaseGroup,
    ReleaseSlots,
    TakeBack,
)

RecordOffset = Annotated[int, Meta(ge=0, le=limits.RECORD_OFFSET_MAX)]
"""The offset of a record in the transactions topic."""


class Protocol(Struct, frozen=True, forbid_unknown_fields=True):
    """One assignor that a member offers, with the member's subscription in that assignor's format."""

    name: Name
    metadata: Annotated[bytes, Meta(max_length=limits.PROTOCOL_METADATA_BYTES_MAX)] = b""


class JoinGroup(BaseRequest, frozen=True, kw_only=True, tag="join_group"):
    """Join the next generation. Answered when the join round ends.

    Args:
        member_id: "" for a new member.
        session_timeout_ms: The longest silence of a member before it is expelled.
        rebalance_timeout_ms: How long the others may wait for this member to rejoin (clients: max_poll_interval_ms).
        protocols: In the member's order of preference.
        require_known_member_id: A new member is first given an id by MEMBER_ID_REQUIRED and joins with that (KIP-394).
        supports_skipping_assignment: A leader that comes back under its instance id may be told to keep the present
            assignments (KIP-814). Other leaders get a response as if they were followers.
        topics: Facts about the topics to which the member subscribes. Only a group of the consumer protocol reads
            them.
    """

    member_id: Id = ""
    group_instance_id: Id | None = None
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32
    protocol_type: Name
    protocols: Annotated[tuple[Protocol, ...], Meta(max_length=limits.PROTOCOLS_MAX)]
    reason: Reason | None = None
    require_known_member_id: bool = True
    supports_skipping_assignment: bool = True
    topics: Annotated[tuple[TopicFact, ...], Meta(max_length=limits.SUBSCRIBED_NAMES_MAX)] = ()


class Assignment(Struct, frozen=True, forbid_unknown_fields=True):
    """One member's assignment, computed by the leader."""

    member_id: Id
    assignment: Annotated[bytes, Meta(max_length=limits.ASSIGNMENT_BYTES_MAX)] = b""


class SyncGroup(BaseRequest, frozen=True, kw_only=True, tag="sync_group"):
    """Request the member's assignment; the leader sends all assignments. Answered after the leader's sync."""

    generation_id: Int32
    member_id: Id
    group_instance_id: Id | None = None
    protocol_type: Name | None = None
    protocol_name: Name | None = None
    assignments: Annotated[tuple[Assignment, ...], Meta(max_length=limits.ASSIGNMENTS_MAX)] = ()


class Leaving(Struct, frozen=True, forbid_unknown_fields=True):
    """One member that leaves, and its own reason for it (KIP-800).

    Args:
        member_id: "" for the member that has the instance id: the form that administrators use.
    """

    member_id: Id
    group_instance_id: Id | None = None
    reason: Reason | None = None


class LeaveGroup(BaseRequest, frozen=True, kw_only=True, tag="leave_group"):
    """Leave the group at once."""

    members: Annotated[tuple[Leaving, ...], Meta(max_length=limits.LEAVING_MEMBERS_MAX)]


class OffsetToCommit(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The offset of the next record to read in one partition.

    Args:
        topic_id: null if the sender does not know it.
    """

    topic: Name
    partition: Int32
    offset: Int64
    leader_epoch: Int32 = -1
    metadata: Annotated[str, Meta(max_length=limits.COMMIT_METADATA_CHARS_MAX)] | None = None
    retention_ms: Int64 = -1
    topic_id: TopicId | None = None


class TxnOffsetCommit(BaseRequest, frozen=True, kw_only=True, tag="txn_offset_commit"):
    """Store offsets when a transaction is committed, and not if it is aborted. A gateway sends it (KIP-98, KIP-447).

    Args:
        place: The offset of the commit's record in the shard's partition of the transactions topic. The record is a
            part of the transaction.
        topic_id: The id of that topic; "" for the one that the shard knows.
        generation_id: For a member of the consumer protocol, its member epoch.
    """

    place: RecordOffset
    topic_id: Id = ""
    producer_id: Int64
    producer_epoch: Int32
    generation_id: Int32 = -1
    member_id: Id = ""
    group_instance_id: Id | None = None
    offsets: Annotated[tuple[OffsetToCommit, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)]


class EndedTransaction(Struct, frozen=True, forbid_unknown_fields=True):
    """A transaction with records in the transactions topic that the brokers have ended.

    Args:
        first: The offset of its first record.
        end: The offset of the control record that ended it: it has the records of its producer between the two.
        is_committed: Whether it was committed, and not aborted.
    """

    producer_id: Int64
    first: RecordOffset
    end: RecordOffset
    is_committed: bool = False


class OpenTransaction(Struct, frozen=True, forbid_unknown_fields=True):
    """A transaction that has not ended. It has all records of its producer from the offset `first` on."""

    producer_id: Int64
    first: RecordOffset


class SettleTransactions(BaseRequest, frozen=True, kw_only=True, tag="settle_transactions"):
    """Report how transactions of one shard have ended. The record's partition selects the shard.

    The coordinator sends it itself, after it has read the transactions topic.

    Args:
        topic_id: The id of the transactions topic. If it was made anew, all pending commits are dropped, because the
            ends of their transactions are lost.
        replaces: The id that the shard knew when the report was made. A report of another topic has to name it.
        settled_from: The offset of the shard's partition at which the report begins: the `settled_before` of the last
            answer. A report that begins later than the reports before it ended is not believed.
        settled_before: The offset before which the report knows each record and its transaction.
        ended: The transactions that ended between the two.
        open: The transactions that began before `settled_before` and had not ended there.
    """

    group_id: str = ""
    topic_id: Id
    replaces: Id = ""
    settled_from: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    settled_before: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    ended: Annotated[tuple[EndedTransaction, ...], Meta(max_length=limits.ENDED_TRANSACTIONS_MAX)] = ()
    open: Annotated[tuple[OpenTransaction, ...], Meta(max_length=limits.OPEN_TRANSACTIONS_NAMED_MAX)] = ()


class OffsetCommit(BaseRequest, frozen=True, kw_only=True, tag="offset_commit"):
    """Store offsets: as a member of a generation, or with generation -1 and no ids for a group without members.

    Args:
        generation_id: For a member of the consumer protocol, its member epoch.
        version: The version of Kafka's request. Member epochs exist from version 9 on.
    """

    generation_id: Int32 = -1
    member_id: Id = ""
    group_instance_id: Id | None = None
    version: Annotated[int, Meta(ge=0, le=limits.COMMIT_VERSION_MAX)] = limits.COMMIT_VERSION_MAX
    offsets: Annotated[tuple[OffsetToCommit, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)]


class TopicPartitions(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Some partitions of one topic.

    Args:
        topic_id: null for the topic of that name, whatever its id.
    """

    topic: Name
    partitions: Annotated[tuple[Int32, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)]
    topic_id: TopicId | None = None


class OffsetFetch(BaseRequest, frozen=True, kw_only=True, tag="offset_fetch"):
    """Request committed offsets.

    Args:
        topics: null for every partition with a committed offset.
        require_stable: Whether an error replaces the offsets of partitions that an open transaction may commit.
    """

    topics: Annotated[tuple[TopicPartitions, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)] | None = None
    generation_id: Int32 = -1
    member_id: Id | None = None
    require_stable: bool = False


class DescribeGroup(BaseRequest, frozen=True, kw_only=True, tag="describe_group"):
    """Request a group's state, its members and the members that it waits for."""


class ListGroups(BaseRequest, frozen=True, kw_only=True, tag="list_groups"):
    """Request the groups of one shard. The record's partition selects the shard; the group id has no meaning.

    Args:
        states: Only groups in one of these states, in upper or lower case; all when empty.
        types: Likewise, of these types: `classic`, `consumer`.
    """

    group_id: str = ""
    states: Annotated[tuple[Name, ...], Meta(max_length=limits.FILTERS_MAX)] = ()
    types: Annotated[tuple[Name, ...], Meta(max_length=limits.FILTERS_MAX)] = ()


class OffsetDelete(BaseRequest, frozen=True, kw_only=True, tag="offset_delete"):
    """Delete committed offsets of topics that no member subscribes to."""

    topics: Annotated[tuple[TopicPartitions, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)]


class DeleteGroup(BaseRequest, frozen=True, kw_only=True, tag="delete_group"):
    """Delete a group that has no members, and its offsets."""


class RebalanceGroup(BaseRequest, frozen=True, kw_only=True, tag="rebalance_group"):
    """Make all members join again, at an operator's request. Kafka has no such request."""

    reason: Reason | None = None


class TopicPartition(Struct, frozen=True, forbid_unknown_fields=True):
    """One partition of a topic."""

    topic: Name
    partition: Int32


class RepublishGroup(BaseRequest, frozen=True, kw_only=True, tag="republish_group"):
    """Request that records of the groups topic are written again with their present values, under new versions.

    The coordinator sends it itself, if an older record is the last one of its key because a paused writer has repeated
    a batch.

    Args:
        group: Whether to write the group's own record again.
        offsets: The partitions whose committed offsets to write again.
    """

    group: bool = False
    offsets: Annotated[tuple[TopicPartition, ...], Meta(max_length=limits.REPUBLISHED_OFFSETS_MAX)] = ()


class OffsetTopic(Struct, frozen=True, forbid_unknown_fields=True):
    """What has become of the topic of some offsets.

    Args:
        topic_id: The id that these offsets have; null for offsets without one.
        current_id: The id of the topic that has the name now; null if no topic has it.
        committed_ms: Only offsets that were committed up to this time of their group, Unix milliseconds.
    """

    topic: Name
    topic_id: TopicId | None
    current_id: TopicId | None
    committed_ms: Int64


class OffsetTopics(BaseRequest, frozen=True, kw_only=True, tag="offset_topics"):
    """Report topics of a group's offsets that were deleted or made anew, or whose id the offsets lack.

    The coordinator sends it itself, after it has asked the brokers about the topics of its groups' offsets.
    """

    topics: Annotated[tuple[OffsetTopic, ...], Meta(max_length=limits.SUBSCRIBED_NAMES_MAX)]


class ExpelMember(BaseRequest, frozen=True, kw_only=True, tag="expel_member"):
    """Remove a member as if it had left, at an operator's request.

    Args:
        member_id: "" for the member that has the instance id.
    """

    member_id: Id = ""
    group_instance_id: Id | None = None
    reason: Reason | None = None


class SetAccess(BaseRequest, frozen=True, kw_only=True, tag="set_access"):
    """Replace the access rules of one shard. The record's partition selects the shard.

    Args:
        made_ms: When the rules were made, Unix milliseconds; rules that are older than the present ones are refused.
    """

    group_id: str = ""
    made_ms: Time
    rules: Rules


class DescribeAccess(BaseRequest, frozen=True, kw_only=True, tag="describe_access"):
    """Request the access rules of one shard; the record's partition selects the shard."""

    group_id: str = ""


class Action(Struct, frozen=True, forbid_unknown_fields=True):
    """An operation on a resource, to be checked against the access rules."""

    operation: Operation
    resource: Resource
    name: Name


class CheckAccess(BaseRequest, frozen=True, kw_only=True, tag="check_access"):
    """Request an access check of the client itself for some actions. Any shard can answer."""

    group_id: str = ""
    actions: Annotated[tuple[Action, ...], Meta(max_length=limits.ACTIONS_MAX)]


class SetPolicies(BaseRequest, frozen=True, kw_only=True, tag="set_policies"):
    """Replace the policies of one shard. The record's partition selects the shard.

    Args:
        made_ms: When the policies were made, Unix milliseconds; policies that are older than the present ones are
            refused.
    """

    group_id: str = ""
    made_ms: Time
    policies: Entries


class DescribePolicies(BaseRequest, frozen=True, kw_only=True, tag="describe_policies"):
    """Request the policies of one shard; the record's partition selects the shard."""

    group_id: str = ""


class StopCoordinator(BaseRequest, frozen=True, kw_only=True, tag="stop_coordinator"):
    """Request that the drivers of the coordinator stop. Any shard answers.

    The shard only checks the right: its driver stops after the batch.

    Args:
        log_end_offset: The end of this partition before the request was sent. A driver that has started since goes on,
            also if the record is a copy.
    """

    group_id: str = ""
    log_end_offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | Heartbeats
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | SettleTransactions
    | OffsetFetch
    | DescribeGroup
    | ListGroups
    | OffsetDelete
    | DeleteGroup
    | RebalanceGroup
    | RepublishGroup
    | OffsetTopics
    | ExpelMember
    | SetAccess
    | DescribeAccess
    | CheckAccess
    | SetPolicies
    | DescribePolicies
    | StopCoordinator
    | ConsumerGroupHeartbeat
    | GroupTopics
    | ConsumerGroupDescribe
    | ReleaseGroup
    | CancelMove
    | TakeBack
    | CheckAdoption
    | ImportGroup
    | ReleaseSlots
    | DescribeSlots
)


class Unreadable(Struct, frozen=True):
    """A record that is not a valid request, with the fields that could be read for a response."""

    why: str
    request_id: str | None = None
    reply_to: str | None = None


class Wake(Struct, frozen=True, tag="wake", tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """A record without a request. Its append time shows how far the shard's log has been read.

    Args:
        sent_ms: The time of the driver's clock when it was sent, Unix milliseconds; None if the sender did not set it.
        stopped: The offset in this partition of the `stop_coordinator` request after which the driver has stopped; None
            in every other record.
    """

    sent_ms: Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)] | None = None
    stopped: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class Received(Struct, frozen=True):
    """A request as it is in the log.

    Args:
        offset: Its offset in the shard's partition of the request topic.
        at_ms: The broker's append time, Unix milliseconds.
        doubt: Why the record is not trusted: its signature is wrong, if access rules are in use, or the MAC of a record
            of another coordinator is.
        size_bytes: The length of the record's value.
        was_deferred: An earlier step has read it and deferred it to this one: it has no new information about time.
    """

    offset: int
    at_ms: int
    request: Request | PeerRecord | Unreadable | Wake
    doubt: str | None = None
    size_bytes: int = 0
    was_deferred: bool = False
