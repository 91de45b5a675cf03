"""What a rebalance did in a group of the consumer protocol, in sentences: the cause of each epoch, and each wait."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from msgspec import Struct

from coordinator.messages.events import RebalanceStarted
from coordinator.messages.observed_events import TopicsNamed
from streaming.views.history.rebalances import Rebalance
from streaming.views.history.waits import WaitedFor
from streaming.views.history.waits import in_words as wait_in_words
from streaming.views.sentences.observed_causes import topic_names
from streaming.views.text import brief, clock, escape, in_partitions

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
        sentences.append(f"{f'{earlier} earlier epochs; ' if earlier > 0 else ''}{causes_text}.")
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
        return f"Group epoch {each.group_epoch} at {clock(each.at_ms)}: {cause}"
    numbers, times = f"{each.group_epoch} to {last.group_epoch}", f"{clock(each.at_ms)} to {clock(last.at_ms)}"
    return f"Group epochs {numbers}, {times}: {cause}"


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
