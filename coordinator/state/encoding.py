"""The functions that encode and decode parts of a state: MessagePack, and DEFLATE around it where it saves space."""

import zlib
from typing import TypeVar

import msgspec

from coordinator.base.errors import CorruptState

T = TypeVar("T")

ENCODER = msgspec.msgpack.Encoder()


def inflate(data: bytes) -> bytes:
    """Return the bytes that were deflated.

    Raises:
        CorruptState: the data are no deflated bytes.
    """
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise CorruptState(f"a part of a shard's state cannot be inflated: {error}") from error


def decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptState(f"a shard's state cannot be read: {error}") from error
