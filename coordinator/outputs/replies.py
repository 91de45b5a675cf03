"""Replies: what the coordinator answers to a request, one type for each kind of request."""

from msgspec import UNSET, Struct, UnsetType

from coordinator.access import Rule
from coordinator.errors import ErrorCode
from coordinator.phases import Phase


class Answer(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every reply says: which request it answers, and Kafka's error name and number."""

    request_id: str | None
    error: str = ErrorCode.NONE.name
    code: int = ErrorCode.NONE.number
    error_message: str | UnsetType = UNSET


class JoinedMember(Struct, frozen=True):
    """A member as the leader sees it: what it needs to make a plan."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinGroupAnswer(Answer, frozen=True, kw_only=True, tag="join_group"):
    """The generation one is in, and for its leader who else is. On error: generation -1 and nothing else."""

    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()


class SyncGroupAnswer(Answer, frozen=True, kw_only=True, tag="sync_group"):
    """One's own part of the plan, byte for byte as the leader wrote it, and the fencing token to show for it.

    The token is 0 in an error, and where the assignment is from before coordinators gave tokens.
    """

    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    fencing_token: int = 0


class HeartbeatAnswer(Answer, frozen=True, kw_only=True, tag="heartbeat"):
    """Whether one is still a member, and whether to rejoin."""


class LeftMember(Struct, frozen=True):
    """How one entry of a leave request ended."""

    member_id: str
    group_instance_id: str | None
    error: str
    code: int


class LeaveGroupAnswer(Answer, frozen=True, kw_only=True, tag="leave_group"):
    """How each entry ended, in the order of the request."""

    members: tuple[LeftMember, ...] = ()


class CommittedPartition(Struct, frozen=True):
    """How the commit of one partition ended."""

    topic: str
    partition: int
    error: str
    code: int


class OffsetCommitAnswer(Answer, frozen=True, kw_only=True, tag="offset_commit"):
    """How each partition ended, in the order of the request. An error of the whole is repeated for each."""

    partitions: tuple[CommittedPartition, ...] = ()


class FetchedOffset(Struct, frozen=True):
    """What is committed for one partition: offset -1 and epoch -1 where nothing is."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: str = ErrorCode.NONE.name
    code: int = ErrorCode.NONE.number


class OffsetFetchAnswer(Answer, frozen=True, kw_only=True, tag="offset_fetch"):
    """Committed offsets, in the order asked, or all of them."""

    partitions: tuple[FetchedOffset, ...] = ()


class DescribedMember(Struct, frozen=True):
    """A member as an administrator sees it. `awaiting` is "join" or "sync" while its request is parked."""

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
    """A group as it is now: `awaited` are the members it waits for, `deadline_ms` is when it stops waiting."""

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


class ListedGroup(Struct, frozen=True):
    """A group in a listing. `protocol_type` is "" where it has never had a member."""

    group_id: str
    protocol_type: str
    state: Phase
    type: str


class ListGroupsAnswer(Answer, frozen=True, kw_only=True, tag="list_groups"):
    """The groups of one shard, in the order in which they were founded."""

    groups: tuple[ListedGroup, ...] = ()


class DeletedPartition(Struct, frozen=True):
    """How the deletion of one partition's offset ended; NONE where there was none."""

    topic: str
    partition: int
    error: str
    code: int


class OffsetDeleteAnswer(Answer, frozen=True, kw_only=True, tag="offset_delete"):
    """How each partition ended, in the order of the request; none of them where the whole was refused."""

    partitions: tuple[DeletedPartition, ...] = ()


class DeleteGroupAnswer(Answer, frozen=True, kw_only=True, tag="delete_group"):
    """Whether the group is gone."""


class RebalanceGroupAnswer(Answer, frozen=True, kw_only=True, tag="rebalance_group"):
    """Where the group is now. An Empty one has nobody to rebalance, one that is preparing is at it already."""

    state: Phase = Phase.DEAD
    generation_id: int = -1


class RepublishGroupAnswer(Answer, frozen=True, kw_only=True, tag="republish_group"):
    """How many records were written again, tombstones included."""

    records: int = 0


class ExpelMemberAnswer(Answer, frozen=True, kw_only=True, tag="expel_member"):
    """Whom it was that had to go."""

    member_id: str = ""


class SetAccessAnswer(Answer, frozen=True, kw_only=True, tag="set_access"):
    """When the rules were made that the shard goes by now."""

    made_ms: int = 0


class DescribeAccessAnswer(Answer, frozen=True, kw_only=True, tag="describe_access"):
    """The rules that the shard keeps, and when they were made; 0 where it was never given any."""

    made_ms: int = 0
    rules: tuple[Rule, ...] = ()


class CheckAccessAnswer(Answer, frozen=True, kw_only=True, tag="check_access"):
    """Of each action whether one may, in the order asked."""

    allowed: tuple[bool, ...] = ()


class ErrorAnswer(Answer, frozen=True, kw_only=True, tag="error"):
    """No more than an error: to a record that is no request yet said who asks, or where an answer is too large."""


class RebalanceNotice(Answer, frozen=True, kw_only=True, tag="rebalance_notice"):
    """Unasked: a rebalance began, rejoin now. A hint only; the heartbeat's REBALANCE_IN_PROGRESS is the truth."""

    group_id: str
    generation_id: int
    member_id: str


AnyAnswer = (
    JoinGroupAnswer
    | SyncGroupAnswer
    | HeartbeatAnswer
    | LeaveGroupAnswer
    | OffsetCommitAnswer
    | OffsetFetchAnswer
    | DescribeGroupAnswer
    | ListGroupsAnswer
    | OffsetDeleteAnswer
    | DeleteGroupAnswer
    | RebalanceGroupAnswer
    | RepublishGroupAnswer
    | ExpelMemberAnswer
    | SetAccessAnswer
    | DescribeAccessAnswer
    | CheckAccessAnswer
    | ErrorAnswer
    | RebalanceNotice
)


class Reply(Struct, frozen=True):
    """An answer on its way to the inbox that asked."""

    to: str
    answer: AnyAnswer
