"""What follows from the difference of two records of a classic group: the causes of a rebalance, and why a member is
gone. Kafka writes a classic group once for each generation, and no cause.

Of a group of the consumer protocol it writes each epoch, and the subscriptions, assignors and states of the members;
`changed_subscription` and the functions after it compare these.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET

from coordinator.base.consumer_protocol import READABLE, subscribed_topics
from coordinator.messages.observed_events import ObservedCause, TopicChange
from streaming.observe.names import Names
from streaming.observe.publishing import Owners
from streaming.observe.state import (
    NO_DETAILS,
    NO_TOPOLOGY,
    Details,
    Group,
    Member,
    OldTopic,
    Owned,
    Reason,
    TopicAndPartition,
)

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


def because(
    cause: ObservedCause, member: Member | None = None, reason: str | None = None, details: Details = NO_DETAILS
) -> Reason:
    """Return a cause with its member."""
    if member is None:
        return Reason(cause.value, reason=reason, details=details)
    return Reason(cause.value, member.member_id, member.client_id, member.client_host, reason, details)


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


def released(before: Owners, after: Owners) -> list[TopicAndPartition]:
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


# -- groups of the consumer protocol -----------------------------------------------------------------------------------

UNREVOKED = 1
"""The state of a member that has partitions to give up."""

REVOCATION_LATE_MS = 5_000
"""The longest time that a broker needs to drop a member whose rebalance timeout has passed."""

ASSIGNOR_MEMBERS_MAX = 3
"""The members that a tie of assignors names for each of them."""


def changed_subscription(before: Member, after: Member) -> Reason | None:
    """Return that a member subscribes to other topics or has another pattern; None if it does not."""
    if (before.topics, before.regex) == (after.topics, after.regex):
        return None
    details = Details(
        topics_added=tuple(sorted(set(after.topics) - set(before.topics))),
        topics_removed=tuple(sorted(set(before.topics) - set(after.topics))),
        pattern=UNSET if after.regex == before.regex else after.regex or "",
    )
    return because(ObservedCause.SUBSCRIPTION_CHANGED, after, details=details)


def resolved_pattern(pattern: str, before: list[str], after: list[str], members: Sequence[Member]) -> Reason | None:
    """Return that a pattern matches other topics; None if it does not. The member is the only one that has it."""
    if before == after:
        return None
    details = Details(
        topics_added=tuple(sorted(set(after) - set(before))),
        topics_removed=tuple(sorted(set(before) - set(after))),
        pattern=pattern,
    )
    return because(ObservedCause.REGEX_RESOLVED, members[0] if len(members) == 1 else None, details=details)


def changed_assignor(before: Member, after: Member) -> Reason | None:
    """Return that a member prefers another server assignor; None if it does not."""
    if before.assignor == after.assignor:
        return None
    details = Details(assignor_before=before.assignor, assignor_after=after.assignor)
    return because(ObservedCause.ASSIGNOR_CHANGED, after, details=details)


def preferred_assignors(members: Iterable[Member]) -> dict[str, tuple[str, ...]]:
    """Return the server assignors that most members prefer, each with these members. A group without preferences has
    none; it has several if as many members prefer each of them.

    Source: Kafka's ConsumerGroup.preferredServerAssignor.
    """
    found = dict[str, list[str]]()
    for member in members:
        if member.assignor:
            found.setdefault(member.assignor, []).append(member.member_id)
    most = max(map(len, found.values()), default=0)
    return {assignor: tuple(ids) for assignor, ids in sorted(found.items()) if len(ids) == most}


def tied_assignors(members: Iterable[Member]) -> Reason | None:
    """Return that as many members prefer one server assignor as another; None if there is no such tie.

    Kafka 4.4.0 then takes the preferred assignor for another one at each heartbeat of one of these members, and raises
    the group epoch.
    """
    preferred = preferred_assignors(members)
    if len(preferred) < 2:
        return None
    shown = {assignor: ids[:ASSIGNOR_MEMBERS_MAX] for assignor, ids in preferred.items()}
    return because(ObservedCause.ASSIGNORS_TIED, details=Details(assignors=shown))


def is_overdue(member: Member, gone_ms: int) -> bool:
    """Return whether a member was dropped because it did not give up partitions within its rebalance timeout.

    The brokers start its timer with the record that says what it has to give up. Nothing else drops it at just this
    time: an expired session would have dropped it before or later.

    Args:
        gone_ms: The time of its tombstone.
    """
    since_ms, timeout_ms = member.unrevoked_ms, member.rebalance_timeout_ms
    if since_ms is None or timeout_ms is None:
        return False
    return 0 <= gone_ms - since_ms - timeout_ms <= REVOCATION_LATE_MS


def overdue(member: Member) -> Reason:
    """Return that a member was dropped for its rebalance timeout."""
    details = Details(timeout_ms=member.rebalance_timeout_ms or 0)
    return because(ObservedCause.REVOCATION_OVERDUE, member, details=details)


def changed_streams_member(before: Member, after: Member) -> Reason | None:
    """Return that a member of a streams group has changed; None if it has not. Some changes of a static member raise no
    epoch: a client that comes back has another address.

    Source: Kafka's StreamsGroupMember, and GroupMetadataManager.hasStreamsMemberMetadataChanged.
    """
    fields = _OF_STATIC if after.group_instance_id else (*_OF_STATIC, *_OF_DYNAMIC)
    changed = tuple(name for name, of in fields if of(before) != of(after))
    if not changed:
        return None
    return because(ObservedCause.MEMBER_CHANGED, after, details=Details(changed=changed))


_OF_STATIC: Sequence[tuple[str, Callable[[Member], object]]] = (
    ("topology_epoch", lambda m: m.streams and m.streams.topology_epoch),
    ("process_id", lambda m: m.streams and m.streams.process_id),
    ("rack_id", lambda m: m.rack_id),
    ("client_tags", lambda m: m.streams and m.streams.tags),
)
_OF_DYNAMIC: Sequence[tuple[str, Callable[[Member], object]]] = (
    ("user_endpoint", lambda m: m.streams and m.streams.endpoint),
    ("client_id", lambda m: m.client_id),
    ("client_host", lambda m: m.client_host),
    ("rebalance_timeout_ms", lambda m: m.rebalance_timeout_ms),
)


def changed_configs(before: Mapping[str, str], after: Mapping[str, str]) -> Reason | None:
    """Return that settings of a streams group have changed; None if they have not."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if not names:
        return None
    details = Details(configs={name: (before.get(name), after.get(name)) for name in names})
    return because(ObservedCause.CONFIGS_CHANGED, details=details)


