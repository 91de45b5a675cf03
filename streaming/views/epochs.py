"""What a rebalance did in a group of the consumer protocol: the cause of each epoch, and whom partitions waited for."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from streaming.views.group import GroupView, known
from streaming.views.rebalances import Rebalance, Wait
from streaming.views.words import brief, clock, duration, escape, in_partitions

MEMBERS_TOLD = 3
"""The number of members whose waits are described. The rest are only counted."""

EPOCHS_TOLD = 5
"""The number of epochs whose causes are described: the last ones."""


class EpochCause(Struct):
    """A group epoch, and what raised it. Without a member, an administrator or a gateway with `client_id` did it."""

    group_epoch: int
    at_ms: int
    cause: str
    member_id: str | None
    client_id: str | None


class WaitedFor(Struct):
    """A member for which the next owners of its partitions waited.

    Args:
        partitions: By topic, the partitions that it had to give up.
        next_ids: The members that got them.
        wait_ms: The longest wait; null if the member has not given them up yet.
    """

    member_id: str
    partitions: dict[str, list[int]]
    next_ids: list[str]
    wait_ms: int | None


def epochs(rebalance: Rebalance) -> list[EpochCause]:
    """Return the group epochs of a rebalance in order, each with its cause."""
    return [
        EpochCause(e.generation_id or 0, e.at_ms, e.cause, e.member_id or None, e.client_id or None)
        for e in rebalance.started
    ]


def waits(group: GroupView, rebalance: Rebalance) -> list[WaitedFor]:
    """Return the members that a rebalance waited for, the longest wait first; those that it waits for come before."""
    still = list(_still_waited_for(group)) if rebalance.ended_ms is None else []
    by_member: dict[str, list[Wait]] = {}
    for wait in rebalance.waits.values():
        by_member.setdefault(wait.member_id, []).append(wait)
    over = [_waited_for(member_id, each) for member_id, each in by_member.items()]
    return still + sorted(over, key=lambda each: (-(each.wait_ms or 0), each.member_id))


def _waited_for(member_id: str, waited: Iterable[Wait]) -> WaitedFor:
    told = WaitedFor(member_id, {}, [], 0)
    for wait in waited:
        told.partitions.setdefault(wait.topic, []).append(wait.partition)
        told.wait_ms = max(told.wait_ms or 0, wait.wait_ms)
        if wait.next_id is not None and wait.next_id not in told.next_ids:
            told.next_ids.append(wait.next_id)
    return told


def _still_waited_for(group: GroupView) -> Iterator[WaitedFor]:
    planned = group.planned()
    for member in group.members:
        revoking = known(member.revoking)
        if revoking:
            places = [(topic, number) for topic, numbers in revoking.items() for number in numbers]
            next_ids = dict.fromkeys(planned[place].member_id for place in places if place in planned)
            yield WaitedFor(member.member_id, revoking, list(next_ids), None)


def in_words(group: GroupView, rebalance: Rebalance) -> list[str]:
    """Return the epochs and the waits of a rebalance as sentences."""
    sentences = []
    causes = epochs(rebalance)
    if causes:
        earlier = len(causes) - EPOCHS_TOLD
        told = "; ".join(map(_epoch, causes[-EPOCHS_TOLD:]))
        sentences.append(f"{f'{earlier} earlier epochs; ' if earlier > 0 else ''}{told}.")
    waited = waits(group, rebalance)
    sentences += map(_waited, waited[:MEMBERS_TOLD])
    if len(waited) > MEMBERS_TOLD:
        sentences.append(f"Partitions waited for {len(waited) - MEMBERS_TOLD} more members.")
    return sentences


def _epoch(each: EpochCause) -> str:
    who = brief(each.member_id) if each.member_id else escape(each.client_id or "")
    by = f" ({who})" if who else ""
    return f"Group epoch {each.group_epoch} at {clock(each.at_ms)}: {escape(each.cause).replace('_', ' ')}{by}"


def _waited(each: WaitedFor) -> str:
    places, who = in_partitions(each.partitions), brief(each.member_id)
    by = f" before {', '.join(map(brief, each.next_ids))} got it" if each.next_ids else ""
    if each.wait_ms is None:
        return f"{who} has not given up {places} yet."
    return f"{who} took {duration(each.wait_ms)} to give up {places}{by}."
