"""Assignments of members with different subscriptions: made equal by moving one partition at a time.

A move takes a partition from a member to one that has at least two fewer. If a partition of the same topic has moved
the opposite way before, both move back instead, with the same effect on the numbers. So every move makes the numbers of
partitions more equal, and the moves come to an end. Kafka moves back only one of the two, which may make the numbers
less equal; therefore Kafka compares the result with the assignments before.

Source: Kafka's AbstractStickyAssignor.GeneralAssignmentBuilder and PartitionMovements.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace

from coordinator.assignors.assignor import TopicPartition
from coordinator.assignors.ownership import Ownership

Shares = dict[str, list[TopicPartition]]


def share_out(sizes: Mapping[str, int], topics_of: Mapping[str, frozenset[str]], ownership: Ownership) -> Shares:
    """Leave members their owned partitions, assign the rest, and move partitions that make the numbers more equal.

    Args:
        sizes: How many partitions each topic has; each topic has a subscriber.
        topics_of: The topics that each member subscribes to, by member id.

    Returns:
        The partitions of each member, by member id.
    """
    holder_of = {p: m for p, m in ownership.owner_of.items() if p[0] in topics_of[m]}
    must_revoke = len(holder_of) < len(ownership.owner_of)
    subscribers_of: dict[str, list[str]] = {topic: [] for topic in sizes}
    for member_id in sorted(topics_of):
        for topic in topics_of[member_id] & sizes.keys():
            subscribers_of[topic].append(member_id)
    topics = sorted(sizes, key=lambda topic: (len(subscribers_of[topic]), topic))  # fewest subscribers first
    partitions = [(topic, number) for topic in topics for number in range(sizes[topic])]
    free = [partition for partition in partitions if partition not in holder_of]

    owner_before = {p: m for p, m in ownership.owner_before.items() if p[0] in topics_of[m]}
    balance = _Balance(subscribers_of, holder_of, owner_before)
    balance.hand_out(free)
    if not must_revoke:  # it may be enough to move partitions that no member owned
        balance.even_out(free)
    balance.even_out(partitions)
    shares: Shares = {member_id: [] for member_id in topics_of}
    for partition, member_id in balance.holder_of.items():
        shares[member_id].append(partition)
    return shares


class _Balance:
    """The owner of each partition while the numbers of partitions are made equal.

    Args:
        subscribers_of: Members by topic, sorted by id.
        holder_of: The owner of a partition at the beginning, if it has one.
        owner_before: An earlier owner of a partition, which is preferred to all other members.
    """

    def __init__(
        self,
        subscribers_of: Mapping[str, Sequence[str]],
        holder_of: dict[TopicPartition, str],
        owner_before: Mapping[TopicPartition, str],
    ) -> None:
        self.holder_of, self._owner_before = holder_of, owner_before
        self._loads = _Loads(subscribers_of, holder_of.values())
        self._moves = _Moves()

    def hand_out(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign each partition to the subscriber with the fewest partitions."""
        for partition in partitions:
            member_id = self._loads.fewest(partition[0])
            self.holder_of[partition] = member_id
            self._loads.add(member_id)

    def even_out(self, partitions: Sequence[TopicPartition]) -> None:
        """Move these partitions, again and again, until no move makes the numbers more equal."""
        has_moved = True
        while has_moved:
            has_moved = False
            for partition in partitions:
                has_moved |= self._move_if_better(partition)

    def _move_if_better(self, partition: TopicPartition) -> bool:
        """Move a partition to its earlier owner or the member with the fewest, if that has at least two fewer."""
        holder = self.holder_of[partition]
        to = self._owner_before.get(partition, holder)
        if not self._is_better(holder, to):
            to = self._loads.fewest(partition[0])
        if not self._is_better(holder, to):
            return False
        origin = self._moves.origin(partition, holder)
        back = self._moves.opposite(partition[0], origin, to)
        if back is None:
            self._move(partition, holder, to)
        else:
            self._move(back, origin, to)
            self._move(partition, holder, origin)
        return True

    def _move(self, partition: TopicPartition, holder: str, to: str) -> None:
        if holder != to:
            self._moves.add(partition, holder, to)
            self._loads.remove(holder)
            self._loads.add(to)
            self.holder_of[partition] = to

    def _is_better(self, holder: str, to: str) -> bool:
        return self._loads.count[holder] > self._loads.count[to] + 1


class _Loads:
    """The number of partitions of each member, and the subscriber of each topic with the fewest partitions.

    Topics with the same subscribers share a heap of (count, member id). Its entries may be too low, never too high: a
    count that grew is corrected when its entry is at the top, a count that shrank gets another entry.
    """

    def __init__(self, subscribers_of: Mapping[str, Sequence[str]], holders: Iterable[str]) -> None:
        self.count: defaultdict[str, int] = defaultdict(int)
        for holder in holders:
            self.count[holder] += 1
        heaps = {members: [(self.count[m], m) for m in members] for members in map(tuple, subscribers_of.values())}
        self._heap_of = {topic: heaps[tuple(members)] for topic, members in subscribers_of.items()}
        self._heaps_with: defaultdict[str, list[list[tuple[int, str]]]] = defaultdict(list)
        for members, heap in heaps.items():
            heapify(heap)
            for member_id in members:
                self._heaps_with[member_id].append(heap)

    def fewest(self, topic: str) -> str:
        """Return the subscriber with the fewest partitions, the first by id if several have the same number."""
        heap = self._heap_of[topic]
        while True:
            count, member_id = heap[0]
            if count == self.count[member_id]:
                return member_id
            heapreplace(heap, (self.count[member_id], member_id))

    def add(self, member_id: str) -> None:
        self.count[member_id] += 1

    def remove(self, member_id: str) -> None:
        self.count[member_id] -= 1
        for heap in self._heaps_with[member_id]:
            heappush(heap, (self.count[member_id], member_id))


class _Moves:
    """The first and the present owner of each moved partition: two members must not swap partitions of a topic."""

    def __init__(self) -> None:
        self._way_of: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: defaultdict[tuple[str, str, str], set[int]] = defaultdict(set)  # by topic and owners: numbers

    def origin(self, partition: TopicPartition, holder: str) -> str:
        """Return the first owner of a partition."""
        return self._way_of.get(partition, (holder, holder))[0]

    def opposite(self, topic: str, origin: str, to: str) -> TopicPartition | None:
        """Return a partition of the topic that has moved from `to` to `origin` and can move back, if any."""
        moved = self._moved.get((topic, to, origin))
        return (topic, min(moved)) if moved else None

    def add(self, partition: TopicPartition, holder: str, to: str) -> None:
        """Record a move; several moves count as one from the first owner to the last, and a round trip as none."""
        topic, number = partition
        origin, via = self._way_of.pop(partition, (holder, holder))
        self._moved[topic, origin, via].discard(number)
        if origin != to:
            self._way_of[partition] = origin, to
            self._moved[topic, origin, to].add(number)
