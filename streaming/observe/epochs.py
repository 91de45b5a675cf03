"""The translation of records of groups with epochs: of the consumer protocol (KIP-848), streams groups (KIP-1071) and
share groups (KIP-932).

Kafka writes the group epoch when a rebalance begins, and each member's step of it. The records of one run, which were
written together, are judged together. The three types of groups have records of one form:

    record                consumer      streams                          share
    the epoch             EPOCH         STREAMS_GROUP, with settings     SHARE_GROUP
    a member              MEMBER        STREAMS_MEMBER                   SHARE_MEMBER
    the target's epoch    TARGET_EPOCH  STREAMS_TARGET_EPOCH             SHARE_TARGET_EPOCH
    a member's target     TARGET        STREAMS_TARGET: tasks            SHARE_TARGET
    what a member has     CURRENT       STREAMS_CURRENT: tasks           SHARE_CURRENT, nothing is revoked
    the topics            PATTERN       STREAMS_TOPOLOGY                 SHARE_PARTITIONS, whose share state is kept
"""

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from msgspec import structs

from coordinator.messages.events import (
    GroupConverted,
    GroupEmptied,
    MemberAway,
    MemberBack,
    MemberJoined,
    RebalanceCompleted,
)
from coordinator.messages.group_records import Subtopology
from coordinator.messages.observed_events import (
    HistoryGap,
    MemberGone,
    ObservationBegan,
    ObservedCause,
    TopicChange,
    TopicsNamed,
)
from streaming.observe.classic import gone_fields
from streaming.observe.format import Entry
from streaming.observe.inference import (
    UNREVOKED,
    Difference,
    because,
    changed_assignor,
    changed_configs,
    changed_streams_member,
    changed_subscription,
    changed_topics,
    changed_topology,
    difference,
    is_overdue,
    overdue,
    preferred_assignors,
    resolved_pattern,
    share_state_ready,
    tied_assignors,
)
from streaming.observe.names import id_text
from streaming.observe.publishing import (
    CONSUMER,
    PUBLISHED_MEMBERS_FREE,
    SHARE,
    STREAMS,
    Publisher,
    is_settled,
    owners_of,
    partitions_of,
    required_topics,
    state_of,
    subscribed_by,
    topics_of,
)
from streaming.observe.schemas import SHARE as OF_SHARE
from streaming.observe.schemas import STREAMS as OF_STREAMS
from streaming.observe.schemas import Kind
from streaming.observe.state import (
    AWAY_EPOCH,
    NO_TOPOLOGY,
    REASONS_MAX,
    Change,
    Group,
    HashChange,
    Member,
    Owned,
    Reason,
    StreamsPart,
)

RECORDED = "recorded"

FIRST_EPOCH = 2
"""The first epoch of a new group: Kafka raises it for the group, and again for its first member."""

NO_HASH = 0
"""The metadata hash of a group without a topic, and of all groups of brokers before 4.1."""

FIRST_STATE = {CONSUMER: 0, SHARE: 0, STREAMS: 1}
"""The number of the state Stable of a member's record. The numbers of the other states follow."""


class Step(NamedTuple):
    """A record of a run."""

    offset: int
    at_ms: int
    entry: Entry


class Origin(Enum):
    """The origin of a group whose first run this is."""

    NEW = auto()
    CLASSIC = auto()  # the run has the tombstone of the classic group that is known
    UNKNOWN = auto()  # the run has the tombstone of a classic group that is not known


def take_run(
    publisher: Publisher, group: Group, kind: str, steps: Sequence[Step], hole_end: int, origin: Origin = Origin.NEW
) -> None:
    """Change a group by the records of one run, and publish the differences.

    Args:
        kind: The type that the group has since.
        hole_end: The offset after the last hole in the partition.
        origin: Only of a group that does not have this type yet.
    """
    is_first, is_large = group.type != kind, len(group.members) > PUBLISHED_MEMBERS_FREE
    before = None if is_first or is_large else publisher.record_of(group)
    phase, generation = state_of(group), group.generation
    run = _Run(publisher, group, kind, steps, hole_end, origin)
    run.apply()
    run.publish()
    if group.is_settling:
        group.is_unpublished = True  # the record of a group without its epoch would be wrong
        return
    has_moved = is_first or state_of(group) is not phase
    if has_moved:
        group.since_ms = group.advance(run.at_ms)
    if is_large and not has_moved and group.generation == generation:
        publisher.record_at_a_bounded_rate(group)
    else:
        publisher.record(group, before)


