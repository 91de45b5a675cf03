"""The events of rebalances, in words."""

from coordinator.messages.events import AssignmentChanged, RebalanceCompleted, RebalanceStarted
from streaming.views.history.rebalances import INFERRED
from streaming.views.sentences.observed_causes import details_in_words
from streaming.views.state.causes import cause_of
from streaming.views.state.fields import known
from streaming.views.text import brief, clock, counted, duration, escape, in_quotes, names, plain, spans


def started(event: RebalanceStarted) -> str:
    """Return the start of a rebalance, its cause and what it waits for."""
    who = f", {brief(event.member_id)} at {escape(event.client_host) or '?'}" if event.member_id else ""
    cause = plain(cause_of(event))
    held = f", held for {duration(event.held_ms)}" if isinstance(event.held_ms, int) else ""
    details = f": {text}" if (text := details_in_words(event)) else ""
    sentence = f"rebalance: {cause}{who}{in_quotes(event.reason)}{held}{details}"
    if event.how_known == INFERRED:
        return f"{sentence}; {began_after(known(event.not_before_ms))}"
    waits_ms = event.joins_until_ms - event.at_ms if event.joins_until_ms is not None else 0
    return f"{sentence}; waits for joins, {duration(waits_ms)} at most" if waits_ms > 0 else sentence


def began_after(at_ms: int | None) -> str:
    """Return the earliest time at which a rebalance can have begun whose start Kafka does not record."""
    return "when it began is not recorded" if at_ms is None else f"began after {clock(at_ms)}, not recorded when"


def phases(event: RebalanceCompleted) -> str:
    """Return the durations of the two phases of a rebalance. A group of the consumer protocol has no leader.

    Kafka does not record when the joins of a classic group began.
    """
    if event.joins_ms is None:
        return f"plan {_took(event.syncs_ms)}"
    if event.leader is None:
        planned = f"last plan {_took(event.joins_ms)} after the rebalance began"
        return f"{planned}, handover {_took(event.syncs_ms)}"
    return f"joins {_took(event.joins_ms)}, plan {_took(event.syncs_ms)}"


def _took(took_ms: int | None) -> str:
    return "not recorded" if took_ms is None else duration(took_ms)


def completed(event: RebalanceCompleted) -> str:
    """Return the end of a rebalance, with its durations and the members that changed."""
    took = f"({phases(event)})" if event.duration_ms is None else f"in {duration(event.duration_ms)} ({phases(event)})"
    changes = [f"{verb} {names(ids)}" for verb, ids in (("joined", event.joined), ("gone", event.gone)) if ids]
    return "; ".join([f"rebalanced {took}, {counted(len(event.members_after), 'member')}", *changes])


def handovers(event: AssignmentChanged) -> str:
    """Return the partitions that changed their owners, by both owners."""
    moves: dict[tuple[str | None, str | None, str], list[int]] = {}
    for h in event.handovers:
        moves.setdefault((h.before, h.after, h.topic), []).append(h.partition)
    return "; ".join(
        f"{escape(topic)} {spans(numbers)} from {brief(before)} to {brief(after)}"
        for (before, after, topic), numbers in moves.items()
    )
