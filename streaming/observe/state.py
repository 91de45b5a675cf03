"""The state of one partition of `__consumer_offsets`: its position, the names of topic ids, and its groups.

    1 byte      version of the bytes that follow
    4 bytes     CRC-32 of the version and of all the rest, big-endian
    the rest    MessagePack: [next offset, offset after the last hole, {topic id: name}, [ids without a name],
                              {group id: [number of members, group]}, [records of a run that is not complete],
                              {id of a deleted group: its last time}, [changes of metadata hashes],
                              {group id: committed offsets}, offsets that were set]

A group is a byte string inside the state, deflated if it is long. So a group without new records is copied and never
decoded. The same holds for a group's committed offsets; see `commits.LastOffsets`.
"""

import zlib
from struct import Struct as Frame
from struct import error as FrameError  # noqa: N812  (an exception's name)

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from coordinator.base.errors import CorruptState
from coordinator.messages.group_records import Subtopology
from coordinator.state.encoding import ENCODER, decode, inflate

VERSION = 1
DEFLATE_LEVEL = 1

DEFLATED_FROM_BYTES = 256
"""Shorter groups are not deflated: the work would save some tens of bytes."""

REASONS_MAX = 32
"""The reasons of one rebalance that events name. A group of a thousand members is founded by a thousand joins."""

HASH_CHANGES_MAX = 200
"""Changes of metadata hashes of a partition that wait for the driver. Beyond it the oldest one is dropped, and its
topics stay unnamed."""

ENDED_MAX = 1_000
"""Deleted groups of a partition whose last time is kept. Beyond it the oldest one is dropped: a group that is founded
again within the same millisecond, or by a broker whose clock is behind, comes soon after its end."""

NO_TOPOLOGY = -1
"""The epoch of a topology that is not known, or whose topics are not all there."""

AWAY_EPOCH = -2
"""The member epoch of a static member that left for a while."""

Row = tuple[int, int, bytes | None, bytes | None]
"""A record of the source: `offset`, `at_ms`, `key` and `value`."""

TopicAndPartition = tuple[str, int]
"""A partition: the topic, by its name or by its id, and the number."""

Owned = dict[str, list[int]]
"""Partitions by topic. The topic is named by its id in a group with epochs. In a streams group, the numbers of tasks by
subtopology."""

OldTopic = tuple[str, int, int]
"""The id and the partition count of a topic, and a checksum of the racks of its replicas."""


class Details(Struct, frozen=True):
    """What is known of a cause; see the fields of `RebalanceStarted` with these names."""

    topics_added: tuple[str, ...] | UnsetType = UNSET
    topics_removed: tuple[str, ...] | UnsetType = UNSET
    pattern: str | UnsetType = UNSET
    assignor_before: str | UnsetType | None = UNSET
    assignor_after: str | UnsetType | None = UNSET
    assignors: dict[str, tuple[str, ...]] | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    changed: tuple[str, ...] | UnsetType = UNSET
    configs: dict[str, tuple[str | None, str | None]] | UnsetType = UNSET


NO_DETAILS = Details()


class Reason(Struct, array_like=True, frozen=True):
    """A cause of a rebalance, and the member that caused it; "" for none."""

    cause: str
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None
    details: Details = NO_DETAILS


class StreamsPart(Struct, array_like=True):
    """What only a member of a streams group has. Its active tasks are in the fields of each member.

    Args:
        endpoint: `host:port`, or None.
    """

    topology_epoch: int
    process_id: str
    endpoint: str | None
    tags: dict[str, str]
    standby: Owned = {}
    warmup: Owned = {}
    standby_revoking: Owned = {}
    warmup_revoking: Owned = {}
    target_standby: Owned = {}
    target_warmup: Owned = {}


