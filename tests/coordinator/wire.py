"""The bytes that consumers exchange through the coordinator, version 0 (protocol.md 7.6).

This code is independent of the readers in `coordinator.base.consumer_protocol`, so that each checks the other.
"""

from collections.abc import Mapping, Sequence
from struct import pack


def text(value: str) -> bytes:
    """Return a text as its length in two bytes, then UTF-8."""
    data = value.encode()
    return pack(">h", len(data)) + data


def subscription(topics: Sequence[str], *, version: int = 0, rest: bytes = pack(">i", -1)) -> bytes:
    """Return the metadata of a member that subscribes to `topics`; `rest` is all that follows the topics."""
    return pack(">hi", version, len(topics)) + b"".join(map(text, topics)) + rest


def assignment(partitions: Mapping[str, Sequence[int]], *, version: int = 0, rest: bytes = pack(">i", -1)) -> bytes:
    """Return a member's assignment as bytes."""
    topics = (text(topic) + pack(f">i{len(numbers)}i", len(numbers), *numbers) for topic, numbers in partitions.items())
    return pack(">hi", version, len(partitions)) + b"".join(topics) + rest
