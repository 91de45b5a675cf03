"""The explanation of a rebalance in three sentences: the event, the client that caused it, and the setting to change.

A member for which all others waited counts as the cause before the member that began the rebalance. Both are named.

In a group of the consumer protocol, further sentences tell the cause of each group epoch, and which members had to give
up partitions before others could get them. `streaming.views.history.advice` has the tables of causes.

`observed` has what is behind a rebalance of a group that Kafka's own coordinator keeps.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

from msgspec import Struct, field

from coordinator.base.states import GroupType
from coordinator.messages.events import AnyEvent, MemberExpired, MemberJoined, RebalanceStarted
from streaming.views.history.advice import (
    DID_NOT_COME_BACK,
    DID_OF_CONSUMERS,
    LAST_LEFT,
    LAST_WORKER_LEFT,
    STATIC_GONE,
    TOPICS_NOTICED,
    UNKNOWN,
    Advice,
    advice_for,
    did_by,
)
from streaming.views.history.instability import SHORT_MEMBERSHIPS, Begun, times_begun, times_until
from streaming.views.history.rebalances import Rebalance, latest, rebalances
from streaming.views.history.waits import WaitedFor, waits
from streaming.views.sentences.observed import (
    estimate_in_words,
    explain_observed,
    offsets_in_words,
    topics_of,
    unplanned_in_words,
    what_inferred,
)
from streaming.views.sentences.policy_advice import (
    HeldBy,
    SeatCount,
    count_in_words,
    held_by,
    held_in_words,
    seat_count,
    spared_by,
)
from streaming.views.sentences.rebalances import EpochCause, epochs, in_words, rounds_in_words
from streaming.views.state.causes import GroupKind, cause_of, tells_of_topics
from streaming.views.state.group import GroupView
from streaming.views.text import brief, capital, clock, counted, duration, escape, is_standard, naming, reason_in_short

COMES_BACK_MS = 120_000
"""A client that leaves and joins again within this time was restarted."""

_POLLED_TOO_LATE = re.compile(r"poll(ed|ing)?\b.*(timeout|interval|late|exceeded|expired)", re.IGNORECASE)
"""Reasons that clients give for a member that did not poll in time: Java, librdkafka and this client."""


class Why(Struct, kw_only=True):
    """The explanation.

    Args:
        cause_name: A key of the tables of `streaming.views.history.advice`, or `unknown`.
        is_avoidable: null if the events do not show it.
        setting: The setting to check.
        details: Further sentences: about the rounds of a cooperative rebalance, and about group epochs and waits. Only
            groups of the consumer protocol have `epochs` and `waits`.
        policies: Sentences about what policies did, or would have done.
        held: How long policies have held the rebalance; null if none has.
        seats: The seats that fell vacant within the day before; null if none did.
        spared_by: The policy that would have made the rebalance unnecessary; null if none would have.
    """

    group_id: str
    at_ms: int
    generation_id: int
    cause: str
    is_avoidable: bool | None
    setting: str | None
    member_id: str | None
    client_id: str | None
    client_host: str | None
    reason: str | None
    what: str
    who: str
    advice: str
    flapping: bool = False
    details: list[str] = field(default_factory=list)
    epochs: list[EpochCause] = field(default_factory=list)
    waits: list[WaitedFor] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    held: HeldBy | None = None
    seats: SeatCount | None = None
    spared_by: str | None = None


def why(group: GroupView, at_ms: int | None = None, now_ms: int | None = None) -> Why | None:
    """Return the explanation of a group's last rebalance, or the last before a moment; None without a rebalance.

    Args:
        now_ms: The present, for the durations of waits that last; None to tell the times of their beginnings instead.
    """
    if at_ms is None:
        last = latest(group.events, group.waiting_partitions)
    else:
        told = rebalances(group.events, group.waiting_partitions)
        last = next((r for r in reversed(told) if r.started_ms <= at_ms), None)
    with naming(group.client_ids):
        return explain_with_policies(group, last, at_ms or now_ms, now_ms=now_ms) if last else None


def explain_with_policies(
    group: GroupView, rebalance: Rebalance, until_ms: int | None, *, now_ms: int | None = None
) -> Why:
    """Return the explanation of one rebalance, and what policies did about it or would have done.

    Args:
        until_ms: The end of the day whose seats are counted; None for the last event.
        now_ms: As for `why`.
    """
    told = explain(group, rebalance, now_ms=now_ms)
    told.held = held_by(group, rebalance)
    told.seats = seat_count(group, group.events[-1].at_ms if until_ms is None else until_ms)
    is_ours = group.kept_by is None and _type_of(group, rebalance) is GroupType.CLASSIC
    spared = spared_by(group, rebalance) if is_ours else None
    told.spared_by = spared.policy if spared else None
    sentences = (
        held_in_words(told.held) if told.held else None,
        count_in_words(told.seats) if told.seats else None,
        spared.text if spared else None,
    )
    told.policies = [sentence for sentence in sentences if sentence is not None]
    return told


def explain(group: GroupView, rebalance: Rebalance, begun: Begun | None = None, now_ms: int | None = None) -> Why:
    """Return the explanation of one rebalance of a group.

    A rebalance in which the group was converted is explained by the protocol that the group has at its end.

    Args:
        begun: The result of `times_begun`, for callers that explain many rebalances.
        now_ms: As for `why`.
    """
    of_group = _type_of(group, rebalance)
    if group.kept_by is not None:
        return _explain_observed(group, rebalance, now_ms, of_group)
    began = _began(group, rebalance.started[0]) if rebalance.started else None
    cause = _late(rebalance) or began
    advice = _advice(group, rebalance, cause, of_group)
    waited = waits(group, rebalance) if of_group.has_epochs else []
    client = (cause.who.client_id, cause.who.client_host) if cause and cause.who.client_id else None
    begun = times_begun(group) if begun is None else begun
    times = times_until(begun, client, rebalance.started_ms) if client else 0
    return Why(
        group_id=group.group_id,
        at_ms=rebalance.started_ms,
        generation_id=rebalance.generation_id,
        cause=cause.cause if cause else "unknown",
        is_avoidable=advice.is_avoidable,
        setting=advice.setting,
        member_id=cause.who.member_id or None if cause else None,
        client_id=cause.who.client_id or None if cause else None,
        client_host=cause.who.client_host or None if cause else None,
        reason=cause.who.reason if cause else None,
        what=_what(group, rebalance, of_group),
        who=_who(rebalance, cause, began, times, did_by(group.kind, of_group)),
        advice=advice.text.format(took=_took(cause, "as it is set")),
        flapping=times >= SHORT_MEMBERSHIPS,
        details=in_words(rebalance, waited, now_ms) if of_group.has_epochs else rounds_in_words(rebalance, group.kind),
        epochs=epochs(rebalance) if of_group.has_epochs else [],
        waits=waited,
    )


def _explain_observed(group: GroupView, rebalance: Rebalance, now_ms: int | None, of_group: GroupType) -> Why:
    """Return the explanation of a rebalance of a group that Kafka's own coordinator keeps."""
    told = explain_observed(group, rebalance, of_group)
    event = told.event
    waited = waits(group, rebalance) if of_group.has_epochs else []
    named = topics_of(group, rebalance)
    if of_group.has_epochs:
        details = in_words(rebalance, waited, now_ms, named)
    else:
        details = rounds_in_words(rebalance, group.kind)
    return Why(
        group_id=group.group_id,
        at_ms=rebalance.started_ms,
        generation_id=rebalance.generation_id,
        cause=told.cause,
        is_avoidable=told.advice.is_avoidable,
        setting=told.advice.setting,
        member_id=event.member_id or None if event else None,
        client_id=event.client_id or None if event else None,
        client_host=event.client_host or None if event else None,
        reason=event.reason if event else None,
        what=_what(group, rebalance, of_group),
        who=told.who,
        advice=told.advice.text,
        flapping=told.advice.is_avoidable is True and told.cause in ("member_gone", "unknown"),
        details=[
            *details,
            *unplanned_in_words(rebalance),
            *estimate_in_words(rebalance),
            *offsets_in_words(group, rebalance),
        ],
        epochs=epochs(rebalance, named) if of_group.has_epochs else [],
        waits=waited,
    )


