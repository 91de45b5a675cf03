"""Shares of members with different subscriptions: as even as they allow, by moving one partition at a time.

A move takes a partition from a member to one that has at least two fewer. Where a partition of the same topic has gone
the opposite way before, both go home instead, to the same effect on sizes. So every move makes sizes more even, and
moving comes to an end. Kafka sends home only one of the two, which may be uphill; therefore it compares what came out
with what was before.

Source: Kafka's AbstractStickyAssignor.GeneralAssignmentBuilder and PartitionMovements.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace

from coordinator.assignors.assignor import TopicPartition
from coordinator.assignors.ownership import Ownership

Shares = dict[str, list[TopicPartition]]


def share_out(sizes: Mapping[str, int], topics_of: Mapping[str, frozenset[str]], ownership: Ownership) -> Shares:
    """Leave members what they own, hand out the rest, and move what makes sizes more even.

    Args:
        sizes: How many partitions each topic has; somebody subscribes to each.
        topics_of: What each member subscribes to, by member id.

    Returns:
        What each member gets, by member id.
    """
    holder_of = {p: m for p, m in ownership.owner_of.items() if p[0] in topics_of[m]}
    must_revoke = len(holder_of) < len(ownership.owner_of)
    subscribers_of: dict[str, list[str]] = {topic: [] for topic in sizes}
    for member_id in sorted(topics_of):
        for topic in topics_of[member_id] & sizes.keys():
            subscribers_of[topic].append(member_id)
    topics = sorted(sizes, key=lambda topic: (len(subscribers_of[topic]), topic))  # those with least choice first
    partitions = [(topic, number) for topic in topics for number in range(sizes[topic])]
    free = [partition for partition in partitions if partition not in holder_of]

    owner_before = {p: m for p, m in ownership.owner_before.items() if p[0] in topics_of[m]}
    balance = _Balance(subscribers_of, holder_of, owner_before)
    balance.hand_out(free)
    if not must_revoke:  # perhaps it is enough to move what nobody owned
        balance.even_out(free)
    balance.even_out(partitions)
    shares: Shares = {member_id: [] for member_id in topics_of}
    for partition, member_id in balance.holder_of.items():
        shares[member_id].append(partition)
    return shares


class _Balance:
    """Who holds what while shares are being evened out.

    Args:
        subscribers_of: Members by topic, sorted by id.
        holder_of: Who holds a partition to begin with, where somebody does.
        owner_before: Who once owned a partition, and is to have it back rather than anybody else.
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
        """Give each partition to the subscriber that has fewest."""
        for partition in partitions:
            member_id = self._loads.fewest(partition[0])
            self.holder_of[partition] = member_id
            self._loads.add(member_id)

    def even_out(self, partitions: Sequence[TopicPartition]) -> None:
        """Move these partitions, again and again, until no move makes sizes more even."""
        has_moved = True
        while has_moved:
            has_moved = False
            for partition in partitions:
                has_moved |= self._move_if_better(partition)

    def _move_if_better(self, partition: TopicPartition) -> bool:
        """Move a partition to its owner before, or else to who has fewest, if that one has at least two fewer."""
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
    """How many partitions each member holds, and which of a topic's subscribers holds fewest.

    Topics with the same subscribers share a heap of (count, member id). Its entries may be too low, never too high:
    what grew is found out when its entry comes up, what shrank gets another entry.
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
        """Find the subscriber with fewest partitions, the first by id if there are several."""
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
    """Which partition has come from whom to whom, so that two members do not swap partitions of one topic."""

    def __init__(self) -> None:
        self._way_of: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: defaultdict[tuple[str, str, str], set[int]] = defaultdict(set)  # by topic and way: numbers

    def origin(self, partition: TopicPartition, holder: str) -> str:
        """Tell who had a partition first."""
        return self._way_of.get(partition, (holder, holder))[0]

    def opposite(self, topic: str, origin: str, to: str) -> TopicPartition | None:
        """Find a partition of the topic that has gone from `to` to `origin`, and may as well go home."""
        moved = self._moved.get((topic, to, origin))
        return (topic, min(moved)) if moved else None

    def add(self, partition: TopicPartition, holder: str, to: str) -> None:
        """Note a move; several make one from the first owner to the last, and a round trip none."""
        topic, number = partition
        origin, via = self._way_of.pop(partition, (holder, holder))
        self._moved[topic, origin, via].discard(number)
        if origin != to:
            self._way_of[partition] = origin, to
            self._moved[topic, origin, to].add(number)
