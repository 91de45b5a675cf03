"""Answers from the views, as JSON. `-o json`, `GET /api/...` and the dashboard use the same objects (`rows`).

A group that moves from Kafka's own coordinator to this one is in both for a while: `compare` shows both.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from coordinator.base.limits import NEVER_MS
from coordinator.base.states import MOVES, GroupType, Phase
from coordinator.messages.events import (
    AnyEvent,
    GroupEmptied,
    MemberExpired,
    MemberFenced,
    MemberLeft,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.group_records import GroupMember
from streaming.views.api.fold import Views
from streaming.views.api.rows import (
    Error,
    EventRow,
    GroupDetail,
    GroupSummary,
    Lane,
    MemberRow,
    Move,
    OffsetRow,
    Overview,
    Owner,
    RebalanceRow,
    Timeline,
)
from streaming.views.history.instability import Begun, times_begun, unstable_clients
from streaming.views.history.owners import Span, owner_at, spans_of_owners, token_at
from streaming.views.history.rebalances import Rebalance, latest, rebalances
from streaming.views.history.vacancies import SeatHistory, hold_now, seat_at
from streaming.views.history.waits import running_waits
from streaming.views.sentences.records import to_line
from streaming.views.sentences.why import explain, explain_with_policies
from streaming.views.state.causes import GroupKind
from streaming.views.state.fields import PartitionKey, held, known, protocol_of, state_of
from streaming.views.state.group import GroupView, weight
from streaming.views.state.lag import Ends, gone_unread, lag, total_lag
from streaming.views.state.lag import lags as lags_of
from streaming.views.state.streams_tasks import tasks_of, tasks_of_member
from streaming.views.text import naming

HOUR_MS = 3_600_000


def summary(group: GroupView, ends: Ends, now_ms: int) -> GroupSummary:
    """Return one line about a group."""
    record, committed = group.record, group.committed()
    places = group.owned().keys() | group.shared().keys() | group.share_offsets.keys() | committed.keys()
    lags = _known(lags_of(group, ends).values())
    gone = _known(gone_unread(ends.get(place), offset.offset) for place, offset in committed.items())
    started = _begun(group, now_ms - HOUR_MS)
    last = latest(group.events)
    return GroupSummary(
        group_id=group.group_id,
        type=group.type,
        state=group.state,
        since_ms=record.since_ms if record else None,
        generation_id=record.generation_id if record else 0,
        assignment_epoch=known(record.assignment_epoch) if record else None,
        protocol_type=(record.protocol_type if record else None) or "",
        protocol_name=(record.protocol_name if record else None) or "",
        members=len(group.members),
        topics=len({topic for topic, _ in places}),
        partitions=len(places),
        total_lag=total_lag(lags) if lags else None,
        total_gone_unread=sum(gone) if gone else None,
        partitions_beyond_end=sum(each < 0 for each in lags) if lags else None,
        rebalances_1h=started,
        last_rebalance_ms=last.started_ms if last else None,
        last_cause=last.cause if last else None,
        kept_by=group.kept_by,
    )


def _known(numbers: Iterable[int | None]) -> list[int]:
    return [each for each in numbers if each is not None]


def overview(views: Views, ends: Ends, now_ms: int) -> Overview:
    """Return one line about each existing group, sorted by id, and the alarms."""
    return Overview(at_ms=now_ms, groups=[summary(g, ends, now_ms) for g in views.present()], alarms=views.alarms)


def members(group: GroupView) -> list[MemberRow]:
    """Return the members of a group, in the order in which they joined."""
    leader = group.record.leader if group.record else None
    is_of_streams = group.kind is GroupKind.STREAMS
    return [_member(m, group.type, is_leader=m.member_id == leader, is_of_streams=is_of_streams) for m in group.members]


def _member(m: GroupMember, of_group: GroupType, *, is_leader: bool, is_of_streams: bool) -> MemberRow:
    subscribed, streams = known(m.subscribed_topics), known(m.streams)
    tasks = tasks_of(m.assignment) if streams is None and is_of_streams else None
    return MemberRow(
        member_id=m.member_id,
        group_instance_id=m.group_instance_id,
        client_id=m.client_id,
        client_host=m.client_host,
        session_timeout_ms=m.session_timeout_ms,
        rebalance_timeout_ms=m.rebalance_timeout_ms,
        is_leader=is_leader,
        partitions=len({(topic, number) for topic, numbers in held(m) for number in numbers}),
        assigned=m.assigned,
        fencing_token=m.fencing_token or None,
        protocol=protocol_of(m, of_group),
        member_epoch=known(m.member_epoch),
        state=state_of(m),
        rack_id=known(m.rack_id),
        subscribed_topics=None if subscribed is None else list(subscribed),
        regex=known(m.regex),
        revoking=known(m.revoking),
        target=known(m.target),
        standing=known(m.standing),
        work=known(m.work),
        streams=tasks if streams is None else tasks_of_member(streams),
        process_id=None if streams is None else streams.process_id,
    )


def offsets(group: GroupView, ends: Ends) -> list[OffsetRow]:
    """Return a group's position in each partition with an owner or a committed offset, by topic and partition."""
    owned, of_all, planned = group.owned(), group.committed(), group.planned()
    rows = []
    of_share = group.shared().keys() | group.share_offsets.keys()
    for topic, partition in sorted(owned.keys() | of_share | of_all.keys() | planned.keys()):
        committed, owner = of_all.get((topic, partition)), owned.get((topic, partition))
        next_owner = planned.get((topic, partition))
        log, at = ends.get((topic, partition)), committed.offset if committed else None
        position = group.share_offsets.get((topic, partition))
        rows.append(
            OffsetRow(
                topic=topic,
                partition=partition,
                committed_offset=at if position is None else position.start,
                end_offset=log.end if log else None,
                lag=lag(log, at) if position is None else position.lag,
                gone_unread=gone_unread(log, at),
                leader_epoch=committed.leader_epoch if committed and committed.leader_epoch >= 0 else None,
                metadata=committed.metadata if committed else None,
                commit_timestamp_ms=committed.commit_timestamp_ms if committed else None,
                expire_timestamp_ms=committed.expire_timestamp_ms if committed else None,
                committed_by=committed.member_id if committed else None,
                commit_generation_id=committed.generation_id if committed else None,
                member_id=owner.member_id if owner else None,
                client_id=owner.client_id if owner else None,
                client_host=owner.client_host if owner else None,
                group_instance_id=owner.group_instance_id if owner else None,
                next_member_id=next_owner.member_id if next_owner and next_owner is not owner else None,
            )
        )
    return rows


