"""What leaves the coordinator: replies to askers, records that anybody reads, and events that say why.

Each type is the JSON object that a record holds. `Reply`, `Published` and `Event` say which topic it goes to; what
they hold comes from the coordinator's own state alone, never from a name that a request chose for a topic.
"""

from msgspec import UNSET, Struct, UnsetType

from coordinator.access import Rule
from coordinator.errors import ErrorCode
from coordinator.phases import Phase

# -- replies -----------------------------------------------------------------------------------------------------------


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


# -- the groups topic --------------------------------------------------------------------------------------------------


class GroupMember(Struct, frozen=True, kw_only=True):
    """A member in the group record. `assigned` is the assignment decoded, where the protocol type is `consumer`.

    `fencing_token` is the one that came with the assignment; 0 before the first one, and from older coordinators.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignment: bytes
    assigned: dict[str, list[int]] | None
    fencing_token: int = 0


class GroupRecord(Struct, frozen=True, kw_only=True):
    """A group as of its latest change of phase or generation. Key: `["group", group_id]`."""

    group_id: str
    state: Phase
    since_ms: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    subscribed_topics: tuple[str, ...] | None
    members: tuple[GroupMember, ...]
    version: int


class OffsetRecord(Struct, frozen=True, kw_only=True):
    """A committed offset. Key: `["offset", group_id, topic, partition]`."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    generation_id: int
    member_id: str
    version: int


GroupKey = tuple[str, str]
OffsetKey = tuple[str, str, str, int]


class Published(Struct, frozen=True):
    """A record of the compacted topic; without a record, a tombstone, whose version and time travel in headers.

    Args:
        version: None where there is no group: its key is ended once more, and nothing is counted.
        ended_ms: The group's time of a tombstone; later than all that the group had published before it ended.
    """

    group_id: str
    key: GroupKey | OffsetKey
    record: GroupRecord | OffsetRecord | None
    version: int | None
    ended_ms: int | None = None


# -- the events topic --------------------------------------------------------------------------------------------------


class Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    """What every event says. `version` counts all that the group publishes, without a gap; null where no group is."""

    group_id: str | None
    version: int | None
    at_ms: int
    generation_id: int | None


class RebalanceStarted(Event, frozen=True, kw_only=True, tag="rebalance_started"):
    """Joins are being collected, because of `cause`: which member, on which host, and its own reason."""

    cause: str
    member_id: str
    client_id: str
    client_host: str
    reason: str | None
    members: int
    joins_until_ms: int


class RebalanceCompleted(Event, frozen=True, kw_only=True, tag="rebalance_completed"):
    """All members of `generation_id` have a plan. Durations count from the first `rebalance_started`.

    `fencing_token` is given to all of them; 0 from older coordinators.
    """

    duration_ms: int
    joins_ms: int
    syncs_ms: int
    protocol_name: str | None
    leader: str | None
    members_before: tuple[str, ...]
    members_after: tuple[str, ...]
    joined: tuple[str, ...]
    gone: tuple[str, ...]
    fencing_token: int = 0


class Handover(Struct, frozen=True):
    """One partition's old and new owner; null where there was or is none."""

    topic: str
    partition: int
    before: str | None
    after: str | None


class AssignmentChanged(Event, frozen=True, kw_only=True, tag="assignment_changed"):
    """Partition by partition, from whom to whom; partitions that stayed are left out."""

    handovers: tuple[Handover, ...]


