"""The rows of the answers: what `-o json`, `GET /api/...` and the dashboard show of a group.

Times are Unix milliseconds. Lags are numbers of records. An unknown value is null.
"""

from msgspec import Struct

from coordinator.base.connect_protocol import Work
from coordinator.base.states import GroupType, Phase
from coordinator.messages.events import AnyEvent, Estimate, RebalanceStarted
from coordinator.messages.group_records import Topology
from coordinator.messages.responses import PolicyName
from streaming.views.api.fold import Alarm
from streaming.views.history.instability import UnstableClient
from streaming.views.history.owners import Span
from streaming.views.history.vacancies import HeldPeriod, HoldRow, Seat
from streaming.views.history.waits import WaitedFor
from streaming.views.sentences.why import Why
from streaming.views.state.streams_tasks import StreamsTasks


class GroupSummary(Struct, kw_only=True):
    """One line of the list of groups.

    Args:
        type: The protocol of its members: `classic` or `consumer`; `streams` or `share` only if Kafka's own coordinator
            keeps the group. `protocol_type` is that of the classic protocol.
        generation_id: The generation of a classic group, or the group epoch.
        assignment_epoch: The group epoch for which the targets were made; null for a classic group.
        protocol_name: The assignor: the one that the members chose, or the server assignor of the latest plan.
        total_lag: The sum of the partitions' lags, where a negative one counts as 0.
        partitions_beyond_end: The number of partitions whose committed offset is beyond the end of the log.
        rebalances_1h: The rebalances that began within the last hour.
        kept_by: `kafka` if Kafka's own coordinator keeps the group; null if this one does.
    """

    group_id: str
    type: GroupType
    state: Phase
    since_ms: int | None
    generation_id: int
    assignment_epoch: int | None
    protocol_type: str
    protocol_name: str
    members: int
    topics: int
    partitions: int
    total_lag: int | None
    total_gone_unread: int | None
    partitions_beyond_end: int | None
    rebalances_1h: int
    last_rebalance_ms: int | None
    last_cause: str | None
    kept_by: str | None


class MemberRow(Struct, kw_only=True):
    """A member of a group. All fields from `protocol` on are null in a classic group, except `protocol`.

    Args:
        partitions: How many partitions it owns, the ones that it has to give up included.
        assigned: The assigned partitions by topic; null if the assignment is not in Kafka's own format.
        fencing_token: The token that the member shows for its assignment; null without one.
        protocol: `classic` or `consumer`.
        member_epoch: The epoch that the member has reached; -2 for a static member that is away.
        state: `stable`; `unrevoked`: it has to give up `revoking`; `unreleased`: it waits for the rest of `target`;
            `away`: a static member that went away for a while.
        regex: The pattern that the member subscribes to; "" for none.
        revoking: The partitions that it has to give up, by topic.
        target: Its part of the latest plan, by topic.
        standing: What a policy has made of it: `standing_by`, `called` or `quarantined`; null without one.
        work: The connectors and tasks of a worker of Kafka Connect; null for other members.
        streams: The tasks of an instance of Kafka Streams; null for other members. In a streams group, `assigned` has
            the partitions that the active tasks read.
        process_id: The process of a member of a streams group; null in any other group.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int | None
    rebalance_timeout_ms: int | None
    is_leader: bool
    partitions: int
    assigned: dict[str, list[int]] | None
    fencing_token: int | None
    protocol: str | None
    member_epoch: int | None
    state: str | None
    rack_id: str | None
    subscribed_topics: list[str] | None
    regex: str | None
    revoking: dict[str, list[int]] | None
    target: dict[str, list[int]] | None
    standing: str | None
    work: Work | None
    streams: StreamsTasks | None
    process_id: str | None = None


class OffsetRow(Struct, kw_only=True):
    """A partition that has an owner or a committed offset, or that a plan has given to a member.

    Args:
        committed_offset: The committed offset; in a share group, the first offset that is not acknowledged.
        lag: How many records of the log are not committed; negative if the committed offset is beyond the log's end. In
            a share group, how many are not acknowledged.
        gone_unread: How many records below the log's start were not committed: retention has deleted them unread.
        next_member_id: The member to which the latest plan gives the partition, if it is not the owner; null without
            one, and in a classic group.
    """

    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    gone_unread: int | None
    leader_epoch: int | None
    metadata: str | None
    commit_timestamp_ms: int | None
    expire_timestamp_ms: int | None
    committed_by: str | None
    commit_generation_id: int | None
    member_id: str | None
    client_id: str | None
    client_host: str | None
    group_instance_id: str | None
    next_member_id: str | None


class RebalanceRow(Struct, kw_only=True):
    """One rebalance. `started` has every reason that came up before the assignments were computed.

    Args:
        generations: The generations of its rounds; several if the assignor is cooperative and members gave up
            partitions in the first one. `generation_id` is the last one.
        started_ms: Its start; the latest time at which it can have begun, if it is inferred.
        ended_ms, duration_ms: null while it runs. The duration is null as well if it is inferred.
        held_ms: How long a policy has held it; null if none has.
        how_known: `inferred` if Kafka does not record its start and its cause, `recorded` if it does; null in a group
            of this coordinator.
        not_before_ms: The earliest time at which an inferred rebalance can have begun; null if it is not known.
        unplanned_rounds: The number of generations before it that ended without an assignment.
        estimate: About how long an inferred one took; null if nothing tells.
    """

    generation_id: int
    generations: list[int]
    started_ms: int
    ended_ms: int | None
    duration_ms: int | None
    held_ms: int | None
    cause: str
    why: Why
    started: list[RebalanceStarted]
    joined: list[str]
    gone: list[str]
    members: int | None
    moved: int
    how_known: str | None
    not_before_ms: int | None
    unplanned_rounds: int
    estimate: Estimate | None


class EventRow(Struct, kw_only=True):
    """An event, and its description in words."""

    at_ms: int
    version: int
    event: str
    text: str
    record: AnyEvent


class Lane(Struct, kw_only=True):
    """A partition, and its owners over time."""

    topic: str
    partition: int
    spans: list[Span]


class Timeline(Struct, kw_only=True):
    """A group's history from `known_from_ms` on. Earlier history is unknown, or is omitted because of its size.

    Args:
        seats: The seats that were vacant.
        holds: The times in which a policy held a rebalance.
        kept_by: As in `GroupSummary`.
        client_ids: By member id, the client ids of the members whose ids have no client id in them.
    """

    group_id: str
    kept_by: str | None
    client_ids: dict[str, str]
    known_from_ms: int
    rebalances: list[RebalanceRow]
    seats: list[Seat]
    holds: list[HeldPeriod]
    lanes: list[Lane]
    events: list[EventRow]


class Move(Struct):
    """A possible phase change of a group: a row of the coordinator's table `MOVES`."""

    when: str
    becomes: Phase


