"""The records and events of an observed group, under the group's own versions and times."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET, structs

from coordinator.base.connect_protocol import CONNECT, work_of
from coordinator.base.consumer_protocol import CONSUMERS, READABLE, assigned_partitions, subscribed_topics
from coordinator.base.states import Phase
from coordinator.messages.events import AssignmentChanged, Handover, RebalanceStarted
from coordinator.messages.fields import Event, MemberEvent
from coordinator.messages.group_records import GroupMember, GroupRecord, OffsetRecord, Published
from coordinator.messages.outputs import Output
from streaming.observe.format import Commit
from streaming.observe.names import Names, id_text
from streaming.observe.state import NO_DETAILS, REASONS_MAX, Group, HashChange, Member, Reason, TopicAndPartition

E = TypeVar("E", bound=Event)
M = TypeVar("M", bound=MemberEvent)

KEPT_BY = "kafka"
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"

PUBLISHED_MEMBERS_FREE = 100
"""A group of the consumer protocol with more members is published when its state or epoch changes, and otherwise at
most every `PUBLISH_EVERY_MS`: each member's step would write all members again."""

PUBLISH_EVERY_MS = 1_000

MEMBER_STATES = {0: "stable", 1: "unrevoked", 2: "unreleased"}

Owners = dict[TopicAndPartition, str]


class Publisher:
    """The outputs of one partition, in their order.

    Attributes:
        hash_changes: The changes of metadata hashes whose topics the driver has to name.
        topics: The topics to which groups with a new epoch subscribe.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.outputs: list[Output] = []
        self.hash_changes: list[HashChange] = []
        self.topics: set[str] = set()

    def event(self, kind: type[E], group: Group, at_ms: int, generation: int | None = None, **fields: Any) -> None:
        """Add an event of a group. Its time is the group's, if that is later than `at_ms`.

        Args:
            generation: The event's generation; the group's if None.
        """
        if generation is None and group.type in (CLASSIC, CONSUMER):
            generation = group.generation
        self.outputs.append(
            kind(
                group_id=group.group_id,
                version=group.next_version(),
                at_ms=group.advance(at_ms),
                generation_id=generation,
                **fields,
            )  # type: ignore[arg-type]
        )

    def member_event(self, kind: type[M], group: Group, member: Member, at_ms: int, **fields: Any) -> None:
        """Add an event of a member."""
        self.event(
            kind,
            group,
            at_ms,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            **fields,
        )

    def started(self, group: Group, reasons: Iterable[Reason], at_ms: int, **fields: Any) -> None:
        """Add an event for each reason of a rebalance, `REASONS_MAX` at most."""
        for reason in list(reasons)[:REASONS_MAX]:
            details = {} if reason.details == NO_DETAILS else structs.asdict(reason.details)
            self.event(
                RebalanceStarted,
                group,
                at_ms,
                cause=reason.cause,
                member_id=reason.member_id,
                client_id=reason.client_id,
                client_host=reason.client_host,
                reason=reason.reason,
                members=len(group.members),
                **details,
                **fields,
            )

    def handovers(self, group: Group, before: Owners, after: Owners, at_ms: int) -> None:
        """Add an event of the partitions that changed their owner, if there are any."""
        moved = sorted(place for place in before.keys() | after.keys() if before.get(place) != after.get(place))
        if moved:
            changed = tuple(Handover(*place, before.get(place), after.get(place)) for place in moved)
            self.event(AssignmentChanged, group, at_ms, handovers=changed)

    def record(self, group: Group, before: GroupRecord | None = None) -> None:
        """Add the group's record, unless it is as it was before."""
        now = self.record_of(group)
        if now != before or group.is_unpublished:
            group.published_ms, group.is_unpublished = group.now_ms, False
            version = group.next_version()
            key = ("group", group.group_id)
            self.outputs.append(Published(group.group_id, key, structs.replace(now, version=version), version))

    def record_at_a_bounded_rate(self, group: Group) -> None:
        """Add the record of a large group only when it is due; see `PUBLISHED_MEMBERS_FREE`."""
        group.is_unpublished = True
        if group.now_ms >= group.published_ms + PUBLISH_EVERY_MS:
            self.record(group)

    def tombstone(self, group: Group, place: TopicAndPartition | None, at_ms: int) -> None:
        """Add the tombstone of an offset, or of the group itself."""
        key = ("group", group.group_id) if place is None else ("offset", group.group_id, *place)
        ended_ms = group.advance(at_ms)
        self.outputs.append(Published(group.group_id, key, None, group.next_version(), ended_ms))

    def offset(self, group: Group, commit: Commit, stands_for: int) -> None:
        """Add the record of a committed offset."""
        version = group.next_version()
        record = OffsetRecord(
            group_id=group.group_id,
            topic=commit.topic,
            partition=commit.partition,
            offset=commit.offset,
            leader_epoch=commit.leader_epoch,
            metadata=commit.metadata,
            commit_timestamp_ms=commit.committed_ms,
            expire_timestamp_ms=commit.expires_ms,
            generation_id=None,
            member_id=None,
            version=version,
            topic_id=id_text(commit.topic_id) or UNSET,
            stands_for=stands_for,
        )
        self.outputs.append(
            Published(group.group_id, ("offset", group.group_id, commit.topic, commit.partition), record, version)
        )

    def record_of(self, group: Group) -> GroupRecord:
        """Return the group's record, with version 0."""
        is_consumer = group.type == CONSUMER
        topics = (
            tuple(subscribed_by(group.members.values(), group.patterns)) if is_consumer else _topics_of_classics(group)
        )
        return GroupRecord(
            group_id=group.group_id,
            state=state_of(group),
            since_ms=group.since_ms,
            generation_id=group.generation,
            protocol_type=CONSUMERS if is_consumer else group.protocol_type,
            protocol_name=_assignor(group) if is_consumer else group.protocol_name,
            leader=group.leader,
            subscribed_topics=topics,
            members=tuple(map(self._consumer if is_consumer else _classic_of(group), in_order(group))),
            version=0,
            type=group.type,
            assignment_epoch=group.assignment_epoch if is_consumer else UNSET,
            kept_by=KEPT_BY,
        )

    def _consumer(self, member: Member) -> GroupMember:
        return GroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assignment=b"",
            assigned=self.names.named({
                topic: member.assigned.get(topic, []) + member.revoking.get(topic, [])
                for topic in sorted(member.assigned.keys() | member.revoking.keys())
            }),
            rack_id=member.rack_id,
            protocol=CLASSIC if member.is_classic else CONSUMER,
            member_epoch=member.epoch,
            state=MEMBER_STATES.get(member.state, "unknown"),
            subscribed_topics=tuple(member.topics),
            regex=member.regex or "",
            revoking=self.names.named(member.revoking),
            target=self.names.named(member.target),
            server_assignor=member.assignor or UNSET,
        )  # fmt: skip