def detail(group: GroupView, ends: Ends, now_ms: int) -> GroupDetail:
    """Return all that is known of a group now, and why it last rebalanced."""
    record, last = group.record, latest(group.events, group.waiting_partitions)
    waits = running_waits(group, last)
    topics = record.subscribed_topics if record else None
    with naming(group.client_ids):
        why = explain_with_policies(group, last, now_ms) if last else None
    return GroupDetail(
        summary=summary(group, ends, now_ms),
        joins_until_ms=_joins_until_ms(group),
        awaited=[each.member_id for each in waits] or _awaited(group),
        waits=waits,
        moves=_moves(group),
        leader=record.leader if record else None,
        subscribed_topics=list(topics) if topics is not None else None,
        members=members(group),
        offsets=offsets(group, ends),
        why=why,
        flapping=unstable_clients(group, now_ms - HOUR_MS),
        hold=hold_now(group),
        topology=known(record.topology) if record else None,
        initializing=known(record.initializing) if record else None,
    )


def timeline(
    views: Views,
    group: GroupView,
    from_ms: int | None = None,
    to_ms: int | None = None,
    weight_max: int | None = None,
) -> Timeline:
    """Return a group's history: all of it, or the part that touches a period of time.

    Args:
        from_ms, to_ms: The period, Unix milliseconds; None for no bound.
        weight_max: The limit of the history, in the unit of `weight`: the latest events are kept. None for all.
    """
    begin, end = from_ms if from_ms is not None else -1, to_ms if to_ms is not None else NEVER_MS
    known_from_ms = views.known_from_ms(group)
    events = [event for event in group.events if begin <= event.at_ms <= end]
    if weight_max is not None and (left_out := _too_much(events, weight_max)):
        begin = known_from_ms = events[left_out - 1].at_ms + 1
        del events[:left_out]
    begun, kept, client_ids = times_begun(group), SeatHistory(group.events), group.client_ids
    with naming(client_ids):
        rows = [
            _rebalance(group, each, begun)
            for each in rebalances(group.events, group.waiting_partitions)
            if each.started_ms <= end and (each.ended_ms is None or each.ended_ms >= begin)
        ]
        told = [event_row(event) for event in events]
    return Timeline(
        group_id=group.group_id,
        kept_by=group.kept_by,
        client_ids=client_ids,
        known_from_ms=known_from_ms,
        rebalances=rows,
        seats=[s for s in kept.seats if s.vacated_ms <= end and (s.ended_ms is None or s.ended_ms >= begin)],
        holds=[h for h in kept.periods if h.from_ms <= end and (h.to_ms is None or h.to_ms >= begin)],
        lanes=_lanes(group, begin, end),
        events=told,
    )


