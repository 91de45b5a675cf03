"""Records of the events topic: changes of a group or of a shard, with their reasons."""

from msgspec import UNSET, Struct, UnsetType

from coordinator.messages.fields import Event, MemberEvent
from coordinator.messages.move_events import (
    GroupArrived,
    GroupMoved,
    GroupReleased,
    GroupTakenBack,
    MoveIgnored,
    SlotsAdopted,
    SlotsIgnored,
    SlotsReleased,
)
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
    PolicySet,
    QuarantineEnded,
    RebalanceHeld,
    SeatTaken,
    SeatVacated,
)


class RebalanceStarted(Event, frozen=True, kw_only=True, tag="rebalance_started"):
    """A rebalance has begun because of `cause`: the member, its host, and its own reason.

    In a classic group the joins of all members are awaited, until `joins_until_ms`. In a group of the consumer protocol
    the group epoch was raised, and `joins_until_ms` is the time of the event.

    `held_ms` is how long a policy has held the rebalance, from its first cause on; it is left out if none has.

    Only a rebalance of a group that Kafka's coordinator keeps has the fields after it, as far as its log tells.

    Args:
        how_known: `recorded`: Kafka has written the start of the rebalance. `inferred`: the start and the cause follow
            from the difference of two generations; `at_ms` is then the end of the joins, the latest possible start,
            and `joins_until_ms` is null.
        not_before_ms: The earliest possible start of an inferred rebalance; null if it is not known.
        unplanned_rounds: The number of generations before this one that ended without an assignment.
        topics_added, topics_removed: The topics that a changed subscription has more and less, and those that a pattern
            matches now and no more.
        pattern: The pattern of a changed subscription, or the one that matches other topics.
        assignor_before, assignor_after: The server assignor that the member preferred and prefers; null for none.
        assignors: By server assignor, the members that prefer it, `ASSIGNOR_MEMBERS_MAX` at most.
        timeout_ms: The rebalance timeout for which the member was dropped.
        changed: What has changed of a member of a streams group, such as `rack_id` and `process_id`.
        configs: The settings of a streams group that have changed, each as it was and as it is; null for none.
    """

    cause: str
    member_id: str
    client_id: str
    client_host: str
    reason: str | None
    members: int
    joins_until_ms: int | None
    held_ms: int | UnsetType = UNSET
    how_known: str | UnsetType = UNSET
    not_before_ms: int | UnsetType | None = UNSET
    unplanned_rounds: int | UnsetType = UNSET
    topics_added: tuple[str, ...] | UnsetType = UNSET
    topics_removed: tuple[str, ...] | UnsetType = UNSET
    pattern: str | UnsetType = UNSET
    assignor_before: str | UnsetType | None = UNSET
    assignor_after: str | UnsetType | None = UNSET
    assignors: dict[str, tuple[str, ...]] | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    changed: tuple[str, ...] | UnsetType = UNSET
    configs: dict[str, tuple[str | None, str | None]] | UnsetType = UNSET


class Estimate(Struct, frozen=True, rename={"since": "from"}):
    """A figure that is not recorded, and what it is reckoned from: `since`, or `from` in JSON.

    Args:
        what: The name of the figure.
        value: In milliseconds.
    """

    what: str
    value: int
    since: str


class RebalanceCompleted(Event, frozen=True, kw_only=True, tag="rebalance_completed"):
    """The group is Stable. Durations count from the first `rebalance_started`.

    In a classic group, all members of `generation_id` have an assignment: `joins_ms` is the time of the join phase, and
    `syncs_ms` the time until the leader's assignments. In a group of the consumer protocol, all members have reached
    the group epoch `generation_id`: `joins_ms` is the time until the latest target assignment, `syncs_ms` the time
    after it, `protocol_name` is the assignor, and there is no leader.

    `fencing_token` is the highest token of the group, and in a classic group that of all members; 0 in a group that
    Kafka's coordinator keeps.

    In a group that Kafka's coordinator keeps, `duration_ms` and `joins_ms` are null where the start is only inferred,
    and `syncs_ms` where the time of the assignments is not recorded. There, `estimate` has the duration since the last
    commit of the generation before, if its members committed often.
    """

    duration_ms: int | None
    joins_ms: int | None
    syncs_ms: int | None
    protocol_name: str | None
    leader: str | None
    members_before: tuple[str, ...]
    members_after: tuple[str, ...]
    joined: tuple[str, ...]
    gone: tuple[str, ...]
    fencing_token: int = 0
    estimate: Estimate | UnsetType = UNSET


