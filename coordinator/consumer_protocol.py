"""What the coordinator reads of the bytes that consumers exchange through it.

Subscriptions and assignments are opaque to the protocol; these readers serve views and the rule that offsets of
subscribed topics are kept. Bytes that cannot be read give None, never an error: they are between the members.

Source: Kafka's ConsumerProtocol, ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json, version 0 part.
"""

from struct import Struct, error

PROTOCOL_TYPE = "consumer"

_INT16, _INT32 = Struct(">h"), Struct(">i")


class _Reader:
    """Walks through big-endian fields."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self.data, self.at)
        self.at += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self.data, self.at)
        self.at += 4
        return int(value)

    def count(self) -> int:
        value = self.int32()
        if not 0 <= value <= len(self.data) - self.at:  # every element takes a byte at least
            raise ValueError("a count beyond the data")
        return value

    def text(self) -> str:
        length = self.int16()
        if not 0 <= length <= len(self.data) - self.at:
            raise ValueError("a length beyond the data")
        self.at += length
        return self.data[self.at - length : self.at].decode()


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """Read the topics of one member's subscription."""
    reader = _Reader(metadata)
    try:
        reader.int16()
        return [reader.text() for _ in range(reader.count())]
    except (error, ValueError):
        return None


def assigned_partitions(assignment: bytes) -> dict[str, list[int]] | None:
    """Read the partitions of one member's assignment, by topic. No bytes at all are no partitions."""
    if not assignment:
        return {}
    reader = _Reader(assignment)
    try:
        reader.int16()
        return {reader.text(): [reader.int32() for _ in range(reader.count())] for _ in range(reader.count())}
    except (error, ValueError):
        return None
