"""The records and events of an observed group, under the group's own versions and times."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType, structs

from coordinator.base.connect_protocol import CONNECT, work_of
from coordinator.base.consumer_protocol import READABLE, assigned_partitions, subscribed_topics
from coordinator.base.states import Phase
from coordinator.messages.events import AssignmentChanged, Handover, RebalanceStarted
from coordinator.messages.fields import Event, MemberEvent
from coordinator.messages.group_records import (
    GroupMember,
    GroupRecord,
    OffsetRecord,
    Published,
    StreamsMember,
    Subtopology,
    Tasks,
    Topology,
)
from coordinator.messages.outputs import Output
from streaming.observe.format import Commit
from streaming.observe.names import Names, id_text
from streaming.observe.state import (
    NO_DETAILS,
    REASONS_MAX,
    Group,
    HashChange,
    Member,
    Owned,
    Reason,
    TopicAndPartition,
)

E = TypeVar("E", bound=Event)
M = TypeVar("M", bound=MemberEvent)

KEPT_BY = "kafka"
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
WITH_EPOCHS = (CONSUMER, SHARE, STREAMS)

PUBLISHED_MEMBERS_FREE = 100
"""A group with epochs that has more members is published when its state or epoch changes, and otherwise at
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
        if generation is None and group.type:
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
        has_epochs = group.type in WITH_EPOCHS
        topics = tuple(topics_of(group)) if has_epochs else _topics_of_classics(group)
        return GroupRecord(
            group_id=group.group_id,
            state=state_of(group),
            since_ms=group.since_ms,
            generation_id=group.generation,
            protocol_type=group.type if has_epochs else group.protocol_type,
            protocol_name=_assignor(group) if has_epochs else group.protocol_name,
            leader=group.leader,
            subscribed_topics=topics,
            members=tuple(map(partial(self._with_epoch, group) if has_epochs else _classic_of(group), in_order(group))),
            version=0,
            type=group.type,
            assignment_epoch=group.assignment_epoch if has_epochs else UNSET,
            kept_by=KEPT_BY,
            topology=_topology(group) if group.type == STREAMS else UNSET,
            initializing=self.names.named(group.initializing) if group.type == SHARE else UNSET,
        )

    def _with_epoch(self, group: Group, member: Member) -> GroupMember:
        is_streams = group.type == STREAMS
        named = partial(by_topic, group, self.names) if is_streams else self.names.named
        return GroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assignment=b"",
            assigned=named(member.assigned, member.revoking),
            rack_id=member.rack_id,
            protocol=CLASSIC if member.is_classic else group.type,
            member_epoch=member.epoch,
            state=MEMBER_STATES.get(member.state, "unknown"),
            subscribed_topics=UNSET if is_streams else tuple(member.topics),
            regex=UNSET if is_streams else member.regex or "",
            revoking=named(member.revoking),
            target=named(member.target),
            server_assignor=member.assignor or UNSET,
            streams=_streams(member),
        )


def owners_of(group: Group, names: Names, touched: Collection[str] | None = None) -> Owners:
    """Return the owner of each partition. A partition that a member has to give up is still that member's.

    A partition of a share group has no owner: several members may have it.

    Args:
        touched: The only members of a group with epochs whose partitions are wanted; all if None.
    """
    if group.type == SHARE:
        return {}
    if group.type in WITH_EPOCHS:
        return {
            place: member.member_id
            for member in group.members.values()
            if touched is None or member.member_id in touched
            for place in partitions_of(group, names, member.assigned, member.revoking)
        }
    return owners_by_assignments(group, group.members)


def partitions_of(group: Group, names: Names, *parts: Owned) -> Iterator[TopicAndPartition]:
    """Yield the partitions by the names of their topics. Those of a streams group are the ones that its tasks read."""
    if group.type != STREAMS:
        yield from names.places(*parts)
        return
    for subtopology_id, numbers in (item for owned in parts for item in owned.items()):
        if (subtopology := group.subtopologies.get(subtopology_id)) is not None:
            yield from ((topic, number) for topic in subtopology.sources for number in numbers)


def by_topic(group: Group, names: Names, *parts: Owned) -> dict[str, list[int]]:
    """Return the partitions of a group by topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions_of(group, names, *parts)):
        found.setdefault(topic, []).append(number)
    return found


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
    """Return the group's phase. Kafka never records that a classic group is in a rebalance, and calls each share group
    with members stable.

    Source: Kafka's ConsumerGroup, StreamsGroup and ShareGroup, maybeUpdateGroupState.
    """
    if not group.members:
        return Phase.EMPTY
    if group.type not in (CONSUMER, STREAMS):
        return Phase.STABLE
    if group.type == STREAMS and group.validated_epoch != group.topology_epoch:
        return Phase.NOT_READY
    if group.generation > group.assignment_epoch:
        return Phase.ASSIGNING
    return Phase.STABLE if is_settled(group) else Phase.RECONCILING


def is_settled(group: Group) -> bool:
    """Return whether all members of a group with epochs have what the target of the group epoch gives them."""
    if group.generation > group.assignment_epoch:
        return False
    return all(m.state == 0 and m.epoch == group.assignment_epoch for m in group.members.values())


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


def topics_of(group: Group) -> list[str]:
    """Return the topics that belong to the metadata hash of a group with epochs, in order."""
    if group.type == STREAMS:
        return required_topics(group.subtopologies)
    return subscribed_by(group.members.values(), group.patterns)


def required_topics(subtopologies: Mapping[str, Subtopology]) -> list[str]:
    """Return the topics that a topology needs, its repartition and changelog topics included, in order."""
    return sorted({topic for each in subtopologies.values() for topic in (*each.sources, *each.changelogs)})


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


def _topology(group: Group) -> Topology | UnsetType:
    if not group.subtopologies:
        return UNSET
    return Topology(group.topology_epoch, group.validated_epoch, group.subtopologies, group.configs)


def _streams(member: Member) -> StreamsMember | UnsetType:
    part = member.streams
    if part is None:
        return UNSET
    return StreamsMember(
        process_id=part.process_id,
        topology_epoch=part.topology_epoch,
        endpoint=part.endpoint,
        client_tags=part.tags,
        assigned=Tasks(member.assigned, part.standby, part.warmup),
        revoking=Tasks(member.revoking, part.standby_revoking, part.warmup_revoking),
        target=Tasks(member.target, part.target_standby, part.target_warmup),
    )


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
