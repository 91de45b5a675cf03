"""What follows from the difference of two records of a classic group: the causes of a rebalance, and why a member is
gone.

Kafka writes a classic group once for each generation, and no cause. So everything here is an inference.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from coordinator.base.consumer_protocol import READABLE, subscribed_topics
from coordinator.messages.observed_events import ObservedCause
from streaming.observe.publishing import Owners
from streaming.observe.state import Group, Member, Place, Reason

COOPERATIVE = "cooperative"
"""A part of the names of assignors whose members keep their partitions during a rebalance."""


class Difference(NamedTuple):
    """The members of two generations, compared.

    Args:
        joined: The members that are new, without those that replace a static member.
        gone: The members that are missing, without those that were replaced.
        replaced: Static members, each with the member that has its instance id now.
    """

    joined: list[Member]
    gone: list[Member]
    replaced: list[tuple[Member, Member]]


def difference(before: Mapping[str, Member], after: Mapping[str, Member]) -> Difference:
    """Compare the members of two generations."""
    joined = {id_: member for id_, member in after.items() if id_ not in before}
    gone = {id_: member for id_, member in before.items() if id_ not in after}
    by_instance = {member.group_instance_id: id_ for id_, member in joined.items() if member.group_instance_id}
    replaced = [
        (old, joined.pop(by_instance[old.group_instance_id]))
        for old in list(gone.values())
        if old.group_instance_id in by_instance
    ]
    for old, _ in replaced:
        del gone[old.member_id]
    return Difference(list(joined.values()), list(gone.values()), replaced)


def because(cause: ObservedCause, member: Member | None = None, reason: str | None = None) -> Reason:
    """Return a cause with its member."""
    if member is None:
        return Reason(cause.value, reason=reason)
    return Reason(cause.value, member.member_id, member.client_id, member.client_host, reason)


def reasons(before: Group, after: Group, found: Difference, owned: Owners, owns: Owners) -> list[Reason]:
    """Return the causes of a rebalance from `before` to `after`, those of changed members first.

    Args:
        owned, owns: The owners before and after.
    """
    causes = [because(ObservedCause.MEMBER_GONE, member) for member in found.gone]
    causes += [because(ObservedCause.STATIC_MEMBER_REPLACED, new) for _, new in found.replaced]
    causes += [because(ObservedCause.MEMBER_JOINED, member) for member in found.joined]
    causes += _changed_metadata(before, after)
    return causes or [_of_assignment(before, after, owned, owns)]


def _changed_metadata(before: Group, after: Group) -> Iterator[Reason]:
    if before.protocol_name and after.protocol_name and before.protocol_name != after.protocol_name:
        names = f"{before.protocol_name} -> {after.protocol_name}"
        yield because(ObservedCause.METADATA_CHANGED, reason=names)
    if after.protocol_type not in READABLE:
        return
    for member in after.members.values():
        earlier = before.members.get(member.member_id)
        if earlier is not None and earlier.subscription != member.subscription:
            old, new = subscribed_topics(earlier.subscription), subscribed_topics(member.subscription)
            if old is not None and new is not None and set(old) != set(new):
                yield because(ObservedCause.METADATA_CHANGED, member)


def _of_assignment(before: Group, after: Group, owned: Owners, owns: Owners) -> Reason:
    """Return the cause that the assignments of the same members with the same topics show."""
    fresh = owns.keys() - owned.keys()
    if not fresh:
        return because(ObservedCause.UNKNOWN)
    if before.released is None:
        is_second = COOPERATIVE in (after.protocol_name or "")
    else:
        is_second = not fresh.isdisjoint(before.released)
    return because(ObservedCause.COOPERATIVE_ROUND if is_second else ObservedCause.LEADER_REJOINED)


def released(before: Owners, after: Owners) -> list[Place]:
    """Return the partitions that somebody owned before a rebalance, and nobody after it."""
    return sorted(before.keys() - after.keys())


def likely(member: Member, joins_end_ms: int, recorded_ms: int | None) -> str | None:
    """Return whether a member that is gone has left or expired; None if it is not known.

    A commit renews the member's session, and only members of the current generation can commit. So a member whose
    last commit is less than its session timeout before the end of the joins did not expire. If the joins also ended
    within its rebalance timeout, it was not dropped because it joined late.

    Args:
        joins_end_ms: The latest time at which it can have gone.
        recorded_ms: The earliest time at which the rebalance can have begun; None if it waits for no joins.
    """
    session_ms, last_ms = member.session_timeout_ms, member.last_commit_ms
    if session_ms is not None and last_ms is not None and joins_end_ms < last_ms + session_ms:
        wait_ms = member.rebalance_timeout_ms
        if recorded_ms is None or (wait_ms is not None and joins_end_ms < recorded_ms + wait_ms):
            return "left"
    return "expired" if member.group_instance_id is not None else None
