"""The offsets that groups have published: the latest record of each partition, and the latest offsets of all."""

from typing import NamedTuple

from coordinator.messages.group_records import OffsetRecord

OFFSETS_MAX = 2**17
"""The number of a shard's latest published offsets that are kept. An older one is not recognized."""


class Committed(NamedTuple):
    """The last record of the groups topic about a partition's offset. Without an offset, it is a tombstone."""

    offset: int | None
    at_ms: int


class WrittenOffsets:
    """The latest published offsets of a shard, each with the time of its latest commit."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str, int, int], int] = {}

    def add(self, read: object) -> None:
        """Note the offset of a record of the groups topic, if it has one."""
        if isinstance(read, OffsetRecord):
            written = read.group_id, read.topic, read.partition, read.offset
            self._written[written] = max(read.commit_timestamp_ms, self._written.pop(written, 0))
            if len(self._written) > OFFSETS_MAX:
                del self._written[next(iter(self._written))]

    def has(self, group_id: str, topic: str, partition: int, offset: int, from_ms: int) -> bool:
        """Return whether an offset was published for a commit of that time or later."""
        return self._written.get((group_id, topic, partition, offset), -1) >= from_ms
