"""Bytes for a shard's state, and back.

    1 byte      version of what follows
    4 bytes     CRC-32 of all the rest, big-endian; from version 3 on of the version as well
    the rest    MessagePack: [{group id: [earliest deadline, members, vitals, rest of the group]},
                              {id of a forgotten group: [until when that is remembered, its last generation,
                                                         its last fencing token]},
                              who may do what: [when that was said, [rules]], deflated; empty where nothing was said,
                              [time of the latest batch, time up to which the log is read, driver's clock ahead of it],
                              [how much of the allowance for listings is used up, as of when]]

Vitals and rest are bytes within the bytes, so that a group that nobody touches is copied and never decoded. The rest
is deflated: subscriptions, client ids and hosts repeat from member to member, and every batch carries all bytes of a
shard between the engine and us, while the rest changes only when its group does.

Who the members are is in the rest alone: vitals hold sessions without ids, in the members' order. The part of the rest
that names the members, its roster, is kept in a `Rosters` by the bytes of the rest, so a heartbeat does not inflate
them. The caller owns the `Rosters` and passes it. A cache of a pure function cannot be stale, whoever runs the task and
however often.

The newest code reads every older version, of which the first had no memory of forgotten groups, the second wrote ids
into the vitals, the third knew no rules, and the fourth no times and no fencing tokens; anything else raises
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
"""Memory that all cached rosters may take together: some 3 KB each in groups of ten members."""

ROSTER_BYTES, MEMBER_BYTES = 300, 150
"""What a roster takes of memory, about, and each member in it, beside the rest that it is known by."""

T = TypeVar("T")


class Stored(Struct, array_like=True, frozen=True):
    """A group at rest. Its earliest deadline stands outside for the shard's alarm, its size for whoever counts, its
    protocol type ("" for none; None where older code did not write it down) for listings.
    """

    earliest_ms: int
    members: int
    vitals: bytes
    rest: bytes
    protocol_type: str | None = None


class Grave(Struct, array_like=True, frozen=True):
    """What is left of a forgotten group: one that is founded under its name goes on counting generations and tokens.

    Args:
        ended_ms: The group's time when it was forgotten: that of the new one is later; -1 where older code did not say.
    """

    until_ms: int
    generation_id: int
    token: int = 0
    ended_ms: int = -1


class Kept(Struct, array_like=True, frozen=True):
    """All that a shard keeps: its groups, those it has forgotten, the first one first, who may do what, what it knows
    of time, and how much was asked of late.
    """

    groups: dict[str, Stored] = {}
    graves: dict[str, Grave] = {}
    access: bytes = b""
    clock: Clock = Clock()
    allowance: Allowance = Allowance()


class Roster(NamedTuple):
    """What vitals leave to the rest: the members' ids, in order, and by instance id those that have one."""

    member_ids: list[str]
    instances: dict[str, str]


class _Pulse(Struct, array_like=True):
    """Vitals as they are written. Sessions and instances are written whole only where the roster does not tell."""

    phase: Phase
    generation_id: int
    now_ms: int
    sessions: list[Session] | dict[str, Session]
    pending: dict[str, Session]
    joins_ms: int
    syncs_ms: int
    offsets_ms: int
    earliest_ms: int
    spared: bool
    back_ms: int
    instances: dict[str, str] | None = None
    publish_ms: int = NEVER_MS


class _Phased(Struct, array_like=True):
    """The beginning of a `_Pulse`; what follows is passed over."""

    phase: Phase


class _Named(Struct, array_like=True):
    """The beginning of a `Member`; what follows is passed over."""

    member_id: str
    group_instance_id: str | None


class _Manned(Struct, array_like=True):
    """The beginning of a `Group` up to its members; what follows is passed over."""

    vitals: Raw
    group_id: Raw
    since_ms: Raw
    version: Raw
    protocol_type: Raw
    protocol_name: Raw
    leader_id: Raw
    members: dict[str, _Named]


class _Timed(Struct, array_like=True):
    """The beginning of a `_Pulse` up to its time; what follows is passed over."""

    phase: Raw
    generation_id: Raw
    now_ms: int


class _Typed(Struct, array_like=True):
    """The beginning of a `Group` up to its protocol type; what follows is passed over."""

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
_manned_decoder = msgspec.msgpack.Decoder(_Manned)
_group_decoder = msgspec.msgpack.Decoder(Group)
_access_decoder = msgspec.msgpack.Decoder(Access)


