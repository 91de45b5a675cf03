"""The data of a group: its hot state, which every heartbeat changes, and the rest, which changes only with the group.

The two parts are stored apart, so a heartbeat decodes and encodes a few numbers and not the members' subscriptions.
Deadlines are values in the hot state. `deadlines` reads them; `earliest_ms` shows without a search that no deadline is
due.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import cast

from msgspec import Struct, field

from coordinator.base.connect_protocol import CONNECT
from coordinator.base.consumer_protocol import CONSUMERS, READABLE
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Cause, GroupType, Phase, move
from coordinator.messages.requests import Protocol
from coordinator.state.group import Allowance, AnyGroup, GroupHotState, Offset, PendingCommit, Session
from coordinator.state.policy_state import PolicyState, VacancyIndex

MEMBER_RECORD_BYTES = 400
"""The bytes that a member takes in its group's record, without its assignment."""

ASSIGNED_RECORD_FACTOR = 4
"""The bytes that one byte of an assignment takes there: it is written in base 64, and decoded."""


class HotState(GroupHotState, Struct, array_like=True):
    """The part of a group that a heartbeat reads and writes.

    Args:
        now_ms: The time of the latest request or deadline; never goes back.
        sessions: By member id, in the order in which the members came.
        pending: Ids handed out by MEMBER_ID_REQUIRED that no join has used yet.
        joins_ms, syncs_ms, offsets_ms: When the join round ends, the assignments are overdue, an offset or the group
            expires.
        publish_ms: When the group's record is written again, because members were replaced since it was last written.
        extended: The join round or the wait for the assignments was extended once, as sessions are.
        back_ms: When the coordinator became available again. Earlier requests are handled at that time, so waits that
            begin with them start then.
        earliest_ms: No deadline is earlier. It may be too early itself, because it stays the same when a deadline moves
            to a later time.
        instances: By group instance id, the member id that it has now.
        policy_ms: When a policy has to act: no pending hold, offer or quarantine of `Group.policy_state` ends earlier.
        called: The members that have to join again alone, because a vacancy is offered to them.
    """

    phase: Phase = Phase.EMPTY
    generation_id: int = 0
    now_ms: int = 0
    sessions: dict[str, Session] = field(default_factory=dict)
    pending: dict[str, Session] = field(default_factory=dict)
    joins_ms: int = NEVER_MS
    syncs_ms: int = NEVER_MS
    offsets_ms: int = NEVER_MS
    earliest_ms: int = NEVER_MS
    extended: bool = False
    back_ms: int = 0
    instances: dict[str, str] = field(default_factory=dict)
    publish_ms: int = NEVER_MS
    policy_ms: int = NEVER_MS
    called: dict[str, None] = field(default_factory=dict)


class Parked(Struct, array_like=True, frozen=True):
    """A request that is answered later: the data that its response needs."""

    request_id: str
    reply_to: str


