"""Bytes for a shard's state, and back.

    1 byte      version of what follows
    4 bytes     CRC-32 of the rest, big-endian
    the rest    MessagePack: {group id: [earliest deadline, members, vitals, rest of the group]}

Vitals and rest are bytes within the bytes, so that a group that nobody touches is copied and never decoded. In the
rest, members that offer the same protocols (as those of one application do) share one copy of them.

The newest code reads every older version; anything else raises `CorruptState`.
"""

from typing import TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from coordinator.errors import CorruptState
from coordinator.group import Group, Member, Vitals
from coordinator.requests import Protocol

VERSION = 1

T = TypeVar("T")


class Stored(Struct, array_like=True, frozen=True):
    """A group at rest. Its earliest deadline stands outside for the shard's alarm, its size for whoever counts."""

    earliest_ms: int
    members: int
    vitals: bytes
    rest: bytes


class _Rest(Struct, array_like=True, frozen=True):
    group: Group
    members: list[tuple[int, Member]]
    offers: list[tuple[Protocol, ...]]


_NO_VITALS = Vitals()
_encoder = msgspec.msgpack.Encoder()
_shard_decoder = msgspec.msgpack.Decoder(dict[str, Stored])
_vitals_decoder = msgspec.msgpack.Decoder(Vitals)
_rest_decoder = msgspec.msgpack.Decoder(_Rest)


def encode_shard(groups: dict[str, Stored]) -> bytes:
    """Write all groups of a shard."""
    body = _encoder.encode(groups)
    return b"%c%b%b" % (VERSION, crc32(body).to_bytes(4, "big"), body)


def decode_shard(data: bytes) -> dict[str, Stored]:
    """Read what `encode_shard` wrote, now or in an older version.

    Raises:
        CorruptState: unknown version, wrong checksum, or not what any version writes.
    """
    if not data or data[0] != VERSION:
        raise CorruptState(f"state of codec version {data[0] if data else 'none'}; this code reads version {VERSION}")
    body = memoryview(data)[5:]
    if crc32(body) != int.from_bytes(data[1:5], "big"):
        raise CorruptState("a shard's state fails its checksum: the checkpoint is damaged")
    return _decode(_shard_decoder, body)


def encode_vitals(vitals: Vitals) -> bytes:
    """Write what a heartbeat changes."""
    return _encoder.encode(vitals)


def decode_vitals(data: bytes) -> Vitals:
    """Read what `encode_vitals` wrote."""
    return _decode(_vitals_decoder, data)


def encode_rest(group: Group) -> bytes:
    """Write a group without its vitals."""
    offers: dict[tuple[Protocol, ...], int] = {}
    members = [
        (offers.setdefault(m.protocols, len(offers)), msgspec.structs.replace(m, protocols=()))
        for m in group.members.values()
    ]
    bare = msgspec.structs.replace(group, vitals=_NO_VITALS, members={})
    return _encoder.encode(_Rest(bare, members, list(offers)))


def decode_rest(data: bytes, vitals: Vitals) -> Group:
    """Read what `encode_rest` wrote, and join it with its vitals."""
    rest = _decode(_rest_decoder, data)
    for offer, member in rest.members:
        member.protocols = rest.offers[offer]
        rest.group.members[member.member_id] = member
    rest.group.vitals = vitals
    return rest.group


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptState(f"a shard's state cannot be read: {error}") from error