def _lanes(group: GroupView, begin: int, end: int) -> list[Lane]:
    """Return the partitions that had an owner in a period, with these owners."""
    return [
        Lane(topic=topic, partition=partition, spans=shown)
        for (topic, partition), spans in spans_of_owners(group).items()
        if (shown := [s for s in spans if (s.from_ms or 0) <= end and (s.to_ms is None or s.to_ms >= begin)])
    ]


def event_row(event: AnyEvent) -> EventRow:
    """Return an event with its description in words."""
    return EventRow(
        at_ms=event.at_ms,
        version=event.version or 0,
        event=str(event.__struct_config__.tag),
        text=to_line(event, event.at_ms).text,
        record=event,
    )


def owner(views: Views, group: GroupView, topic: str, partition: int, at_ms: int, now_ms: int | None = None) -> Owner:
    """Return the owner of a partition at a moment.

    Args:
        now_ms: The present; the owner at a later time is unknown. None if the caller cannot request a later time.
    """
    spans = spans_of_owners(group).get((topic, partition), [])
    found, before, after = owner_at(spans, at_ms), None, None
    known_from_ms = _known_from_ms(views, group, found)
    is_to_come = now_ms is not None and at_ms > now_ms
    is_known = known_from_ms <= at_ms and not is_to_come
    if found is None:
        before = next((s for s in reversed(spans) if s.to_ms is not None and s.to_ms <= at_ms), None)
        after = next((s for s in spans if s.from_ms is not None and s.from_ms > at_ms), None)
    elif is_to_come:
        before = found
    elif not is_known:
        after = found
    return Owner(
        group_id=group.group_id,
        topic=topic,
        partition=partition,
        at_ms=at_ms,
        is_known=is_known,
        known_from_ms=known_from_ms,
        owner=found if is_known else None,
        fencing_token=token_at(group, found.member_id, at_ms) if found and is_known else None,
        before=before,
        after=after,
        seat=seat_at(group, (topic, partition), at_ms) if found is None and is_known else None,
        members=[member.member_id for member in group.shared().get((topic, partition), ())],
    )


def to_json(answer: Any) -> bytes:
    """Write an answer, or a list of answers, as JSON."""
    return _encode(answer)


