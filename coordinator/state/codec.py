"""The encoding of a shard's state as bytes.

    1 byte      version of the bytes that follow
    4 bytes     CRC-32 of the version and of all the rest, big-endian
    the rest    MessagePack: [{group id: [earliest deadline, members, hot state, rest of the group]},
                              {id of a removed group: [until when the entry is kept, last generation,
                                                       last fencing token, time of its end]},
                              access rules: [when they were made, [rules]], deflated; empty if none were set,
                              [time of the latest batch, time up to which the log is read, driver's clock ahead of it,
                               time of the last record that was read],
                              [how much of the allowance for listings is used up, the time of that count],
                              place before which all transactions have ended,
                              {id of a group with pending commits: the lowest place of one},
                              id of the transactions topic,
                              policies: [when they were made, [entries]], deflated,
                              moves of groups between coordinators: `move_state.Moves`,
                              slots that have moved between coordinators: `move_state.SlotMoves`,
                              {group id: a release that waits for open transactions: `move_state.Draining`},
                              {producer id: the first place of its open transaction}]

Hot state and rest are byte strings inside the state, so a group without changes is copied and never decoded. The rest
is deflated, because subscriptions, client ids and hosts repeat from member to member. Every batch carries all bytes of
a shard between the engine and this code, while the rest of a group changes only when the group does.

The member ids are in the rest alone: the hot state has sessions without ids, in the members' order. The part of the
rest that names the members is called the member index. A `MemberIndexCache` caches the member index by the bytes of the
rest, so a heartbeat does not inflate them.

What is seldom there is at the ends of arrays, and is left out where there is none: the policies, moves, slots, waiting
releases and open transactions of a shard, and the effects of policies in a group.

Only states of this version are read. Any other version raises `CorruptState`.
"""

import zlib

import msgspec
from msgspec import Struct

from coordinator.base.access import Access
from coordinator.base.errors import CorruptState
from coordinator.base.policies import Policies
from coordinator.base.settled import Settled
from coordinator.state.classic_group import Group, HotState
from coordinator.state.consumer_group import ConsumerGroup, ConsumerHotState
from coordinator.state.encoding import ENCODER, decode, inflate
from coordinator.state.group import Allowance
from coordinator.state.hot_state_codec import decode_classic_hot_state, decode_consumer_hot_state
from coordinator.state.member_index import MemberIndexCache, member_index_of
from coordinator.state.move_state import Draining, Moves, SlotMoves
from coordinator.state.policy_state import PolicyState

VERSION = 8
DEFLATE_LEVEL = 1


class Clock(Struct, array_like=True, frozen=True):
    """The times that a shard stores between steps, all in Unix milliseconds.

    Args:
        batch_ms: The time of the latest batch.
        read_ms: The time up to which the log has been read.
        ahead_ms: How far the driver's clock is ahead of the log's, by the latest wake record; not below 0.
        last_ms: The time of the last record that was read, as the log has it; 0 before the first one.
    """

    batch_ms: int = 0
    read_ms: int = 0
    ahead_ms: int = 0
    last_ms: int = 0


class Stored(Struct, array_like=True, frozen=True):
    """An encoded group.

    Four values are not inside the encoded parts: the earliest deadline for the shard's timer, the number of members for
    counts, the protocol type for listings ("" for none), and whether the group is one of the consumer protocol.
    """

    earliest_ms: int
    members: int
    hot_state: bytes
    rest: bytes
    protocol_type: str
    is_consumer: bool


class RemovedGroup(Struct, array_like=True, frozen=True):
    """The remaining data of a removed group. A new group with the same id continues its generations and tokens.

    Args:
        ended_ms: The group's time when it was removed. The time of the new group is later.
    """

    until_ms: int
    generation_id: int
    token: int
    ended_ms: int


class ShardSnapshot(Struct, array_like=True, frozen=True):
    """The whole state of a shard.

    It has the groups, the removed groups (the oldest first), the access rules, the clock, the allowance for listings,
    the place before which all transactions have ended, the groups with pending commits, each with the lowest place, the
    id of the topic that the places belong to, the policies, the moves, the moves of slots, and the names that are
    drained before they move; None if nothing has moved. Last, by producer id, the first places of open transactions.
    """

    groups: dict[str, Stored] = {}
    removed_groups: dict[str, RemovedGroup] = {}
    access: bytes = b""
    clock: Clock = Clock()
    allowance: Allowance = Allowance()
    settled_before: int = 0
    pending: dict[str, int] = {}
    transactions_topic_id: str = ""
    policies: bytes = b""
    moves: Moves | None = None
    slots: SlotMoves | None = None
    draining: dict[str, Draining] | None = None
    open_transactions: dict[int, int] = {}

    @property
    def settled(self) -> Settled:
        """How far the transactions have ended."""
        return Settled(self.transactions_topic_id, self.settled_before, self.open_transactions)