def encode_shard(kept: Kept) -> bytes:
    """Write all that a shard keeps."""
    body = _encoder.encode(kept)
    return b"%c%b%b" % (VERSION, _checksum(VERSION, body), body)


def decode_shard(data: bytes) -> Kept:
    """Read what `encode_shard` wrote, now or in an older version.

    Raises:
        CorruptState: unknown version, wrong checksum, or not what any version writes.
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
    """Write the part of a group that a heartbeat changes.

    Args:
        rest: The rest of the same group.
        rosters: Holds the group's roster, so that it need not be read from `rest`.
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
        vitals.spared,
        vitals.back_ms,
        None if vitals.instances == known.instances else vitals.instances,
        vitals.publish_ms,
    )
    return _encoder.encode(pulse)


def decode_vitals(data: bytes, rest: bytes, rosters: "Rosters | None" = None) -> Vitals:
    """Read what `encode_vitals` wrote, with the same arguments."""
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
        pulse.spared,
        pulse.back_ms,
        instances,
        pulse.publish_ms,
    )


def decode_phase(data: bytes) -> Phase:
    """Read the phase alone off what `encode_vitals` wrote."""
    return _decode(_phased_decoder, data).phase


def decode_now_ms(stored: Stored) -> int:
    """Read the time alone of a group at rest."""
    return _decode(_timed_decoder, stored.vitals).now_ms


def decode_protocol_type(data: bytes) -> str:
    """Read the protocol type alone off what `encode_rest` wrote; "" where the group has had none."""
    return _decode(_typed_decoder, _inflate(data)).protocol_type or ""


class Rosters:
    """A cache of rosters by the rest of the group; the least recently used ones are dropped.

    Each commit makes another rest of a group, and the rest before it is never looked up again.

    Args:
        bytes_max: How many bytes the cached rosters may take together. The latest one stays even where it takes more.
    """

    def __init__(self, bytes_max: int = ROSTERS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: OrderedDict[bytes, Roster] = OrderedDict()
        self.bytes = 0

    def of(self, rest: bytes) -> Roster:
        """Return the roster of a rest, from the cache if it is there."""
        if (known := self._known.get(rest)) is not None:
            self._known.move_to_end(rest)
            return known
        known = _read_roster(rest)
        self.note(rest, known)
        return known

    def note(self, rest: bytes, roster: Roster) -> None:
        """Cache the roster of a rest, which then need not be read."""
        if rest in self._known:
            return
        self._known[rest] = roster
        self.bytes += _bytes_of(rest, roster)
        while self.bytes > self._bytes_max and len(self._known) > 1:
            self.bytes -= _bytes_of(*self._known.popitem(last=False))


def _read_roster(rest: bytes) -> Roster:
    return _roster(_decode(_manned_decoder, _inflate(rest)).members.values())


def _roster(members: Iterable[_Named | Member]) -> Roster:
    in_order = list(members)
    instances = {m.group_instance_id: m.member_id for m in in_order if m.group_instance_id is not None}
    return Roster([m.member_id for m in in_order], instances)


def _bytes_of(rest: bytes, roster: Roster) -> int:
    return len(rest) + ROSTER_BYTES + MEMBER_BYTES * len(roster.member_ids)


def encode_rest(group: Group, rosters: Rosters | None = None) -> bytes:
    """Write a group without its vitals, and cache its roster in `rosters`."""
    rest = zlib.compress(_encoder.encode(msgspec.structs.replace(group, vitals=_NO_VITALS)), DEFLATE_LEVEL)
    if rosters is not None:
        rosters.note(rest, _roster(group.members.values()))
    return rest


def decode_rest(data: bytes, vitals: Vitals) -> Group:
    """Read what `encode_rest` wrote, and join it with its vitals."""
    group = _decode(_group_decoder, _inflate(data))
    group.vitals = vitals
    return group


def encode_access(access: Access) -> bytes:
    """Write who may do what."""
    return zlib.compress(_encoder.encode(access), DEFLATE_LEVEL)


def decode_access(data: bytes) -> Access:
    """Read what `encode_access` wrote; where nothing was written, nobody was allowed anything."""
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
