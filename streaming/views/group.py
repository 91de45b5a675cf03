"""One group as its records tell it: how it is, what it has committed, and its latest events, in their order."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from coordinator.outputs import (
    AnyEvent,
    AssignmentChanged,
    CommitRejected,
    GroupEmptied,
    GroupMember,
    GroupRecord,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    OffsetRecord,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.phases import Phase
from streaming.views.version_follower import VersionFollower
from streaming.wire.records import Tombstone
from streaming.wire.standing import Order, order_of

Place = tuple[str, int]
"""A topic and a partition."""


def weight(event: AnyEvent) -> int:
    """Say how much of a history an event takes: 1, and about 1 more for each partition that changed hands."""
    if type(event) is AssignmentChanged:
        return 1 + len(event.handovers)
    if type(event) is RebalanceCompleted:
        return 1 + (len(event.members_before) + len(event.members_after)) // 4
    return 1


DURATIONS_MS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
"""Up to how long rebalances are told apart."""


class Tallied(Struct):
    """What has happened since the reading began; what was there before does not count.

    Args:
        rebalances: Begun, by cause.
        begun_anew: Times that a rebalance was overtaken by another reason before its plan was there.
        durations: Of rebalances that have ended, by the bound of `DURATIONS_MS` that they kept, and behind the last
            bound the slower ones; `duration_ms`, `joins_ms` and `syncs_ms` are of all of them together.
        dropped: Members that did not leave by themselves, by why.
        refused: Commits, by error.
        commits: Partitions committed.
        missing: Numbers that never came.
    """

    rebalances: dict[str, int] = field(default_factory=dict)
    begun_anew: int = 0
    durations: list[int] = field(default_factory=lambda: [0] * (len(DURATIONS_MS) + 1))
    duration_ms: int = 0
    joins_ms: int = 0
    syncs_ms: int = 0
    joined: int = 0
    left: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    fenced: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    missing: int = 0
    is_rebalancing: bool = False

    def count(self, event: AnyEvent) -> None:
        """Count what an event tells."""
        match event:
            case RebalanceStarted() if self.is_rebalancing:
                self.begun_anew += 1
            case RebalanceStarted():
                _add(self.rebalances, event.cause)
                self.is_rebalancing = True
            case RebalanceCompleted():
                self.durations[bisect_left(DURATIONS_MS, event.duration_ms)] += 1
                self.duration_ms += event.duration_ms
                self.joins_ms += event.joins_ms
                self.syncs_ms += event.syncs_ms
                self.is_rebalancing = False
            case GroupEmptied():
                self.is_rebalancing = False
            case MemberJoined():
                self.joined += 1
            case MemberLeft():
                self.left += 1
            case MemberExpired():
                _add(self.dropped, event.why)
            case MemberFenced():
                self.fenced += 1
            case CommitRejected():
                _add(self.refused, event.error)


def _add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


class GroupView(Struct):
    """A group.

    Args:
        record: As it is now; None once it is forgotten, or where only offsets of it have been read yet.
        offsets: By topic and partition.
        events: The latest ones, in order.
        known_from_ms: Events before that were dropped; 0 where none was.
        ended: While what was there before is read, by key what ended it last.
    """

    group_id: str
    shard: int
    record: GroupRecord | None = None
    offsets: dict[str, dict[int, OffsetRecord]] = field(default_factory=dict)
    events: list[AnyEvent] = field(default_factory=list)
    weight: int = 0
    known_from_ms: int = 0
    tallied: Tallied = field(default_factory=Tallied)
    versions: VersionFollower = field(default_factory=VersionFollower)
    ended: dict[str, Order] = field(default_factory=dict)

    @property
    def state(self) -> Phase:
        if self.record is not None:
            return self.record.state
        return Phase.EMPTY if self.offsets else Phase.DEAD

    @property
    def is_there(self) -> bool:
        """Whether there is such a group; of one that is forgotten the history stays for a while."""
        return self.state is not Phase.DEAD

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return self.record.members if self.record else ()

    def owned(self) -> dict[Place, GroupMember]:
        """Say who owns which partition now."""
        return {
            (topic, partition): member
            for member in self.members
            for topic, partitions in (member.assigned or {}).items()
            for partition in partitions
        }

    def committed(self) -> dict[Place, OffsetRecord]:
        """Say what is committed for which partition."""
        return {(topic, p): offset for topic, each in self.offsets.items() for p, offset in each.items()}

    def stands(self, told: GroupRecord | OffsetRecord | Tombstone) -> Order | None:
        """Return the order of the record that stands for the key of another one; None where none does."""
        topic = None if isinstance(told, GroupRecord) else told.topic
        partition = None if isinstance(told, GroupRecord) else told.partition
        held = self.record if topic is None else self.offsets.get(topic, {}).get(partition or 0)
        return order_of(held) if held else self.ended.get(f"{topic}:{partition}")

    def end(self, told: Tombstone) -> None:
        """Take note of a tombstone, so that an older record of its key is known."""
        if (order := order_of(told)) is not None:
            self.ended[f"{told.topic}:{told.partition}"] = order

    def since(self, at_ms: int, kind: Any = None) -> Iterator[AnyEvent]:
        """Yield the events from that time on, of one kind or of all."""
        for index in range(bisect_left(self.events, at_ms, key=lambda event: event.at_ms), len(self.events)):
            if kind is None or isinstance(self.events[index], kind):
                yield self.events[index]

    def keep(self, event: AnyEvent, weight_max: int) -> None:
        """Add an event; the oldest go where all together weigh more than that."""
        self.events.append(event)
        self.weight += weight(event)
        if self.weight > weight_max:
            self.forget(weight_max * 3 // 4)

    def forget(self, weight_max: int) -> None:
        """Drop the oldest events, until the rest weighs no more than that; the newest one stays."""
        dropped = 0
        while self.weight > weight_max and dropped < len(self.events) - 1:
            self.weight -= weight(self.events[dropped])
            dropped += 1
        if dropped:
            self.known_from_ms = self.events[dropped - 1].at_ms + 1
            del self.events[:dropped]
