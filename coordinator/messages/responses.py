"""The coordinator's responses, one type for each kind of request."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from coordinator.base.access import Pattern, Rule
from coordinator.base.errors import ErrorCode
from coordinator.base.policies import Policy
from coordinator.base.states import Phase


class Moved(Struct, frozen=True):
    """The coordinator that serves a name, in a response with NOT_COORDINATOR.

    Args:
        to: Its prefix.
        number: The number of the move there; the higher one of two numbers is right.
        of: Whether the name has moved, or its slot.
    """

    to: str
    number: int
    of: Literal["name", "slot"] = "name"


class Answer(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The fields of every response: the request that it answers, and Kafka's error name and number.

    `moved` is there if another coordinator serves the group.
    """

    request_id: str | None
    error: str = ErrorCode.NONE.name
    code: int = ErrorCode.NONE.number
    error_message: str | UnsetType = UNSET
    moved: Moved | UnsetType = UNSET


class PolicyName(Struct, frozen=True):
    """The name of the policy entry that is in force for a group."""

    name: str
    pattern: Pattern


class VacantSeat(Struct, frozen=True, kw_only=True):
    """The assignment of a member that is gone.

    Args:
        member_id: "" for partitions that were added.
        offered_to: The member that may take it now, until it has done so or has let the time pass.
        led: The member was the leader.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    policy: str
    cause: str
    partitions: dict[str, list[int]]
    since_ms: int
    until_ms: int
    offered_to: str | None
    led: bool


class StandingBy(Struct, frozen=True):
    """A newcomer that has no partitions yet; it gets some by a rebalance at `until_ms` at the latest."""

    member_id: str
    policy: str
    since_ms: int
    until_ms: int


class Quarantined(Struct, frozen=True):
    """A member in quarantine, with the fields of its `member_quarantined` event."""

    member_id: str
    identity: str
    flaps: int
    times: int
    until_ms: int


class DescribedHold(Struct, frozen=True, kw_only=True):
    """The effect of policies on a group, as `Hold` has it, with each seat and member."""

    since_ms: int | None
    until_ms: int | None
    frozen_until_ms: int | None
    vacant: tuple[VacantSeat, ...]
    standing_by: tuple[StandingBy, ...]
    quarantined: tuple[Quarantined, ...]


class ReleaseGroupAnswer(Answer, frozen=True, kw_only=True, tag="release_group"):
    """The target has adopted the group. An error has the reason for which it was not released, or was refused."""

    move_id: str = ""
    number: int = 0


class CancelMoveAnswer(Answer, frozen=True, kw_only=True, tag="cancel_move"):
    """The verdict about the move: `adopted`, or the reason of the refusal."""

    verdict: str = ""


class TakeBackAnswer(Answer, frozen=True, kw_only=True, tag="take_back"):
    """The source serves the group again."""


class CheckAdoptionAnswer(Answer, frozen=True, kw_only=True, tag="check_adoption"):
    """The reason for which a move would be refused now, and a sentence about it; null if it would not be refused."""

    reason: str | None = None
    why: str | None = None


class ImportGroupAnswer(Answer, frozen=True, kw_only=True, tag="import_group"):
    """The result: `adopted`, `adopted before`, `kept` while other parts are missing, or the reason of the refusal."""

    result: str = ""


class ReleaseSlotsAnswer(Answer, frozen=True, kw_only=True, tag="release_slots"):
    """The shard creates no groups of these slots any more.

    Args:
        slots: How many slots of the request have names in the shard.
        listed: How many names the target gets to know with them.
    """

    slots: int = 0
    listed: int = 0


class OwnedSlots(Struct, frozen=True, kw_only=True):
    """Slots with the same owner and number.

    Args:
        slots: Such as "0-511,600".
        owner: The prefix of the coordinator that owns them; null if it is not known here.
        number: The number of their last move; 0 if they have never moved.
    """

    slots: str
    owner: str | None
    number: int


class DescribeSlotsAnswer(Answer, frozen=True, kw_only=True, tag="describe_slots"):
    """The owners of the slots that have names in the shard.

    Args:
        owned: The slots in the order of their numbers, each in one entry.
        arriving: The slots that are released to this coordinator, and of which records are missing; "" for none.
        guests: Names here whose slots have another owner, in their order, at most `GUESTS_LISTED_MAX`.
        has_more: There are guests behind the last one.
        peers: The prefixes of the coordinators with which this one exchanges groups, in their order.
    """

    owned: tuple[OwnedSlots, ...] = ()
    arriving: str = ""
    guests: tuple[str, ...] = ()
    has_more: bool = False
    peers: tuple[str, ...] = ()


class JoinedMember(Struct, frozen=True):
    """A member in the leader's join response: the data that the leader needs to compute assignments."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupAnswer(Answer, frozen=True, kw_only=True, tag="join_group"):
    """The member's generation, and for the leader all members. On error: generation -1 and no other data."""

    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()


