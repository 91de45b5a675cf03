"""The data of a group of the consumer protocol; `ConsumerHotState` is the part that every heartbeat reads and changes.

    assigned   the partitions that a member was given and may use
    revoking   the partitions that a member has to give up, and whose release it has not confirmed
    target     the partitions of a member in the target assignment

A partition is free if no member has it in `assigned` or `revoking`. Topics are named by their ids; `topics` has the
present id of each name.

Source: Kafka's ConsumerGroup, ConsumerGroupMember, ModernGroup and ResolvedRegularExpression; KIP-848.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple, cast

from msgspec import Struct, field

from coordinator.assignors.server import Target, Targets
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import GroupType, Phase
from coordinator.state.consumer_member import (
    Classic,
    ConsumerMember,
    MemberSession,
    MemberState,
    Partitions,
    names_bytes,
)
from coordinator.state.group import Allowance, AnyGroup, GroupHotState, Offset, PendingCommit, Session
from coordinator.state.policy_state import PolicyState

INITIAL_EPOCH = 1


class ConsumerHotState(GroupHotState, Struct, array_like=True):
    """The part of a group that a heartbeat reads and writes. All times are in Unix milliseconds.

    Args:
        group_epoch: Raised by one for each change that needs a new target assignment.
        sessions: By member id, in the order in which the members joined.
        assignment_epoch: The group epoch for which the target assignment was computed.
        unsettled: How many members are not settled.
        revocations: By member id, the deadline of a member that has to give up partitions.
        joins, syncs: By member id of a classic member, the deadline of the join for which the coordinator has asked,
            and of the sync that follows a join.
        plan_ms: When the next target assignment is computed, or the hold of a policy on it may end.
        asks: Whether responses ask for topics or for a pattern's topics, also those to plain heartbeats.
        offsets_ms, earliest_ms, back_ms, instances, publish_ms: As in the hot state of a classic group.
        policy_ms: When a quarantine of `ConsumerGroup.policy_state` ends; none ends earlier.
        is_frozen: A freeze holds the target assignment of the group epoch.
    """

    phase: Phase = Phase.EMPTY
    group_epoch: int = INITIAL_EPOCH
    now_ms: int = 0
    sessions: dict[str, MemberSession] = field(default_factory=dict)
    assignment_epoch: int = INITIAL_EPOCH
    unsettled: int = 0
    revocations: dict[str, Session] = field(default_factory=dict)
    joins: dict[str, Session] = field(default_factory=dict)
    syncs: dict[str, Session] = field(default_factory=dict)
    plan_ms: int = NEVER_MS
    offsets_ms: int = NEVER_MS
    earliest_ms: int = NEVER_MS
    back_ms: int = 0
    instances: dict[str, str] = field(default_factory=dict)
    publish_ms: int = NEVER_MS
    asks: bool = False
    policy_ms: int = NEVER_MS
    is_frozen: bool = False


class Topic(Struct, array_like=True, frozen=True):
    """The fact about a topic: its id and its number of partitions; None and 0 if the topic does not exist."""

    topic_id: str | None = None
    partitions: int = 0


class Resolution(Struct, array_like=True, frozen=True):
    """The topics that a pattern matches, for the member whose heartbeat brought them.

    Args:
        topics: Sorted; None while no record has resolved the pattern.
    """

    member_id: str
    topics: tuple[str, ...] | None = None

    @property
    def topics_bytes(self) -> int:
        """The approximate size of the topics."""
        return names_bytes(self.topics or ())


class Change(Struct, array_like=True, frozen=True):
    """A rebalance in progress.

    Args:
        started_ms: When the group epoch was first raised.
        planned_ms: When the latest target assignment was computed; 0 before the first one.
        before: The members at the beginning.
    """

    started_ms: int
    planned_ms: int
    before: tuple[str, ...]


class HeldPlan(Struct, array_like=True, kw_only=True):
    """A target assignment that a policy holds: the group epoch was raised, and the members keep their targets.

    Args:
        since_ms: When the first cause came.
        until_ms: When the target assignment is computed.
        policy: settle or freeze.
        wait_ms: The quiet time that the latest cause has asked for; 0 in a freeze, which lasts until a time.
        cause, member_id, client_id, client_host, reason: The first cause, as the event of the rebalance names it.
        vacant: How many members with partitions are gone since.
        unowned_since_ms: Since when a partition is in no member's target; `NEVER_MS` if every partition is in one.
        unowned_until_ms: When such a partition breaks the freeze.
        unowned_max_ms: The time between the two, as the policy has it.
        was_extended: The wait was extended once, as sessions are.
    """

    since_ms: int
    until_ms: int
    policy: str
    wait_ms: int
    cause: str
    member_id: str
    client_id: str
    client_host: str
    reason: str | None
    vacant: int = 0
    unowned_since_ms: int = NEVER_MS
    unowned_until_ms: int = NEVER_MS
    unowned_max_ms: int = 0
    was_extended: bool = False

    @property
    def due_ms(self) -> int:
        """The next time at which the hold may end."""
        return min(self.until_ms, self.unowned_until_ms)


class RemovedMember(NamedTuple):
    """A member that was removed.

    Args:
        was_quarantined: It was in quarantine.
    """

    member: ConsumerMember
    target: Target
    was_quarantined: bool


class PendingChanges:
    """The changes of a group since the last outputs about changes. They are not a part of the state.

    Attributes:
        before: The members before the first of these changes; None if the members are the same.
        handovers: Topic id, number, old holder, new holder; a partition has one holder or none.
        removed: The members that were removed, without those that another process replaces.
        has_unsubscribed: A member with a subscription was removed, or has another one; or a pattern matches other
            topics.
    """

    def __init__(self) -> None:
        self.is_changed = self.has_unsubscribed = False
        self.before: tuple[str, ...] | None = None
        self.handovers: list[tuple[str, int, str | None, str | None]] = []
        self.removed: list[RemovedMember] = []


AWAY_EPOCH = -2
"""The epoch of a static member that went away for a while."""


class ConsumerGroup(AnyGroup, Struct, array_like=True, kw_only=True, dict=True):
    """A group: all data that the coordinator has of it.

    Args:
        since_ms: When the group entered its state.
        assignment_ms: When the latest target assignment was computed; 0 for never.
        published_ms: When the group's record was last written.
        token: The highest fencing token that the group has given; 0 before the first one.
        targets: The target assignment, by member id.
        topics: The facts about topics, by name.
        gone_topics: The names of ids that no existing topic has, while a member has partitions of them.
        patterns: The patterns that some member has.
        change: The rebalance in progress.
        subscriptions_bytes: The size of the subscriptions of all members.
        assignor: The assignor of the latest target assignment; "" before the first one.
        allowance: The size of recent large responses about the group.
        pending_commits: The commits of open transactions, by their place.
        policy_state: The quarantines, and the unstable clients. The parts for seats are those of classic groups alone.
        held: The target assignment that a policy holds; None if none does.
    """

    hot_state: ConsumerHotState
    group_id: str
    since_ms: int
    version: int = 0
    assignment_ms: int = 0
    published_ms: int = 0
    token: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: Targets = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    gone_topics: dict[str, str] = field(default_factory=dict)
    patterns: dict[str, Resolution] = field(default_factory=dict)
    change: Change | None = None
    assignor: str = ""
    subscriptions_bytes: int = 0
    offsets: dict[str, dict[int, Offset]] = field(default_factory=dict)
    offsets_count: int = 0
    allowance: Allowance = Allowance()
    pending_commits: dict[int, PendingCommit] = field(default_factory=dict)
    policy_state: PolicyState = field(default_factory=PolicyState)
    held: HeldPlan | None = None

    identities = cast("dict[str, set[str]] | None", None)  # the members of each; not stored, and made when needed

    def __post_init__(self) -> None:
        self.pending_changes = PendingChanges()

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def generation_id(self) -> int:
        """The group epoch: events and records of both protocols have the same field for it."""
        return self.hot_state.group_epoch

    @property
    def is_readable(self) -> bool:
        """True: assignments contain nothing but partitions."""
        return True

    # -- members -------------------------------------------------------------------------------------------------------

    @property
    def visible(self) -> Iterator[ConsumerMember]:
        """The members that are not in quarantine."""
        return (m for m in self.members.values() if m.member_id not in self.policy_state.quarantined)

    def epoch_of(self, member_id: str) -> int:
        """Return a member's epoch."""
        return self.hot_state.sessions[member_id].epoch

    def add(self, member: ConsumerMember, session: MemberSession) -> None:
        """Add a member. It is not settled before it was reconciled."""
        assert member.member_id not in self.members, f"{member.member_id} is a member already"
        self._record_members()
        self.protocols_bytes += member.protocols_bytes
        self.members[member.member_id] = member
        self.subscriptions_bytes += member.subscription_bytes
        self.__dict__.pop("subscribed", None)
        self.hot_state.sessions[member.member_id] = session
        self.hot_state.track_deadline(session.deadline_ms)
        self.hot_state.unsettled += not session.is_settled
        if member.group_instance_id is not None:
            self.hot_state.instances[member.group_instance_id] = member.member_id
        if self.identities is not None:
            self.identities.setdefault(member.identity, set()).add(member.member_id)

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member with its target and its deadlines. Its partitions are free."""
        self._record_members()
        was_hidden = member.member_id in self.policy_state.quarantined
        self.pending_changes.removed.append(RemovedMember(member, self.targets.get(member.member_id, {}), was_hidden))
        self.policy_state.remove_member(member.member_id)
        if self.identities is not None:
            self.identities[member.identity].discard(member.member_id)
        self.hold(member, {}, {})
        session = self.hot_state.sessions.pop(member.member_id)
        self.hot_state.unsettled -= not session.is_settled
        for waits in (self.hot_state.revocations, self.hot_state.joins, self.hot_state.syncs):
            waits.pop(member.member_id, None)
        self.set_target(member.member_id, None)
        self._record_subscription(member)
        self.protocols_bytes -= member.protocols_bytes
        self.subscriptions_bytes -= member.subscription_bytes
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            del self.hot_state.instances[member.group_instance_id]

    def _record_members(self) -> None:
        """Note the members before the first change of them."""
        self.pending_changes.is_changed = True
        if self.pending_changes.before is None:
            self.pending_changes.before = tuple(self.members)

    def replace(self, old: ConsumerMember, new: ConsumerMember, session: MemberSession) -> None:
        """Replace a static member by its new process, which has all data of the old one but its epoch."""
        if (other := self.members.get(new.member_id)) is not None and other is not old:
            self.remove(other)
        target = self.targets.get(old.member_id)
        new.assigned, new.revoking = {}, {}
        assigned, revoking = old.assigned, old.revoking
        hidden, joined_ms = (
            self.policy_state.quarantined.get(old.member_id),
            self.policy_state.joined_ms.get(old.member_id),
        )
        self.remove(old)
        self.pending_changes.removed.pop()
        self.add(new, session)
        if hidden is not None:
            self.policy_state.quarantined[new.member_id] = hidden
        if joined_ms is not None:
            self.policy_state.joined_ms[new.member_id] = joined_ms
        self.hold(new, assigned, revoking)
        self.set_target(new.member_id, target)
        new.previous_epoch = 0

    def rename_instance(self, member: ConsumerMember, group_instance_id: str) -> None:
        """Set the instance id of a member. No member has that id."""
        self.pending_changes.is_changed, self.identities = True, None
        if member.group_instance_id is not None:
            del self.hot_state.instances[member.group_instance_id]
        member.group_instance_id = group_instance_id
        self.hot_state.instances[group_instance_id] = member.member_id

    def set_client(self, member: ConsumerMember, client_id: str, client_host: str) -> None:
        """Set the client of a member."""
        if (member.client_id, member.client_host) != (client_id, client_host):
            member.client_id, member.client_host, self.identities = client_id, client_host, None

    def move_to(self, member: ConsumerMember, epoch: int) -> None:
        """Set a member's epoch after a change of its partitions, and note whether the member is settled."""
        self.pending_changes.is_changed = True
        session = self.hot_state.sessions[member.member_id]
        member.previous_epoch, session.epoch = session.epoch, epoch
        self.record_settled(member)

    def record_settled(self, member: ConsumerMember) -> None:
        """Note whether a member is STABLE at the assignment epoch."""
        session = self.hot_state.sessions[member.member_id]
        is_settled = member.state is MemberState.STABLE and session.epoch == self.hot_state.assignment_epoch
        self.hot_state.unsettled += session.is_settled - is_settled
        session.is_settled = is_settled

    @property
    def state(self) -> Phase:
        """The state that follows from the members and the epochs (KIP-848)."""
        if not self.members:
            return Phase.EMPTY
        if self.hot_state.group_epoch > self.hot_state.assignment_epoch:
            return Phase.ASSIGNING
        return Phase.RECONCILING if self.hot_state.unsettled else Phase.STABLE

    def set_subscription(self, member: ConsumerMember, names: tuple[str, ...], regex: str) -> None:
        """Replace a member's subscription.

        Args:
            names: Sorted, each once.
        """
        if (names, regex) == (member.names, member.regex):
            return
        self.pending_changes.is_changed = True
        self._record_subscription(member)
        self.subscriptions_bytes -= member.subscription_bytes
        member.names, member.regex = names, regex
        self.subscriptions_bytes += member.subscription_bytes

    def _record_subscription(self, member: ConsumerMember) -> None:
        """Note that a member gets another subscription, or none."""
        self.pending_changes.has_unsubscribed = self.pending_changes.has_unsubscribed or bool(
            member.names or member.regex
        )
        self.__dict__.pop("subscribed", None)

    @cached_property
    def protocols_bytes(self) -> int:
        """The size of the subscription metadata of all classic members, in bytes."""
        return sum(member.protocols_bytes for member in self.members.values())

    def set_classic(self, member: ConsumerMember, classic: Classic | None) -> None:
        """Replace what a member of the classic protocol offers; None if it uses the consumer protocol."""
        self.protocols_bytes -= member.protocols_bytes
        member.classic = classic
        self.protocols_bytes += member.protocols_bytes

    def holder_of(self, group_instance_id: str | None) -> str | None:
        """Return the id of the member that has an instance id; None if no member has it."""
        return None if group_instance_id is None else self.hot_state.instances.get(group_instance_id)

    def sender_of(self, member_id: str, group_instance_id: str | None) -> ConsumerMember | None:
        """Return the member that sends a join, or that the sender of the join replaces; None for a new member."""
        holder = self.holder_of(group_instance_id)
        return self.members.get(member_id) or (self.members[holder] if holder is not None else None)

    # -- partitions ----------------------------------------------------------------------------------------------------

    @cached_property
    def holders(self) -> dict[str, dict[int, str]]:
        """The member that has a partition in `assigned` or `revoking`, by topic id and number."""
        holders: dict[str, dict[int, str]] = {}
        for member in self.members.values():
            for partitions in (member.assigned, member.revoking):
                for topic_id, numbers in partitions.items():
                    holders.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member.member_id))
        return holders

    @cached_property
    def planned(self) -> dict[str, dict[int, str]]:
        """The member whose target has a partition, by topic id and number."""
        planned: dict[str, dict[int, str]] = {}
        for member_id, target in self.targets.items():
            for topic_id, numbers in target.items():
                planned.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member_id))
        return planned

    def hold(self, member: ConsumerMember, assigned: Partitions, revoking: Partitions) -> None:
        """Replace the partitions that a member has."""
        holders, member_id = self.holders, member.member_id
        before = _places(member.assigned, member.revoking)
        after = _places(assigned, revoking)
        member.assigned, member.revoking = assigned, revoking
        for topic_id, number in sorted(before - after):
            del holders[topic_id][number]
            self.pending_changes.handovers.append((topic_id, number, member_id, None))
        for topic_id, number in sorted(after - before):
            holder = holders.setdefault(topic_id, {}).setdefault(number, member_id)
            assert holder == member_id, f"{member_id} takes a partition of {holder}"
            self.pending_changes.handovers.append((topic_id, number, None, member_id))

    def set_targets(self, targets: Targets) -> None:
        """Replace the target assignment. The members do not change before they are reconciled."""
        self.targets, self.pending_changes.is_changed = targets, True
        self.__dict__.pop("planned", None)
        self.hot_state.assignment_epoch = self.hot_state.group_epoch
        for member in self.members.values():
            self.record_settled(member)

    def set_target(self, member_id: str, target: Target | None) -> None:
        """Replace the target of one member; None removes it."""
        self.targets.pop(member_id, None)
        if target is not None:
            self.targets[member_id] = target
        self.__dict__.pop("planned", None)

    # -- topics --------------------------------------------------------------------------------------------------------

    def names_of(self, member: ConsumerMember) -> Iterable[str]:
        """Return the names of the topics that a member subscribes to, by name or by its pattern."""
        resolution = self.patterns.get(member.regex)
        if resolution is None or not resolution.topics:
            return member.names
        return {*member.names, *resolution.topics}

    def topic_ids_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the ids of the existing topics that a member subscribes to."""
        topics = (self.topics.get(name) for name in self.names_of(member))
        return frozenset(topic.topic_id for topic in topics if topic is not None and topic.topic_id is not None)

    @cached_property
    def resolutions_bytes(self) -> int:
        """The approximate size of the topics of all patterns."""
        return sum(resolution.topics_bytes for resolution in self.patterns.values())

    def set_pattern(self, pattern: str, resolution: Resolution | None) -> None:
        """Replace the topics of a pattern; None removes the pattern."""
        before = self.patterns.get(pattern, Resolution(""))
        self.resolutions_bytes += (resolution or Resolution("")).topics_bytes - before.topics_bytes
        self.__dict__.pop("subscribed", None)
        if resolution is None:
            del self.patterns[pattern]
        else:
            self.patterns[pattern] = resolution
            if before.topics not in (None, resolution.topics):
                self.pending_changes.is_changed = self.pending_changes.has_unsubscribed = True

    @cached_property
    def names_by_id(self) -> dict[str, str]:
        """The names of the existing topics, by id."""
        return {topic.topic_id: name for name, topic in self.topics.items() if topic.topic_id is not None}

    def name_of(self, topic_id: str) -> str:
        """Return the name of the topic with an id, or of an earlier topic that had it; "" if there is none."""
        return self.names_by_id.get(topic_id) or self.gone_topics.get(topic_id, "")

    def set_topic(self, name: str, topic: Topic | None) -> None:
        """Replace the fact about a topic; None removes it."""
        before = self.topics.pop(name, None)
        if before is not None and before.topic_id is not None and self.holders.get(before.topic_id):
            self.gone_topics[before.topic_id] = name
        if topic is not None:
            self.topics[name] = topic
            self.gone_topics.pop(topic.topic_id or "", None)
        self.__dict__.pop("names_by_id", None)

    def retained_since_ms(self, topic: str, offset: Offset) -> int | None:
        """Return the commit's time for a topic that no member subscribes to; None for every other one."""
        return None if self.subscribes(topic) else offset.commit_timestamp_ms

    def end(self, now_ms: int) -> None:
        """Change to Dead: the shard removes the group."""
        self.hot_state.phase, self.since_ms = Phase.DEAD, now_ms

    @cached_property
    def subscribed(self) -> set[str]:
        """The names of all topics that some member subscribes to, by name or by its pattern."""
        names = {name for member_names in {m.names for m in self.members.values()} for name in member_names}
        return names.union(*(self.patterns[regex].topics or () for regex in self.regexes if regex in self.patterns))

    @property
    def regexes(self) -> set[str]:
        """The patterns of all members."""
        return {member.regex for member in self.members.values() if member.regex}

    def subscribes(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic, by name or by its pattern."""
        return topic in self.subscribed


def _places(*parts: Partitions) -> set[tuple[str, int]]:
    topics = (each for partitions in parts for each in partitions.items())
    return {(topic_id, number) for topic_id, numbers in topics for number in numbers}