def owners_of(group: Group, names: Names, touched: Collection[str] | None = None) -> Owners:
    """Return the owner of each partition. A partition that a member has to give up is still that member's.

    Args:
        touched: The only members of a group of the consumer protocol whose partitions are wanted; all if None.
    """
    if group.type == CONSUMER:
        return {
            place: member.member_id
            for member in group.members.values()
            if touched is None or member.member_id in touched
            for place in names.places(member.assigned, member.revoking)
        }
    return owners_by_assignments(group, group.members)


def owners_by_assignments(group: Group, members: Mapping[str, Member]) -> Owners:
    """Return the owner of each partition of a classic group; empty if its assignments cannot be read."""
    if group.protocol_type not in READABLE:
        return {}
    return {
        (topic, number): member.member_id
        for member in members.values()
        for topic, numbers in (assigned_partitions(member.assignment) or {}).items()
        for number in numbers
    }


def state_of(group: Group) -> Phase:
    """Return the group's phase. Kafka never records that a classic group is in a rebalance."""
    if group.type in (SHARE, STREAMS):
        return Phase.UNKNOWN
    if not group.members:
        return Phase.EMPTY
    if group.type == CLASSIC:
        return Phase.STABLE
    if group.generation > group.assignment_epoch:
        return Phase.ASSIGNING
    is_settled = all(m.state == 0 and m.epoch == group.assignment_epoch for m in group.members.values())
    return Phase.STABLE if is_settled else Phase.RECONCILING


def in_order(group: Group) -> list[Member]:
    """Return the members by the time at which they were first seen, then by their ids."""
    return sorted(group.members.values(), key=lambda member: (member.first, member.member_id))


def _topics_of_classics(group: Group) -> tuple[str, ...] | None:
    if group.protocol_type not in READABLE:
        return None
    found: set[str] = set()
    for member in group.members.values():
        if (topics := subscribed_topics(member.subscription)) is None:
            return None
        found.update(topics)
    return tuple(sorted(found))


def subscribed_by(members: Iterable[Member], patterns: Mapping[str, list[str]]) -> list[str]:
    """Return the topics that members of the consumer protocol subscribe to, in order.

    Args:
        patterns: By pattern, the topics that it matches.
    """
    found, used = set[str](), set[str]()
    for member in members:
        found.update(member.topics)
        used.update([member.regex] if member.regex else ())
    return sorted(found.union(*(patterns.get(pattern, []) for pattern in used)))


def _assignor(group: Group) -> str | None:
    """Return the server assignor that all members name; None if they do not."""
    named = {member.assignor for member in group.members.values()}
    return named.pop() if len(named) == 1 else None


def _classic_of(group: Group) -> Any:
    is_readable, is_connect = group.protocol_type in READABLE, group.protocol_type == CONNECT

    def classic(member: Member) -> GroupMember:
        return GroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assignment=member.assignment,
            assigned=assigned_partitions(member.assignment) if is_readable else None,
            work=work_of(member.subscription, member.assignment) if is_connect else UNSET,
        )

    return classic