class Member(Struct, array_like=True, kw_only=True):
    """A member. Its session is in the hot state.

    Args:
        protocols: In its order of preference.
        is_new: Its first join round has not ended.
        owes_sync: It has been told this generation and has not sent its sync.
        made_by: The join that created a static member; a repeat of that join creates no other member.
        fencing_token: The group's token when this member was given its assignment; 0 before its first one.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    reply_to: str
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = True
    owes_sync: bool = False
    awaiting_join: Parked | None = None
    awaiting_sync: Parked | None = None
    made_by: Parked | None = None
    fencing_token: int = 0

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def identity(self) -> str:
        """The identity by which a client is known from one membership to the next."""
        return self.client_id + self.client_host if self.group_instance_id is None else self.group_instance_id

    @property
    def protocols_bytes(self) -> int:
        """The size of the member's subscription metadata in bytes, over all assignors that it offers."""
        return bytes_of(self.protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's subscription for one assignor; empty if the member does not offer that assignor."""
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")


def bytes_of(protocols: tuple[Protocol, ...]) -> int:
    """Return the size of subscription metadata, in bytes."""
    return sum(len(p.metadata) for p in protocols)


class Delay(Struct, array_like=True, frozen=True):
    """The initial delay in progress, and by how much it may still be extended."""

    delay_ms: int
    remaining_ms: int


class Round(Struct, array_like=True):
    """A rebalance in progress: when it began, when all joins had arrived, and the assignments before it."""

    started_ms: int
    joined_ms: int = 0
    before: dict[str, bytes] = field(default_factory=dict)


class Group(AnyGroup, Struct, array_like=True, kw_only=True, dict=True):
    """A group: all data that the coordinator has of it.

    Args:
        since_ms: When the group entered its phase.
        version: How many records and events the group has published.
        joins_parked: The number of members with a parked join.
        syncs_owed: The number of members that owe a sync.
        supporters: By assignor, how many members offer it.
        newcomers: A member joined during the initial delay in progress, so the delay may be extended.
        subscribed_topics: Over all members of this generation; None if they cannot be known.
        allowance: The size of recent large responses about the group.
        published_ms: When its record was last written.
        assigned_bytes: The size of all members' assignments.
        protocols_bytes: The size of all members' subscription metadata.
        offsets_count: How many offsets are committed.
        token: The highest fencing token that the group has given; 0 before the first one.
        pending_commits: The commits of open transactions, by their place.
        policy_state: What the policies of the group have done.
    """

    hot_state: HotState
    group_id: str
    since_ms: int
    version: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    joins_parked: int = 0
    syncs_owed: int = 0
    supporters: dict[str, int] = field(default_factory=dict)
    delay: Delay | None = None
    newcomers: bool = False
    round: Round | None = None
    subscribed_topics: tuple[str, ...] | None = None
    offsets: dict[str, dict[int, Offset]] = field(default_factory=dict)
    allowance: Allowance = Allowance()
    published_ms: int = 0
    assigned_bytes: int = 0
    protocols_bytes: int = 0
    offsets_count: int = 0
    token: int = 0
    pending_commits: dict[int, PendingCommit] = field(default_factory=dict)
    policy_state: PolicyState = field(default_factory=PolicyState)
    identities = cast("dict[str, set[str]] | None", None)  # the members of each; not stored, and made when needed
    vacancy_index = cast("VacancyIndex | None", None)  # of `classic.vacancies`; not stored, and made when it is needed
    is_policy_state_changed = False  # the record has to be written again because of `policy_state`; not stored

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def generation_id(self) -> int:
        return self.hot_state.generation_id

    def move(self, cause: Cause, now_ms: int) -> None:
        """Change to the phase that `cause` leads to."""
        self.hot_state.phase = move(self.phase, cause)
        self.since_ms = now_ms

    # -- members -------------------------------------------------------------------------------------------------------

    def add(self, member: Member, session: Session, protocol_type: str) -> None:
        """Add a member. The first member sets the protocol type and becomes the leader."""
        assert member.member_id not in self.members, f"{member.member_id} is a member already"
        if not self.members:
            self.protocol_type = protocol_type
        self.hot_state.pending.pop(member.member_id, None)
        self.leader_id = self.leader_id or member.member_id
        self._put(member, session)

    def adopt(self, member: Member, session: Session) -> None:
        """Add a member that had an assignment in a group of the consumer protocol. The first member is the leader."""
        self.leader_id = self.leader_id or member.member_id
        self.assigned_bytes += len(member.assignment)
        self._put(member, session)

    def remove(self, member: Member) -> None:
        """Remove a member. If it was the leader, the first of the remaining members becomes the leader.

        A member in quarantine becomes the leader only if no other member is left.
        """
        self._remove(member)
        self.settle_sync(member)
        self.policy_state.remove_member(member.member_id)
        self.hot_state.called.pop(member.member_id, None)
        if self.leader_id == member.member_id:
            first = next(iter(self.members), None)
            self.leader_id = next((m for m in self.members if m not in self.policy_state.quarantined), first)

    def replace(self, old: Member, new: Member, session: Session) -> None:
        """Replace a static member by its new member id, which keeps the assignment, the leadership and an owed sync."""
        self._remove(old)
        self._put(new, session)
        new.owes_sync, old.owes_sync = old.owes_sync, False
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if self.round and old.member_id in self.round.before:
            self.round.before[new.member_id] = self.round.before.pop(old.member_id)
        self.policy_state.replace_member(old.member_id, new.member_id)
        if old.member_id in self.hot_state.called:
            self.hot_state.called[new.member_id] = self.hot_state.called.pop(old.member_id)

    def _put(self, member: Member, session: Session) -> None:
        self.members[member.member_id] = member
        self.hot_state.sessions[member.member_id] = session
        self.hot_state.track_deadline(session.deadline_ms)
        if member.group_instance_id is not None:
            self.hot_state.instances[member.group_instance_id] = member.member_id
        if self.identities is not None:
            self.identities.setdefault(member.identity, set()).add(member.member_id)
        self._count_protocols(member, +1)

    def _remove(self, member: Member) -> None:
        del self.members[member.member_id]
        del self.hot_state.sessions[member.member_id]
        if member.group_instance_id is not None:
            del self.hot_state.instances[member.group_instance_id]
        if self.identities is not None:
            self.identities[member.identity].discard(member.member_id)
        self._count_protocols(member, -1)
        self.joins_parked -= member.awaiting_join is not None

    def offer(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Replace the protocols that a member offers."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, +1)

    def _count_protocols(self, member: Member, step: int) -> None:
        for name in {p.name: None for p in member.protocols}:
            self.supporters[name] = self.supporters.get(name, 0) + step
            if not self.supporters[name]:
                del self.supporters[name]
        self.protocols_bytes += step * member.protocols_bytes

    def settle_sync(self, member: Member) -> None:
        """Note that a member owes no sync. If no member owes one, remove the deadline of the syncs."""
        self.syncs_owed -= member.owes_sync
        member.owes_sync = False
        if not self.syncs_owed:
            self.hot_state.syncs_ms = NEVER_MS

    def open_round(self, now_ms: int) -> None:
        """Store the present assignments, unless a rebalance is in progress and has stored them already."""
        if self.round is None:
            owned = {m.member_id: m.assignment for m in self.members.values()}
            self.round = Round(started_ms=now_ms, before=owned)

    # -- seats ---------------------------------------------------------------------------------------------------------

    @property
    def visible(self) -> Iterator[Member]:
        """The members that are not in quarantine."""
        return (m for m in self.members.values() if m.member_id not in self.policy_state.quarantined)

    def end_hold(self) -> None:
        """Remove all pending holds and offers, because a rebalance clears them. Quarantines stay."""
        self.policy_state.end_hold()
        self.hot_state.called = {}
        self.hot_state.policy_ms = self.hot_state.track_deadline(self.policy_state.earliest_ms)
        self.vacancy_index = None

    # -- values derived from the members -------------------------------------------------------------------------------

    @property
    def everybody_joined(self) -> bool:
        """True if every member's join is parked, and no member id is pending. Members in quarantine are not awaited."""
        absent = sum(self.members[member_id].awaiting_join is None for member_id in self.policy_state.quarantined)
        return self.joins_parked + absent == len(self.members) and not self.hot_state.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members; not below 0, whatever the members request."""
        return max((m.rebalance_timeout_ms for m in self.members.values() if m.rebalance_timeout_ms > 0), default=0)

    @property
    def record_bytes(self) -> int:
        """The approximate size of the group's record, in bytes; never far below the real size."""
        worked = self.protocols_bytes if self.protocol_type == CONNECT else 0
        return MEMBER_RECORD_BYTES * len(self.members) + ASSIGNED_RECORD_FACTOR * self.assigned_bytes + worked

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Return whether a member with these protocols can be in the group.

        An Empty group takes any type. The requesting member's own old offer counts, as it does in Kafka.

        Source: Kafka's ClassicGroup.supportsProtocols.
        """
        if self.phase is Phase.EMPTY:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and any(
            self.supporters.get(p.name, 0) == len(self.members) for p in protocols
        )

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMERS

    @property
    def is_readable(self) -> bool:
        """True if the coordinator can read the bytes of subscriptions and assignments."""
        return self.protocol_type in READABLE

    def retained_since_ms(self, topic: str, offset: Offset) -> int | None:
        """Return the time from which the retention time of an offset counts; None if the offset is kept.

        In an Empty group that never had a member, it counts from the commit. In any other Empty group, it counts from
        the time at which the group became Empty. In a Stable group of consumers, it counts from the commit for topics
        that no member subscribes to.
        """
        if self.phase is Phase.EMPTY:
            return self.since_ms if self.protocol_type else offset.commit_timestamp_ms
        is_unread = self.phase is Phase.STABLE and self.is_of_consumers and not self.subscribes(topic)
        return offset.commit_timestamp_ms if is_unread else None

    def end(self, now_ms: int) -> None:
        """Change to Dead: the shard removes the group."""
        self.move(Cause.FORGOTTEN, now_ms)

    def subscribes(self, topic: str) -> bool:
        """Return whether the members may be reading a topic. Unreadable subscriptions of consumers may name any."""
        if self.subscribed_topics is None:
            return self.is_of_consumers
        return topic in self.subscribed_topics or topic in self.policy_state.topics

    @property
    def all_topics(self) -> tuple[str, ...] | None:
        """The topics of all members, those of standbys included; None if they cannot be known."""
        if self.subscribed_topics is None or not self.policy_state.topics:
            return self.subscribed_topics
        return tuple(sorted((*self.subscribed_topics, *self.policy_state.topics)))

    def subscribe_too(self, topics: list[str] | None) -> None:
        """Add the topics of a newcomer that is seated in the running generation; None if they cannot be known."""
        known = self.subscribed_topics
        if topics is None or known is None:
            self.subscribed_topics = None
            return
        for topic in topics:
            place = bisect_left(known, topic)
            if place == len(known) or known[place] != topic:
                self.policy_state.topics[topic] = None