def _type_of(group: GroupView, rebalance: Rebalance) -> GroupType:
    """Return the protocol of a group at the end of a rebalance, or now if it still runs."""
    return group.type if rebalance.ended_ms is None else group.type_at(rebalance.ended_ms)


def _advice(group: GroupView, rebalance: Rebalance, cause: "_Cause | None", of_group: GroupType) -> Advice:
    """Return the assessment of a cause."""
    if cause is None:
        return UNKNOWN
    is_over = rebalance.ended_ms is not None and rebalance.completed is None
    if cause.cause == "member_left" and is_over:
        return LAST_WORKER_LEFT if group.kind is GroupKind.CONNECT else LAST_LEFT
    if cause.is_static and cause.cause == "session_expired" and group.kind is GroupKind.CONSUMERS:
        return STATIC_GONE
    if cause.cause == "leader_rejoined" and tells_of_topics(cause.who.reason):
        return TOPICS_NOTICED
    return advice_for(cause.cause, group.kind, of_group)


class _Cause(NamedTuple):
    """The cause of a rebalance: a row of the tables, the event that names the member, and the duration that the row
    mentions.
    """

    cause: str
    who: RebalanceStarted | MemberExpired
    took_ms: int | None = None
    is_static: bool = False


def _began(group: GroupView, first: RebalanceStarted) -> _Cause:
    """Return the cause of a rebalance."""
    if first.cause == "session_expired":
        dropped = (e for e in _until(group, first.at_ms, first.at_ms) if isinstance(e, MemberExpired))
        silent = next((e for e in dropped if e.member_id == first.member_id), None)
        is_static = silent is not None and silent.group_instance_id is not None
        return _Cause("session_expired", first, silent.silence_ms if silent else None, is_static)
    if first.cause == "member_left":
        if first.reason and _POLLED_TOO_LATE.search(first.reason):
            return _Cause("poll_overdue", first)
        if (back_ms := _back_after(group, first)) is not None:
            return _Cause("restarted", first, back_ms)
    cause = cause_of(first)
    return _Cause(_LATE.get(cause, cause), first)


