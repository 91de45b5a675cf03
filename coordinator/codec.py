"""The encoding of a shard's state as bytes.

    1 byte      version of the bytes that follow
    4 bytes     CRC-32 of all the rest, big-endian; from version 3 on it covers the version as well
    the rest    MessagePack: [{group id: [earliest deadline, members, vitals, rest of the group]},
                              {id of a removed group: [until when the entry is kept, last generation,
                                                       last fencing token]},
                              access rules: [when they were made, [rules]], deflated; empty if none were set,
                              [time of the latest batch, time up to which the log is read, driver's clock ahead of it],
                              [how much of the allowance for listings is used up, the time of that count]]

Vitals and rest are byte strings inside the state, so a group without changes is copied and never decoded. The rest is
deflated, because subscriptions, client ids and hosts repeat from member to member. Every batch carries all bytes of a
shard between the engine and this code, while the rest of a group changes only when the group does.

The member ids are in the rest alone: vitals hold sessions without ids, in the members' order. The part of the rest that
names the members is called the roster. A `Rosters` caches the roster by the bytes of the rest, so a heartbeat does not
inflate them. The caller owns the `Rosters` and passes it. A cache of a pure function cannot be stale, in whatever
process and however often the task runs.

The newest code reads every older version. Version 1 had no entries for removed groups. Version 2 wrote ids into the
vitals. Version 3 had no access rules. Version 4 had no times and no fencing tokens. Any other version raises
`CorruptState`.
"""

import zlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from coordinator.access import Access
from coordinator.budget import Allowance
from coordinator.clock import Clock
from coordinator.errors import CorruptState
from coordinator.group import NEVER_MS, Group, Member, Session, Vitals
from coordinator.phases import Phase

VERSION = 5
DEFLATE_LEVEL = 1
ROSTERS_BYTES_MAX = 64 * 2**20
"""The memory that all cached rosters may take together, in bytes: a roster takes some 3 KB in groups of ten members."""

ROSTER_BYTES, MEMBER_BYTES = 300, 150
"""The approximate memory of a roster, and of each member in it, in bytes, without the rest that is its key."""

T = TypeVar("T")


class Stored(Struct, array_like=True, frozen=True):
    """An encoded group.

    Three values are not inside the encoded parts: the earliest deadline for the shard's timer, the number of members
    for counts, and the protocol type for listings ("" for none; None if older code did not write it).
    """

    earliest_ms: int
    members: int
    vitals: bytes
    rest: bytes
    protocol_type: str | None = None


class RemovedGroup(Struct, array_like=True, frozen=True):
    """The remaining data of a removed group. A new group with the same id continues its generations and tokens.

    Args:
        ended_ms: The group's time when it was removed. The time of the new group is later. -1 if older code wrote the
            entry.
    """

    until_ms: int
    generation_id: int
    token: int = 0
    ended_ms: int = -1


class Kept(Struct, array_like=True, frozen=True):
    """The whole state of a shard.

    It has the groups, the removed groups (the oldest first), the access rules, the clock, and the allowance for
    listings.
    """

    groups: dict[str, Stored] = {}
    removed_groups: dict[str, RemovedGroup] = {}
    access: bytes = b""
    clock: Clock = Clock()
    allowance: Allowance = Allowance()


class Roster(NamedTuple):
    """The members' ids, in order, and the member ids of static members by instance id."""

    member_ids: list[str]
    instances: dict[str, str]


class _Pulse(Struct, array_like=True):
    """Vitals as they are written. Sessions and instances are written whole only if they differ from the roster."""

    phase: Phase
    generation_id: int
    now_ms: int
    sessions: list[Session] | dict[str, Session]
    pending: dict[str, Session]
    joins_ms: int
    syncs_ms: int
    offsets_ms: int
    earliest_ms: int
    extended: bool
    back_ms: int
    instances: dict[str, str] | None = None
    publish_ms: int = NEVER_MS


class _Phased(Struct, array_like=True):
    """The beginning of a `_Pulse`; later fields are skipped."""

    phase: Phase