class _Run:
    """The records of one run, and the findings in them.

    Args:
        before: The members before the run.
        touched: The members that the run names; None for all. No other member's partitions can change.
        placed: Members whose partitions were not known before.
        epoch: The group epoch, if it was raised.
        planned_ms: The time of the target assignment, if there is a new one.
    """

    def __init__(
        self, publisher: Publisher, group: Group, kind: str, steps: Sequence[Step], hole_end: int, origin: Origin
    ) -> None:
        self.publisher, self.group, self.kind, self.steps = publisher, group, kind, steps
        self.at_ms = steps[-1].at_ms
        self.is_upgrade = group.type != kind and origin is Origin.CLASSIC
        self.is_first = group.type != kind and not self.is_upgrade
        self.is_complete = origin is not Origin.UNKNOWN and (self.is_first or group.at_offset >= hole_end)
        self.generation_before = group.generation
        self.touched = None if self.is_upgrade else dict.fromkeys(step.entry.name for step in steps)
        self.owned = {} if self.is_first else owners_of(group, publisher.names, self.touched)
        self.before = {} if self.is_first else dict(group.members)
        self.placed: set[str] = set()
        self.patterns_before = dict(group.patterns)
        self.hash_before = group.metadata_hash if group.type == kind else None
        self.subtopologies_before, self.configs_before = group.subtopologies, group.configs
        self.validated_before = group.validated_epoch
        self.old_topics_before = dict(group.old_topics)
        self.has_old_topics = self.has_lost_old_topics = False
        self.away: list[Member] = []
        self.ready: list[Reason] = []
        self.epoch: int | None = None
        self.planned_ms: int | None = None

    # -- the records ---------------------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Change the group by each record."""
        group = self.group
        if group.type != self.kind:
            group.type, group.protocol_type, group.protocol_name, group.leader = self.kind, None, None, None
            group.released, group.assignment_epoch, group.is_settling = None, 0, self.is_first
            group.metadata_hash, group.old_topics = None, {}
            if self.is_first:
                group.members, group.waiting = {}, []
        for step in self.steps:
            if apply := _APPLY.get(step.entry.kind):
                apply(self, step)
        if self.epoch is not None:
            self.publisher.topics.update(topics_of(group))
        group.at_offset = self.steps[-1].offset

    def apply_member(self, step: Step) -> None:
        value, id_ = step.entry.value, step.entry.name
        earlier = self.group.members.get(id_)
        if value is None:
            self.group.members.pop(id_, None)
            return
        classic = value.get("classic_member_metadata")
        member = Member(
            member_id=id_,
            group_instance_id=value.get("instance_id"),
            client_id=value["client_id"],
            client_host=value["client_host"],
            session_timeout_ms=classic["session_timeout_ms"] if classic else None,
            rebalance_timeout_ms=value.get("rebalance_timeout_ms"),
            first=earlier.first if earlier else step.offset,
            last_commit_ms=earlier.last_commit_ms if earlier else None,
            topics=sorted(value.get("subscribed_topic_names", ())),
            regex=value.get("subscribed_topic_regex") or None,
            rack_id=value["rack_id"],
            assignor=value.get("server_assignor"),
            is_classic=classic is not None,
            is_placed=earlier.is_placed if earlier else not self.group.is_settling,
            streams=_streams_part(value, earlier.streams if earlier else None) if self.kind == STREAMS else None,
        )
        if earlier is not None:
            member.epoch, member.state, member.target = earlier.epoch, earlier.state, earlier.target
            member.assigned, member.revoking = earlier.assigned, earlier.revoking
            member.unrevoked_ms = earlier.unrevoked_ms
        self.group.members[id_] = member

    def apply_current(self, step: Step) -> None:
        member, value = self.group.members.get(step.entry.name), step.entry.value
        if member is None or value is None:
            return
        if value["member_epoch"] == AWAY_EPOCH and member.epoch != AWAY_EPOCH:
            self.away.append(member)
        member.epoch, member.state = value["member_epoch"], value["state"] - FIRST_STATE[self.kind]
        member.unrevoked_ms = step.at_ms if member.state == UNREVOKED else None
        held = set(_partitions(member.assigned, member.revoking))
        if (streams := member.streams) is not None:
            member.assigned = _tasks(value["active_tasks"])
            member.revoking = _tasks(value["active_tasks_pending_revocation"])
            streams.standby, streams.warmup = _tasks(value["standby_tasks"]), _tasks(value["warmup_tasks"])
            streams.standby_revoking = _tasks(value["standby_tasks_pending_revocation"])
            streams.warmup_revoking = _tasks(value["warmup_tasks_pending_revocation"])
        else:
            member.assigned = _owned(value["assigned_partitions"])
            member.revoking = _owned(value.get("partitions_pending_revocation", ()))
        gained = set(_partitions(member.assigned)) - held
        if gained and self.kind != SHARE:  # several members of a share group may have one partition
            self._take_from_others(member, gained)
        if not member.is_placed:
            member.is_placed = True
            self.placed.add(member.member_id)

    def _take_from_others(self, owner: Member, gained: Collection[tuple[str, int]]) -> None:
        """Remove partitions from the other members that seem to own them. Kafka gives a partition to a member when no
        other one owns it: the record by which another gave it up is gone from the log, as after a compaction."""
        for other in self.group.members.values():
            for held in (other.assigned, other.revoking) if other is not owner else ():
                for topic_id, number in gained:
                    if number in held.get(topic_id, ()):
                        held[topic_id].remove(number)
                        if not self.is_first:
                            places = partitions_of(self.group, self.publisher.names, {topic_id: [number]})
                            self.owned |= dict.fromkeys(places, other.member_id)

    def apply_target(self, step: Step) -> None:
        member, value = self.group.members.get(step.entry.name), step.entry.value
        if member is None or value is None:
            return
        if (streams := member.streams) is not None:
            member.target = _tasks(value["active_tasks"])
            streams.target_standby, streams.target_warmup = (
                _tasks(value["standby_tasks"]),
                _tasks(value["warmup_tasks"]),
            )
        else:
            member.target = _owned(value["topic_partitions"])

    def apply_epoch(self, step: Step) -> None:
        value = step.entry.value
        if value is not None:
            epoch = value["epoch"]
            if epoch != self.group.generation or self.group.is_settling:
                self.epoch = epoch
            self.group.generation, self.group.metadata_hash = epoch, value["metadata_hash"]
            if self.kind == STREAMS:
                self.group.validated_epoch = value["validated_topology_epoch"]
                self.group.configs = {each["key"]: each["value"] for each in value["last_assignment_configs"]}

    def apply_topology(self, step: Step) -> None:
        value = step.entry.value
        self.group.topology_epoch = NO_TOPOLOGY if value is None else value["epoch"]
        self.group.subtopologies = {
            each["subtopology_id"]: _subtopology(each) for each in (value or {"subtopologies": ()})["subtopologies"]
        }

    def apply_share_partitions(self, step: Step) -> None:
        """Note the partitions whose share state is there, and those whose state is being made."""
        group, value = self.group, step.entry.value or {"initializing_topics": (), "initialized_topics": ()}
        before = group.initialized
        group.initializing, group.initialized = (
            _owned(value["initializing_topics"]),
            _owned(value["initialized_topics"]),
        )
        if (ready := share_state_ready(before, group.initialized, self.publisher.names)) is not None:
            self.ready.append(ready)

    def apply_target_epoch(self, step: Step) -> None:
        if step.entry.value is not None:
            self.group.assignment_epoch = step.entry.value["assignment_epoch"]
            self.planned_ms = step.entry.value["assignment_timestamp"] or step.at_ms

    def apply_pattern(self, step: Step) -> None:
        patterns, pattern = self.group.patterns, step.entry.name
        if step.entry.value is None:
            patterns.pop(pattern, None)
            return
        patterns[pattern] = sorted(step.entry.value["topics"])

    def apply_old_topics(self, step: Step) -> None:
        """Note the topics that a broker before 4.1 has recorded. A later broker writes their tombstone."""
        self.has_old_topics, self.has_lost_old_topics = step.entry.value is not None, step.entry.value is None
        self.group.old_topics = {
            topic["topic_name"]: (
                id_text(topic["topic_id"]) or "",
                topic["num_partitions"],
                zlib.crc32(repr(_racks(topic)).encode()),
            )
            for topic in (step.entry.value or {"topics": ()})["topics"]
        }

    # -- the events ----------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Publish the differences between the group before the run and after it."""
        group, publisher = self.group, self.publisher
        if self.is_first:
            is_founded = self.is_complete and (self.epoch or self._epoch_of_patterns()) in range(1, FIRST_EPOCH + 1)
            publisher.event(ObservationBegan, group, self.at_ms, founded=is_founded, from_offset=self.steps[0].offset)
        if group.is_settling and not self._settle():
            return
        found = difference(self.before, group.members)
        if self.is_upgrade:
            publisher.event(
                GroupConverted,
                group,
                self.at_ms,
                group_type=self.kind,
                members=len(group.members),
                generation_before=self.generation_before,
            )
        elif self.epoch is not None and self.epoch > self.generation_before + 1 and not self.is_complete:
            publisher.event(
                HistoryGap,
                group,
                self.at_ms,
                from_generation=self.generation_before,
                to_generation=self.epoch,
                holes=True,
                group_type=self.kind,
            )
        self._publish_members(found)
        self._wait_for_epoch(found)
        if self.epoch is not None and (group.members or group.change is not None):
            self._begin()
        elif group.change is not None and self.planned_ms is not None:
            group.change.planned_ms = self.planned_ms
        self._hand_over()
        self._end()

    def _epoch_of_patterns(self) -> int | None:
        """Return the epoch of a group that members with patterns found: it is recorded when a pattern is resolved."""
        members = self.group.members.values()
        if not members or not all(member.regex and not member.topics for member in members):
            return None
        epochs = {member.epoch for member in members}
        return max(epochs) if max(epochs) < FIRST_EPOCH else None

    def _settle(self) -> bool:
        """Return whether the history begins with this run, in which the members that are not new are no news.

        All members are known once the epoch is: of a log that was compacted, the last record of each key is there. A
        group whose first epochs are read without a hole is new, and its members have joined.
        """
        group = self.group
        if self.epoch is None:
            return False
        group.is_settling = False
        if self.epoch > FIRST_EPOCH or not self.is_complete:
            return False
        self.before, self.owned, self.placed, self.touched = {}, {}, set(), None
        self.generation_before = 0
        for member in group.members.values():
            member.is_placed = True
        return True

    def _publish_members(self, found: Difference) -> None:
        publisher, group, at_ms = self.publisher, self.group, self.at_ms
        for old, new in found.replaced:
            publisher.member_event(MemberBack, group, new, at_ms, replaces=old.member_id)
        for member in self.away:
            publisher.member_event(MemberAway, group, member, at_ms, until_ms=None)
        for member in found.gone:
            fields = gone_fields(member, at_ms, None)
            if is_overdue(member, at_ms):
                fields["likely"] = ObservedCause.REVOCATION_OVERDUE.value
            if fields["likely"] == "expired" and member.epoch != AWAY_EPOCH and not member.is_classic:
                fields["likely"] = None  # unlike a classic one, such a static member leaves when it closes for good
            publisher.member_event(MemberGone, group, member, at_ms, **fields)
        for member in found.joined:
            publisher.member_event(MemberJoined, group, member, at_ms, reason=None)

    def _wait_for_epoch(self, found: Difference) -> None:
        """Note the causes of the next epoch. It comes in the same run or, for a pattern, in a later one."""
        joined, causes = list(found.joined), list[Reason]()
        if self.is_upgrade and self.kind == CONSUMER:
            first = next((member for member in joined if not member.is_classic), None)
            causes.append(because(ObservedCause.PROTOCOL_UPGRADED, first))
            joined = [member for member in joined if member is not first]
        causes += [
            overdue(member) if is_overdue(member, self.at_ms) else because(ObservedCause.MEMBER_GONE, member)
            for member in found.gone
        ]
        causes += [because(ObservedCause.MEMBER_JOINED, member) for member in joined]
        causes += self._changed_members(found)
        causes += self._resolved_patterns()
        causes += self.ready
        self.group.waiting = [*self.group.waiting, *causes][:REASONS_MAX]

    def _changed_members(self, found: Difference) -> Iterator[Reason]:
        """Yield the changed subscriptions, and the changed assignors if they have raised the epoch.

        A changed assignor raises it only if most members prefer another one since.
        """
        if self.is_upgrade:
            return
        after = self.group.members
        pairs = [(self.before[id_], after[id_]) for id_ in self.touched or () if id_ in self.before and id_ in after]
        pairs += found.replaced
        yield from filter(None, (changed_subscription(*pair) for pair in pairs))
        if self.kind == STREAMS and self.epoch is not None:
            yield from filter(None, (changed_streams_member(*pair) for pair in pairs))
        elif self.epoch is not None and (changed := [*filter(None, (changed_assignor(*pair) for pair in pairs))]):
            preferred, was_preferred = preferred_assignors(after.values()), preferred_assignors(self.before.values())
            if preferred.keys() != was_preferred.keys() or len(preferred) > 1:
                yield from changed

    def _resolved_patterns(self) -> Iterator[Reason]:
        for pattern, topics in self.group.patterns.items():
            if (before := self.patterns_before.get(pattern)) is not None and before != topics:
                members = [member for member in self.group.members.values() if member.regex == pattern]
                if members and (reason := resolved_pattern(pattern, before, topics, members)) is not None:
                    yield reason

    def _begin(self) -> None:
        """Publish the start of a rebalance. Its epoch is recorded, and with it the time."""
        group = self.group
        waiting, group.waiting = group.waiting, []
        of_topics, changes = self._changed_topics()
        of_topics += self._changed_topology()
        causes = [*waiting[: REASONS_MAX - len(of_topics)], *of_topics] or [self._only_cause()]
        now_ms = group.advance(self.at_ms)
        if group.change is None:
            group.change = Change(now_ms, list(self.before))
        group.change.planned_ms = self.planned_ms if group.assignment_epoch == group.generation else None
        self.publisher.started(group, causes, now_ms, joins_until_ms=now_ms, how_known=RECORDED)
        if changes:
            self.publisher.event(TopicsNamed, group, now_ms, changes=changes)

    def _changed_topics(self) -> tuple[list[Reason], tuple[TopicChange, ...]]:
        """Return the cause of the epoch that lies in topics, if any, and the changes as far as they are recorded.

        If members subscribe to other topics as well, the hash differs in any case: the driver finds out whether a topic
        has changed too.
        """
        group, before = self.group, self.hash_before
        if self.has_lost_old_topics and group.metadata_hash and before == NO_HASH:
            return [because(ObservedCause.BROKERS_UPGRADED)], ()
        names = topics_of(group)
        if self.kind == STREAMS:
            names_before = required_topics(self.subtopologies_before)
        else:
            names_before = subscribed_by(self.before.values(), self.patterns_before)
        both = set(names).intersection(names_before)
        if self.has_old_topics and self.old_topics_before:
            old, new = (
                {n: t for n, t in each.items() if n in both} for each in (self.old_topics_before, group.old_topics)
            )
            changes = changed_topics(old, new)
            return [because(ObservedCause.TOPICS_CHANGED)] * bool(changes), changes
        if before is None or before == group.metadata_hash or not both:
            return [], ()
        self.publisher.hash_changes.append(
            HashChange(group.group_id, group.generation, before, group.metadata_hash or NO_HASH, names_before, names)
        )
        return [because(ObservedCause.TOPICS_CHANGED)] * (names == names_before), ()

    def _changed_topology(self) -> list[Reason]:
        """Return the causes that lie in the settings and the topology of a streams group, unless it has just begun."""
        group = self.group
        if self.kind != STREAMS or not self.before:
            return []
        changes = (
            changed_configs(self.configs_before, group.configs),
            changed_topology(self.validated_before, group.validated_epoch),
        )
        return [each for each in changes if each is not None]

    def _only_cause(self) -> Reason:
        """Return the cause of an epoch that no member has caused. Without another hash, it is no topic."""
        has_changed = self.hash_before is not None and self.hash_before != self.group.metadata_hash
        if has_changed or self.has_old_topics:
            return because(ObservedCause.TOPICS_CHANGED)
        return tied_assignors(self.group.members.values()) or because(ObservedCause.UNKNOWN)

    def _hand_over(self) -> None:
        """Publish the partitions that changed their owner, without those whose owner before was not known.

        An upgrade names partitions by topic id that had names before: they are compared if all names are known.
        """
        owns = owners_of(self.group, self.publisher.names, self.touched)
        if self.is_upgrade and not self.publisher.names.are_named(owns):
            return
        unknown = {place: owner for place, owner in owns.items() if owner in self.placed}
        self.publisher.handovers(self.group, {**unknown, **self.owned}, owns, self.at_ms)

    def _end(self) -> None:
        """Publish that the group is empty, or that its rebalance is complete."""
        group = self.group
        if not group.members:
            group.change, group.waiting = None, []
            if self.before:
                self.publisher.event(GroupEmptied, group, self.at_ms)
            return
        change = group.change
        if change is None or not is_settled(group):
            return
        group.change = None
        now_ms = group.advance(self.at_ms)
        planned_ms = min(max(change.planned_ms or now_ms, change.begun_ms), now_ms)
        self.publisher.event(
            RebalanceCompleted,
            group,
            now_ms,
            duration_ms=now_ms - change.begun_ms,
            joins_ms=planned_ms - change.begun_ms,
            syncs_ms=now_ms - planned_ms,
            protocol_name=self.publisher.record_of(group).protocol_name,
            leader=None,
            members_before=tuple(change.before),
            members_after=tuple(group.members),
            joined=tuple(id_ for id_ in group.members if id_ not in change.before),
            gone=tuple(id_ for id_ in change.before if id_ not in group.members),
        )