_LATE = {
    "joins_overdue": "join_overdue",
    "syncs_overdue": "sync_overdue",
    "revocation_overdue": "revocation_overdue",
    "session_expired": "session_expired",
}
"""The causes, by the reason for which a member was dropped."""


def _late(rebalance: Rebalance) -> _Cause | None:
    """Return the member for which others waited without success, and the wait.

    In a classic group all others wait, from the beginning of the join phase. In a group of the consumer protocol only
    the next owners of its partitions wait, from the plan that moved them.
    """
    if not rebalance.late:
        return None
    late = rebalance.late[0]
    if late.why == "session_expired":
        return _Cause(late.why, late, late.silence_ms)
    waited = [wait.wait_ms for wait in rebalance.waits.values() if wait.member_id == late.member_id]
    if waited:
        return _Cause(_LATE[late.why], late, max(waited))
    asked_ms = max((e.at_ms for e in rebalance.started if e.at_ms < late.at_ms), default=rebalance.started_ms)
    return _Cause(_LATE[late.why], late, late.at_ms - asked_ms)


def _back_after(group: GroupView, left: RebalanceStarted) -> int | None:
    """Return the milliseconds after which a client that left was a member again; None if it was not."""
    for event in _until(group, left.at_ms, left.at_ms + COMES_BACK_MS):
        if (
            isinstance(event, MemberJoined)
            and (event.client_id, event.client_host) == (left.client_id, left.client_host)
            and event.member_id != left.member_id
        ):
            return max(1, event.at_ms - left.at_ms)
    return None