class _Named(Struct, array_like=True):
    """The beginning of a `Member`; later fields are skipped."""

    member_id: str
    group_instance_id: str | None


class _WithMembers(Struct, array_like=True):
    """The beginning of a `Group` up to its members; later fields are skipped."""

    vitals: Raw
    group_id: Raw
    since_ms: Raw
    version: Raw
    protocol_type: Raw
    protocol_name: Raw
    leader_id: Raw
    members: dict[str, _Named]


class _Timed(Struct, array_like=True):
    """The beginning of a `_Pulse` up to its time; later fields are skipped."""

    phase: Raw
    generation_id: Raw
    now_ms: int


class _Typed(Struct, array_like=True):
    """The beginning of a `Group` up to its protocol type; later fields are skipped."""

    vitals: Raw
    group_id: Raw
    since_ms: Raw
    version: Raw
    protocol_type: str | None


_NO_VITALS = Vitals()
_encoder = msgspec.msgpack.Encoder()
_shard_decoder = msgspec.msgpack.Decoder(Kept)
_first_shard_decoder = msgspec.msgpack.Decoder(dict[str, Stored])
_pulse_decoder = msgspec.msgpack.Decoder(_Pulse)
_phased_decoder = msgspec.msgpack.Decoder(_Phased)
_timed_decoder = msgspec.msgpack.Decoder(_Timed)
_typed_decoder = msgspec.msgpack.Decoder(_Typed)
_members_decoder = msgspec.msgpack.Decoder(_WithMembers)
_group_decoder = msgspec.msgpack.Decoder(Group)
_access_decoder = msgspec.msgpack.Decoder(Access)


def encode_shard(kept: Kept) -> bytes:
    """Encode the whole state of a shard."""
    body = _encoder.encode(kept)
    return b"%c%b%b" % (VERSION, _checksum(VERSION, body), body)


def decode_shard(data: bytes) -> Kept:
    """Decode the bytes that `encode_shard` wrote, in this or an older version.

    Raises:
        CorruptState: unknown version, wrong checksum, or bytes that no version writes.
    """
    if not data or not 1 <= data[0] <= VERSION:
        raise CorruptState(f"state of codec version {data[0] if data else 'none'}; this code reads 1 to {VERSION}")
    body = memoryview(data)[5:]
    if _checksum(data[0], body) != data[1:5]:
        raise CorruptState("a shard's state fails its checksum: the checkpoint is damaged")
    if data[0] == 1:
        return Kept(_decode(_first_shard_decoder, body))
    return _decode(_shard_decoder, body)


def _checksum(version: int, body: bytes | memoryview) -> bytes:
    begun = zlib.crc32(bytes([version])) if version >= 3 else 0
    return zlib.crc32(body, begun).to_bytes(4, "big")


def encode_vitals(vitals: Vitals, rest: bytes, rosters: "Rosters | None" = None) -> bytes:
    """Encode the part of a group that a heartbeat changes.

    Args:
        rest: The rest of the same group.
        rosters: A cache with the group's roster, so that the roster is not read from `rest`.
    """
    known = (Rosters() if rosters is None else rosters).of(rest)
    pulse = _Pulse(
        vitals.phase,
        vitals.generation_id,
        vitals.now_ms,
        list(vitals.sessions.values()) if list(vitals.sessions) == known.member_ids else vitals.sessions,
        vitals.pending,
        vitals.joins_ms,
        vitals.syncs_ms,
        vitals.offsets_ms,
        vitals.earliest_ms,
        vitals.extended,
        vitals.back_ms,
        None if vitals.instances == known.instances else vitals.instances,
        vitals.publish_ms,
    )
    return _encoder.encode(pulse)