class Handover(Struct, frozen=True):
    """One partition's old and new owner; null for no owner."""

    topic: str
    partition: int
    before: str | None
    after: str | None


class AssignmentChanged(Event, frozen=True, kw_only=True, tag="assignment_changed"):
    """The old and the new owner of each partition that changed its owner."""

    handovers: tuple[Handover, ...]


class MemberJoined(MemberEvent, frozen=True, kw_only=True, tag="member_joined"):
    """A new client is a member, from its first join on."""

    reason: str | None


class MemberLeft(MemberEvent, frozen=True, kw_only=True, tag="member_left"):
    """A member left by itself, or an administrator removed it by its instance id; with the reason given."""

    reason: str | None


class MemberExpired(MemberEvent, frozen=True, kw_only=True, tag="member_expired"):
    """A member was dropped.

    `why` is session_expired, joins_overdue, syncs_overdue, group_full or expelled; or revocation_overdue, for a member
    of the consumer protocol that did not give partitions up within its rebalance timeout.

    `silence_ms` is how long its session had run without a request; null if the member was dropped for another reason,
    or if the coordinator was unavailable meanwhile. `reason` is the reason of the operator that expelled it.
    """

    why: str
    silence_ms: int | None
    reason: str | None


class MemberFenced(MemberEvent, frozen=True, kw_only=True, tag="member_fenced"):
    """Another process has joined with a member's instance id: `replaced_by` replaces the old member id.

    `fencing_token` is the new process's, above the old one's; 0 in a group that Kafka's coordinator keeps.
    """

    replaced_by: str
    replaced_by_client_id: str
    replaced_by_client_host: str
    fencing_token: int = 0


class CommitRejected(Event, frozen=True, kw_only=True, tag="commit_rejected"):
    """A whole commit was refused; the offsets are unchanged."""

    member_id: str
    client_id: str
    client_host: str
    claimed_generation_id: int
    error: str
    partitions: int


class OffsetsExpired(Event, frozen=True, kw_only=True, tag="offsets_expired"):
    """Offsets were kept for their retention time, and are deleted."""

    partitions: tuple[tuple[str, int], ...]


class OffsetsDeleted(Event, frozen=True, kw_only=True, tag="offsets_deleted"):
    """Offsets were deleted at a client's request."""

    partitions: tuple[tuple[str, int], ...]


class OffsetsDropped(Event, frozen=True, kw_only=True, tag="offsets_dropped"):
    """Offsets were deleted because their topic was. It is the same topic in all pairs of `partitions`.

    Args:
        topic_id: The id of the deleted topic; null if the offsets had none.
        current_id: The id of the topic that has the name now; null if no topic has it.
    """

    topic_id: str | None
    current_id: str | None
    partitions: tuple[tuple[str, int], ...]


class GroupEmptied(Event, frozen=True, kw_only=True, tag="group_emptied"):
    """The last member is gone."""


class GroupDeleted(Event, frozen=True, kw_only=True, tag="group_deleted"):
    """The group is deleted, and its records with it."""

    why: str


class PlanMade(Event, frozen=True, kw_only=True, tag="plan_made"):
    """A server assignor has computed the target assignment of `generation_id`, the group epoch.

    `moved` counts the partitions that were not in the earlier target of their member. `waited_ms` is the time since the
    group epoch was first raised in this rebalance.
    """

    assignor: str
    members: int
    partitions: int
    moved: int
    waited_ms: int


class GroupConverted(Event, frozen=True, kw_only=True, tag="group_converted"):
    """The group has changed to the protocol `group_type`, with `members` members. Its offsets stay."""

    group_type: str
    members: int
    generation_before: int


