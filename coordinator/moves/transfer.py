"""The state of a name as bytes, and the parts in which it is sent (moving.md 1)."""

import zlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from coordinator.base.limits import MOVE_INFLATED_BYTES_MAX, MOVE_PART_BYTES
from coordinator.state.classic_group import Group
from coordinator.state.codec import Stored, decode_group, encode_rest
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.encoding import ENCODER, decode
from coordinator.state.hot_state_codec import encode_hot_state


class Nothing(Struct, array_like=True, frozen=True, tag=0):
    """A name without a group and without a tombstone."""


class Tombstone(Struct, array_like=True, frozen=True, tag=1):
    """A group that was removed, with its last generation and its last fencing token."""

    generation_id: int
    token: int


class Living(Struct, array_like=True, frozen=True, tag=2):
    """A group, as a shard stores it."""

    hot_state: bytes
    rest: bytes
    is_consumer: bool = False

    def stored(self) -> Stored:
        """Return the group in the form from which the codec decodes it."""
        return Stored(0, 0, self.hot_state, self.rest, "", self.is_consumer)


Carried = Nothing | Tombstone | Living

_decoder: msgspec.msgpack.Decoder[Carried] = msgspec.msgpack.Decoder(Carried)


def encode(carried: Carried) -> bytes:
    """Return the state of a name as bytes."""
    return ENCODER.encode(carried)


def read(state: bytes) -> Carried:
    """Return the state of a name.

    Raises:
        CorruptState: The bytes are no such state.
    """
    return decode(_decoder, state)


def living(group: Group | ConsumerGroup) -> Living:
    """Return a group in the form in which it is sent."""
    rest = encode_rest(group)
    return Living(encode_hot_state(group.hot_state, rest), rest, isinstance(group, ConsumerGroup))


def is_too_large(carried: Living) -> bool:
    """Return whether a state that somebody else has written inflates to more bytes than are read."""
    try:
        return len(zlib.decompressobj().decompress(carried.rest, MOVE_INFLATED_BYTES_MAX + 1)) > MOVE_INFLATED_BYTES_MAX
    except zlib.error:
        return False


def group_of(carried: Living) -> Group | ConsumerGroup:
    """Return the group.

    Raises:
        CorruptState: The bytes are no group.
    """
    return decode_group(carried.stored())


def parts_of(state: bytes) -> int:
    """Return the number of parts of a state."""
    return -(-len(state) // MOVE_PART_BYTES)


def part_of(state: bytes, part: int) -> bytes:
    """Return one part of a state, from 1 on."""
    return state[(part - 1) * MOVE_PART_BYTES : part * MOVE_PART_BYTES]


def joined(parts: Mapping[int, bytes]) -> bytes:
    """Return the state of which all parts have come."""
    return b"".join(parts[part] for part in sorted(parts))
