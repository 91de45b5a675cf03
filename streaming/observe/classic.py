"""The translation of records of classic groups: one record a generation, with all members and their assignments."""

from typing import Any

from msgspec import UNSET, UnsetType, structs

from coordinator.messages.events import (
    Estimate,
    GroupConverted,
    GroupEmptied,
    MemberFenced,
    MemberJoined,
    RebalanceCompleted,
)
from coordinator.messages.observed_events import HistoryGap, MemberGone, ObservationBegan, ObservedCause
from streaming.observe.inference import Difference, because, difference, likely, reasons, released
from streaming.observe.publishing import CLASSIC, WITH_EPOCHS, Owners, Publisher, owners_by_assignments, owners_of
from streaming.observe.state import Group, Member

UNKNOWN_MS = -1
"""The state's time in values of versions 0 and 1, and the rebalance timeout in version 0, which do not have it."""

INFERRED = "inferred"

ESTIMATED_FROM_COMMITS = 3
"""The commits in a generation from which the time of the last one tells when the next rebalance began."""


def take_classic(
    publisher: Publisher, group: Group, offset: int, at_ms: int, value: dict[str, Any], hole_end: int
) -> None:
    """Change a group to the contents of its next record, and publish the difference.

    Args:
        hole_end: The offset after the last hole in the partition.
    """
    before = structs.replace(group, members=dict(group.members))
    is_first = group.type != CLASSIC
    owned = {} if is_first else owners_of(group, publisher.names)
    record_before = None if is_first else publisher.record_of(group)
    _install(group, offset, at_ms, value)
    if is_first:
        is_founded = value["generation"] == 0 and not value["members"]
        publisher.event(ObservationBegan, group, at_ms, founded=is_founded, from_offset=offset)
        group.released = [] if is_founded else None
    elif group.generation < before.generation:
        _gap(publisher, before, group, at_ms, holes=False)
        group.released = None
    elif group.generation == before.generation:
        _replaced(publisher, group, difference(before.members, group.members), at_ms)
        group.released = before.released
    else:
        _planned(publisher, before, group, at_ms, owned, value["current_state_timestamp"], hole_end)
    if group.generation != before.generation:
        group.commits = 0
    group.at_offset, group.recorded_ms = offset, at_ms
    publisher.record(group, record_before)


def take_downgrade(publisher: Publisher, group: Group, offset: int, at_ms: int, value: dict[str, Any]) -> None:
    """Change a group with epochs to a classic one, as its record says. A streams group is empty then."""
    before, owned = dict(group.members), owners_of(group, publisher.names)
    generation_before, is_named = group.generation, publisher.names.are_named(owned)
    _install(group, offset, at_ms, value)
    for member in difference(before, group.members).gone:
        publisher.member_event(MemberGone, group, member, at_ms, **gone_fields(member, at_ms, None))
    publisher.event(
        GroupConverted,
        group,
        at_ms,
        group_type=CLASSIC,
        members=len(group.members),
        generation_before=generation_before,
    )
    owns = owners_of(group, publisher.names)
    if is_named:
        publisher.handovers(group, owned, owns, at_ms)
    group.released = released(owned, owns)
    group.waiting = [because(ObservedCause.PROTOCOL_DOWNGRADED)] if before else []
    group.at_offset, group.recorded_ms = offset, at_ms
    publisher.record(group)


def gone_fields(member: Member, at_ms: int, recorded_ms: int | None) -> dict[str, Any]:
    """Return the fields of `member_gone` beside those of each member's event."""
    return {
        "last_commit_ms": member.last_commit_ms,
        "session_timeout_ms": member.session_timeout_ms,
        "likely": likely(member, at_ms, recorded_ms),
    }


def _install(group: Group, offset: int, at_ms: int, value: dict[str, Any]) -> None:
    generation, members = value["generation"], dict[str, Member]()
    for each in sorted(value["members"], key=lambda each: each["member_id"]):
        earlier = group.members.get(each["member_id"])
        members[each["member_id"]] = Member(
            member_id=each["member_id"],
            group_instance_id=each["group_instance_id"],
            client_id=each["client_id"],
            client_host=each["client_host"],
            session_timeout_ms=each["session_timeout"],
            rebalance_timeout_ms=None if each["rebalance_timeout"] == UNKNOWN_MS else each["rebalance_timeout"],
            first=earlier.first if earlier and group.type == CLASSIC else generation,
            last_commit_ms=earlier.last_commit_ms if earlier else None,
            subscription=each["subscription"],
            assignment=each["assignment"],
        )
    stated_ms = value["current_state_timestamp"]
    since_ms = stated_ms if not members and stated_ms != UNKNOWN_MS else at_ms
    if group.type != CLASSIC or generation != group.generation:
        group.since_ms = max(group.now_ms, since_ms)
    if group.type in WITH_EPOCHS:
        group.patterns, group.change, group.waiting, group.assignment_epoch = {}, None, [], 0
        group.subtopologies, group.configs, group.is_settling = {}, {}, False
    group.type, group.generation = CLASSIC, generation
    group.members = dict(sorted(members.items(), key=lambda item: item[1].first))
    group.protocol_type, group.protocol_name = value["protocol_type"] or None, value["protocol"]
    group.leader = value["leader"]


