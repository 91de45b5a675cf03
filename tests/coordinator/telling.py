"""Outputs of a shard as text, one line for each output, so that a person can check them against the tables.

    -> c1 join NONE ...             a response, with its client and its request
    => group Stable ...             a record of the compacted topic
    !! 3000 rebalance_started ...   an event, at its time

Members have the names of the scenario. Request ids and versions are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import UNSET

from coordinator.base.consumer_protocol import assigned_partitions, subscribed_topics
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.classic.deadlines import Kind, deadlines
from coordinator.messages.events import (
    AssignmentChanged,
    ClockAhead,
    CommitRejected,
    GroupDeleted,
    GroupEmptied,
    LogBroken,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    OffsetsDeleted,
    OffsetsDropped,
    OffsetsExpired,
    RebalanceCompleted,
    RebalanceStarted,
    Rejected,
)
from coordinator.messages.group_records import GroupRecord, Hold, OffsetRecord, Published
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
from coordinator.messages.requests import SetPolicies
from coordinator.messages.responses import (
    DeleteGroupAnswer,
    DescribedHold,
    DescribeGroupAnswer,
    ErrorAnswer,
    ExpelMemberAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    OffsetTopicsAnswer,
    RebalanceGroupAnswer,
    RebalanceNotice,
    Reply,
    RepublishGroupAnswer,
    SetPoliciesAnswer,
    SyncGroupAnswer,
)
from coordinator.state.classic_group import Group
from tests.coordinator.scenario import Scenario

TOPIC = "t"
"""The topic whose partitions are written as numbers alone."""


def partitions(assigned: Mapping[str, list[int]]) -> str:
    """Return `0,1` for partitions of the usual topic, `u-0` for others, `none` for no partition."""
    told = [str(p) if topic == TOPIC else f"{topic}-{p}" for topic, ps in assigned.items() for p in ps]
    return ",".join(told) or "none"


def assigned(assignment: bytes) -> str:
    """Return a member's assignment as text: its partitions, or its bytes if they cannot be decoded."""
    decoded = assigned_partitions(assignment)
    if not assignment:
        return "nothing"
    return "hex:" + assignment.hex() if decoded is None else partitions(decoded)


