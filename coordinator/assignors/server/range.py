"""`range`: each topic's partitions in blocks, one for each subscriber: n / subscribers each, the first ones one more.

Static members come first, by instance id; then dynamic members, by member id. Topics with the same subscribers and the
same number of partitions are so co-partitioned.

Source: Kafka's server-side RangeAssignor; KIP-848.
"""

from coordinator.assignors.server.spec import GroupSpec, MemberSpec, Targets


def assign(spec: GroupSpec) -> Targets:
    """Return the targets of all members."""
    targets: Targets = {member.member_id: {} for member in spec.members}
    subscribers_of: dict[str, list[str]] = {}
    for member in sorted(spec.members, key=_place):
        for topic_id in sorted(member.topic_ids):
            subscribers_of.setdefault(topic_id, []).append(member.member_id)
    for topic_id, subscribers in subscribers_of.items():
        quota, extra = divmod(spec.partitions[topic_id], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + quota + (place < extra)
            if end > start:
                targets[member_id][topic_id] = list(range(start, end))
            start = end
    return targets


def _place(member: MemberSpec) -> tuple[bool, bytes]:
    """Return the sort key of a member. Java compares strings by their UTF-16 units."""
    is_dynamic = member.group_instance_id is None
    name = member.member_id if member.group_instance_id is None else member.group_instance_id
    return is_dynamic, name.encode("utf-16-be", "surrogatepass")
