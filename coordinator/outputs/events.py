"""Records of the events topic: what has happened to a group or to a shard, and why."""

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    """What every event says. `version` counts all that the group publishes, without a gap; null where no group is."""

    group_id: str | None
    version: int | None
    at_ms: int
    generation_id: int | None


class RebalanceStarted(Event, frozen=True, kw_only=True, tag="rebalance_started"):
    """Joins are being collected, because of `cause`: which member, on which host, and its own reason."""

    cause: str
    member_id: str
    client_id: str
    client_host: str
    reason: str | None
    members: int
    joins_until_ms: int


class RebalanceCompleted(Event, frozen=True, kw_only=True, tag="rebalance_completed"):
    """All members of `generation_id` have a plan. Durations count from the first `rebalance_started`.

    `fencing_token` is given to all of them; 0 from older coordinators.
    """

    duration_ms: int
    joins_ms: int
    syncs_ms: int
    protocol_name: str | None
    leader: str | None
    members_before: tuple[str, ...]
    members_after: tuple[str, ...]
    joined: tuple[str, ...]
    gone: tuple[str, ...]
    fencing_token: int = 0


class Handover(Struct, frozen=True):
    """One partition's old and new owner; null where there was or is none."""

    topic: str
    partition: int
    before: str | None
    after: str | None


class AssignmentChanged(Event, frozen=True, kw_only=True, tag="assignment_changed"):
    """Partition by partition, from whom to whom; partitions that stayed are left out."""

    handovers: tuple[Handover, ...]


class MemberEvent(Event, frozen=True, kw_only=True):
    """Something that happened to one member."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class MemberJoined(MemberEvent, frozen=True, kw_only=True, tag="member_joined"):
    """A newcomer is a member, from its first join on."""

    reason: str | None


class MemberLeft(MemberEvent, frozen=True, kw_only=True, tag="member_left"):
    """A member left by itself, or somebody asked it out by its instance id; with the reason given."""

    reason: str | None


class MemberExpired(MemberEvent, frozen=True, kw_only=True, tag="member_expired"):
    """A member was dropped: `why` is session_expired, joins_overdue, syncs_overdue, group_full or expelled.

    `silence_ms` is how long its session had run without a sign of life; null where another reason, or an absence of the
    coordinator's own, leaves that unsaid. `reason` is what an operator said who expelled it.
    """

    why: str
    silence_ms: int | None
    reason: str | None


class MemberFenced(MemberEvent, frozen=True, kw_only=True, tag="member_fenced"):
    """Another process has come under a member's instance id: the member goes on as `replaced_by`, the old id is out.

    `fencing_token` is the new process's, above the old one's; 0 from older coordinators.
    """

    replaced_by: str
    replaced_by_client_id: str
    replaced_by_client_host: str
    fencing_token: int = 0


class CommitRejected(Event, frozen=True, kw_only=True, tag="commit_rejected"):
    """A commit was refused as a whole; the offsets are as they were."""

    member_id: str
    client_id: str
    client_host: str
    claimed_generation_id: int
    error: str
    partitions: int


class OffsetsExpired(Event, frozen=True, kw_only=True, tag="offsets_expired"):
    """Offsets were kept as long as promised, and are forgotten."""

    partitions: tuple[tuple[str, int], ...]


class OffsetsDeleted(Event, frozen=True, kw_only=True, tag="offsets_deleted"):
    """Offsets were forgotten because somebody asked for it."""

    partitions: tuple[tuple[str, int], ...]


class GroupEmptied(Event, frozen=True, kw_only=True, tag="group_emptied"):
    """The last member is gone."""


class GroupDeleted(Event, frozen=True, kw_only=True, tag="group_deleted"):
    """The group is forgotten, and its records with it."""

    why: str


class Rejected(Event, frozen=True, kw_only=True, tag="rejected"):
    """A record that is no request and did not say who asks."""

    partition: int
    offset: int
    why: str


class LogBroken(Event, frozen=True, kw_only=True, tag="log_broken"):
    """A shard's requests do not go on where they ended before: the engine's plan of a batch was damaged, most likely.

    Where `found` is above `expected`, what lies between was never handled, unless a producer's transactions left marks
    there. Where it is below, requests came again that had been handled, and nothing was done.

    Args:
        breaks: How many breaks this event tells of. Above 1 it sums up those of a batch that has too many to tell each:
            from where the first was expected to where the last was found, with what was handled between them.
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
    """Somebody asked what it may not ask, and nothing was done. No group has done or lived through anything.

    `why` says what is wrong with the record's signature; `principal` is then who it only claims to be.
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
    """A shard goes by other rules from now on."""

    principal: str
    client_id: str
    client_host: str
    partition: int
    made_ms: int
    rules: int


class Oversized(Event, frozen=True, kw_only=True, tag="oversized"):
    """Stands for an event or a group record, under its version, that is larger than a record may be."""

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
    | OffsetsDeleted
    | GroupEmptied
    | GroupDeleted
    | Rejected
    | LogBroken
    | ClockAhead
    | AccessDenied
    | AccessChanged
    | Oversized
)