def place(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


class Teller:
    """Outputs as text, with the names of a scenario's members and the requests of the responses."""

    def __init__(self, scenario: Scenario) -> None:
        self.s = scenario
        self.tells_tokens = False

    def tell(self, output: Any) -> Iterator[str]:
        """Yield the lines for one output."""
        if isinstance(output, Reply):
            yield from self._reply(output.answer)
        elif isinstance(output, Published):
            yield "=> " + self._of(output.group_id) + self._published(output)
        else:
            words = EVENTS[type(output)](self, output)
            name = output.__struct_config__.tag
            yield " ".join(f"!! {output.at_ms} {self._of(output.group_id)}{name} {words}".split())

    def state(self, group: Group) -> str:
        """Return a group's phase, generation, leader, deadlines and parked requests as text."""
        hot_state = group.hot_state
        told = [f"{self._of(group.group_id)}{group.phase.value}, generation {group.generation_id}"]
        if group.leader_id:
            told[0] += f", leader {self.s.name(group.leader_id)}"
        if hot_state.joins_ms < NEVER_MS:
            told.append(f"joins by {hot_state.joins_ms}")
        if hot_state.syncs_ms < NEVER_MS:
            told.append(f"syncs by {hot_state.syncs_ms}")
        parked = [m.member_id for m in group.members.values() if m.awaiting_join or m.awaiting_sync]
        for word, ids in (("parked", parked), ("pending", list(hot_state.pending))):
            if ids:
                told.append(f"{word} {self._names(ids)}")
        return "; ".join(told)

    def sessions(self, group: Group) -> str:
        """Return the session deadlines of all members and pending ids as text."""
        armed = [d for d in deadlines(group) if d.kind in (Kind.SESSION, Kind.PENDING)]
        return "sessions " + " ".join(
            f"{self.s.name(d.member_id)}={d.at_ms if d.at_ms < NEVER_MS else 'never'}" for d in armed
        )

    def _of(self, group_id: str | None) -> str:
        return "" if group_id in (None, "g") else f"[{group_id}] "

    def _token(self, token: int) -> str:
        return f" token={token}" if self.tells_tokens else ""

    def _names(self, ids: Any) -> str:
        return " ".join(map(self.s.name, ids))

    # -- responses -----------------------------------------------------------------------------------------------------

    def _reply(self, answer: Any) -> Iterator[str]:
        if isinstance(answer, RebalanceNotice):
            yield f"-> {self.s.name(answer.member_id)} notice of a rebalance, generation {answer.generation_id}"
            return
        name, request = self.s.asked[answer.request_id]
        verb = VERBS[type(answer)]
        is_latest = request.request_id == self.s.last_request(name, type(request)).request_id
        words = REPLIES[type(answer)](self, answer)
        group = self._of(None if isinstance(request, SetPolicies) else getattr(request, "group_id", None))
        told = [f"-> {group}{name}", verb, "" if is_latest else "(an earlier one)", answer.error, words]
        if answer.error_message:
            told.append(f"({answer.error_message})")
        yield " ".join(" ".join(told).split())
        if isinstance(answer, DescribeGroupAnswer):
            yield from self._described(answer)

    def _joined(self, a: JoinGroupAnswer) -> str:
        assert ErrorCode[a.error].number == a.code
        member = f"member={self.s.name(a.member_id)}" if a.member_id else ""
        if a.code:
            return member
        protocol = f"{a.protocol_type}/{a.protocol_name}"
        told = f"generation={a.generation_id} protocol={protocol} leader={self.s.name(a.leader)}"
        roll = f" members={','.join(self.s.name(m.member_id) for m in a.members)}" if a.members else ""
        return f"{told} {member}{roll}" + (" skip the plan" if a.skip_assignment else "")

    def _synced(self, a: SyncGroupAnswer) -> str:
        told = f"protocol={a.protocol_type}/{a.protocol_name} assignment={assigned(a.assignment)}"
        return "" if a.code else told + self._token(a.fencing_token)

    def _left(self, a: LeaveGroupAnswer) -> str:
        return " ".join(f"{self._entry(m.member_id, m.group_instance_id)}={m.error}" for m in a.members)

    def _entry(self, member_id: str, instance: str | None) -> str:
        return self.s.name(member_id) + ("" if instance is None else f"/{instance}")

    def _listed(self, a: ListGroupsAnswer) -> str:
        return " ".join(f"{g.group_id}:{g.protocol_type or '-'}:{g.state.value}:{g.type}" for g in a.groups)

    def _rebalancing(self, a: RebalanceGroupAnswer) -> str:
        return "" if a.code else f"{a.state.value} generation={a.generation_id}"

    def _expelled(self, a: ExpelMemberAnswer) -> str:
        return "" if a.code else f"member={self.s.name(a.member_id)}"

    def _committed(self, a: OffsetCommitAnswer | OffsetDeleteAnswer) -> str:
        assert all(ErrorCode[p.error].number == p.code for p in a.partitions)
        return " ".join(f"{place(p.topic, p.partition)}={p.error}" for p in a.partitions)

    def _fetched(self, a: OffsetFetchAnswer) -> str:
        return " ".join(
            f"{place(p.topic, p.partition)}={p.offset}" + (f"({p.metadata})" if p.metadata else "")
            for p in a.partitions
        )

    def _group_described(self, a: DescribeGroupAnswer) -> str:
        if a.state is Phase.DEAD:
            return "Dead"
        topics = "unknown" if a.subscribed_topics is None else ",".join(a.subscribed_topics) or "none"
        protocol = f"{a.protocol_type}/{a.protocol_name}"
        leader = self.s.name(a.leader) or "nobody"
        told = f"{a.state.value} since={a.since_ms} generation={a.generation_id} protocol={protocol} leader={leader}"
        awaited = f" awaited={','.join(map(self.s.name, a.awaited))} until={a.deadline_ms}" if a.awaited else ""
        policy = "" if a.policy is UNSET else f" policy={a.policy.name}/{a.policy.pattern.value}"
        return f"{told} topics={topics}{awaited}{policy}"

    def _described(self, a: DescribeGroupAnswer) -> Iterator[str]:
        for m in a.members:
            topics = subscribed_topics(m.metadata)
            subscribed = f" subscribed={','.join(topics)}" if topics else ""
            awaiting = f" awaiting={m.awaiting}" if m.awaiting else ""
            static = f" instance={m.group_instance_id}" if m.group_instance_id is not None else ""
            yield (
                f"   {self.s.name(m.member_id)} {m.client_id} {m.client_host} session={m.session_timeout_ms} "
                f"rebalance={m.rebalance_timeout_ms} assignment={assigned(m.assignment)}{subscribed}{awaiting}{static}"
            )
        if a.hold is not UNSET:
            yield from self._described_hold(a.hold)

    def _described_hold(self, hold: DescribedHold) -> Iterator[str]:
        until = "" if hold.until_ms is None else f" held since {hold.since_ms} until {hold.until_ms}"
        frozen = "" if hold.frozen_until_ms is None else f" frozen until {hold.frozen_until_ms}"
        if until or frozen:
            yield f"  {until}{frozen}"
        for seat in hold.vacant:
            who = self.s.name(seat.member_id) or "nobody"
            offered = f" offered to {self.s.name(seat.offered_to)}" if seat.offered_to else ""
            led = " led" if seat.led else ""
            yield (
                f"   seat of {who} {seat.client_id} {seat.client_host} {seat.policy} {seat.cause} "
                f"{partitions(seat.partitions)} since {seat.since_ms} until {seat.until_ms}{led}{offered}"
            )
        for waiting in hold.standing_by:
            name, since_ms, until_ms = self.s.name(waiting.member_id), waiting.since_ms, waiting.until_ms
            yield f"   {name} stands by {waiting.policy} since {since_ms} until {until_ms}"
        for kept in hold.quarantined:
            name, flaps = self.s.name(kept.member_id), kept.flaps
            yield f"   {name} quarantined {kept.identity} {flaps} flaps time {kept.times} until {kept.until_ms}"

    # -- records and events --------------------------------------------------------------------------------------------

    def _published(self, output: Published) -> str:
        record = output.record
        if output.key[0] == "group":
            if record is None:
                return "group gone"
            assert isinstance(record, GroupRecord)
            protocol = f" protocol={record.protocol_type}/{record.protocol_name}" if record.protocol_name else ""
            leader = f" leader={self.s.name(record.leader)}" if record.leader else ""
            members = "".join(
                f" {self.s.name(m.member_id)}:{assigned(m.assignment)}{self._token(m.fencing_token)}"
                + ("" if m.standing is UNSET else f"({m.standing})")
                for m in record.members
            )
            hold = "" if record.hold is UNSET else f"; {self._hold(record.hold)}"
            return f"group {record.state.value} generation={record.generation_id}{protocol}{leader}{members}{hold}"
        what = f"offset {place(output.key[2], output.key[3])}"
        if record is None:
            return f"{what} gone"
        assert isinstance(record, OffsetRecord)
        who = f"by {self.s.name(record.member_id)} generation={record.generation_id}" if record.member_id else ""
        metadata = f"({record.metadata}) " if record.metadata else ""
        until = "" if record.expire_timestamp_ms is None else f" until {record.expire_timestamp_ms}"
        return f"{what} {record.offset} {metadata}{who or 'from outside'}{until}"

    def _hold(self, hold: Hold) -> str:
        told = [] if hold.since_ms is None else [f"held since {hold.since_ms} until {hold.until_ms}"]
        told += [] if hold.frozen_until_ms is None else [f"frozen until {hold.frozen_until_ms}"]
        counts = ((hold.vacant, "vacant"), (hold.standing_by, "standing by"), (hold.quarantined, "quarantined"))
        return ", ".join([*told, *(f"{count} {word}" for count, word in counts if count)])

    def _started(self, e: RebalanceStarted) -> str:
        reason = f" ({e.reason})" if e.reason else ""
        who = f" {self.s.name(e.member_id)}" if e.member_id else ""
        held = "" if e.held_ms is UNSET else f", held {e.held_ms}"
        return f"{e.cause}{who}{reason}, {e.members} members, joins until {e.joins_until_ms}{held}"

    def _completed(self, e: RebalanceCompleted) -> str:
        joined = f"; joined {self._names(e.joined)}" if e.joined else ""
        gone = f"; gone {self._names(e.gone)}" if e.gone else ""
        times = f"took {e.duration_ms}, joins {e.joins_ms}, syncs {e.syncs_ms}"
        members = f"{self._names(e.members_after)}{joined}{gone}"
        return f"generation {e.generation_id} {times}; {members}{self._token(e.fencing_token)}"

    def _handed_over(self, e: AssignmentChanged) -> str:
        return " ".join(
            f"{place(h.topic, h.partition)}:{self.s.name(h.before) or 'nobody'}>{self.s.name(h.after) or 'nobody'}"
            for h in e.handovers
        )

    def _newcomer(self, e: MemberJoined | MemberLeft) -> str:
        static = f" as {e.group_instance_id}" if e.group_instance_id is not None else ""
        return self.s.name(e.member_id) + static + (f" ({e.reason})" if e.reason else "")

    def _expired(self, e: MemberExpired) -> str:
        silence = "" if e.silence_ms is None else f" after {e.silence_ms} of silence"
        return f"{self.s.name(e.member_id)} {e.why}{silence}" + (f" ({e.reason})" if e.reason else "")

    def _fenced(self, e: MemberFenced) -> str:
        replaced_by = f"replaced by {self.s.name(e.replaced_by)}{self._token(e.fencing_token)}"
        return f"{self.s.name(e.member_id)} as {e.group_instance_id}, {replaced_by}"

    def _refused(self, e: CommitRejected) -> str:
        who = self.s.name(e.member_id) or "outsider"
        return f"{who} {e.error} claimed generation {e.claimed_generation_id}, {e.partitions} partitions"

    def _held(self, e: RebalanceHeld) -> str:
        return f"{self.s.name(e.member_id)} {e.cause}, by {e.policy} until {e.until_ms}"

    def _vacated(self, e: SeatVacated) -> str:
        return f"{self.s.name(e.member_id)} {e.cause}, kept until {e.until_ms}"

    def _taken(self, e: SeatTaken) -> str:
        before = self.s.name(e.before) or "nobody"
        told = f"{self.s.name(e.member_id)} {e.how} it from {before}, unowned {e.unowned_ms}"
        return f"{told}, token {e.fencing_token}"

    def _quarantined(self, e: MemberQuarantined) -> str:
        return f"{self.s.name(e.member_id)} {e.flaps} flaps, time {e.times}, until {e.until_ms}"

    def _broken(self, e: FreezeBroken) -> str:
        if e.how == "adopted":
            return f"{e.why}, seat of {self.s.name(e.member_id) or 'nobody'} adopted"
        return f"{e.why}, rebalanced"

    def _offsets(self, e: OffsetsExpired | OffsetsDeleted | OffsetsDropped) -> str:
        return " ".join(place(topic, partition) for topic, partition in e.partitions)


def _nothing(teller: Teller, told: Any) -> str:
    return ""


VERBS = {
    JoinGroupAnswer: "join",
    SyncGroupAnswer: "sync",
    HeartbeatAnswer: "heartbeat",
    LeaveGroupAnswer: "leave",
    OffsetCommitAnswer: "commit",
    OffsetFetchAnswer: "fetch",
    DescribeGroupAnswer: "describe",
    ListGroupsAnswer: "list",
    OffsetDeleteAnswer: "delete-offsets",
    DeleteGroupAnswer: "delete",
    RebalanceGroupAnswer: "rebalance",
    RepublishGroupAnswer: "republish",
    OffsetTopicsAnswer: "topics",
    ExpelMemberAnswer: "expel",
    ErrorAnswer: "garbage",
    SetPoliciesAnswer: "policies",
}

REPLIES: dict[type, Callable[[Teller, Any], str]] = {
    JoinGroupAnswer: Teller._joined,
    SyncGroupAnswer: Teller._synced,
    HeartbeatAnswer: _nothing,
    LeaveGroupAnswer: Teller._left,
    OffsetCommitAnswer: Teller._committed,
    OffsetFetchAnswer: Teller._fetched,
    DescribeGroupAnswer: Teller._group_described,
    ListGroupsAnswer: Teller._listed,
    OffsetDeleteAnswer: Teller._committed,
    DeleteGroupAnswer: _nothing,
    RebalanceGroupAnswer: Teller._rebalancing,
    RepublishGroupAnswer: lambda teller, answer: f"{answer.records} records",
    OffsetTopicsAnswer: lambda teller, answer: f"{answer.dropped} dropped, {answer.bound} bound",
    ExpelMemberAnswer: Teller._expelled,
    ErrorAnswer: _nothing,
    SetPoliciesAnswer: _nothing,
}

EVENTS: dict[type, Callable[[Teller, Any], str]] = {
    RebalanceStarted: Teller._started,
    RebalanceCompleted: Teller._completed,
    AssignmentChanged: Teller._handed_over,
    MemberJoined: Teller._newcomer,
    MemberLeft: Teller._newcomer,
    MemberExpired: Teller._expired,
    MemberFenced: Teller._fenced,
    CommitRejected: Teller._refused,
    OffsetsExpired: Teller._offsets,
    OffsetsDeleted: Teller._offsets,
    OffsetsDropped: Teller._offsets,
    GroupEmptied: _nothing,
    RebalanceHeld: Teller._held,
    SeatVacated: Teller._vacated,
    SeatTaken: Teller._taken,
    MemberQuarantined: Teller._quarantined,
    QuarantineEnded: lambda teller, event: f"{teller.s.name(event.member_id)} {event.why}",
    FreezeBegun: lambda teller, event: f"until {event.until_ms}",
    FreezeBroken: Teller._broken,
    PolicySet: lambda teller, event: f"{event.policies} entries",
    GroupDeleted: lambda teller, event: event.why,
    LogBroken: lambda teller, event: f"offset {event.found}, not {event.expected}",
    ClockAhead: lambda teller, event: f"{event.records} from offset {event.offset}, {event.ahead_ms} ms",
    Rejected: lambda teller, event: f"offset {event.offset}: {event.why}",
}