_APPLY: Mapping[Kind, Callable[[_Run, Step], None]] = {
    Kind.EPOCH: _Run.apply_epoch,
    Kind.MEMBER: _Run.apply_member,
    Kind.TARGET_EPOCH: _Run.apply_target_epoch,
    Kind.TARGET: _Run.apply_target,
    Kind.CURRENT: _Run.apply_current,
    Kind.PATTERN: _Run.apply_pattern,
    Kind.OLD_TOPICS: _Run.apply_old_topics,
    Kind.STREAMS_GROUP: _Run.apply_epoch,
    Kind.STREAMS_MEMBER: _Run.apply_member,
    Kind.STREAMS_TARGET_EPOCH: _Run.apply_target_epoch,
    Kind.STREAMS_TARGET: _Run.apply_target,
    Kind.STREAMS_CURRENT: _Run.apply_current,
    Kind.STREAMS_TOPOLOGY: _Run.apply_topology,
    Kind.SHARE_GROUP: _Run.apply_epoch,
    Kind.SHARE_MEMBER: _Run.apply_member,
    Kind.SHARE_TARGET_EPOCH: _Run.apply_target_epoch,
    Kind.SHARE_TARGET: _Run.apply_target,
    Kind.SHARE_CURRENT: _Run.apply_current,
    Kind.SHARE_PARTITIONS: _Run.apply_share_partitions,
}