_WRITTEN_NO_HOT_STATE = msgspec.structs.astuple(HotState())[:13]
_WRITTEN_NO_CONSUMER_HOT_STATE = msgspec.structs.astuple(ConsumerHotState())[:16]
_shard_decoder = msgspec.msgpack.Decoder(ShardSnapshot)
_NO_POLICY_STATE = PolicyState()
_VERSION_CRC = zlib.crc32(bytes([VERSION]))
_consumer_group_decoder = msgspec.msgpack.Decoder(ConsumerGroup)
_group_decoder = msgspec.msgpack.Decoder(Group)
_access_decoder = msgspec.msgpack.Decoder(Access)
_policies_decoder = msgspec.msgpack.Decoder(Policies)


def encode_shard(snapshot: ShardSnapshot) -> bytes:
    """Encode the whole state of a shard."""
    *values, policies, moves, slots, draining, open_transactions = msgspec.structs.astuple(snapshot)
    optional = [policies, moves, slots, draining, open_transactions]
    while optional and not optional[-1]:
        optional.pop()
    body = ENCODER.encode(values + optional)
    return b"%c%b%b" % (VERSION, _checksum(body), body)


def decode_shard(data: bytes) -> ShardSnapshot:
    """Decode the bytes that `encode_shard` wrote.

    Raises:
        CorruptState: another version, a wrong checksum, or bytes that are never written.
    """
    if data[:1] != bytes([VERSION]):
        raise CorruptState(f"state of codec version {data[0] if data else 'none'}; this code reads {VERSION}")
    body = memoryview(data)[5:]
    if _checksum(body) != data[1:5]:
        raise CorruptState("a shard's state fails its checksum: the checkpoint is damaged")
    return decode(_shard_decoder, body)


def _checksum(body: bytes | memoryview) -> bytes:
    return zlib.crc32(body, _VERSION_CRC).to_bytes(4, "big")


def decode_hot_state(stored: Stored, member_indexes: MemberIndexCache | None = None) -> HotState | ConsumerHotState:
    """Decode the hot state of a stored group."""
    member_indexes = MemberIndexCache() if member_indexes is None else member_indexes
    if stored.is_consumer:
        return decode_consumer_hot_state(stored.hot_state, member_indexes.of(stored.rest))
    return decode_classic_hot_state(stored.hot_state, stored.rest, member_indexes)


def decode_group(stored: Stored, member_indexes: MemberIndexCache | None = None) -> Group | ConsumerGroup:
    """Decode a stored group."""
    return decode_rest(stored.rest, decode_hot_state(stored, member_indexes))


def encode_rest(group: Group | ConsumerGroup, member_indexes: MemberIndexCache | None = None) -> bytes:
    """Encode a group of either protocol without its hot state, and cache its member index in `member_indexes`."""
    without: object
    if isinstance(group, ConsumerGroup):
        _, *values, policy_state, held = msgspec.structs.astuple(group)
        effects = (
            (policy_state, held) if held is not None else () if policy_state == _NO_POLICY_STATE else (policy_state,)
        )
        without = (_WRITTEN_NO_CONSUMER_HOT_STATE, *values, *effects)
    else:
        _, *values, policy_state = msgspec.structs.astuple(group)
        without = (
            (_WRITTEN_NO_HOT_STATE, *values)
            if policy_state == _NO_POLICY_STATE
            else (_WRITTEN_NO_HOT_STATE, *values, policy_state)
        )
    rest = zlib.compress(ENCODER.encode(without), DEFLATE_LEVEL)
    if member_indexes is not None:
        member_indexes.put(rest, member_index_of(group.members.values()))
    return rest


def decode_rest(data: bytes, hot_state: HotState | ConsumerHotState) -> Group | ConsumerGroup:
    """Decode the bytes that `encode_rest` wrote, and add the hot state."""
    if isinstance(hot_state, ConsumerHotState):
        consumer_group = decode(_consumer_group_decoder, inflate(data))
        consumer_group.hot_state = hot_state
        return consumer_group
    group = decode(_group_decoder, inflate(data))
    group.hot_state = hot_state
    return group


def encode_policies(policies: Policies) -> bytes:
    """Encode the policies."""
    return zlib.compress(ENCODER.encode(policies), DEFLATE_LEVEL)


def decode_policies(data: bytes) -> Policies:
    """Decode the bytes that `encode_policies` wrote; no bytes are no policies."""
    return decode(_policies_decoder, inflate(data)) if data else Policies()


def encode_access(access: Access) -> bytes:
    """Encode the access rules."""
    return zlib.compress(ENCODER.encode(access), DEFLATE_LEVEL)


def decode_access(data: bytes) -> Access:
    """Decode the bytes that `encode_access` wrote; no bytes are no rules."""
    return decode(_access_decoder, inflate(data)) if data else Access()