class SyncGroupAnswer(Answer, frozen=True, kw_only=True, tag="sync_group"):
    """The member's assignment, byte for byte as the leader wrote it, and its fencing token.

    The token is 0 in an error, and if the member was given no partition yet.
    """

    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    fencing_token: int = 0


class HeartbeatAnswer(Answer, frozen=True, kw_only=True, tag="heartbeat"):
    """The response to a heartbeat: the client is still a member, or must rejoin, or is no member any more."""


class HeartbeatsAnswer(Answer, frozen=True, kw_only=True, tag="heartbeats"):
    """The responses to the heartbeats of one record, in its order: their request ids, and Kafka's error numbers.

    COORDINATOR_LOAD_IN_PROGRESS (14): the heartbeat was not handled, because requests to its group wait, or because the
    response to a member of the consumer protocol may have more than a code. Its sender sends it again in a record of
    its own. NONE to such a member has the meaning of a response with its epoch, the interval as before and no
    assignment.
    """

    request_ids: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()


class LeftMember(Struct, frozen=True):
    """The result of one entry of a leave request."""

    member_id: str
    group_instance_id: str | None
    error: str
    code: int


class LeaveGroupAnswer(Answer, frozen=True, kw_only=True, tag="leave_group"):
    """The result of each entry, in the order of the request."""

    members: tuple[LeftMember, ...] = ()


class CommittedPartition(Struct, frozen=True):
    """The result of the commit of one partition."""

    topic: str
    partition: int
    error: str
    code: int


class OffsetCommitAnswer(Answer, frozen=True, kw_only=True, tag="offset_commit"):
    """The result of each partition, in the order of the request. An error of the whole request is repeated for each."""

    partitions: tuple[CommittedPartition, ...] = ()


class TxnOffsetCommitAnswer(Answer, frozen=True, kw_only=True, tag="txn_offset_commit"):
    """The result of each partition, in the order of the request. An error of the whole request is repeated for each."""

    partitions: tuple[CommittedPartition, ...] = ()


class SettleTransactionsAnswer(Answer, frozen=True, kw_only=True, tag="settle_transactions"):
    """The number of pending commits that were stored, and of those that were dropped.

    Args:
        settled_before: The place before which all is settled now. It is below that of the report if the report had too
            much to store, or if an earlier report is missing.
        topic_id: The id of the transactions topic that the place belongs to. Of another topic nothing was settled.
    """

    committed: int = 0
    aborted: int = 0
    settled_before: int = 0
    topic_id: str = ""


class FetchedOffset(Struct, frozen=True):
    """The committed offset of one partition: offset -1 and epoch -1 if none is committed.

    Args:
        topic_id: The id that the topic had at the commit, if the commit named it.
    """

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: str = ErrorCode.NONE.name
    code: int = ErrorCode.NONE.number
    topic_id: str | UnsetType = UNSET


class OffsetFetchAnswer(Answer, frozen=True, kw_only=True, tag="offset_fetch"):
    """Committed offsets, in the order requested, or all of them."""

    partitions: tuple[FetchedOffset, ...] = ()