class MemberEvent(Event, frozen=True, kw_only=True):
    """Something that happened to one member."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class MemberJoined(MemberEvent, frozen=True, kw_only=True, tag="member_joined"):
    """A newcomer is a member, from its first join on."""

    reason: str | None


class MemberLeft(MemberEvent, frozen=True, kw_only=True, tag="member_left"):
    """A member left by itself, or somebody asked it out by its instance id; with the reason given."""

    reason: str | None


class MemberExpired(MemberEvent, frozen=True, kw_only=True, tag="member_expired"):
    """A member was dropped: `why` is session_expired, joins_overdue, syncs_overdue, group_full or expelled.

    `silence_ms` is how long its session had run without a sign of life; null where another reason, or an absence of the
    coordinator's own, leaves that unsaid. `reason` is what an operator said who expelled it.
    """

    why: str
    silence_ms: int | None
    reason: str | None


class MemberFenced(MemberEvent, frozen=True, kw_only=True, tag="member_fenced"):
    """Another process has come under a member's instance id: the member goes on as `replaced_by`, the old id is out.

    `fencing_token` is the new process's, above the old one's; 0 from older coordinators.
    """

    replaced_by: str
    replaced_by_client_id: str
    replaced_by_client_host: str
    fencing_token: int = 0


class CommitRejected(Event, frozen=True, kw_only=True, tag="commit_rejected"):
    """A commit was refused as a whole; the offsets are as they were."""

    member_id: str
    client_id: str
    client_host: str
    claimed_generation_id: int
    error: str
    partitions: int


class OffsetsExpired(Event, frozen=True, kw_only=True, tag="offsets_expired"):
    """Offsets were kept as long as promised, and are forgotten."""

    partitions: tuple[tuple[str, int], ...]


class OffsetsDeleted(Event, frozen=True, kw_only=True, tag="offsets_deleted"):
    """Offsets were forgotten because somebody asked for it."""

    partitions: tuple[tuple[str, int], ...]


class GroupEmptied(Event, frozen=True, kw_only=True, tag="group_emptied"):
    """The last member is gone."""


class GroupDeleted(Event, frozen=True, kw_only=True, tag="group_deleted"):
    """The group is forgotten, and its records with it."""

    why: str


class Rejected(Event, frozen=True, kw_only=True, tag="rejected"):
    """A record that is no request and did not say who asks."""

    partition: int
    offset: int
    why: str


class LogBroken(Event, frozen=True, kw_only=True, tag="log_broken"):
    """A shard's requests do not go on where they ended before: the engine's plan of a batch was damaged, most likely.

    Where `found` is above `expected`, what lies between was never handled, unless a producer's transactions left marks
    there. Where it is below, requests came again that had been handled, and nothing was done.

    Args:
        breaks: How many breaks this event tells of. Above 1 it sums up those of a batch that has too many to tell each:
            from where the first was expected to where the last was found, with what was handled between them.
    """

    partition: int
    expected: int
    found: int
    breaks: int = 1


class ClockAhead(Event, frozen=True, kw_only=True, tag="clock_ahead"):
    """Records of a shard are dated later than its batch, by more than clocks may differ: a broker's clock is wrong.

    They were handled as of `at_ms`. `offset` is the first one's, `records` counts them, and `ahead_ms` is how far
    beyond `at_ms` the latest one is dated.
    """

    partition: int
    offset: int
    records: int
    ahead_ms: int


class AccessDenied(Event, frozen=True, kw_only=True, tag="access_denied"):
    """Somebody asked what it may not ask, and nothing was done. No group has done or lived through anything.

    `why` says what is wrong with the record's signature; `principal` is then who it only claims to be.
    """

    principal: str
    client_id: str
    client_host: str
    request: str
    operation: str
    resource: str
    names: tuple[str, ...]
    why: str | None


class AccessChanged(Event, frozen=True, kw_only=True, tag="access_changed"):
    """A shard goes by other rules from now on."""

    principal: str
    client_id: str
    client_host: str
    partition: int
    made_ms: int
    rules: int


class Oversized(Event, frozen=True, kw_only=True, tag="oversized"):
    """Stands for an event or a group record, under its version, that is larger than a record may be."""

    what: str
    bytes: int


AnyEvent = (
    RebalanceStarted
    | RebalanceCompleted
    | AssignmentChanged
    | MemberJoined
    | MemberLeft
    | MemberExpired
    | MemberFenced
    | CommitRejected
    | OffsetsExpired
    | OffsetsDeleted
    | GroupEmptied
    | GroupDeleted
    | Rejected
    | LogBroken
    | ClockAhead
    | AccessDenied
    | AccessChanged
    | Oversized
)

Output = Reply | Published | AnyEvent