TYPES: Mapping[Kind, str] = {
    kind: SHARE if kind in OF_SHARE else STREAMS if kind in OF_STREAMS else CONSUMER for kind in _APPLY
}
"""The types of groups with epochs, by their records."""


def _partitions(*parts: Owned) -> Iterator[tuple[str, int]]:
    """Yield partitions by the ids of their topics."""
    for owned in parts:
        for topic_id, numbers in owned.items():
            yield from ((topic_id, number) for number in numbers)


def _owned(parts: Iterable[dict[str, Any]]) -> Owned:
    return {id_text(part["topic_id"]) or "": sorted(part["partitions"]) for part in parts}


def _tasks(parts: Iterable[dict[str, Any]]) -> Owned:
    return {part["subtopology_id"]: sorted(part["partitions"]) for part in parts}


def _subtopology(value: Mapping[str, Any]) -> Subtopology:
    repartition = [each["name"] for each in value["repartition_source_topics"]]
    return Subtopology(
        sources=tuple(sorted({*value["source_topics"], *repartition})),
        repartition_sources=tuple(sorted(repartition)),
        repartition_sinks=tuple(sorted(value["repartition_sink_topics"])),
        changelogs=tuple(sorted(each["name"] for each in value["state_changelog_topics"])),
    )


def _streams_part(value: Mapping[str, Any], earlier: StreamsPart | None) -> StreamsPart:
    endpoint = value["user_endpoint"]
    said = {
        "topology_epoch": value["topology_epoch"],
        "process_id": value["process_id"],
        "endpoint": f"{endpoint['host']}:{endpoint['port']}" if endpoint else None,
        "tags": {each["key"]: each["value"] for each in value["client_tags"]},
    }
    return StreamsPart(**said) if earlier is None else structs.replace(earlier, **said)


def _racks(topic: Mapping[str, Any]) -> list[tuple[int, list[str]]]:
    """Return the partitions of a recorded topic with the racks of their replicas, in order."""
    return sorted((each["partition"], sorted(each["racks"])) for each in topic["partition_metadata"])