class DescribedMember(Struct, frozen=True):
    """A member in a group description. `awaiting` is "join" or "sync" while its request is parked."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes
    assignment: bytes
    awaiting: str | None


class DescribeGroupAnswer(Answer, frozen=True, kw_only=True, tag="describe_group"):
    """A group as it is now: `awaited` are the members it waits for, `deadline_ms` is when it stops waiting.

    `policy` names the policy entry in force, and `hold` is the effect of policies; both are left out if there is none.
    """

    group_id: str
    state: Phase = Phase.DEAD
    since_ms: int | None = None
    generation_id: int = -1
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str | None = None
    subscribed_topics: tuple[str, ...] | None = None
    members: tuple[DescribedMember, ...] = ()
    awaited: tuple[str, ...] = ()
    deadline_ms: int | None = None
    policy: PolicyName | UnsetType = UNSET
    hold: DescribedHold | UnsetType = UNSET


class ListedGroup(Struct, frozen=True):
    """A group in a listing. `protocol_type` is "" if the group has never had a member."""

    group_id: str
    protocol_type: str
    state: Phase
    type: str


class ListGroupsAnswer(Answer, frozen=True, kw_only=True, tag="list_groups"):
    """The groups of one shard, in the order in which they were created."""

    groups: tuple[ListedGroup, ...] = ()


class DeletedPartition(Struct, frozen=True):
    """The result of the deletion of one partition's offset; NONE if no offset was committed."""

    topic: str
    partition: int
    error: str
    code: int


class OffsetDeleteAnswer(Answer, frozen=True, kw_only=True, tag="offset_delete"):
    """The result of each partition, in the order of the request; empty if the whole request was refused."""

    partitions: tuple[DeletedPartition, ...] = ()


class DeleteGroupAnswer(Answer, frozen=True, kw_only=True, tag="delete_group"):
    """The result of the deletion of a group."""


class RebalanceGroupAnswer(Answer, frozen=True, kw_only=True, tag="rebalance_group"):
    """The phase of the group now. An Empty group has no member to rebalance; a preparing group already rebalances."""

    state: Phase = Phase.DEAD
    generation_id: int = -1


class RepublishGroupAnswer(Answer, frozen=True, kw_only=True, tag="republish_group"):
    """The number of records that were written again, tombstones included."""

    records: int = 0


class OffsetTopicsAnswer(Answer, frozen=True, kw_only=True, tag="offset_topics"):
    """The report has been applied.

    Args:
        dropped: The number of offsets whose topic is gone.
        bound: The number of offsets that have got the id of their topic.
    """

    dropped: int = 0
    bound: int = 0


class ExpelMemberAnswer(Answer, frozen=True, kw_only=True, tag="expel_member"):
    """The member id that was expelled."""

    member_id: str = ""


class SetAccessAnswer(Answer, frozen=True, kw_only=True, tag="set_access"):
    """The time at which the shard's present access rules were made."""

    made_ms: int = 0


class DescribeAccessAnswer(Answer, frozen=True, kw_only=True, tag="describe_access"):
    """The rules that the shard keeps, and the time at which they were made; 0 if no rules were ever set."""

    made_ms: int = 0
    rules: tuple[Rule, ...] = ()


class CheckAccessAnswer(Answer, frozen=True, kw_only=True, tag="check_access"):
    """The result for each action, in the order requested: true if the client may perform it."""

    allowed: tuple[bool, ...] = ()


class SetPoliciesAnswer(Answer, frozen=True, kw_only=True, tag="set_policies"):
    """The time at which the shard's present policies were made."""

    made_ms: int = 0


class DescribePoliciesAnswer(Answer, frozen=True, kw_only=True, tag="describe_policies"):
    """The policies that the shard keeps, and the time at which they were made; 0 if none were ever set."""

    made_ms: int = 0
    policies: tuple[Policy, ...] = ()


class StopCoordinatorAnswer(Answer, frozen=True, kw_only=True, tag="stop_coordinator"):
    """The place of the request in the request topic. The driver that has read it stops; one that started later goes on.

    When the driver has stopped, it appends a wake record to this partition, with the offset as `stopped`.
    """

    partition: int = -1
    offset: int = -1


