"""`uniform`: the numbers of partitions differ by one at most, and few partitions change their owners.

If all members have the same subscription, each keeps what fits into its share of the plan before, and the free
partitions fill up the others. Otherwise `uniform_mixed` makes the plan.

Source: Kafka's UniformAssignor and UniformHomogeneousAssignmentBuilder; KIP-848.
"""

from collections.abc import Sequence

from coordinator.assignors.server import uniform_mixed
from coordinator.assignors.server.order import (
    buckets_after_growth,
    buckets_of_copy,
    members_in_order,
    partitions_in_order,
    topics_in_order,
)
from coordinator.assignors.server.spec import GroupSpec, MemberSpec, Target, Targets

TopicPartition = tuple[str, int]


def assign(spec: GroupSpec) -> Targets:
    """Return the targets of all members."""
    if not spec.is_homogeneous:
        return uniform_mixed.assign(spec)
    topic_ids = spec.members[0].topic_ids if spec.members else frozenset[str]()
    if not topic_ids:
        return {member.member_id: {} for member in spec.members}
    members = [spec.members[place] for place in members_in_order([m.member_id for m in spec.members])]
    free = _free(spec, members, topics_in_order(topic_ids, spec.names, buckets_of_copy(spec.names_subscribed)))
    total = sum(spec.partitions[topic_id] for topic_id in topic_ids)
    targets, hungry = _retain_owned(spec, members, total, free)
    taken = iter(free)
    for member_id, room in hungry:
        _give(targets[member_id], [next(taken) for _ in range(room)])
    assert next(taken, None) is None, "some partitions are in no target"
    return targets


def _free(spec: GroupSpec, members: Sequence[MemberSpec], topic_ids: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions that are in no member's target, topic by topic."""
    is_taken = {topic_id: bytearray(spec.partitions[topic_id]) for topic_id in topic_ids}
    for member in members:
        for topic_id, numbers in member.target.items():
            if (taken := is_taken.get(topic_id)) is not None:
                for number in numbers:
                    taken[number] = 1
    return [(topic_id, n) for topic_id, taken in is_taken.items() for n, is_one in enumerate(taken) if not is_one]


def _retain_owned(
    spec: GroupSpec, members: Sequence[MemberSpec], total: int, free: list[TopicPartition]
) -> tuple[Targets, list[tuple[str, int]]]:
    """Leave each member the partitions of its target that fit into its share.

    Args:
        total: The number of partitions of all topics.
        free: The partitions that no member keeps are added to it.

    Returns:
        The targets so far, and the members with room for more, each with how many.
    """
    topic_ids = members[0].topic_ids
    quota, extra = divmod(total, len(members))
    targets: Targets = {member.member_id: {} for member in spec.members}
    hungry: list[tuple[str, int]] = []
    for place, member in enumerate(members):
        has_extra = extra > 0
        room = quota + has_extra
        for topic_id in topics_in_order(member.target, spec.names, buckets_after_growth(len(member.target))):
            if topic_id not in topic_ids:
                continue
            numbers = member.target[topic_id]
            if len(numbers) > room:
                numbers = partitions_in_order(numbers)
                free.extend((topic_id, number) for number in numbers[room:])
                numbers = sorted(numbers[:room])
            room -= len(numbers)
            if numbers:
                targets[member.member_id][topic_id] = list(numbers)
        if room > 0 and has_extra and len(members) - place > extra:  # the members after this one are enough for these
            room -= 1
            has_extra = False
        if room > 0:
            hungry.append((member.member_id, room))
        extra -= has_extra
    return targets, hungry


def _give(target: Target, partitions: Sequence[TopicPartition]) -> None:
    """Add partitions to a target."""
    for topic_id, number in partitions:
        target.setdefault(topic_id, []).append(number)
    for topic_id in {topic_id for topic_id, _ in partitions}:
        target[topic_id].sort()
