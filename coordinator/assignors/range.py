"""`range`: each topic's partitions in blocks of equal size, one for each subscriber, in order.

If members and replicas have racks, and not every partition is on all of them, each member first gets partitions with a
replica on its own rack; the block sizes stay the same. Topics with the same subscribers and the same number of
partitions are matched together, so that partitions of one number still go to the same member. The remaining partitions
are assigned without regard to racks.

Source: Kafka's RangeAssignor; KIP-881.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from coordinator.assignors.assignor import Assignor, Cluster, Plan, Subscriber, in_order


class Range(Assignor):
    """Topic by topic, n / members partitions each, the first n % members one more."""

    name = "range"

    def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
        subscribers_of: dict[str, list[Subscriber]] = {name: [] for name in sorted(cluster.partitions)}
        plan: Plan = {}
        for subscriber in in_order(subscribers):
            plan[subscriber.member_id] = {}
            for name in cluster.partitions.keys() & set(subscriber.subscription.topics):
                subscribers_of[name].append(subscriber)
        topics = [
            _Topic(name, cluster.partitions[name], cluster.racks.get(name, ()), each)
            for name, each in subscribers_of.items()
            if each
        ]
        if any(topic.is_spread_unevenly() for topic in topics):
            _match_racks(topics)
        for topic in topics:
            topic.hand_out(near_only=False)
            for member_id, numbers in topic.shares.items():
                if numbers:
                    plan[member_id][topic.name] = sorted(numbers)
        return plan


class _Topic:
    """One topic: the partitions that are not assigned yet, and how many each member may still get.

    Args:
        subscribers: At least one, in order.
    """

    def __init__(
        self, name: str, count: int, racks: Sequence[frozenset[str]], subscribers: Sequence[Subscriber]
    ) -> None:
        self.name = name
        self.rack_of = {s.member_id: s.subscription.rack_id or None for s in subscribers}
        has_racks = any(self.rack_of.values())
        self.racks = [*racks[:count], *[frozenset[str]()] * (count - len(racks))] if has_racks else []
        self.shares: dict[str, list[int]] = {member_id: [] for member_id in self.rack_of}
        self.left = dict.fromkeys(range(count))  # an ordered set
        self.quota, self.members_with_one_more = divmod(count, len(self.shares))

    def is_spread_unevenly(self) -> bool:
        """Return whether racks matter: some racks are those of members, and not every partition is on all racks."""
        everywhere = frozenset().union(*self.racks)
        is_shared = not everywhere.isdisjoint(rack for rack in self.rack_of.values() if rack)
        return is_shared and any(racks != everywhere for racks in self.racks)

    def is_near(self, member_id: str, number: int) -> bool:
        """Return whether a partition has a replica on the member's rack; True for a member without a rack."""
        rack = self.rack_of[member_id]
        return rack is None or rack in self.racks[number]

    def room(self, member_id: str) -> int:
        """Return how many more partitions the member may get."""
        return max(0, self.quota + (self.members_with_one_more > 0) - len(self.shares[member_id]))

    def give(self, member_id: str, numbers: Sequence[int]) -> None:
        assert 0 < len(numbers) <= self.room(member_id), f"{member_id} has no room for {numbers}"
        self.shares[member_id] += numbers
        if len(self.shares[member_id]) > self.quota:
            self.members_with_one_more -= 1
        for number in numbers:
            del self.left[number]

    def hand_out(self, *, near_only: bool) -> None:
        """Assign to each member, in order, as many remaining partitions as it may get, or only those on its rack."""
        for member_id in self.shares:
            fitting = (number for number in self.left if not near_only or self.is_near(member_id, number))
            numbers = list(islice(fitting, self.room(member_id)))
            if numbers:
                self.give(member_id, numbers)


def _match_racks(topics: Iterable[_Topic]) -> None:
    """Assign partitions with a replica on the member's rack."""
    alike = defaultdict(list)
    for topic in topics:
        alike[frozenset(topic.rack_of.items()), len(topic.racks)].append(topic)
    for group in alike.values():
        if len(group) > 1:
            _match_together(group)
        elif group[0].is_spread_unevenly():
            group[0].hand_out(near_only=True)


def _match_together(topics: Sequence[_Topic]) -> None:
    """Assign the partitions of one number to the first member with room and with a replica of each on its rack."""
    waiting = dict.fromkeys(topics[0].shares)
    for number in range(len(topics[0].racks)):
        found = next((m for m in waiting if all(t.room(m) and t.is_near(m, number) for t in topics)), None)
        if found is None:
            continue
        for topic in topics:
            topic.give(found, [number])
        if not any(topic.room(found) for topic in topics):
            del waiting[found]
