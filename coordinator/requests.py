"""What clients ask, one type a kind; the very types that a record of the request topic is parsed into.

A record's value is one JSON object whose `kind` names the type; bytes are base64; unknown fields are refused. Bounds
come from `limits`. Where a field repeats, its last value counts.

Source: KIP-62, KIP-345, KIP-394, KIP-800 and Kafka's message schemas JoinGroupRequest.json to OffsetFetchRequest.json.
"""

from typing import Annotated

from msgspec import Meta, Struct

from coordinator import limits
from coordinator.access import Operation, Resource, Rules, Time

Id = Annotated[str, Meta(max_length=limits.ID_CHARS_MAX)]
Name = Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)]
Host = Annotated[str, Meta(max_length=limits.HOST_CHARS_MAX)]
Reason = Annotated[str, Meta(max_length=limits.REASON_CHARS_MAX)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every request carries.

    Args:
        request_id: Chosen by the asker and unique to it; the reply repeats it.
        reply_to: The asker's inbox: the key of its replies, hashed to a partition of the reply topic.
        client_host: As Kafka prints it, `/127.0.0.1`. Where rules say who may do what, an unsigned record has none.
        principal: Who asks; believed only where the record is signed by somebody who has the key.
    """

    request_id: Id
    reply_to: Id
    group_id: str
    client_id: Name = ""
    client_host: Host = ""
    principal: Id | None = None


class Protocol(Struct, frozen=True, forbid_unknown_fields=True):
    """One assignor that a member offers, with its subscription in that assignor's terms."""

    name: Name
    metadata: Annotated[bytes, Meta(max_length=limits.PROTOCOL_METADATA_BYTES_MAX)] = b""


class JoinGroup(Asked, frozen=True, kw_only=True, tag="join_group"):
    """Ask to be in the next generation. Answered when the join round ends.

    Args:
        member_id: "" for a newcomer.
        session_timeout_ms: The longest silence before the member counts as dead.
        rebalance_timeout_ms: How long the others may wait for this member to rejoin (clients: max_poll_interval_ms).
        protocols: In the member's order of preference.
        require_known_member_id: A newcomer is first given an id by MEMBER_ID_REQUIRED and joins with that (KIP-394).
        supports_skipping_assignment: A leader that comes back under its instance id may be told to keep the plan that
            is there (KIP-814). Others are made to believe that they follow.
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


class Assignment(Struct, frozen=True, forbid_unknown_fields=True):
    """One member's part of the leader's plan."""

    member_id: Id
    assignment: Annotated[bytes, Meta(max_length=limits.ASSIGNMENT_BYTES_MAX)] = b""


class SyncGroup(Asked, frozen=True, kw_only=True, tag="sync_group"):
    """Ask for one's part of the plan; the leader brings the plan. Answered when the plan is there."""

    generation_id: Int32
    member_id: Id
    group_instance_id: Id | None = None
    protocol_type: Name | None = None
    protocol_name: Name | None = None
    assignments: Annotated[tuple[Assignment, ...], Meta(max_length=limits.ASSIGNMENTS_MAX)] = ()


class Heartbeat(Asked, frozen=True, kw_only=True, omit_defaults=True, tag="heartbeat"):
    """Say that one is alive, and hear whether to rejoin. Most requests are that, so it is written without defaults."""

    generation_id: Int32
    member_id: Id
    group_instance_id: Id | None = None


class Leaving(Struct, frozen=True, forbid_unknown_fields=True):
    """One member that leaves, and its own reason for it (KIP-800).

    Args:
        member_id: "" for whoever has the instance id: the form for administrators.
    """

    member_id: Id
    group_instance_id: Id | None = None
    reason: Reason | None = None


class LeaveGroup(Asked, frozen=True, kw_only=True, tag="leave_group"):
    """Give up membership at once."""

    members: Annotated[tuple[Leaving, ...], Meta(max_length=limits.LEAVING_MEMBERS_MAX)]


class OffsetToCommit(Struct, frozen=True, forbid_unknown_fields=True):
    """The next offset to be read of one partition."""

    topic: Name
    partition: Int32
    offset: Int64
    leader_epoch: Int32 = -1
    metadata: Annotated[str, Meta(max_length=limits.COMMIT_METADATA_CHARS_MAX)] | None = None
    retention_ms: Int64 = -1


class OffsetCommit(Asked, frozen=True, kw_only=True, tag="offset_commit"):
    """Store offsets: as a member of a generation, or with generation -1 and no ids for a group without members."""

    generation_id: Int32 = -1
    member_id: Id = ""
    group_instance_id: Id | None = None
    offsets: Annotated[tuple[OffsetToCommit, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)]


class TopicPartitions(Struct, frozen=True, forbid_unknown_fields=True):
    """Some partitions of one topic."""

    topic: Name
    partitions: Annotated[tuple[Int32, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)]


class OffsetFetch(Asked, frozen=True, kw_only=True, tag="offset_fetch"):
    """Ask for committed offsets.

    Args:
        topics: null for every partition with a committed offset.
        require_stable: Kept for transactional commits, which no request here can make: every offset is stable.
    """

    topics: Annotated[tuple[TopicPartitions, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)] | None = None
    generation_id: Int32 = -1
    member_id: Id | None = None
    require_stable: bool = False


class DescribeGroup(Asked, frozen=True, kw_only=True, tag="describe_group"):
    """Ask for a group's state, members and whom it waits for."""


class ListGroups(Asked, frozen=True, kw_only=True, tag="list_groups"):
    """Ask one shard for its groups. The record's partition says which; a group id says nothing here.

    Args:
        states: Only groups in one of these states, whatever the case; all when empty.
        types: Likewise, of these types: every group here is `classic`.
    """

    group_id: str = ""
    states: Annotated[tuple[Name, ...], Meta(max_length=limits.FILTERS_MAX)] = ()
    types: Annotated[tuple[Name, ...], Meta(max_length=limits.FILTERS_MAX)] = ()


class OffsetDelete(Asked, frozen=True, kw_only=True, tag="offset_delete"):
    """Forget committed offsets of topics that no member subscribes to."""

    topics: Annotated[tuple[TopicPartitions, ...], Meta(max_length=limits.PARTITIONS_PER_REQUEST_MAX)]


class DeleteGroup(Asked, frozen=True, kw_only=True, tag="delete_group"):
    """Forget a group that has no members, and its offsets."""


class RebalanceGroup(Asked, frozen=True, kw_only=True, tag="rebalance_group"):
    """Have all members join again: an operator's wish, which Kafka knows no request for."""

    reason: Reason | None = None


class TopicPartition(Struct, frozen=True, forbid_unknown_fields=True):
    """One partition of a topic."""

    topic: Name
    partition: Int32


class RepublishGroup(Asked, frozen=True, kw_only=True, tag="republish_group"):
    """Ask that records of the groups topic are written again as they should be, under new versions.

    The coordinator asks itself, where an older record stands last because a paused writer has repeated a batch.

    Args:
        group: Whether the group's own record is one of them.
        offsets: The partitions whose committed offsets are.
    """

    group: bool = False
    offsets: Annotated[tuple[TopicPartition, ...], Meta(max_length=limits.REPUBLISHED_OFFSETS_MAX)] = ()


class ExpelMember(Asked, frozen=True, kw_only=True, tag="expel_member"):
    """Take a member out, as its leaving would: an operator's wish.

    Args:
        member_id: "" for whoever has the instance id.
    """

    member_id: Id = ""
    group_instance_id: Id | None = None
    reason: Reason | None = None


class SetAccess(Asked, frozen=True, kw_only=True, tag="set_access"):
    """Say anew who may do what, to one shard: the record's partition says to which. All that was said before is over.

    Args:
        made_ms: When the rules were put together, Unix milliseconds; earlier ones than are there are refused.
    """

    group_id: str = ""
    made_ms: Time
    rules: Rules


class DescribeAccess(Asked, frozen=True, kw_only=True, tag="describe_access"):
    """Ask one shard who may do what there; the record's partition says which."""

    group_id: str = ""


class Action(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that one may wish to do."""

    operation: Operation
    resource: Resource
    name: Name


class CheckAccess(Asked, frozen=True, kw_only=True, tag="check_access"):
    """Ask what one may do oneself. Any shard knows."""

    group_id: str = ""
    actions: Annotated[tuple[Action, ...], Meta(max_length=limits.ACTIONS_MAX)]


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | DescribeGroup
    | ListGroups
    | OffsetDelete
    | DeleteGroup
    | RebalanceGroup
    | RepublishGroup
    | ExpelMember
    | SetAccess
    | DescribeAccess
    | CheckAccess
)


class Unreadable(Struct, frozen=True):
    """A record that is no request, with as much of it as could be read for an answer."""

    why: str
    request_id: str | None = None
    reply_to: str | None = None


class Wake(Struct, frozen=True, tag="wake", tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """A record that asks nothing. The time at which it was appended says how far the shard's log has been read.

    Args:
        sent_ms: What the driver's clock showed when it was sent, Unix milliseconds; None where the sender did not say.
    """

    sent_ms: Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)] | None = None


class Received(Struct, frozen=True):
    """A request as the log holds it.

    Args:
        offset: Its place in the shard's partition of the request topic.
        at_ms: The broker's append time, Unix milliseconds.
        doubt: Why the record must not be believed, where rules say who may do what: its signature is wrong.
        size_bytes: The length of the record's value.
        was_deferred: An earlier step has read it and left it to this one: it says nothing new about time.
    """

    offset: int
    at_ms: int
    request: Request | Unreadable | Wake
    doubt: str | None = None
    size_bytes: int = 0
    was_deferred: bool = False
