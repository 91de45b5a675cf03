"""Assignments of members that all subscribe to the same topics: numbers of partitions differ by one at most.

Source: Kafka's AbstractStickyAssignor.ConstrainedAssignmentBuilder.
"""

from collections import deque
from collections.abc import Mapping

from coordinator.assignors.assignor import TopicPartition
from coordinator.assignors.ownership import Ownership

Shares = dict[str, list[TopicPartition]]


def share_out(sizes: Mapping[str, int], ownership: Ownership) -> Shares:
    """Leave members their owned partitions, up to an equal number, and assign the rest to the others.

    Args:
        sizes: How many partitions each topic has.

    Returns:
        The partitions of each member, by member id.
    """
    if not ownership.owned:
        return {}
    least, with_one_more = divmod(sum(sizes.values()), len(ownership.owned))
    shares, over = _retain_owned(ownership, least, with_one_more)
    kept = {partition for share in shares.values() for partition in share}
    free = [(topic, n) for topic in sorted(sizes) for n in range(sizes[topic]) if (topic, n) not in kept]
    under = deque(m for m in sorted(shares) if len(shares[m]) < least)
    even = deque(m for m in sorted(shares) if len(shares[m]) == least and over < with_one_more)
    for partition in free:
        member_id = (under or even).popleft()
        shares[member_id].append(partition)
        if len(shares[member_id]) < least:
            under.append(member_id)
        elif len(shares[member_id]) == least:
            even.append(member_id)
    assert not under, f"{len(under)} members have fewer than {least}"
    return shares


def _retain_owned(ownership: Ownership, least: int, with_one_more: int) -> tuple[Shares, int]:
    """Cut the owned partitions to an equal number, and count the members that may keep one more than `least`."""
    shares, over = {}, 0
    for member_id in sorted(ownership.owned):
        owned = sorted(ownership.owned[member_id], key=_number_first)
        has_one_more = len(owned) > least and over < with_one_more
        over += has_one_more
        shares[member_id] = owned[: least + has_one_more]
    return shares, over


def _number_first(partition: TopicPartition) -> tuple[int, str]:
    """Return a sort key that cuts partitions off every topic, not all off the last one."""
    topic, number = partition
    return number, topic