def json_schema(paths: Mapping[str, Any], stream_types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of the answers.

    Args:
        paths: The type of each path's answer. The answer to a failed request is an `Error` at every path.
        told: The type of the data of each event of the stream.
    """
    types = [*paths.values(), *stream_types.values(), Error]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": components,
        "paths": dict(zip(paths, schemas, strict=False)),
        "stream": dict(zip(stream_types, schemas[len(paths) :], strict=False)),
    }


_encode = msgspec.json.Encoder().encode


def _moves(group: GroupView) -> list[Move]:
    """Return the moves of a classic group. The state of a consumer group follows from its epochs and members.

    Kafka's coordinator does not record that a group of its own is rebalancing.
    """
    if group.type is not GroupType.CLASSIC or group.kept_by is not None:
        return []
    return [Move(cause.value, after) for (before, cause), after in MOVES.items() if before is group.state]


def _joins_until_ms(group: GroupView) -> int | None:
    if group.state is not Phase.PREPARING:
        return None
    asked = _latest_joins_request(group)
    return asked.joins_until_ms if asked else None


def _latest_joins_request(group: GroupView) -> RebalanceStarted | None:
    """Return the last `RebalanceStarted`, which began the running join phase; None without one."""
    return next((e for e in reversed(group.events) if isinstance(e, RebalanceStarted)), None)


_CAME_ALREADY = frozenset(
    {"member_joined", "metadata_changed", "leader_rejoined", "cooperative_round", "static_member_replaced"}
)
"""Causes of a rebalance whose member has sent its own JoinGroup already."""


def _awaited(group: GroupView) -> list[str]:
    """Return the members that the rebalance of a classic group may wait for."""
    record = group.record
    if record is None or record.state not in (Phase.PREPARING, Phase.COMPLETING):
        return []
    if record.state is Phase.COMPLETING:
        return [record.leader] if record.leader else []
    asked = _latest_joins_request(group)
    done: set[str] = set()
    if asked is not None:
        gone = (e for e in group.since(asked.at_ms) if isinstance(e, MemberLeft | MemberExpired | MemberFenced))
        done = {e.member_id for e in gone} | ({asked.member_id} if asked.cause in _CAME_ALREADY else set())
    return [member.member_id for member in record.members if member.member_id not in done]


def _known_from_ms(views: Views, group: GroupView, found: Span | None) -> int:
    """Return the time from which a partition's owner is known. No record shows that its first owner had always owned
    it.
    """
    known_from_ms = views.known_from_ms(group)
    if found is not None and found.from_ms is not None:
        return min(known_from_ms, found.from_ms)
    if found is None or known_from_ms:
        return known_from_ms
    if group.events:
        return group.events[0].at_ms
    return group.record.since_ms if group.record else 0


def _too_much(events: Sequence[AnyEvent], weight_max: int) -> int:
    """Return the number of oldest events to omit. Events of one time stay together; the latest time always
    stays.
    """
    weighed, kept_from_ms = 0, events[-1].at_ms if events else 0
    for index in range(len(events) - 1, -1, -1):
        weighed += weight(events[index])
        if weighed <= weight_max:
            kept_from_ms = events[index].at_ms
        elif events[index].at_ms < kept_from_ms:
            return index + 1
    return 0


def _begun(group: GroupView, since_ms: int) -> int:
    """Count the rebalances that began at or after a time. A second reason for a running rebalance counts as the same
    one.
    """
    return sum(each.started_ms >= since_ms for each in rebalances(_recent(group, since_ms)))


def _recent(group: GroupView, since_ms: int) -> Iterable[AnyEvent]:
    return (e for e in group.since(since_ms) if isinstance(e, RebalanceStarted | RebalanceCompleted | GroupEmptied))


def _rebalance(group: GroupView, rebalance: Rebalance, begun: Begun) -> RebalanceRow:
    completed = rebalance.completed
    return RebalanceRow(
        generation_id=rebalance.generation_id,
        generations=rebalance.generations,
        started_ms=rebalance.started_ms,
        ended_ms=rebalance.ended_ms,
        duration_ms=rebalance.duration_ms,
        held_ms=rebalance.held_ms,
        cause=rebalance.cause,
        why=explain(group, rebalance, begun),
        started=rebalance.started,
        joined=rebalance.joined,
        gone=rebalance.gone,
        members=len(completed.members_after) if completed else None,
        moved=len(rebalance.handovers),
        how_known=known(rebalance.started[0].how_known) if rebalance.started else None,
        not_before_ms=rebalance.not_before_ms,
        unplanned_rounds=rebalance.unplanned_rounds,
        estimate=rebalance.estimate,
    )


# -- two coordinators side by side -------------------------------------------------------------------------------------


class ComparedPartition(Struct, kw_only=True):
    """A partition that the group owns or has committed, in both coordinators.

    Args:
        offset, kafkas_offset: The committed offsets here and at Kafka's coordinator; null without one.
        ahead: How many records the offset here is ahead of the other one; below 0 if it is behind; null if one is
            missing.
        member_id, kafkas_member_id: The owners; null without one.
    """

    topic: str
    partition: int
    offset: int | None
    kafkas_offset: int | None
    ahead: int | None
    member_id: str | None
    kafkas_member_id: str | None


class Comparison(Struct, kw_only=True):
    """A group in both coordinators. A summary is null where the group does not exist."""

    group_id: str
    here: GroupSummary | None
    kafka: GroupSummary | None
    partitions: list[ComparedPartition]


def compare(group_id: str, here: GroupView | None, kafka: GroupView | None, ends: Ends, now_ms: int) -> Comparison:
    """Return one group of both coordinators, side by side.

    Args:
        here, kafka: The group in each coordinator; None if it has none of that id.
    """
    ours, theirs = _offsets(here, ends), _offsets(kafka, ends)
    return Comparison(
        group_id=group_id,
        here=summary(here, ends, now_ms) if here is not None else None,
        kafka=summary(kafka, ends, now_ms) if kafka is not None else None,
        partitions=[_compared(place, ours.get(place), theirs.get(place)) for place in sorted(ours.keys() | theirs)],
    )


def _offsets(group: GroupView | None, ends: Ends) -> dict[PartitionKey, OffsetRow]:
    return {(row.topic, row.partition): row for row in (offsets(group, ends) if group is not None else ())}


def _compared(place: PartitionKey, ours: OffsetRow | None, theirs: OffsetRow | None) -> ComparedPartition:
    offset = ours.committed_offset if ours is not None else None
    kafkas_offset = theirs.committed_offset if theirs is not None else None
    return ComparedPartition(
        topic=place[0],
        partition=place[1],
        offset=offset,
        kafkas_offset=kafkas_offset,
        ahead=None if offset is None or kafkas_offset is None else offset - kafkas_offset,
        member_id=ours.member_id if ours is not None else None,
        kafkas_member_id=theirs.member_id if theirs is not None else None,
    )
