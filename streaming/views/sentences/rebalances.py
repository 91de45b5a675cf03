"""The events of rebalances in words: their rounds, and the seats and holds of policies.

In a group of the consumer protocol: the cause of each epoch, and each wait.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from msgspec import Struct

from coordinator.messages.events import AssignmentChanged, RebalanceCompleted, RebalanceStarted
from coordinator.messages.observed_events import TopicsNamed
from streaming.views.history.rebalances import INFERRED, Passed, Rebalance
from streaming.views.history.vacancies import REBALANCED, HoldRow, Quarantine, Seat
from streaming.views.history.waits import WaitedFor
from streaming.views.history.waits import in_words as wait_in_words
from streaming.views.sentences.observed import details_in_words, topic_names
from streaming.views.state.causes import GroupKind, cause_of
from streaming.views.state.fields import known
from streaming.views.text import (
    brief,
    clock,
    clock_after,
    counted,
    duration,
    escape,
    in_partitions,
    in_quotes,
    names,
    plain,
    spans,
)


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


# -- vacancies and holds -----------------------------------------------------------------------------------------------


SEATS_SHOWN = 5
"""The number of vacant seats that are described. The rest are only counted."""


def hold_in_words(hold: HoldRow, now_ms: int) -> str | None:
    """Return since when a rebalance is held, until when and why; None if none is held."""
    if hold.since_ms is None:
        return None
    why = ", ".join(_causes(hold)) or "its cause is not known any more"
    lasts, until = duration(max(0, now_ms - hold.since_ms)), clock_after(hold.until_ms, now_ms)
    return f"for {lasts}, until {until} at the latest: {why}"


def _causes(hold: HoldRow) -> Iterator[str]:
    if hold.vacant:
        seats = [_in_short(seat) for seat in hold.seats[:SEATS_SHOWN]]
        more = [f"{hold.vacant - len(seats)} more"] if seats and hold.vacant > len(seats) else []
        seats_text = f" ({'; '.join([*seats, *more])})" if seats else ""
        yield f"{counted(hold.vacant, 'seat')} vacant{seats_text}"
    if hold.standing_by:
        yield f"{counted(len(hold.standing_by), 'member')} standing by"


def _in_short(seat: Seat) -> str:
    number = counted(sum(map(len, seat.partitions.values())), "partition")
    return f"{brief(seat.member_id)}, {number}" if seat.member_id else "added partitions"


def quarantine_in_words(each: Quarantine) -> str:
    """Return who is in quarantine, until when and why."""
    if each.until_ms is None:
        return brief(each.member_id)
    why = f"{counted(each.flaps or 0, 'membership')} of {escape(each.identity or '')} ended too soon"
    return f"{brief(each.member_id)} until {clock(each.until_ms)}: {why}"


def vacancy_in_words(seat: Seat) -> str:
    """Return why nobody owns the partitions of a seat, from when to when, and who has them next."""
    is_over = seat.ended_ms is not None
    when = f"from {clock(seat.vacated_ms)} to {clock(seat.ended_ms)}" if is_over else f"since {clock(seat.vacated_ms)}"
    of = f"the seat of {brief(seat.member_id)}" if seat.member_id else "the seat of added partitions"
    why = f" ({plain(seat.cause)}{in_quotes(seat.reason)})" if seat.cause else ""
    verb = "was" if is_over else "is"
    kept = (
        f"{verb} kept by {plain(seat.policy)} until {clock(seat.until_ms)} at the latest"
        if seat.policy
        else f"{verb} vacant"
    )
    return f"nobody {when}: {of}{why} {kept}{_next(seat)}"


def _next(seat: Seat) -> str:
    if seat.taken_by is not None:
        return f"; {brief(seat.taken_by)} took it"
    return {None: "", REBALANCED: "; then the group rebalanced"}.get(seat.ended, "; then the group had no members")


# -- further rounds ----------------------------------------------------------------------------------------------------


PAIRS_SHOWN = 3
"""The maximum number of pairs of members of which a sentence names both."""


def rounds_in_words(rebalance: Rebalance, kind: GroupKind) -> list[str]:
    """Return a sentence about the partitions that members gave up in one round and others got in a later one.

    No sentence if the rebalance had one round, which is the rule. The events of workers of Kafka Connect do not name
    their connectors and tasks.
    """
    if not rebalance.rounds:
        return []
    if kind is GroupKind.CONNECT:
        return ["It went on: connectors and tasks that workers gave up were given to other workers."]
    passed = rebalance.passed
    given = [_given(each) for each in passed if each.after is not None]
    kept = [_kept(each) for each in passed if each.after is None]
    if rebalance.ended_ms is None:
        return [f"It goes on: {_listed(kept)}."] if kept else ["It goes on with a further round."]
    if given:
        return [f"It went on: {_listed(given)}."]
    return ["It went on with a further round, in which no partition got another owner."]


def _given(passed: Passed) -> str:
    were = "was" if passed.partitions == 1 else "were"
    number = counted(passed.partitions, "partition")
    return f"{number} that {brief(passed.before)} gave up {were} given to {brief(passed.after)}"


def _kept(passed: Passed) -> str:
    return f"{brief(passed.before)} gave up {counted(passed.partitions, 'partition')}, and joined again"


def _listed(texts: list[str]) -> str:
    more = len(texts) - PAIRS_SHOWN
    return "; ".join(texts[:PAIRS_SHOWN]) + (f"; and {more} more such changes" if more > 0 else "")


# -- groups of the consumer protocol -----------------------------------------------------------------------------------


MEMBERS_SHOWN = 3
"""The number of members whose waits are described. The rest are only counted."""

EPOCHS_SHOWN = 5
"""The number of epochs whose causes are described: the last ones."""

OF_TOPICS = frozenset({"topics_changed", "regex_resolved"})
"""The causes that change the topics of a group, and not its members."""

DELETED = "deleted"
"""A change of a topic; see `TopicChange`."""


class EpochCause(Struct, omit_defaults=True):
    """A group epoch, and what raised it. Without a member, an administrator or a gateway with `client_id` did it.

    `topics` are the changed topics; it is left out if they are not known, or if the cause is another one.
    """

    group_epoch: int
    at_ms: int
    cause: str
    member_id: str | None
    client_id: str | None
    topics: list[str] = []


Named = Mapping[int, TopicsNamed]
"""The changed topics by group epoch, as far as they are known."""

NONE_NAMED: Named = MappingProxyType({})


def epochs(rebalance: Rebalance, named: Named = NONE_NAMED) -> list[EpochCause]:
    """Return the group epochs of a rebalance in order, each with its cause."""
    return [
        EpochCause(
            e.generation_id or 0, e.at_ms, e.cause, e.member_id or None, e.client_id or None, _topics_of(e, named)
        )
        for e in rebalance.started
    ]


def _topics_of(event: RebalanceStarted, named: Named) -> list[str]:
    found = named.get(event.generation_id or 0)
    return [each.topic for each in found.changes] if found and event.cause == "topics_changed" else []


def in_words(
    rebalance: Rebalance, waited: list[WaitedFor], now_ms: int | None = None, named: Named = NONE_NAMED
) -> list[str]:
    """Return the epochs and the waits of a rebalance as sentences.

    Args:
        now_ms: The present, for the duration of a wait that lasts; None to tell the time of its beginning instead.
    """
    sentences = []
    causes = epochs(rebalance, named)
    if causes:
        spans = [list(each) for _, each in groupby(causes, key=lambda e: (e.cause, e.member_id, e.client_id, e.topics))]
        earlier = sum(map(len, spans[:-EPOCHS_SHOWN]))
        causes_text = "; ".join(map(_epochs, spans[-EPOCHS_SHOWN:]))
        before = f"{counted(earlier, 'earlier epoch')}; " if earlier > 0 else ""
        sentences.append(f"{before or causes_text[0].upper()}{causes_text[0 if before else 1 :]}.")
    sentences += _of_topics(rebalance, {t.topic for each in named.values() for t in each.changes if t.what == DELETED})
    sentences += [wait_in_words(each, now_ms) for each in waited[:MEMBERS_SHOWN]]
    if len(waited) > MEMBERS_SHOWN:
        sentences.append(f"Partitions waited for {len(waited) - MEMBERS_SHOWN} more members.")
    return sentences


def _epochs(raised: Sequence[EpochCause]) -> str:
    """Return an epoch and its cause, or several epochs in a row that have the same one."""
    each, last = raised[0], raised[-1]
    who = brief(each.member_id) if each.member_id else escape(each.client_id or "")
    what = who or topic_names(each.topics)
    by = f" ({what})" if what else ""
    cause = f"{escape(each.cause).replace('_', ' ')}{by}"
    if last.group_epoch == each.group_epoch:
        return f"group epoch {each.group_epoch} at {clock(each.at_ms)}: {cause}"
    numbers, times = f"{each.group_epoch} to {last.group_epoch}", f"{clock(each.at_ms)} to {clock(last.at_ms)}"
    return f"group epochs {numbers}, {times}: {cause}"


def _of_topics(rebalance: Rebalance, deleted: Collection[str]) -> Iterator[str]:
    """Yield the partitions that got their first owner, or have no owner any more, if only topics have changed.

    Args:
        deleted: Topics whose partitions cannot have an owner.
    """
    if not {each.cause for each in rebalance.started} <= OF_TOPICS:
        return
    came, gone = dict[str, list[int]](), dict[str, list[int]]()
    for move in rebalance.handovers:
        if move.before is None:
            came.setdefault(move.topic, []).append(move.partition)
        if move.after is None and move.topic not in deleted:
            gone.setdefault(move.topic, []).append(move.partition)
    if came:
        yield f"Partitions without an owner before: {in_partitions(came)}."
    if gone and rebalance.ended_ms is not None:
        yield f"Partitions without an owner since: {in_partitions(gone)}."