def _gap(publisher: Publisher, before: Group, group: Group, at_ms: int, *, holes: bool) -> None:
    publisher.event(
        HistoryGap,
        group,
        at_ms,
        from_generation=before.generation,
        to_generation=group.generation,
        holes=holes,
    )


def _replaced(publisher: Publisher, group: Group, found: Difference, at_ms: int) -> None:
    for old, new in found.replaced:
        new.first = old.first
        publisher.member_event(
            MemberFenced,
            group,
            old,
            at_ms,
            replaced_by=new.member_id,
            replaced_by_client_id=new.client_id,
            replaced_by_client_host=new.client_host,
        )


def _planned(
    publisher: Publisher, before: Group, group: Group, at_ms: int, owned: Owners, joined_ms: int, hole_end: int
) -> None:
    """Publish the rebalance between two records. Its events of members have the time of the end of the joins."""
    unplanned = group.generation - before.generation - 1
    is_gap = unplanned > 0 and hole_end > before.at_offset
    ended_ms = at_ms if joined_ms == UNKNOWN_MS or is_gap else min(joined_ms, at_ms)
    if is_gap:
        _gap(publisher, before, group, at_ms, holes=True)
    found = difference(before.members, group.members)
    _change_members(publisher, before, group, found, ended_ms, is_gap=is_gap)
    if not group.members:
        publisher.event(GroupEmptied, group, ended_ms)
        group.released, group.waiting = [], []
        return
    owns = owners_by_assignments(group, group.members)
    causes = [because(ObservedCause.UNKNOWN)] if is_gap else reasons(before, group, found, owned, owns)
    if group.waiting:
        known = [cause for cause in causes if cause.cause != ObservedCause.UNKNOWN.value]
        causes, group.waiting = [*group.waiting, *known], []
    publisher.started(
        group,
        causes,
        ended_ms,
        generation=before.generation,
        joins_until_ms=None,
        how_known=INFERRED,
        not_before_ms=None if is_gap else _earliest_ms(before),
        unplanned_rounds=unplanned if unplanned and not is_gap else UNSET,
    )
    syncs_ms = None if joined_ms == UNKNOWN_MS else max(0, at_ms - joined_ms)
    _complete(publisher, before, group, at_ms, syncs_ms, UNSET if is_gap else _estimate(before, at_ms))
    publisher.handovers(group, owned, owns, at_ms)
    group.released = released(owned, owns)


def _change_members(
    publisher: Publisher, before: Group, group: Group, found: Difference, ended_ms: int, *, is_gap: bool
) -> None:
    _replaced(publisher, group, found, ended_ms)
    for member in found.gone:
        fields = gone_fields(member, max(group.now_ms, ended_ms), before.recorded_ms)
        if is_gap:
            fields["likely"] = None
        publisher.member_event(MemberGone, group, member, ended_ms, generation=before.generation, **fields)
    for member in found.joined:
        publisher.member_event(MemberJoined, group, member, ended_ms, generation=before.generation, reason=None)


def _estimate(before: Group, at_ms: int) -> Estimate | UnsetType:
    """Return about how long a rebalance took: members that commit often stop when it begins."""
    commits_ms = [member.last_commit_ms for member in before.members.values() if member.last_commit_ms is not None]
    if before.commits < ESTIMATED_FROM_COMMITS or not commits_ms or max(commits_ms) < before.recorded_ms:
        return UNSET
    return Estimate("duration_ms", max(0, at_ms - max(commits_ms)), "last commit of the old generation")


def _complete(
    publisher: Publisher,
    before: Group,
    group: Group,
    at_ms: int,
    syncs_ms: int | None,
    estimate: Estimate | UnsetType,
) -> None:
    publisher.event(
        RebalanceCompleted,
        group,
        at_ms,
        duration_ms=None,
        joins_ms=None,
        syncs_ms=syncs_ms,
        protocol_name=group.protocol_name,
        leader=group.leader,
        members_before=tuple(before.members),
        members_after=tuple(group.members),
        joined=tuple(id_ for id_ in group.members if id_ not in before.members),
        gone=tuple(id_ for id_ in before.members if id_ not in group.members),
        estimate=estimate,
    )


def _earliest_ms(before: Group) -> int:
    """Return the earliest time at which the next rebalance can have begun: the last record, or the founding."""
    return before.since_ms if before.generation == 0 else before.recorded_ms