def changed_topology(validated_before: int, validated: int) -> Reason | None:
    """Return that all topics of a topology are there since, or not any more; None if nothing has changed.

    Args:
        validated_before, validated: The epoch of the topology if all of its topics were there, else `NO_TOPOLOGY`.
    """
    if validated_before == validated:
        return None
    is_ready = validated != NO_TOPOLOGY
    return because(ObservedCause.TOPOLOGY_READY if is_ready else ObservedCause.TOPOLOGY_NOT_READY)


def share_state_ready(before: Owned, after: Owned, names: Names) -> Reason | None:
    """Return that the share state of further partitions is there; None if it is not."""
    ready = {topic for topic, numbers in after.items() if set(numbers) - set(before.get(topic, ()))}
    if not ready:
        return None
    details = Details(topics_added=tuple(sorted(map(names.of, ready))))
    return because(ObservedCause.SHARE_STATE_READY, details=details)


def changed_topics(before: Mapping[str, OldTopic], after: Mapping[str, OldTopic]) -> tuple[TopicChange, ...]:
    """Return the changes of topics that brokers before 4.1 have recorded."""
    return tuple(
        change
        for name in sorted(before.keys() | after.keys())
        if (change := topic_change(name, before.get(name), after.get(name))) is not None
    )


def topic_change(name: str, before: OldTopic | None, after: OldTopic | None) -> TopicChange | None:
    """Return the change of a topic, given as its id, its partition count, and a number for all that belongs to it; None
    if nothing has changed. A topic that does not exist is None."""
    if before == after:
        return None
    counts = before[1] if before else None, after[1] if after else None
    if before is None or after is None:
        what = "deleted" if after is None else "made"
    elif before[0] != after[0]:
        what = "made_anew"
    else:
        what = "racks" if before[1] == after[1] else "partitions"
    return TopicChange(name, what, *counts)