class AssignedTopic(Struct, frozen=True):
    """Partitions of one topic. `topic` is "" if its name is not known any more."""

    topic_id: str
    topic: str
    partitions: tuple[int, ...]


class Ask(Struct, frozen=True, omit_defaults=True):
    """Topics and patterns without facts: send the facts with `group_topics`, or with a heartbeat."""

    topics: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()


class ConsumerGroupHeartbeatAnswer(Answer, frozen=True, kw_only=True, tag="consumer_group_heartbeat"):
    """The member's epoch, and its whole assignment if that has changed.

    Args:
        assignment: null for as before.
        pending: `revoking`: the member has to confirm that it gave up partitions. `waiting`: more partitions may come.
        fencing_token: The member's token; 0 before it was given a partition.
    """

    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[AssignedTopic, ...] | None = None
    pending: Literal["none", "revoking", "waiting"] = "none"
    fencing_token: int = 0
    ask: Ask | UnsetType = UNSET


class GroupTopicsAnswer(Answer, frozen=True, kw_only=True, tag="group_topics"):
    """Whether the facts have changed the group, and its epoch after that."""

    changed: bool = False
    group_epoch: int = 0


class DescribedConsumer(Struct, frozen=True, kw_only=True):
    """A member in the description of a group of the consumer protocol. `is_classic`: it uses the classic protocol."""

    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    assignment: tuple[AssignedTopic, ...]
    target_assignment: tuple[AssignedTopic, ...]
    is_classic: bool = False


class ConsumerGroupDescribeAnswer(Answer, frozen=True, kw_only=True, tag="consumer_group_describe"):
    """A group of the consumer protocol as it is now."""

    group_id: str
    state: Phase = Phase.DEAD
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()


class AssignmentNotice(Answer, frozen=True, kw_only=True, tag="assignment_notice"):
    """Sent without a request: the member's next heartbeat has a change. A hint, as `rebalance_notice` is."""

    group_id: str
    member_id: str
    group_epoch: int


class ErrorAnswer(Answer, frozen=True, kw_only=True, tag="error"):
    """An error without other data: for an invalid record that names a mailbox, or if a response is too large."""


class RebalanceNotice(Answer, frozen=True, kw_only=True, tag="rebalance_notice"):
    """Sent without a request: a rebalance began, rejoin now. A hint: only the heartbeat's response is binding."""

    group_id: str
    generation_id: int
    member_id: str


AnyAnswer = (
    JoinGroupAnswer
    | SyncGroupAnswer
    | HeartbeatAnswer
    | HeartbeatsAnswer
    | LeaveGroupAnswer
    | OffsetCommitAnswer
    | TxnOffsetCommitAnswer
    | SettleTransactionsAnswer
    | OffsetFetchAnswer
    | DescribeGroupAnswer
    | ListGroupsAnswer
    | OffsetDeleteAnswer
    | DeleteGroupAnswer
    | RebalanceGroupAnswer
    | RepublishGroupAnswer
    | OffsetTopicsAnswer
    | ExpelMemberAnswer
    | SetAccessAnswer
    | DescribeAccessAnswer
    | CheckAccessAnswer
    | SetPoliciesAnswer
    | StopCoordinatorAnswer
    | DescribePoliciesAnswer
    | ErrorAnswer
    | RebalanceNotice
    | ConsumerGroupHeartbeatAnswer
    | GroupTopicsAnswer
    | ConsumerGroupDescribeAnswer
    | AssignmentNotice
    | ReleaseGroupAnswer
    | CancelMoveAnswer
    | TakeBackAnswer
    | CheckAdoptionAnswer
    | ImportGroupAnswer
    | ReleaseSlotsAnswer
    | DescribeSlotsAnswer
)


class Reply(Struct, frozen=True):
    """A response to send to the mailbox of the request."""

    to: str
    answer: AnyAnswer
