"""Bytes for a shard's state, and back.

    1 byte      version of what follows
    4 bytes     CRC-32 of the rest, big-endian
    the rest    MessagePack: [{group id: [earliest deadline, members, vitals, rest of the group]},
                              {id of a forgotten group: [until when that is remembered, its last generation]}]

Vitals and rest are bytes within the bytes, so that a group that nobody touches is copied and never decoded. The rest
is deflated: subscriptions, client ids and hosts repeat from member to member, and every batch carries all bytes of a
shard between the engine and us, while the rest changes only when its group does.

The newest code reads every older version, of which the first had no memory of forgotten groups; anything else raises
`CorruptState`.
"""

import zlib
from typing import TypeVar

import msgspec
from msgspec import Struct

from coordinator.errors import CorruptState
from coordinator.group import Group, Vitals

VERSION = 2
DEFLATE_LEVEL = 1

T = TypeVar("T")


class Stored(Struct, array_like=True, frozen=True):
    """A group at rest. Its earliest deadline stands outside for the shard's alarm, its size for whoever counts."""

    earliest_ms: int
    members: int
    vitals: bytes
    rest: bytes


class Grave(Struct, array_like=True, frozen=True):
    """What is left of a forgotten group: one that is founded under its name goes on counting generations."""

    until_ms: int
    generation_id: int


class Kept(Struct, array_like=True, frozen=True):
    """All that a shard keeps: its groups, and those it has forgotten, the first one first."""

    groups: dict[str, Stored] = {}
    graves: dict[str, Grave] = {}


_NO_VITALS = Vitals()
_encoder = msgspec.msgpack.Encoder()
_shard_decoder = msgspec.msgpack.Decoder(Kept)
_first_shard_decoder = msgspec.msgpack.Decoder(dict[str, Stored])
_vitals_decoder = msgspec.msgpack.Decoder(Vitals)
_group_decoder = msgspec.msgpack.Decoder(Group)


def encode_shard(kept: Kept) -> bytes:
    """Write all that a shard keeps."""
    body = _encoder.encode(kept)
    return b"%c%b%b" % (VERSION, zlib.crc32(body).to_bytes(4, "big"), body)


def decode_shard(data: bytes) -> Kept:
    """Read what `encode_shard` wrote, now or in an older version.

    Raises:
        CorruptState: unknown version, wrong checksum, or not what any version writes.
    """
    if not data or not 1 <= data[0] <= VERSION:
        raise CorruptState(f"state of codec version {data[0] if data else 'none'}; this code reads 1 to {VERSION}")
    body = memoryview(data)[5:]
    if zlib.crc32(body) != int.from_bytes(data[1:5], "big"):
        raise CorruptState("a shard's state fails its checksum: the checkpoint is damaged")
    if data[0] == 1:
        return Kept(_decode(_first_shard_decoder, body))
    return _decode(_shard_decoder, body)


def encode_vitals(vitals: Vitals) -> bytes:
    """Write what a heartbeat changes."""
    return _encoder.encode(vitals)


def decode_vitals(data: bytes) -> Vitals:
    """Read what `encode_vitals` wrote."""
    return _decode(_vitals_decoder, data)


def encode_rest(group: Group) -> bytes:
    """Write a group without its vitals."""
    return zlib.compress(_encoder.encode(msgspec.structs.replace(group, vitals=_NO_VITALS)), DEFLATE_LEVEL)


def decode_rest(data: bytes, vitals: Vitals) -> Group:
    """Read what `encode_rest` wrote, and join it with its vitals."""
    try:
        group = _decode(_group_decoder, zlib.decompress(data))
    except zlib.error as error:
        raise CorruptState(f"a group's state cannot be inflated: {error}") from error
    group.vitals = vitals
    return group


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptState(f"a shard's state cannot be read: {error}") from error