class Member(Struct, array_like=True):
    """A member of a group.

    Args:
        first: The generation in which a classic member was first seen; the offset of the first record of another one.
        last_commit_ms: The time of the last commit of a partition that the member owned.
        topics, regex, rack_id, assignor: The subscription of a member of a group of the consumer protocol.
        is_classic: Whether a member of such a group uses the classic protocol.
        is_placed: Whether the partitions of the member are known.
        unrevoked_ms: The time of its last record, if that says that it has partitions to give up; else None.
        streams: Only of a member of a streams group.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None
    first: int
    last_commit_ms: int | None = None
    subscription: bytes = b""
    assignment: bytes = b""
    topics: list[str] = []
    regex: str | None = None
    rack_id: str | None = None
    assignor: str | None = None
    is_classic: bool = False
    is_placed: bool = True
    epoch: int = 0
    state: int = 0
    assigned: Owned = {}
    revoking: Owned = {}
    target: Owned = {}
    unrevoked_ms: int | None = None
    streams: StreamsPart | None = None


class HashChange(Struct, array_like=True, frozen=True):
    """A group epoch with another metadata hash than the epoch before; see `metadata_hash`.

    Args:
        topics_before, topics: The names that the group subscribed to before and since.
    """

    group_id: str
    group_epoch: int
    hash_before: int
    hash: int
    topics_before: list[str]
    topics: list[str]


class Change(Struct, array_like=True):
    """A rebalance of a group with epochs that is not complete."""

    begun_ms: int
    before: list[str]
    planned_ms: int | None = None


class Group(Struct, array_like=True):
    """A group as of its last record.

    Args:
        type: classic, consumer, share or streams; "" for a group of which only offsets are known.
        version: The number of records and events that were published.
        now_ms: The group's time, which never decreases.
        at_offset: The offset of its last record that is not a commit.
        recorded_ms: The time of the record of the generation.
        published_ms: The group's time when its record was last published.
        released: The partitions that nobody owned after the last rebalance and somebody before it; None if unknown.
        last_commit_ms: The time of the group's last commit.
        commits: The number of its commits since the record of the generation.
        is_settling: Whether records of the group may be missing because its log was compacted.
        waiting: Reasons that no epoch has followed yet.
        is_unpublished: Whether the group's record is not as the group is.
        metadata_hash: The hash of the last group epoch; None if it is not known, 0 if it has none.
        old_topics: By name, the id, the partition count and a checksum of the racks of each topic, as brokers before
            4.1 record them in place of the hash.
        subtopologies, topology_epoch, validated_epoch, configs: Only of a streams group; see `group_records.Topology`.
        initializing, initialized: Only of a share group: partitions by topic id.
        sets_forward: The number of `offsets_set` without an offset that was set back, since it has no members.
    """

    group_id: str
    type: str = ""
    version: int = 0
    now_ms: int = 0
    at_offset: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    since_ms: int = 0
    recorded_ms: int = 0
    published_ms: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    released: list[TopicAndPartition] | None = None
    last_commit_ms: int | None = None
    commits: int = 0
    assignment_epoch: int = 0
    patterns: dict[str, list[str]] = field(default_factory=dict)
    change: Change | None = None
    waiting: list[Reason] = field(default_factory=list)
    is_settling: bool = False
    is_unpublished: bool = False
    metadata_hash: int | None = None
    old_topics: dict[str, OldTopic] = field(default_factory=dict)
    subtopologies: dict[str, Subtopology] = field(default_factory=dict)
    topology_epoch: int = NO_TOPOLOGY
    validated_epoch: int = NO_TOPOLOGY
    configs: dict[str, str] = field(default_factory=dict)
    initializing: Owned = field(default_factory=dict)
    initialized: Owned = field(default_factory=dict)
    sets_forward: int = 0

    def next_version(self) -> int:
        """Return the version of the next record or event."""
        self.version += 1
        return self.version

    def advance(self, at_ms: int) -> int:
        """Move the group's time to `at_ms`, if that is later, and return the group's time."""
        self.now_ms = max(self.now_ms, at_ms)
        return self.now_ms


class SetOffsets(Struct, array_like=True):
    """Offsets that were set in a group without members: the commits with one timestamp at consecutive offsets.

    Args:
        next_offset: The offset of the record that may continue them.
        partitions: The first ones: topic, partition, the offset before or None, and the offset.
        total: The number of all.
        back: The number of those that were set back.
    """

    group_id: str
    at_ms: int
    next_offset: int
    partitions: list[tuple[str, int, int | None, int]] = field(default_factory=list)
    total: int = 0
    back: int = 0


class Stored(Struct, array_like=True):
    """The state of a partition.

    Args:
        hash_changes: The changes of metadata hashes whose topics the driver has not named yet, the oldest first.
        offsets: By group, its committed offsets as bytes; see `commits.LastOffsets`.
        offsets_set: Offsets that were set by records that the next ones may continue.
    """

    next_offset: int | None = None
    hole_end: int = -1
    names: dict[str, str] = field(default_factory=dict)
    unnamed: list[str] = field(default_factory=list)
    groups: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    held: list[Row] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)
    hash_changes: list[HashChange] = field(default_factory=list)
    offsets: dict[str, bytes] = field(default_factory=dict)
    offsets_set: SetOffsets | None = None

    def record_end(self, group_id: str, at_ms: int) -> None:
        """Keep the time at which a group ended. A new group with its id has to be later."""
        self.groups.pop(group_id, None)
        self.offsets.pop(group_id, None)
        self.hash_changes = [each for each in self.hash_changes if each.group_id != group_id]
        self.ended.pop(group_id, None)
        self.ended[group_id] = at_ms
        if len(self.ended) > ENDED_MAX:
            del self.ended[next(iter(self.ended))]


_FRAME = Frame(">BI")
_stored_decoder = msgspec.msgpack.Decoder(Stored)
_group_decoder = msgspec.msgpack.Decoder(Group)


def to_bytes(stored: Stored) -> bytes:
    """Return the bytes of a state."""
    rest = ENCODER.encode(stored)
    return _FRAME.pack(VERSION, zlib.crc32(bytes([VERSION]) + rest)) + rest


def from_bytes(data: bytes | None) -> Stored:
    """Return the state of these bytes; an empty one for None.

    Raises:
        CorruptState: The bytes cannot be trusted.
    """
    if data is None:
        return Stored()
    try:
        version, checksum = _FRAME.unpack_from(data)
    except FrameError:
        raise CorruptState("a partition's state is too short") from None
    rest = data[_FRAME.size :]
    if version != VERSION or checksum != zlib.crc32(data[:1] + rest):
        raise CorruptState(f"a partition's state of version {version} fails its checksum or is of a later version")
    return decode(_stored_decoder, rest)


def pack_group(group: Group) -> tuple[int, bytes]:
    """Return the number of members and the bytes of a group."""
    data = ENCODER.encode(group)
    packed = b"\1" + zlib.compress(data, DEFLATE_LEVEL) if len(data) >= DEFLATED_FROM_BYTES else b"\0" + data
    return len(group.members), packed


def unpack_group(data: bytes) -> Group:
    """Return the group of these bytes.

    Raises:
        CorruptState: The bytes are no group.
    """
    return decode(_group_decoder, inflate(data[1:]) if data[:1] == b"\1" else data[1:])
