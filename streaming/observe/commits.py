"""Committed offsets: those of a batch that the outputs and the states do not have yet, and the last ones of each group.

The last ones are kept, because an operator who sets the offsets of a group without members commits as members do: only
the offset before shows it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from coordinator.messages.observed_events import SetOffset
from coordinator.state.encoding import ENCODER, decode
from streaming.observe.format import Commit
from streaming.observe.publishing import CLASSIC, WITH_EPOCHS
from streaming.observe.state import Group, SetOffsets, TopicAndPartition

OFFSETS_SET_MAX = 100
"""The partitions that one `offsets_set` names. Further ones are only counted."""

SETS_FORWARD_MAX = 10
"""The `offsets_set` events without an offset that was set back, until the group has members again. A client that reads
partitions of its own choice, and a tool that copies offsets from another cluster, commit without end."""


class Pending(NamedTuple):
    """The last commit of a partition in a batch, and the number of commits."""

    commit: Commit
    commits: int


class Untold:
    """The commits of a group that its state does not have yet. The commits of one request have one time.

    Args:
        latest_ms: The time of the group's last commit.
    """

    __slots__ = ("commits", "latest_ms", "times_ms")

    def __init__(self, latest_ms: int) -> None:
        self.latest_ms, self.commits = latest_ms, 0
        self.times_ms: dict[TopicAndPartition, int] = {}

    def add(self, place: TopicAndPartition, at_ms: int) -> None:
        if at_ms > self.latest_ms:
            self.latest_ms, self.commits = at_ms, self.commits + 1
        if at_ms > self.times_ms.get(place, 0):
            self.times_ms[place] = at_ms


class LastOffsets:
    """The last committed offsets of a group, and the times of their commits.

    Their bytes are MessagePack: {topic: {partition: [offset, time of the commit in Unix seconds]}}. The time is 0 if
    the commit has a time of its own at which it expires.
    """

    __slots__ = ("by_topic",)

    def __init__(self, data: bytes | None) -> None:
        self.by_topic = {} if data is None else decode(_decoder, data)

    def offset(self, place: TopicAndPartition) -> int | None:
        found = self._at(place)
        return None if found is None else found[0]

    def committed_ms(self, place: TopicAndPartition) -> int | None:
        """Return the earliest time at which an offset can have been committed; None if it is not known."""
        found = self._at(place)
        return None if found is None or not found[1] else found[1] * 1_000

    def update(self, pending: Mapping[TopicAndPartition, Pending]) -> None:
        """Replace offsets by those of a batch."""
        for (topic, partition), (commit, _) in pending.items():
            by_partition = self.by_topic.get(topic)
            if by_partition is None:
                by_partition = self.by_topic[topic] = {}
            committed_s = commit.committed_ms // 1_000 if commit.expires_ms is None else 0
            by_partition[partition] = commit.offset, committed_s

    def forget(self, place: TopicAndPartition) -> None:
        by_partition = self.by_topic.get(place[0], {})
        by_partition.pop(place[1], None)
        if not by_partition:
            self.by_topic.pop(place[0], None)

    def to_bytes(self) -> bytes | None:
        """Return the bytes; None if there are no offsets."""
        return ENCODER.encode(self.by_topic) if self.by_topic else None

    def _at(self, place: TopicAndPartition) -> tuple[int, int] | None:
        return self.by_topic.get(place[0], {}).get(place[1])


_decoder = msgspec.msgpack.Decoder(dict[str, dict[int, tuple[int, int]]])


def may_be_set(group: Group) -> bool:
    """Return whether the group is known to have no members, so that nobody but an operator should commit."""
    return not group.members and group.type in (CLASSIC, *WITH_EPOCHS) and not group.is_settling


def add_set(found: SetOffsets, commit: Commit, before: int | None) -> None:
    """Add a commit of a group without members, unless it changes nothing."""
    if before == commit.offset:
        return
    found.total += 1
    found.back += before is not None and commit.offset < before
    if len(found.partitions) < OFFSETS_SET_MAX:
        found.partitions.append((commit.topic, commit.partition, before, commit.offset))


def set_fields(found: SetOffsets) -> dict[str, Any]:
    """Return the fields of `offsets_set`."""
    partitions = tuple(SetOffset(*each) for each in found.partitions)
    return {"partitions": partitions, "offsets_set": found.total, "set_back": found.back}
