"""One group, as its records describe it: its current state, its committed offsets, and its latest events in order."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from coordinator.base.states import GroupType, Phase
from coordinator.messages.events import (
    AnyEvent,
    AssignmentChanged,
    CommitRejected,
    EpochFenced,
    GroupConverted,
    GroupEmptied,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    PlanMade,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.fields import MemberEvent
from coordinator.messages.group_records import GroupMember, GroupRecord, OffsetRecord
from coordinator.messages.observed_events import (
    HistoryGap,
    MemberGone,
    ObservationBegan,
    OffsetsForgotten,
    OffsetsSet,
    TopicNamed,
    TopicsNamed,
)
from coordinator.messages.policy_events import (
    FreezeBegun,
    FreezeBroken,
    MemberQuarantined,
    QuarantineEnded,
    RebalanceHeld,
    SeatTaken,
    SeatVacated,
)
from streaming.kafka.offsets import ShareOffset
from streaming.views.state.causes import COOPERATIVE_ROUND, GroupKind, is_further_round, kind_of
from streaming.views.state.fields import PartitionKey, held, known
from streaming.views.state.partition_moves import WaitingPartitions
from streaming.views.state.version_follower import VersionFollower
from streaming.views.text import is_bare
from streaming.wire.newest_records import Order, order_of
from streaming.wire.records import Tombstone


def weight(event: AnyEvent) -> int:
    """Return the weight of an event in a history: 1, and about 1 more for each partition that changed owners."""
    if type(event) is AssignmentChanged:
        return 1 + len(event.handovers)
    if type(event) is SeatVacated or type(event) is SeatTaken:
        return 1 + sum(map(len, event.partitions.values()))
    if type(event) is RebalanceCompleted:
        return 1 + (len(event.members_before) + len(event.members_after)) // 4
    return 1


def named(event: AnyEvent, topic_id: str, topic: str) -> AnyEvent:
    """Return an event with a topic's name in place of its id."""
    if type(event) is not AssignmentChanged or all(each.topic != topic_id for each in event.handovers):
        return event
    moves = (replace(each, topic=topic) if each.topic == topic_id else each for each in event.handovers)
    return replace(event, handovers=tuple(moves))


OF_POLICIES = (RebalanceHeld, SeatVacated, SeatTaken, MemberQuarantined, QuarantineEnded, FreezeBegun, FreezeBroken)
"""The events of a group that only a policy causes."""

OF_KAFKA = (ObservationBegan, HistoryGap, MemberGone, OffsetsForgotten, OffsetsSet, TopicNamed, TopicsNamed)
"""The events that only a group has that Kafka's coordinator keeps."""

RECORDED = "recorded"
"""How a rebalance of a group of the consumer protocol of Kafka's own coordinator is known."""

KAFKA = "kafka"
"""The keeper of the groups of Kafka's own coordinator."""

DURATIONS_MS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
"""The upper bounds of the buckets of rebalance durations."""

UNOWNED_MS = (100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000)
"""The upper bounds of the buckets of the times in which nobody owned a seat."""


Key = TypeVar("Key")