class GroupDetail(Struct, kw_only=True):
    """All data of a group.

    Args:
        joins_until_ms: The end of the running join phase; null outside a join phase.
        awaited: The members that a rebalance may wait for: during the join phase, the members from before it; then the
            leader, whose assignments are due. Only the coordinator knows which of these members have rejoined already.
            In a group of the consumer protocol, the members of `waits`.
        waits: The members that a group of the consumer protocol waits for: the owners of partitions that the latest
            plan gives to others, and static members that are away.
        moves: The phase changes that are possible from the current phase; none for a group of the consumer protocol.
        hold: The effect of policies now; null if they have none.
        policy: The name of the policy entry in force. No topic contains it, so only `groups describe` has it.
        topology: The subtopologies of a streams group, and its settings; null for any other group.
        missing_topics: The topics of the topology that do not exist; null if it is not known. Only `groups describe`
            looks for them, while the group is NotReady.
        initializing: The partitions of a share group whose share state is not there yet; null for any other group.
    """

    summary: GroupSummary
    joins_until_ms: int | None
    awaited: list[str]
    waits: list[WaitedFor]
    moves: list[Move]
    leader: str | None
    subscribed_topics: list[str] | None
    members: list[MemberRow]
    offsets: list[OffsetRow]
    why: Why | None
    flapping: list[UnstableClient]
    hold: HoldRow | None
    policy: PolicyName | None = None
    topology: Topology | None = None
    missing_topics: list[str] | None = None
    initializing: dict[str, list[int]] | None = None


class Owner(Struct, kw_only=True):
    """The owner of a partition at a moment. `owner` is null if the partition had no owner or if the owner is unknown.

    Args:
        is_known: Whether the history reaches back to that moment and the moment is not in the future.
        known_from_ms: The time from which the owner is known.
        fencing_token: The owner's token at that moment; null if the owner or the token is unknown.
        before, after: The previous and the next owner, if the partition had no owner or the owner is unknown.
        seat: The vacant seat that had the partition at that moment; null if it had an owner, or belonged to no seat.
        members: The members of a share group that have the partition now. There, a partition has no owner.
    """

    group_id: str
    topic: str
    partition: int
    at_ms: int
    is_known: bool
    known_from_ms: int
    owner: Span | None
    fencing_token: int | None
    before: Span | None
    after: Span | None
    seat: Seat | None
    members: list[str] = []


class Overview(Struct, kw_only=True):
    """All groups at a time, and the alarms."""

    at_ms: int
    groups: list[GroupSummary]
    alarms: list[Alarm]


class Sources(Struct, kw_only=True):
    """The prefixes of other coordinators whose groups the page shows beside its own."""

    others: list[str]


class Error(Struct):
    """The answer to a request that failed: a sentence."""

    error: str
