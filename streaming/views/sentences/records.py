"""Records of the output topics, described in words.

Clients choose ids, so every character that could move a cursor or hide text is shown escaped.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from coordinator.base.connect_protocol import Work
from coordinator.base.states import GroupType, Phase
from coordinator.messages.events import (
    AccessChanged,
    AccessDenied,
    AnyEvent,
    AssignmentChanged,
    ClockAhead,
    CommitRejected,
    EpochFenced,
    GroupConverted,
    GroupDeleted,
    GroupEmptied,
    LogBroken,
    MemberAway,
    MemberBack,
    MemberExpired,
    MemberFenced,
    MemberJoined,
    MemberLeft,
    OffsetsDeleted,
    OffsetsDropped,
    OffsetsExpired,
    Oversized,
    PlanMade,
    RebalanceCompleted,
    RebalanceStarted,
    Rejected,
)
from coordinator.messages.group_records import GroupMember, GroupRecord, Hold, OffsetRecord, StreamsMember
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
from coordinator.state.consumer_group import AWAY_EPOCH
from streaming.views.sentences.observed import changed_topics, facts, gap_in_words, offsets_forgotten, offsets_set
from streaming.views.sentences.rebalances import completed, handovers, started
from streaming.views.state.streams_tasks import tasks_in_words
from streaming.views.text import (
    brief,
    clock,
    clock_after,
    counted,
    duration,
    escape,
    in_partitions,
    in_quotes,
    plain,
    work_in_words,
)
from streaming.wire.records import Tombstone


class Gap(Struct, frozen=True):
    """Versions that a group has published and no topic contains."""

    group_id: str
    first: int
    last: int


class Unreadable(Struct, frozen=True):
    """A record that this program cannot read. The coordinator may be newer than this program."""

    place: str
    why: str


Record = AnyEvent | GroupRecord | OffsetRecord | Tombstone | Gap | Unreadable


class Line(NamedTuple):
    """A record, in words.

    Args:
        at_ms: The time of the event, Unix milliseconds; None if it is unknown.
        text: Safe to print on one line, whatever the ids in it are.
        record: The record itself.
    """

    at_ms: int | None
    group_id: str | None
    text: str
    record: Record

    def __str__(self) -> str:
        return f"{clock(self.at_ms)}  {escape(self.group_id or '-')}  {self.text}"

    def in_json(self) -> str:
        """Return the line as a JSON object in ASCII, so that no id can move a cursor."""
        kind = self.record.__struct_config__.tag or type(self.record).__name__.lower()
        fields = {"at_ms": self.at_ms, "group_id": self.group_id, "record": kind, "text": self.text}
        return json.dumps({**fields, "fields": msgspec.to_builtins(self.record)})


# -- words -------------------------------------------------------------------------------------------------------------


def _share(member: GroupMember) -> str:
    standing = f" ({plain(member.standing)})" if isinstance(member.standing, str) else ""
    if isinstance(member.work, Work):
        return f"{brief(member.member_id)}: {work_in_words(member.work)}"
    if member.assigned is None:
        return f"{brief(member.member_id)}{standing}: {len(member.assignment)} bytes"
    return f"{brief(member.member_id)}{standing}: {in_partitions(member.assigned)}"


def _hold(hold: Hold) -> str:
    counts = (
        (hold.vacant, "seat", "vacant"),
        (hold.standing_by, "member", "standing by"),
        (hold.quarantined, "member", "in quarantine"),
    )
    frozen = [f"frozen until {clock(hold.frozen_until_ms)}"] if hold.frozen_until_ms is not None else []
    return ", ".join([*frozen, *(f"{counted(number, what)} {how}" for number, what, how in counts if number)])


_TYPES_WITH_EPOCHS = frozenset(each.value for each in GroupType if each.has_epochs)


def _group(record: GroupRecord) -> str:
    if record.type in _TYPES_WITH_EPOCHS:
        return _group_with_epochs(record)
    text = f"{record.state.value}, generation {record.generation_id}"
    if isinstance(record.hold, Hold):
        text += f", {_hold(record.hold)}"
    if record.state is not Phase.STABLE:
        return f"{text}, {counted(len(record.members), 'member')}"
    return f"{text}, led by {brief(record.leader)} | " + " | ".join(map(_share, record.members))


def _group_with_epochs(record: GroupRecord) -> str:
    text = f"{record.state.value}, group epoch {record.generation_id}, assignment epoch {record.assignment_epoch}"
    if record.state is Phase.EMPTY:
        return text
    by = f" by {escape(record.protocol_name)}" if record.protocol_name else ""
    return f"{text}{by} | " + " | ".join(map(_member_with_epoch, record.members))


def _member_with_epoch(member: GroupMember) -> str:
    gives_up = f", gives up {in_partitions(member.revoking)}" if member.revoking else ""
    waits = ", waits for more" if member.state == "unreleased" else ""
    epoch = "away" if member.member_epoch == AWAY_EPOCH else f"at {member.member_epoch}"
    has = in_partitions(member.assigned or {})
    if isinstance(member.streams, StreamsMember):
        has = tasks_in_words(member.streams)
    return f"{brief(member.member_id)} {epoch}: {has}{gives_up}{waits}"


def _offset(record: OffsetRecord) -> str:
    by = f" by {brief(record.member_id)}" if record.member_id else ""
    metadata = f" ({escape(record.metadata)})" if record.metadata else ""
    return f"offset {record.offset} committed for {escape(record.topic)}-{record.partition}{by}{metadata}"


def _expired(event: MemberExpired) -> str:
    silence = f" after {duration(event.silence_ms)} of silence" if event.silence_ms is not None else ""
    return f"{brief(event.member_id)} was dropped: {plain(event.why)}{silence}{in_quotes(event.reason)}"


def _fenced(event: MemberFenced) -> str:
    before, after = (escape(host) or "?" for host in (event.client_host, event.replaced_by_client_host))
    instance = escape(event.group_instance_id or "")
    old, new = brief(event.member_id), brief(event.replaced_by)
    came = f"restarted at {after}" if before == after else f"moved from {before} to {after}"
    return f"{instance} {came}: {new} goes on as {instance} in place of {old}"


def _planned(event: PlanMade) -> str:
    work = f"{counted(event.partitions, 'partition')} for {counted(event.members, 'member')}, {event.moved} moved"
    when = f"{duration(event.waited_ms)} after the rebalance began"
    return f"plan {event.generation_id} by {escape(event.assignor)}: {work}, {when}"


def _back(event: MemberBack) -> str:
    is_same = event.replaces == event.member_id
    return f"{brief(event.member_id)} is back" + ("" if is_same else f" in place of {brief(event.replaces)}")


def _epoch_fenced(event: EpochFenced) -> str:
    claimed = f"epoch {event.claimed_epoch}, the member's is {event.member_epoch}"
    return f"heartbeat of {brief(event.member_id)} refused: {escape(event.error)} ({claimed})"


def _commit_rejected(event: CommitRejected) -> str:
    claimed = f"generation {event.claimed_generation_id}, the group is in {event.generation_id}"
    return f"commit of {brief(event.member_id)} refused: {escape(event.error)} ({claimed})"


def _log_broken(event: LogBroken) -> str:
    first, last = sorted((event.expected, event.found))
    if event.breaks > 1:
        place = f"requests {event.partition}@{first} to {last}"
        return f"{place} have {event.breaks} breaks: some were never handled, or came again; the checkpoint was damaged"
    what = "were never handled" if event.found > event.expected else "came again, and were ignored"
    return f"requests {event.partition}@{first} to {last - 1} {what}: the checkpoint was damaged, most likely"


def _clock_ahead(event: ClockAhead) -> str:
    what = f"{counted(event.records, 'request')} from {event.partition}@{event.offset} on"
    return f"{what} dated up to {event.ahead_ms} ms too late: the clock of a broker is wrong, or the coordinator's"


def _access_denied(event: AccessDenied) -> str:
    names = ", ".join(map(escape, event.names[:NAMES_SHOWN])) + (", ..." if len(event.names) > NAMES_SHOWN else "")
    what = f"{escape(event.request)}: {escape(event.operation)} of {escape(event.resource).lower()} {names}"
    doubt = f" ({escape(event.why)})" if event.why else ""
    return f"{escape(event.principal)} at {escape(event.client_host) or '?'} was denied {what}{doubt}"


def _access_changed(event: AccessChanged) -> str:
    who = f"{escape(event.principal)} at {escape(event.client_host) or '?'}"
    return f"shard {event.partition} uses {counted(event.rules, 'rule')} of {who}"


def _until(event: RebalanceHeld | SeatVacated | MemberQuarantined | FreezeBegun | FreezeBroken) -> str:
    return clock_after(event.until_ms, event.at_ms)


def _held(event: RebalanceHeld) -> str:
    who = f", {brief(event.member_id)}" if event.member_id else ""
    by = f"by {plain(event.policy)} until {_until(event)} at the latest"
    return f"rebalance held {by}: {plain(event.cause)}{who}"


def seat_of(member_id: str) -> str:
    """Return the name of a seat, by the member that had it."""
    return f"the seat of {brief(member_id)}" if member_id else "the seat of added partitions"


def _vacated(event: SeatVacated) -> str:
    why = f"{plain(event.cause)}{in_quotes(event.reason)}"
    kept = f"kept by {plain(event.policy)} until {_until(event)} at the latest"
    return f"{seat_of(event.member_id)} is vacant ({in_partitions(event.partitions)}): {why}; {kept}"


HOW = {
    "took": "{who} took {seat}",
    "passed": "{who} stood by and took {seat}",
    "adopted": "{who} adopted {seat} beside its own",
}
"""How a seat is taken."""


def _taken(event: SeatTaken) -> str:
    how = HOW.get(event.how, "{who} has {seat}").format(who=brief(event.member_id), seat=seat_of(event.before))
    return f"{how} ({in_partitions(event.partitions)}), without an owner for {duration(event.unowned_ms)}"


def _quarantined(event: MemberQuarantined) -> str:
    until = f"until {_until(event)}, time {event.times}"
    why = f"{counted(event.flaps, 'membership')} of {escape(event.identity)} ended too soon"
    return f"{brief(event.member_id)} is in quarantine {until}: {why}"


def _freeze_broken(event: FreezeBroken) -> str:
    did = f"{seat_of(event.member_id)} is adopted" if event.how == "adopted" else "all members join again"
    return f"the freeze until {_until(event)} is broken: {plain(event.why)}; {did}"


def _away(event: MemberAway) -> str:
    until = "" if event.until_ms is None else f", at the latest until {clock(event.until_ms)}"
    return f"{brief(event.member_id)} is away for a while{until}"


_LIKELY = {
    None: "left or expired, Kafka does not record which",
    "left": "it left, most likely",
    "expired": "it expired, most likely",
    "revocation_overdue": "it did not give up partitions within its rebalance timeout",
}


_WHY_DELETED = {
    "deleted": "deleted on request",
    "deleted on request": "deleted on request",
    "expired, most likely": "deleted: its offsets expired, most likely",
    "expired or deleted": "deleted: its offsets expired, or it was deleted on request",
}
"""The sentences about a deleted group whose reason repeats the word, or is that of its offsets."""


def _policy_set(event: PolicySet) -> str:
    who = f"{escape(event.principal)} at {escape(event.client_host) or '?'}"
    number = "1 policy" if event.policies == 1 else f"{event.policies} policies"
    return f"shard {event.partition} uses {number} of {who}"


NAMES_SHOWN = 5
"""The maximum number of named resources that were denied."""


def _tombstone(record: Tombstone) -> str:
    return (
        "group forgotten" if record.topic is None else f"offset of {escape(record.topic)}-{record.partition} forgotten"
    )


_WORDS: dict[type, Callable[[Any], str]] = {
    GroupRecord: _group,
    OffsetRecord: _offset,
    RebalanceStarted: started,
    RebalanceCompleted: completed,
    AssignmentChanged: handovers,
    MemberJoined: lambda e: f"{brief(e.member_id)} joined from {escape(e.client_host) or '?'}{in_quotes(e.reason)}",
    MemberLeft: lambda e: f"{brief(e.member_id)} left{in_quotes(e.reason)}",
    MemberExpired: _expired,
    MemberFenced: _fenced,
    PlanMade: _planned,
    MemberAway: _away,
    MemberBack: _back,
    EpochFenced: _epoch_fenced,
    GroupConverted: lambda e: (
        f"the group has the {escape(e.group_type)} protocol now, with {counted(e.members, 'member')}"
    ),
    CommitRejected: _commit_rejected,
    OffsetsExpired: lambda e: f"{counted(len(e.partitions), 'offset')} expired",
    OffsetsDeleted: lambda e: f"{counted(len(e.partitions), 'offset')} deleted on request",
    OffsetsDropped: lambda e: (
        f"{counted(len(e.partitions), 'offset')} of {escape(e.partitions[0][0])} dropped:"
        f" the topic was {'deleted' if e.current_id is None else 'made anew'}"
    ),
    GroupEmptied: lambda e: "the last member is gone",
    GroupDeleted: lambda e: f"group {_WHY_DELETED.get(e.why) or f'deleted: {escape(e.why)}'}",
    Rejected: lambda e: f"request {e.partition}@{e.offset} is not a request: {escape(e.why)}",
    LogBroken: _log_broken,
    ClockAhead: _clock_ahead,
    AccessDenied: _access_denied,
    AccessChanged: _access_changed,
    RebalanceHeld: _held,
    SeatVacated: _vacated,
    SeatTaken: _taken,
    MemberQuarantined: _quarantined,
    QuarantineEnded: lambda e: f"the quarantine of {brief(e.member_id)} has ended: {plain(e.why)}",
    FreezeBegun: lambda e: f"the group is frozen until {_until(e)}",
    FreezeBroken: _freeze_broken,
    PolicySet: _policy_set,
    ObservationBegan: lambda e: "the history begins here" + (": the group is new" if e.founded else ""),
    HistoryGap: gap_in_words,
    MemberGone: lambda e: f"{brief(e.member_id)} is gone: {_LIKELY.get(e.likely, plain(e.likely or ''))}{facts(e)}",
    OffsetsForgotten: offsets_forgotten,
    OffsetsSet: offsets_set,
    TopicNamed: lambda e: f"the topic with the id {escape(e.topic_id)} is {escape(e.topic_name)}",
    TopicsNamed: lambda e: f"changed topics of group epoch {e.generation_id}: {changed_topics(e)}",
    GroupReleased: lambda e: f"released to {escape(e.to)}, {e.bytes} bytes",
    GroupMoved: lambda e: f"moved to {escape(e.to)}",
    GroupTakenBack: lambda e: f"taken back from {escape(e.to)}: {escape(e.reason)}",
    GroupArrived: lambda e: f"arrived from {escape(e.source)}",
    MoveIgnored: lambda e: f"{escape(e.record)} from {escape(e.source)} was ignored: {escape(e.why)}",
    SlotsReleased: lambda e: f"slots {escape(e.slots)} released to {escape(e.to)}, with {counted(e.listed, 'name')}",
    SlotsAdopted: lambda e: (
        f"slots {escape(e.slots)} adopted from {escape(e.source)}, with {counted(e.listed, 'name')}"
    ),
    SlotsIgnored: lambda e: f"slots from shard {e.from_shard} of {escape(e.source)} were ignored: {escape(e.why)}",
    Oversized: lambda e: f"{escape(e.what)} of {e.bytes} bytes is too large for a record and was omitted",
    Tombstone: _tombstone,
    Gap: lambda g: f"MISSING: versions {g.first} to {g.last} of this group were published and are not in the topics",
    Unreadable: lambda u: f"{u.place} cannot be read: {escape(u.why)}",
}


def to_line(record: Record, at_ms: int | None) -> Line:
    """Return a record in words."""
    return Line(at_ms, getattr(record, "group_id", None), _WORDS[type(record)](record), record)
