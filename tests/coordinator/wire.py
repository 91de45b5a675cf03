"""Writes the bytes that consumers exchange through the coordinator, version 0 (protocol.md 7.6).

Written apart from the readers in `coordinator.consumer_protocol`, so that one checks the other.
"""

from collections.abc import Mapping, Sequence
from struct import pack


def text(value: str) -> bytes:
    """Length in two bytes, then UTF-8."""
    data = value.encode()
    return pack(">h", len(data)) + data


def subscription(topics: Sequence[str], *, version: int = 0, rest: bytes = pack(">i", -1)) -> bytes:
    """The metadata of a member that subscribes to `topics`; `rest` is all that follows the topics."""
    return pack(">hi", version, len(topics)) + b"".join(map(text, topics)) + rest


def assignment(partitions: Mapping[str, Sequence[int]], *, version: int = 0, rest: bytes = pack(">i", -1)) -> bytes:
    """A member's part of a plan."""
    topics = (text(topic) + pack(f">i{len(numbers)}i", len(numbers), *numbers) for topic, numbers in partitions.items())
    return pack(">hi", version, len(partitions)) + b"".join(topics) + rest
