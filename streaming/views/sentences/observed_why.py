"""The explanation of rebalances of groups that Kafka's own coordinator keeps, as far as its log tells.

Kafka records neither whether a member left or expired, nor the start and the cause of a rebalance of a classic group. A
cause is inferred from the difference of two generations, and one rebalance may have several; their order is unknown.
Of a group of the consumer protocol the epochs are recorded, in their order.
"""

from collections.abc import Iterator
from itertools import groupby, takewhile
from typing import NamedTuple

from coordinator.messages.events import AnyEvent, MemberJoined, RebalanceStarted
from coordinator.messages.observed_events import MemberGone, TopicsNamed
from streaming.views.history.advice import (
    ADVICE,
    GAP,
    GONE,
    GONE_AGAIN,
    GONE_OF_CONSUMERS,
    NOTHING_DIFFERS,
    NOTHING_RECORDED,
    OF_CONSUMERS,
    RESTARTED,
    STATIC_GONE,
    STATIC_GONE_OF_CONSUMERS,
    UNKNOWN,
    Advice,
    for_brokers,
)
from streaming.views.history.instability import SHORT_MEMBERSHIPS, SHORT_MEMBERSHIPS_MS
from streaming.views.history.rebalances import Rebalance
from streaming.views.sentences.observed import Reason, gap_in_words, in_full, listed
from streaming.views.sentences.observed_causes import RACKS
from streaming.views.state.causes import is_further_round
from streaming.views.state.group import GroupView
from streaming.views.text import duration

TOPICS = ("topics_changed", "racks_changed")
"""The causes that lie in topics."""

COMES_BACK_MS = 120_000
"""A client that is gone and joins again within this time was restarted, or had lost its session."""

UNCHANGED_MS = 60_000
"""With `SHORT_MEMBERSHIPS` rebalances within this time in which nothing changed, the group rebalances without need."""


class Explained(NamedTuple):
    """The explanation of a rebalance.

    Args:
        event: The event that names the member; None if none does.
        who: A sentence.
    """

    cause: str
    event: RebalanceStarted | None
    who: str
    advice: Advice


def explain_observed(group: GroupView, rebalance: Rebalance, *, is_consumer: bool) -> Explained:
    """Return the explanation of a rebalance.

    Args:
        is_consumer: Whether the group has the consumer protocol.
    """
    if rebalance.gap is not None:
        text = gap_in_words(rebalance.gap)
        return Explained("history_gap", None, f"{text[0].upper()}{text[1:]}.", GAP)
    reasons = _reasons(group, rebalance, is_consumer=is_consumer)
    if not reasons:
        return _nothing(group, rebalance, is_consumer=is_consumer)
    chosen = next((each for each in reasons if each.advice.is_avoidable), reasons[0])
    who = in_full(chosen) if len(reasons) == 1 else listed(reasons)
    session_ms = chosen.gone.session_timeout_ms if chosen.gone is not None else None
    took = "as it is set" if session_ms is None else duration(session_ms)
    advice = for_brokers(chosen.advice)
    advice = advice._replace(text=advice.text.format(took=took))
    return Explained(chosen.cause, chosen.event, f"{who}{_often(group, chosen)}.", advice)


def _reasons(group: GroupView, rebalance: Rebalance, *, is_consumer: bool) -> list[Reason]:
    """Return the reasons of a rebalance, epoch by epoch. A client that is gone and is back is one reason, not two.

    Topics that changed in an epoch that has other causes are one more reason.
    """
    began = [each for each in rebalance.started if not is_further_round(each)] or rebalance.started
    named, reasons = topics_of(group, rebalance), list[Reason]()
    for epoch, raised in groupby(began, key=lambda each: each.generation_id):
        events, topics = list(raised), named.get(epoch or 0)
        of_epoch = [_reason(group, each, topics, is_consumer=is_consumer) for each in events]
        if topics is not None and all(each.cause not in TOPICS for each in of_epoch):
            of_epoch.append(_of_topics(events[0], topics))
        reasons += [each for each in of_epoch if each.cause != "unknown"]
    back = {_client(each.event) for each in reasons if each.cause == "restarted"}
    return [each for each in reasons if each.cause != "member_joined" or _client(each.event) not in back]


def topics_of(group: GroupView, rebalance: Rebalance) -> dict[int, TopicsNamed]:
    """Return the changed topics of the epochs of a rebalance, as far as they are known."""
    found: dict[int, TopicsNamed] = {}
    for event in rebalance.started:
        epoch = event.generation_id or 0
        named = next((each for each in group.topics_named.get(epoch, ()) if each.at_ms >= event.at_ms), None)
        if named is not None:
            found[epoch] = named
    return found