class MemberAway(MemberEvent, frozen=True, kw_only=True, tag="member_away"):
    """A static member of the consumer protocol went away for a while. Its partitions stay until `until_ms`.

    `until_ms` is null in a group that Kafka's coordinator keeps: its log does not name the session timeout.
    """

    until_ms: int | None


class MemberBack(MemberEvent, frozen=True, kw_only=True, tag="member_back"):
    """A static member of the consumer protocol is back, as the process `member_id`, and has its partitions again."""

    replaces: str


class EpochFenced(MemberEvent, frozen=True, kw_only=True, tag="epoch_fenced"):
    """A heartbeat was refused: its epoch is not the member's, or its instance id is another member's."""

    error: str
    claimed_epoch: int
    member_epoch: int


class Rejected(Event, frozen=True, kw_only=True, tag="rejected"):
    """A record that is not a valid request and names no mailbox for a response."""

    partition: int
    offset: int
    why: str


class LogBroken(Event, frozen=True, kw_only=True, tag="log_broken"):
    """A shard's requests do not continue where they ended: most likely the engine's plan of a batch was damaged.

    If `found` is above `expected`, the requests between were never handled, unless a producer's transactions left
    markers there. If it is below, requests came again that had been handled, and they were skipped.

    Args:
        breaks: How many breaks this event reports. Above 1 it sums up the breaks of a batch that has too many to report
            each: from where the first was expected to where the last was found, with the requests that were handled
            between them.
    """

    partition: int
    expected: int
    found: int
    breaks: int = 1


class ClockAhead(Event, frozen=True, kw_only=True, tag="clock_ahead"):
    """Records of a shard are dated later than its batch, by more than clocks may differ: a broker's clock is wrong.

    They were handled as of `at_ms`. `offset` is the first one's, `records` counts them, and `ahead_ms` is how far
    beyond `at_ms` the latest one is dated.
    """

    partition: int
    offset: int
    records: int
    ahead_ms: int


class AccessDenied(Event, frozen=True, kw_only=True, tag="access_denied"):
    """A client sent a request that it is not allowed to send, and nothing changed. The event belongs to no group.

    If the record's signature is wrong, `why` is the reason, and `principal` is only what the record claims.
    """

    principal: str
    client_id: str
    client_host: str
    request: str
    operation: str
    resource: str
    names: tuple[str, ...]
    why: str | None


class AccessChanged(Event, frozen=True, kw_only=True, tag="access_changed"):
    """A shard uses other access rules from now on."""

    principal: str
    client_id: str
    client_host: str
    partition: int
    made_ms: int
    rules: int


class Oversized(Event, frozen=True, kw_only=True, tag="oversized"):
    """Replaces an event or a group record that is larger than a record may be, under its version."""

    what: str
    bytes: int


AnyEvent = (
    RebalanceStarted
    | RebalanceCompleted
    | AssignmentChanged
    | MemberJoined
    | MemberLeft
    | MemberExpired
    | MemberFenced
    | CommitRejected
    | OffsetsExpired
    | OffsetsDropped
    | OffsetsDeleted
    | GroupEmptied
    | GroupDeleted
    | PlanMade
    | GroupConverted
    | MemberAway
    | MemberBack
    | EpochFenced
    | Rejected
    | LogBroken
    | ClockAhead
    | AccessDenied
    | AccessChanged
    | RebalanceHeld
    | SeatVacated
    | SeatTaken
    | MemberQuarantined
    | QuarantineEnded
    | FreezeBegun
    | FreezeBroken
    | PolicySet
    | ObservationBegan
    | HistoryGap
    | MemberGone
    | OffsetsForgotten
    | OffsetsSet
    | TopicNamed
    | TopicsNamed
    | Oversized
    | GroupReleased
    | GroupMoved
    | GroupTakenBack
    | GroupArrived
    | MoveIgnored
    | SlotsReleased
    | SlotsAdopted
    | SlotsIgnored
)
