"""What a rebalance did in a group of the consumer protocol, in sentences: the cause of each epoch, and each wait."""

from collections.abc import Iterator

from msgspec import Struct

from streaming.views.history.rebalances import Rebalance
from streaming.views.history.waits import WaitedFor
from streaming.views.history.waits import in_words as wait_in_words
from streaming.views.text import brief, clock, escape, in_partitions

MEMBERS_TOLD = 3
"""The number of members whose waits are described. The rest are only counted."""

EPOCHS_TOLD = 5
"""The number of epochs whose causes are described: the last ones."""

OF_TOPICS = frozenset({"topics_changed", "regex_resolved"})
"""The causes that change the topics of a group, and not its members. Their events name no topic."""


class EpochCause(Struct):
    """A group epoch, and what raised it. Without a member, an administrator or a gateway with `client_id` did it."""

    group_epoch: int
    at_ms: int
    cause: str
    member_id: str | None
    client_id: str | None


def epochs(rebalance: Rebalance) -> list[EpochCause]:
    """Return the group epochs of a rebalance in order, each with its cause."""
    return [
        EpochCause(e.generation_id or 0, e.at_ms, e.cause, e.member_id or None, e.client_id or None)
        for e in rebalance.started
    ]


def in_words(rebalance: Rebalance, waited: list[WaitedFor], now_ms: int | None = None) -> list[str]:
    """Return the epochs and the waits of a rebalance as sentences.

    Args:
        now_ms: The present, for the duration of a wait that lasts; None to tell the time of its beginning instead.
    """
    sentences = []
    causes = epochs(rebalance)
    if causes:
        earlier = len(causes) - EPOCHS_TOLD
        told = "; ".join(map(_epoch, causes[-EPOCHS_TOLD:]))
        sentences.append(f"{f'{earlier} earlier epochs; ' if earlier > 0 else ''}{told}.")
    sentences += _of_topics(rebalance)
    sentences += [wait_in_words(each, now_ms) for each in waited[:MEMBERS_TOLD]]
    if len(waited) > MEMBERS_TOLD:
        sentences.append(f"Partitions waited for {len(waited) - MEMBERS_TOLD} more members.")
    return sentences


def _epoch(each: EpochCause) -> str:
    who = brief(each.member_id) if each.member_id else escape(each.client_id or "")
    by = f" ({who})" if who else ""
    return f"Group epoch {each.group_epoch} at {clock(each.at_ms)}: {escape(each.cause).replace('_', ' ')}{by}"


def _of_topics(rebalance: Rebalance) -> Iterator[str]:
    """Yield the partitions that got their first owner, or have no owner any more, if only topics have changed."""
    if not {each.cause for each in rebalance.started} <= OF_TOPICS:
        return
    came, gone = dict[str, list[int]](), dict[str, list[int]]()
    for move in rebalance.handovers:
        if move.before is None:
            came.setdefault(move.topic, []).append(move.partition)
        if move.after is None:
            gone.setdefault(move.topic, []).append(move.partition)
    if came:
        yield f"Partitions without an owner before: {in_partitions(came)}."
    if gone and rebalance.ended_ms is not None:
        yield f"Partitions without an owner since: {in_partitions(gone)}."