def _of_topics(event: RebalanceStarted, topics: TopicsNamed | None) -> Reason:
    """Return that topics changed, or only the racks of their replicas."""
    is_racks = topics is not None and all(each.what == RACKS for each in topics.changes)
    cause = "racks_changed" if is_racks else "topics_changed"
    return Reason(cause, event, OF_CONSUMERS[cause], topics=topics)


def _reason(group: GroupView, event: RebalanceStarted, topics: TopicsNamed | None, *, is_consumer: bool) -> Reason:
    if event.cause == "topics_changed":
        return _of_topics(event, topics)
    if event.cause != "member_gone":
        cause = event.cause
        table = OF_CONSUMERS if is_consumer else ADVICE
        return Reason(cause, event, table.get(cause) or OF_CONSUMERS.get(cause, UNKNOWN))
    gone, back_ms = _gone(group, event), _back_after(group, event)
    if gone is not None and gone.likely == "expired":
        return Reason("session_expired", event, STATIC_GONE_OF_CONSUMERS if is_consumer else STATIC_GONE, gone)
    if back_ms is not None:
        return Reason("restarted", event, RESTARTED, gone, back_ms)
    if _times_gone(group, event) >= SHORT_MEMBERSHIPS:
        return Reason("member_gone", event, GONE_AGAIN, gone)
    if gone is not None and gone.likely == "left":
        return Reason("member_left", event, ADVICE["member_left"], gone)
    return Reason("member_gone", event, GONE_OF_CONSUMERS if is_consumer else GONE, gone)


def _client(event: RebalanceStarted) -> tuple[str, str]:
    return event.client_id, event.client_host


def _gone(group: GroupView, event: RebalanceStarted) -> MemberGone | None:
    """Return the event of the member that a rebalance names."""
    told = (each for each in _from(group, event.at_ms, 0) if isinstance(each, MemberGone))
    return next((each for each in told if each.member_id == event.member_id), None)


def _from(group: GroupView, at_ms: int, within_ms: int) -> Iterator[AnyEvent]:
    return takewhile(lambda event: event.at_ms <= at_ms + within_ms, group.since(at_ms))


def _back_after(group: GroupView, gone: RebalanceStarted) -> int | None:
    """Return the milliseconds after which a client that is gone was a member again; None if it was not.

    It is 0 if both are in one record, so that the time is not known.
    """
    for event in _from(group, gone.at_ms, COMES_BACK_MS):
        is_it = isinstance(event, MemberJoined) and (event.client_id, event.client_host) == _client(gone)
        if is_it and isinstance(event, MemberJoined) and event.member_id != gone.member_id:
            return event.at_ms - gone.at_ms
    return None


def _times_gone(group: GroupView, event: RebalanceStarted) -> int:
    """Return how many rebalances of the hour before it a client is behind because it was gone."""
    times = _times(group, event.at_ms, SHORT_MEMBERSHIPS_MS)
    return len({e.at_ms for e in times if e.cause == "member_gone" and _client(e) == _client(event)})


def _times(group: GroupView, until_ms: int, within_ms: int) -> Iterator[RebalanceStarted]:
    """Yield the reasons of rebalances of some time up to a moment."""
    for event in takewhile(lambda e: e.at_ms <= until_ms, group.since(until_ms - within_ms)):
        if isinstance(event, RebalanceStarted):
            yield event


def _often(group: GroupView, reason: Reason) -> str:
    """Return how often a client was gone, if that is often."""
    if reason.event.cause != "member_gone":
        return ""
    times = _times_gone(group, reason.event)
    return f"; it is behind {times} rebalances of the last hour" if times >= SHORT_MEMBERSHIPS else ""


def _nothing(group: GroupView, rebalance: Rebalance, *, is_consumer: bool) -> Explained:
    """Return the explanation of a rebalance in which nothing differs from the generation before."""
    event = rebalance.started[0] if rebalance.started else None
    if is_consumer:
        who = "Nothing differs that Kafka records: no member, no subscription, no assignor and no topic."
        return Explained("unknown", event, who, NOTHING_RECORDED)
    who = "All joined again and nothing differs: what asked for it is not recorded"
    unknown = (e for e in _times(group, rebalance.started_ms, UNCHANGED_MS) if e.cause == "unknown")
    times = len({each.at_ms for each in unknown})
    if times < SHORT_MEMBERSHIPS:
        return Explained("unknown", event, f"{who}.", NOTHING_DIFFERS)
    often = f"; it is one of {times} such rebalances within {duration(UNCHANGED_MS)}"
    return Explained("unknown", event, f"{who}{often}.", NOTHING_DIFFERS._replace(is_avoidable=True))
