"""The metadata hash of a group's topics, as Kafka computes it since 4.1 (KIP-1101).

Kafka writes it with each group epoch. A group whose hash is unchanged has no changed topic. The bytes that are hashed,
with numbers in little-endian order and a text as its UTF-16 code units and their number:

    topic    0x00, the two halves of its id, name, partition count, and for each partition its number and the sorted
             racks of its replicas, each as the length of the text and the text
    group    the hash of each subscribed topic that exists, in the order of names; 0 without such a topic

Source: Kafka's org.apache.kafka.coordinator.group.Utils (computeTopicHash, computeGroupHash); HashSink of hash4j.
"""

import struct
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator, Sequence

from xxhash import xxh3_64_intdigest

NO_TOPICS = 0
"""The hash of a group without a topic."""

Racks = Sequence[Sequence[str]]
"""By partition, the racks of its replicas, with repeats; brokers without a rack are left out."""

_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")


def topic_hash(topic_id: str, name: str, racks: Racks) -> int:
    """Return the hash of a topic, a signed number of 64 bits.

    Args:
        topic_id: As Kafka prints it.
        racks: An entry for each partition.

    Raises:
        ValueError: The id is not the text of 16 bytes.
    """
    return _hashed(_head(topic_id, name) + _INT.pack(len(racks)) + b"".join(_partitions(racks)))


def hashes_by_count(topic_id: str, name: str, racks: Racks) -> Iterator[tuple[int, int]]:
    """Yield the partition count and the hash of a topic as it was with fewer partitions, the largest count first.

    Raises:
        ValueError: The id is not the text of 16 bytes.
    """
    head, parts = _head(topic_id, name), list(_partitions(racks))
    for count in range(len(parts) - 1, 0, -1):
        yield count, _hashed(head + _INT.pack(count) + b"".join(parts[:count]))


def group_hash(topics: Iterable[int]) -> int:
    """Return the hash of a group, a signed number of 64 bits.

    Args:
        topics: The hashes of the subscribed topics that exist, in the order of their names.
    """
    data = b"".join(map(_LONG.pack, topics))
    return _hashed(data) if data else NO_TOPICS


def _head(topic_id: str, name: str) -> bytes:
    data = urlsafe_b64decode(topic_id + "==")
    if len(data) != 16:
        raise ValueError(f"{topic_id!r} is not the id of a topic")
    return b"\0" + data[7::-1] + data[:7:-1] + _text(name)


def _partitions(racks: Iterable[Iterable[str]]) -> Iterator[bytes]:
    for number, each in enumerate(racks):
        yield _INT.pack(number) + b"".join(_INT.pack(_length(rack)) + _text(rack) for rack in sorted(each))


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + _INT.pack(_length(text))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _hashed(data: bytes) -> int:
    return int(_LONG.unpack(struct.pack("<Q", xxh3_64_intdigest(data)))[0])
