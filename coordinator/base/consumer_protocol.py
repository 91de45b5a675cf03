"""The bytes that consumers exchange through the coordinator: a member's subscription and a member's assignment.

Both are opaque to the group protocol. The coordinator reads them for its views, and for its rule that offsets of
subscribed topics are kept. `subscribed_topics` and `assigned_partitions` read the fields that every version has. They
return None for bytes that cannot be read, because members may exchange any bytes. Members read and write all of
versions 0 to 3.

Source: Kafka's ConsumerProtocol, ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json; KIP-429 (owned
partitions), KIP-792 (generation), KIP-881 (rack).
"""

import struct
from collections.abc import Mapping, Sequence

import msgspec

from coordinator.base.binary import INT16, INT32, Malformed, Reader

CONSUMERS = "consumer"
"""The protocol type of groups that assign the partitions of topics."""

RESOURCES = "resources"
"""The protocol type of groups that assign other resources, each as a topic of one partition."""

READABLE = (CONSUMERS, RESOURCES)

VERSION_MAX = 3
"""The newest version. A newer version is read as this one, because versions only add fields at the end."""

_NULL_BYTES, _NULL_TEXT = INT32.pack(-1), INT16.pack(-1)


class Subscription(msgspec.Struct, frozen=True):
    """The data that a member sends to the leader, which computes the assignments.

    Args:
        user_data: Data that the member's assignor writes for itself.
        owned: The numbers of the partitions that the member owns while it joins, by topic. From version 1.
        generation_id: The generation in which the member was assigned them, -1 for none. From version 2.
        rack_id: The rack that the member runs in. From version 3.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Mapping[str, Sequence[int]] = {}
    generation_id: int = -1
    rack_id: str | None = None


# -- for the coordinator -----------------------------------------------------------------------------------------------


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """Return the topics of one member's subscription; None if its bytes cannot be read."""
    reader = Reader(metadata)
    try:
        reader.int16()
        return reader.texts()
    except Malformed:
        return None


def assigned_partitions(assignment: bytes) -> dict[str, list[int]] | None:
    """Return the partitions of one member's assignment, by topic; None if its bytes cannot be read.

    An assignment of no bytes has no partitions.
    """
    if not assignment:
        return {}
    reader = Reader(assignment)
    try:
        reader.int16()
        return read_partitions(reader)
    except Malformed:
        return None


def has_to_give_up(metadata: bytes, assignment: bytes) -> bool:
    """Return whether a member owned partitions when it joined that its assignment does not have.

    Such a member gives them up and joins again, so that the leader gives them to others: the second round of a
    cooperative rebalance (KIP-429).
    """
    assigned = assigned_partitions(assignment)
    try:
        owned = read_subscription(metadata).owned
    except Malformed:
        return False
    return assigned is not None and any(not set(owned[topic]) <= set(assigned.get(topic, ())) for topic in owned)


# -- for members -------------------------------------------------------------------------------------------------------


def write_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """Return the bytes of a subscription.

    Equal subscriptions give equal bytes, so the coordinator does not treat a member that joins again as changed.
    """
    assert 0 <= version <= VERSION_MAX, f"there is no version {version}"
    topics = sorted(subscription.topics)
    parts = [INT16.pack(version), INT32.pack(len(topics)), *map(_text, topics), _nullable(subscription.user_data)]
    if version >= 1:
        parts.append(write_partitions(subscription.owned))
    if version >= 2:
        parts.append(INT32.pack(subscription.generation_id))
    if version >= 3:
        parts.append(_NULL_TEXT if subscription.rack_id is None else _text(subscription.rack_id))
    return b"".join(parts)


def read_subscription(data: bytes) -> Subscription:
    """Read a subscription of any version. A field that its version does not have gets its default.

    Raises:
        Malformed: the bytes are no subscription, or end too early.
    """
    reader = Reader(data)
    version = reader.int16()
    if version < 0:
        raise Malformed(f"a version below zero: {version}")
    return Subscription(
        topics=tuple(reader.texts()),
        user_data=reader.nullable_data(),
        owned=read_partitions(reader) if version >= 1 else {},
        generation_id=reader.int32() if version >= 2 else -1,
        rack_id=reader.nullable_text() if version >= 3 else None,
    )


def write_assignment(
    partitions: Mapping[str, Sequence[int]], user_data: bytes | None = None, version: int = VERSION_MAX
) -> bytes:
    """Return the bytes of one member's assignment. Its versions differ only in their number."""
    assert 0 <= version <= VERSION_MAX, f"there is no version {version}"
    return INT16.pack(version) + write_partitions(partitions) + _nullable(user_data)


def read_assignment(data: bytes) -> tuple[dict[str, list[int]], bytes]:
    """Read an assignment of any version: the partitions by topic, and the user data. No bytes are no partitions.

    Raises:
        Malformed: the bytes are no assignment, or end too early.
    """
    if not data:
        return {}, b""
    reader = Reader(data)
    reader.int16()
    return read_partitions(reader), reader.nullable_data() or b""


# -- for assignors, whose user data has the same format ----------------------------------------------------------------


def write_partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Return partitions as an array of topics, each with the array of its partition numbers, all in order."""
    parts = [INT32.pack(len(partitions))]
    for topic, numbers in sorted(partitions.items()):
        parts += _text(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *sorted(numbers))
    return b"".join(parts)


def read_partitions(reader: Reader) -> dict[str, list[int]]:
    """Read the numbers of partitions by topic. If a topic occurs twice, its numbers are joined."""
    partitions: dict[str, list[int]] = {}
    for _ in reader.elements(reader.int32(), 6):
        topic, numbers = reader.text(), reader.int32s()
        partitions[topic] = partitions[topic] + numbers if topic in partitions else numbers
    return partitions


def _text(value: str) -> bytes:
    data = value.encode()
    return INT16.pack(len(data)) + data


def _nullable(data: bytes | None) -> bytes:
    return _NULL_BYTES if data is None else INT32.pack(len(data)) + data