class Tallied(Struct):
    """Counts of what has happened since the start of reading. Earlier records do not count.

    Args:
        rebalances: Rebalances that began, by cause.
        begun_anew: The number of further reasons that came up in rebalances before their assignments were computed.
        durations: Completed rebalances by bucket of `DURATIONS_MS`; the last bucket has the slower ones. `duration_ms`,
            `joins_ms` and `syncs_ms` are sums over all of them.
        dropped: Members that were expelled, by reason.
        gone: Members of groups of Kafka's coordinator that are gone, by what they likely did: left, expired or unknown.
        refused: Refused commits, by error.
        epochs_fenced: Refused heartbeats of the consumer protocol, by error.
        plans: Plans of server assignors; `moved` are the partitions that they gave to another member.
        commits: Committed partitions.
        missing: Version numbers that never came.
        seats_taken: Seats that another member took, by how it did.
        unowned: These seats by bucket of `UNOWNED_MS`; the last bucket has the longer times. `unowned_ms` is their sum.
        held: Causes of rebalances that policies held, by policy and cause.
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
    gone: dict[str, int] = field(default_factory=dict)
    fenced: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    epochs_fenced: dict[str, int] = field(default_factory=dict)
    plans: int = 0
    moved: int = 0
    commits: int = 0
    missing: int = 0
    is_rebalancing: bool = False
    seats_taken: dict[str, int] = field(default_factory=dict)
    unowned: list[int] = field(default_factory=lambda: [0] * (len(UNOWNED_MS) + 1))
    unowned_ms: int = 0
    held: dict[tuple[str, str], int] = field(default_factory=dict)

    def _count_durations(self, event: RebalanceCompleted) -> None:
        if event.duration_ms is not None:
            self.durations[bisect_left(DURATIONS_MS, event.duration_ms)] += 1
        self.duration_ms += event.duration_ms or 0
        self.joins_ms += event.joins_ms or 0
        self.syncs_ms += event.syncs_ms or 0

    def count(self, event: AnyEvent) -> None:
        """Count an event."""
        match event:
            case RebalanceStarted() if self.is_rebalancing:
                self.begun_anew += 1
            case RebalanceStarted():
                _add(self.rebalances, COOPERATIVE_ROUND if is_further_round(event) else event.cause)
                self.is_rebalancing = True
            case RebalanceCompleted():
                self._count_durations(event)
                self.is_rebalancing = False
            case GroupEmptied():
                self.is_rebalancing = False
            case MemberJoined():
                self.joined += 1
            case MemberLeft():
                self.left += 1
            case MemberExpired():
                _add(self.dropped, event.why)
            case MemberGone():
                _add(self.gone, event.likely or "unknown")
            case MemberFenced():
                self.fenced += 1
            case CommitRejected():
                _add(self.refused, event.error)
            case EpochFenced():
                _add(self.epochs_fenced, event.error)
            case PlanMade():
                self.plans += 1
                self.moved += event.moved
            case SeatTaken():
                _add(self.seats_taken, event.how)
                self.unowned[bisect_left(UNOWNED_MS, event.unowned_ms)] += 1
                self.unowned_ms += event.unowned_ms
            case RebalanceHeld() | SeatVacated():
                _add(self.held, (event.policy, event.cause))


def _add(counts: dict[Key, int], name: Key) -> None:
    counts[name] = counts.get(name, 0) + 1


class GroupView(Struct):
    """A group.

    Args:
        record: Its current record; None once the group is forgotten, or while only its offsets have been read.
        offsets: Committed offsets by topic and partition.
        events: The latest events, in order.
        known_from_ms: Events before this time were dropped; 0 if none was.
        conversions: The changes of the protocol among the events.
        assignor: The assignor of the last completed rebalance; None without one.
        is_kafkas: Whether an event shows that Kafka's coordinator keeps the group.
        joined: The client ids of members in the events, by member id, for ids that have no client id in them.
        has_plans: Whether a server assignor has ever made a plan.
        has_epochs: Whether Kafka's coordinator has ever recorded a group epoch of the group.
        topics_named: By group epoch, the events that name its changed topics.
        has_holds: Whether a policy has ever had an effect.
        waiting_partitions: The partitions that waited for their owners, as the records show them.
        share_offsets: The positions of a share group by partition, as the brokers told them last. No record has them.
        ended: Until the views are live, by key the order of its last tombstone.
    """

    group_id: str
    shard: int
    record: GroupRecord | None = None
    offsets: dict[str, dict[int, OffsetRecord]] = field(default_factory=dict)
    events: list[AnyEvent] = field(default_factory=list)
    weight: int = 0
    known_from_ms: int = 0
    conversions: list[GroupConverted] = field(default_factory=list)
    assignor: str | None = None
    is_kafkas: bool = False
    joined: dict[str, str] = field(default_factory=dict)
    has_plans: bool = False
    has_epochs: bool = False
    topics_named: dict[int, list[TopicsNamed]] = field(default_factory=dict)
    has_holds: bool = False
    waiting_partitions: WaitingPartitions = field(default_factory=WaitingPartitions)
    share_offsets: dict[PartitionKey, ShareOffset] = field(default_factory=dict)
    tallied: Tallied = field(default_factory=Tallied)
    versions: VersionFollower = field(default_factory=VersionFollower)
    ended: dict[str, Order] = field(default_factory=dict)

    @property
    def state(self) -> Phase:
        if self.record is not None:
            return self.record.state
        return Phase.EMPTY if self.offsets else Phase.DEAD

    @property
    def type(self) -> GroupType:
        """The protocol of the group's members; classic for a group that only has offsets, as in Kafka."""
        return GroupType(known(self.record.type) or GroupType.CLASSIC) if self.record else GroupType.CLASSIC

    @property
    def kept_by(self) -> str | None:
        """The coordinator that keeps the group: `kafka` for Kafka's own, None for this one."""
        is_kafkas = self.is_kafkas or (self.record is not None and self.record.kept_by == KAFKA)
        return KAFKA if is_kafkas or self._has_kafkas_offsets() else None

    def _has_kafkas_offsets(self) -> bool:
        """Return whether the offsets are those of a group of Kafka's coordinator: only they stand for several."""
        first = next((offset for each in self.offsets.values() for offset in each.values()), None)
        return self.record is None and first is not None and known(first.stands_for) is not None

    @property
    def kind(self) -> GroupKind:
        """The program whose instances are the members."""
        record = self.record
        if self.type is GroupType.STREAMS:
            return GroupKind.STREAMS
        assignor = record.protocol_name if record and record.protocol_name else self.assignor
        return kind_of(record.protocol_type if record else None, assignor)

    def type_at(self, at_ms: int) -> GroupType:
        """Return the protocol of the group's members at a time, as far as the history shows it."""
        if before := bisect_right(self.conversions, at_ms, key=lambda event: event.at_ms):
            return GroupType(self.conversions[before - 1].group_type)
        if self.conversions:
            is_to_epochs = GroupType(self.conversions[0].group_type).has_epochs
            return GroupType.CLASSIC if is_to_epochs else GroupType.CONSUMER
        has_epochs = self.has_plans or self.has_epochs
        return GroupType.CONSUMER if self.record is None and has_epochs else self.type

    @property
    def is_there(self) -> bool:
        """Whether the group exists. The history of a forgotten group stays for a while."""
        return self.state is not Phase.DEAD

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return self.record.members if self.record else ()

    @property
    def client_ids(self) -> dict[str, str]:
        """The client ids of members, by member id, for ids that have no client id in them."""
        return self.joined | {m.member_id: m.client_id for m in self.members if is_bare(m.member_id)}

    def owned(self) -> dict[PartitionKey, GroupMember]:
        """Return the current owner of each partition. A member owns a partition until it has given the partition up.

        Partitions of a share group have no owner: see `shared`.
        """
        if self.type is GroupType.SHARE:
            return {}
        return {
            (topic, partition): member
            for member in self.members
            for topic, numbers in held(member)
            for partition in numbers
        }

    def shared(self) -> dict[PartitionKey, list[GroupMember]]:
        """Return the members that have each partition of a share group; empty for any other group."""
        found: dict[PartitionKey, list[GroupMember]] = {}
        for member in self.members if self.type is GroupType.SHARE else ():
            for topic, numbers in held(member):
                for partition in numbers:
                    found.setdefault((topic, partition), []).append(member)
        return found

    def planned(self) -> dict[PartitionKey, GroupMember]:
        """Return the member whose target has each partition; only groups with epochs have targets."""
        if self.type is GroupType.SHARE:
            return {}
        return {
            (topic, partition): member
            for member in self.members
            for topic, numbers in (known(member.target) or {}).items()
            for partition in numbers
        }

    def committed(self) -> dict[PartitionKey, OffsetRecord]:
        """Return the committed offset of each partition."""
        return {(topic, p): offset for topic, each in self.offsets.items() for p, offset in each.items()}

    def current(self, record: GroupRecord | OffsetRecord | Tombstone) -> Order | None:
        """Return the order of the stored record with the same key; None without one."""
        topic = None if isinstance(record, GroupRecord) else record.topic
        partition = None if isinstance(record, GroupRecord) else record.partition
        held = self.record if topic is None else self.offsets.get(topic, {}).get(partition or 0)
        return order_of(held) if held else self.ended.get(f"{topic}:{partition}")

    def end(self, record: Tombstone) -> None:
        """Store the order of a tombstone, so that an older record of its key is recognized."""
        self.ended[f"{record.topic}:{record.partition}"] = order_of(record)

    def since(self, at_ms: int, kind: Any = None) -> Iterator[AnyEvent]:
        """Yield the events from a time on, of one kind or of all kinds."""
        for index in range(bisect_left(self.events, at_ms, key=lambda event: event.at_ms), len(self.events)):
            if kind is None or isinstance(self.events[index], kind):
                yield self.events[index]

    def add(self, event: AnyEvent, weight_max: int) -> None:
        """Add an event. Drop the oldest events if all together weigh more than `weight_max`."""
        self.events.append(event)
        self.weight += weight(event)
        if isinstance(event, GroupConverted):
            self.conversions.append(event)
        if isinstance(event, RebalanceCompleted):
            self.assignor = event.protocol_name
        if isinstance(event, MemberEvent) and is_bare(event.member_id):
            self.joined[event.member_id] = event.client_id
        if isinstance(event, OF_KAFKA):
            self.is_kafkas = True
        if isinstance(event, HistoryGap) or (isinstance(event, ObservationBegan) and not event.founded):
            self.known_from_ms = event.at_ms
        if isinstance(event, TopicNamed):
            self._name(event.topic_id, event.topic_name)
        if isinstance(event, TopicsNamed):
            self.topics_named.setdefault(event.generation_id or 0, []).append(event)
        self.has_plans = self.has_plans or isinstance(event, PlanMade)
        self.has_epochs = self.has_epochs or (type(event) is RebalanceStarted and event.how_known == RECORDED)
        self.has_holds = self.has_holds or isinstance(event, OF_POLICIES)
        if self.weight > weight_max:
            self.forget(weight_max * 3 // 4)

    def _name(self, topic_id: str, topic: str) -> None:
        """Replace a topic's id by its name in the events and in the periods."""
        self.events = [named(event, topic_id, topic) for event in self.events]
        self.waiting_partitions.name(topic_id, topic)

    def forget(self, weight_max: int) -> None:
        """Drop the oldest events until the rest weighs no more than `weight_max`. The newest event stays."""
        dropped = 0
        while self.weight > weight_max and dropped < len(self.events) - 1:
            self.weight -= weight(self.events[dropped])
            dropped += 1
        if dropped:
            self.known_from_ms = self.events[dropped - 1].at_ms + 1
            for event in self.events[:dropped]:
                if isinstance(event, TopicsNamed):
                    self.topics_named[event.generation_id or 0].remove(event)
            del self.events[:dropped]
            self.conversions = [event for event in self.conversions if event.at_ms >= self.known_from_ms]
            told = (event for event in self.events if isinstance(event, MemberEvent))
            self.joined = {event.member_id: event.client_id for event in told if is_bare(event.member_id)}
            self.waiting_partitions.forget(self.events[0].version or 0)