def _until(group: GroupView, from_ms: int, to_ms: int) -> Iterator[AnyEvent]:
    return takewhile(lambda event: event.at_ms <= to_ms, group.since(from_ms))


def _what(group: GroupView, rebalance: Rebalance, of_group: GroupType) -> str:
    if rebalance.is_inferred:
        return what_inferred(rebalance, group.group_id, _changed(group, rebalance))
    began = f"{escape(group.group_id)} rebalanced at {clock(rebalance.started_ms)}"
    if rebalance.ended_ms is None:
        return f"{began} and still rebalances."
    number = f"{'group epoch' if of_group.has_epochs else 'generation'} {rebalance.generation_id}"
    took = f"{began} for {duration(rebalance.ended_ms - rebalance.started_ms)}, to {number}"
    if rebalance.completed is None:
        return f"{took}, which has no members."
    if group.kind is GroupKind.CONNECT or of_group is GroupType.SHARE:
        return f"{took}, with {_changed(group, rebalance)}."
    return f"{took}: {_changed(group, rebalance)}."


def _changed(group: GroupView, rebalance: Rebalance) -> str:
    """Return how many partitions changed hands among how many members; of Kafka Connect, only the number of workers.
    Partitions of a share group have no owner, so only its members are counted."""
    number_of = len(rebalance.completed.members_after) if rebalance.completed else 0
    if group.kind is GroupKind.CONNECT:
        return counted(number_of, "worker")
    if group.type is GroupType.SHARE:
        return counted(number_of, "member")
    moved = len(rebalance.handovers)
    changed = "no partition changed" if not moved else f"{moved} partition{'s' * (moved != 1)} changed"
    return f"{changed} hands among {counted(number_of, 'member')}"


def _who(rebalance: Rebalance, cause: _Cause | None, began: _Cause | None, times: int, texts: Mapping[str, str]) -> str:
    if cause is None or began is None:
        return "The member that caused it is not known any more."
    others = f" and {counted(len(rebalance.late) - 1, 'member')} more" if len(rebalance.late) > 1 else ""
    often = f"; it caused {times} rebalances of the last hour" if times >= SHORT_MEMBERSHIPS else ""
    is_other = (cause.cause, cause.who.member_id) != (began.cause, began.who.member_id)
    first = f"; the first cause: {_did(began, texts)}" if is_other else ""
    return f"{capital(_did(cause, texts), _FIRST_WORDS)}{others}{often}{first}."


_FIRST_WORDS = ("an operator ", "the last member ", "a client ")
"""The first words of the parts of sentences that begin with no name."""


def _did(cause: _Cause, texts: Mapping[str, str]) -> str:
    who, cause_name = cause.who, cause.cause
    host = f" at {escape(who.client_host)}" if who.client_host else ""
    said = "" if is_standard(who.reason) else f', with the reason "{reason_in_short(who.reason)}"'
    if cause_name == "operator":
        whom = f", about {brief(who.member_id)}" if who.member_id else ""
        return f"an operator ({escape(who.client_id)}{host}) requested it{whom}{said}"
    if cause_name == "group_converted":
        return "the last member of the consumer protocol is gone, and the group has the classic protocol now"
    if cause.is_static and cause_name == "session_expired":
        texts = {cause_name: DID_NOT_COME_BACK}
    text = texts.get(cause_name) or DID_OF_CONSUMERS.get(cause_name, cause_name.replace("_", " "))
    did = text.format(took=_took(cause, "too long"))
    return f"{brief(who.member_id) or escape(who.client_id) or 'a client'}{host} {did}{said}"


def _took(cause: _Cause | None, otherwise: str) -> str:
    return duration(cause.took_ms) if cause and cause.took_ms else otherwise