def decode_vitals(data: bytes, rest: bytes, rosters: "Rosters | None" = None) -> Vitals:
    """Decode the bytes that `encode_vitals` wrote, with the same arguments."""
    pulse = _decode(_pulse_decoder, data)
    sessions, instances = pulse.sessions, pulse.instances
    rosters = Rosters() if rosters is None else rosters
    if isinstance(sessions, list):
        member_ids = rosters.of(rest).member_ids
        if len(sessions) != len(member_ids):
            raise CorruptState(f"a group of {len(member_ids)} members has {len(sessions)} sessions")
        sessions = dict(zip(member_ids, sessions, strict=True))
    if instances is None:
        instances = dict(rosters.of(rest).instances)
    return Vitals(
        pulse.phase,
        pulse.generation_id,
        pulse.now_ms,
        sessions,
        pulse.pending,
        pulse.joins_ms,
        pulse.syncs_ms,
        pulse.offsets_ms,
        pulse.earliest_ms,
        pulse.extended,
        pulse.back_ms,
        instances,
        pulse.publish_ms,
    )


def decode_phase(data: bytes) -> Phase:
    """Decode only the phase from the bytes that `encode_vitals` wrote."""
    return _decode(_phased_decoder, data).phase


def decode_now_ms(stored: Stored) -> int:
    """Decode only the time of an encoded group."""
    return _decode(_timed_decoder, stored.vitals).now_ms


def decode_protocol_type(data: bytes) -> str:
    """Decode only the protocol type from the bytes that `encode_rest` wrote; "" if the group never had one."""
    return _decode(_typed_decoder, _inflate(data)).protocol_type or ""


class Rosters:
    """A cache of rosters by the rest of the group; the least recently used ones are dropped.

    Each commit creates a new rest of a group, and the earlier rest is never looked up again.

    Args:
        bytes_max: How many bytes the cached rosters may take together. The latest one stays even if it takes more.
    """

    def __init__(self, bytes_max: int = ROSTERS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: OrderedDict[bytes, Roster] = OrderedDict()
        self.bytes = 0

    def of(self, rest: bytes) -> Roster:
        """Return the roster of a rest, from the cache if it is cached."""
        if (known := self._known.get(rest)) is not None:
            self._known.move_to_end(rest)
            return known
        known = _read_roster(rest)
        self.note(rest, known)
        return known

    def note(self, rest: bytes, roster: Roster) -> None:
        """Cache the roster of a rest, so that it is not read from the rest later."""
        if rest in self._known:
            return
        self._known[rest] = roster
        self.bytes += _bytes_of(rest, roster)
        while self.bytes > self._bytes_max and len(self._known) > 1:
            self.bytes -= _bytes_of(*self._known.popitem(last=False))


def _read_roster(rest: bytes) -> Roster:
    return _roster(_decode(_members_decoder, _inflate(rest)).members.values())


def _roster(members: Iterable[_Named | Member]) -> Roster:
    in_order = list(members)
    instances = {m.group_instance_id: m.member_id for m in in_order if m.group_instance_id is not None}
    return Roster([m.member_id for m in in_order], instances)


def _bytes_of(rest: bytes, roster: Roster) -> int:
    return len(rest) + ROSTER_BYTES + MEMBER_BYTES * len(roster.member_ids)


def encode_rest(group: Group, rosters: Rosters | None = None) -> bytes:
    """Encode a group without its vitals, and cache its roster in `rosters`."""
    rest = zlib.compress(_encoder.encode(msgspec.structs.replace(group, vitals=_NO_VITALS)), DEFLATE_LEVEL)
    if rosters is not None:
        rosters.note(rest, _roster(group.members.values()))
    return rest


def decode_rest(data: bytes, vitals: Vitals) -> Group:
    """Decode the bytes that `encode_rest` wrote, and add the vitals."""
    group = _decode(_group_decoder, _inflate(data))
    group.vitals = vitals
    return group


def encode_access(access: Access) -> bytes:
    """Encode the access rules."""
    return zlib.compress(_encoder.encode(access), DEFLATE_LEVEL)


def decode_access(data: bytes) -> Access:
    """Decode the bytes that `encode_access` wrote; no bytes are no rules."""
    return _decode(_access_decoder, _inflate(data)) if data else Access()


def _inflate(data: bytes) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise CorruptState(f"a part of a shard's state cannot be inflated: {error}") from error


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptState(f"a shard's state cannot be read: {error}") from error
