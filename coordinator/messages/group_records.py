"""Records of the groups topic: the present state of each group and of each committed offset."""

from msgspec import UNSET, Struct, UnsetType

from coordinator.base.connect_protocol import Work
from coordinator.base.states import Phase


class Tasks(Struct, frozen=True):
    """Tasks of a streams group by role. Each has the numbers of tasks by subtopology."""

    active: dict[str, list[int]] = {}
    standby: dict[str, list[int]] = {}
    warmup: dict[str, list[int]] = {}


class StreamsMember(Struct, frozen=True, kw_only=True):
    """What only a member of a streams group has (KIP-1071).

    Args:
        process_id: The same for all members of one process, which share its state directory.
        endpoint: `host:port` of its interactive queries; null for none.
        client_tags: The tags that tell on which machines standby tasks may be.
        assigned, revoking, target: The tasks that it has, those that it has to give up, and its part of the target.
    """

    process_id: str
    topology_epoch: int
    endpoint: str | None
    client_tags: dict[str, str]
    assigned: Tasks
    revoking: Tasks
    target: Tasks


class Subtopology(Struct, frozen=True):
    """A part of a topology, whose tasks are numbered by partitions. It has as many tasks as its source topic with the
    most partitions.

    Args:
        sources: The topics that its tasks read, repartition topics included.
        repartition_sources: Those of them that another subtopology writes.
        repartition_sinks: The repartition topics that it writes.
        changelogs: The topics that keep its state; without one, its tasks have no standby.
    """

    sources: tuple[str, ...]
    repartition_sources: tuple[str, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    changelogs: tuple[str, ...] = ()


class Topology(Struct, frozen=True):
    """The topology of a streams group. The group's first member brings it.

    Args:
        validated_epoch: Its epoch, if all of its topics were there at the last group epoch; else -1.
        configs: The settings of the group that the last group epoch was planned with, such as num.standby.replicas.
    """

    epoch: int
    validated_epoch: int
    subtopologies: dict[str, Subtopology]
    configs: dict[str, str] = {}


class GroupMember(Struct, frozen=True, kw_only=True):
    """A member in the group record. `assigned` is the decoded assignment, for the types `consumer` and `resources`.

    `fencing_token` is the one that came with the assignment; 0 before the first one, and in a group that Kafka's
    coordinator keeps. Only members of groups of the consumer protocol have the fields after it: `assigned` may be used,
    `revoking` has to be given up, and `target` is the member's part of the target assignment. Its `state` is stable,
    unrevoked or unreleased.

    Only workers of Kafka Connect have `work`: all connectors and tasks that the worker runs. Their `assignment` may be
    only the change.

    A policy gives a member a `standing`: `standing_by` (it has no partitions yet), `called` (it has to join again for
    more of them) or `quarantined`.

    Timeouts are null only in a group that Kafka's coordinator keeps, where its log does not name them. Only there, a
    member that prefers a server assignor has it in `server_assignor`. A member of a streams group has `streams`; its
    `assigned` has the partitions of the topics that its active tasks read.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None
    assignment: bytes
    assigned: dict[str, list[int]] | None
    fencing_token: int = 0
    rack_id: str | UnsetType | None = UNSET
    protocol: str | UnsetType = UNSET
    member_epoch: int | UnsetType = UNSET
    state: str | UnsetType = UNSET
    subscribed_topics: tuple[str, ...] | UnsetType = UNSET
    regex: str | UnsetType = UNSET
    revoking: dict[str, list[int]] | UnsetType = UNSET
    target: dict[str, list[int]] | UnsetType = UNSET
    standing: str | UnsetType = UNSET
    work: Work | UnsetType | None = UNSET
    server_assignor: str | UnsetType = UNSET
    streams: StreamsMember | UnsetType = UNSET


class Hold(Struct, frozen=True, kw_only=True):
    """The effect of policies on a group. It is left out of the group's record if they have none.

    Args:
        since_ms: When the first cause of the rebalance that is held came; null if none is held.
        until_ms: When the rebalance begins, unless its causes are gone before that; null if none is held.
        frozen_until_ms: The end of the freeze that holds rebalances; null if none does.
        vacant: The number of assignments of members that are gone.
        standing_by: The number of newcomers that have no partitions yet.
        quarantined: The number of members in quarantine.
    """

    since_ms: int | None
    until_ms: int | None
    frozen_until_ms: int | None
    vacant: int
    standing_by: int
    quarantined: int


class GroupRecord(Struct, frozen=True, kw_only=True):
    """A group as of its latest published change. Key: `["group", group_id]`.

    A classic group is published when its phase or its generation changes, when a static member restarts, and when a
    policy seats a newcomer, keeps the assignment of a member that is gone, or gives it to another one. A group of
    the consumer protocol is published when an epoch, a member, its partitions or its target changes; a large one at a
    bounded rate.

    Only groups of the consumer protocol have a `type`, "consumer", and an `assignment_epoch`. Their `generation_id` is
    the group epoch, their `protocol_name` is the assignor of the latest target assignment, and they have no leader.

    A group that Kafka's coordinator keeps has `kept_by`, "kafka", and always a `type`: classic, consumer, share or
    streams. A streams group has its `topology`. A share group has the partitions whose share state Kafka is
    `initializing`: no member gets them before that is done. Several of its members may have one partition.
    """

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
    type: str | UnsetType = UNSET
    assignment_epoch: int | UnsetType = UNSET
    hold: Hold | UnsetType = UNSET
    kept_by: str | UnsetType = UNSET
    topology: Topology | UnsetType = UNSET
    initializing: dict[str, list[int]] | UnsetType = UNSET


class OffsetRecord(Struct, frozen=True, kw_only=True):
    """A committed offset. Key: `["offset", group_id, topic, partition]`.

    Kafka's coordinator does not record who committed: in a group that it keeps, `generation_id` and `member_id` are
    null. `stands_for` is there the number of commits since the last record of the key, this one included.
    """

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    generation_id: int | None
    member_id: str | None
    version: int
    topic_id: str | UnsetType = UNSET
    stands_for: int | UnsetType = UNSET


GroupKey = tuple[str, str]
OffsetKey = tuple[str, str, str, int]


class Published(Struct, frozen=True):
    """A record of the compacted topic. Without a `record` it is a tombstone, whose version and time are in headers.

    Args:
        version: None if no such group exists: its key is deleted once more, and no version is counted.
        ended_ms: The group's time of a tombstone; later than all that the group had published before it ended. If the
            group has moved, the time of the record that it replaces.
    """

    group_id: str
    key: GroupKey | OffsetKey
    record: GroupRecord | OffsetRecord | None
    version: int | None
    ended_ms: int | None = None
