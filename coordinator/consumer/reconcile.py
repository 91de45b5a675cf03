"""Reconciliation: a member gives up the partitions that its target lacks, confirms that, and takes the free ones.

The table has the procedure for a member at one of its heartbeats.

    state       and                                              then
    STABLE      the assignment epoch is another than its own     next
    STABLE      its subscription has changed                     shrink
    UNREVOKED   it may still own partitions of `revoking`, and   shrink
                its subscription has changed
    UNREVOKED   it owns none of them                             next
    UNRELEASED                                                   next

Every change sets the previous epoch, also if the epoch stays. A heartbeat with the previous epoch shows that the
response with the newer one was lost.

Source: Kafka's CurrentAssignmentBuilder; KIP-848.
"""

from collections.abc import Iterable, Mapping

from coordinator.messages.consumer_requests import OwnedPartitions
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember, MemberState, Partitions

Owned = Iterable[OwnedPartitions] | None
"""The partitions that a request lists as owned; None if the request has no list."""


def reconcile(group: ConsumerGroup, member: ConsumerMember, owned: Owned, *, has_changed: bool) -> bool:
    """Move a member as close to its target as possible. Return whether the member may have changed.

    Args:
        has_changed: The request has changed the member's subscription.
    """
    may_own = member.state is MemberState.UNREVOKED and owns_any(owned, member.revoking)
    is_current = group.epoch_of(member.member_id) == group.hot_state.assignment_epoch
    if may_own or (member.state is MemberState.STABLE and is_current):
        return has_changed and _shrink(group, member, owned)
    _next(group, member, owned)
    return True


def owns_any(owned: Owned, partitions: Partitions) -> bool:
    """Return whether a member may still own some of these partitions. It may if its request has no list."""
    if owned is None:
        return True
    return any(not partitions.get(o.topic_id, {}).keys().isdisjoint(o.partitions) for o in owned)


def _next(group: ConsumerGroup, member: ConsumerMember, owned: Owned) -> None:
    """Revoke the partitions that the target lacks. If the member has confirmed that, assign the free ones."""
    target = _target_of(group, member)
    keep = _only(member.assigned, target)
    revoke = _without(member.assigned, keep)
    if revoke and owns_any(owned, revoke):
        member.state = MemberState.UNREVOKED
        group.hold(member, keep, revoke)
        group.move_to(member, group.epoch_of(member.member_id))
        return
    epoch, is_waiting = group.hot_state.assignment_epoch, False
    for topic_id, numbers in target.items():
        holders, kept = group.holders.get(topic_id, {}), keep.get(topic_id, {})
        wanted = [number for number in numbers if number not in kept]
        free = [number for number in wanted if holders.get(number, member.member_id) == member.member_id]
        is_waiting = is_waiting or len(free) < len(wanted)
        if free:
            keep[topic_id] = {**kept, **dict.fromkeys(free, epoch)}
    member.state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    group.hold(member, keep, {})
    group.move_to(member, epoch)


def _shrink(group: ConsumerGroup, member: ConsumerMember, owned: Owned) -> bool:
    """Revoke the partitions of topics that the member no longer subscribes to. Return whether there were any."""
    topic_ids = group.topic_ids_of(member)
    gone = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id not in topic_ids}
    if not gone:
        return False
    keep = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id not in gone}
    revoke = {**member.revoking}
    for topic_id, numbers in gone.items():
        revoke[topic_id] = {**revoke.get(topic_id, {}), **numbers}
    if owns_any(owned, revoke):
        member.state = MemberState.UNREVOKED
        group.hold(member, keep, revoke)
    else:
        group.hold(member, keep, member.revoking)
    group.move_to(member, group.epoch_of(member.member_id))
    return True


def is_waiting_for_free(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether the next request of a member that waits for partitions gives it some.

    A member of the consumer protocol gets each of them when it is free; a classic member gets them all at once.
    """
    if member.state is not MemberState.UNRELEASED:
        return False
    is_free = [
        number not in group.holders.get(topic_id, {})
        for topic_id, numbers in _target_of(group, member).items()
        for number in numbers
        if number not in member.assigned.get(topic_id, {})
    ]
    return any(is_free) if member.classic is None else all(is_free)


def _target_of(group: ConsumerGroup, member: ConsumerMember) -> Mapping[str, list[int]]:
    """Return a member's target without the topics that it does not subscribe to any more."""
    topic_ids = group.topic_ids_of(member)
    target = group.targets.get(member.member_id, {})
    return {topic_id: numbers for topic_id, numbers in target.items() if topic_id in topic_ids}


def _only(partitions: Partitions, target: Mapping[str, list[int]]) -> Partitions:
    """Return the partitions that a target has too."""
    kept: Partitions = {}
    for topic_id, numbers in partitions.items():
        wanted = set(target.get(topic_id, ()))
        if both := {number: epoch for number, epoch in numbers.items() if number in wanted}:
            kept[topic_id] = both
    return kept


def _without(partitions: Partitions, kept: Partitions) -> Partitions:
    """Return the partitions that are not among the kept ones."""
    rest: Partitions = {}
    for topic_id, numbers in partitions.items():
        still = kept.get(topic_id, {})
        if gone := {number: epoch for number, epoch in numbers.items() if number not in still}:
            rest[topic_id] = gone
    return rest
