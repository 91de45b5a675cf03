"""`uniform` for members with different subscriptions: levelled topic by topic, among the topic's subscribers.

First every member keeps the partitions of its target whose topic it still subscribes to. Then the free partitions of
each topic go to the subscribers with the fewest partitions. At last partitions move from the subscribers with the most
partitions to those with the fewest, topic by topic, until a round moves nothing.

Source: Kafka's UniformHeterogeneousAssignmentBuilder; KIP-848.
"""

from collections.abc import Sequence

from coordinator.assignors.server.order import halves, members_in_order
from coordinator.assignors.server.spec import GroupSpec, Targets

ROUNDS_MAX = 16


def assign(spec: GroupSpec) -> Targets:
    """Return the targets of all members."""
    return _Levelling(spec).targets()


class _Levelling:
    """A plan while it is made. Members are numbered in their order.

    Attributes:
        sizes: How many partitions each member has so far.
        owned: The partitions of each member, by topic id.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        order = members_in_order([member.member_id for member in spec.members])
        self.members = [spec.members[place] for place in order]
        self.sizes = [0] * len(self.members)
        self.owned: list[dict[str, set[int]]] = [{} for _ in self.members]
        self.subscribers_of: dict[str, list[int]] = {}
        for number, member in enumerate(self.members):
            for topic_id in sorted(member.topic_ids):
                self.subscribers_of.setdefault(topic_id, []).append(number)
        self.topics = sorted(self.subscribers_of, key=self._urgency)

    def targets(self) -> Targets:
        """Make the plan."""
        for topic_id, free in self._retain_owned().items():
            self._fill(topic_id, free)
        self._balance()
        owned = {
            member.member_id: {topic_id: sorted(numbers) for topic_id, numbers in owned.items() if numbers}
            for member, owned in zip(self.members, self.owned, strict=True)
        }
        return {member.member_id: owned[member.member_id] for member in self.spec.members}

    def _urgency(self, topic_id: str) -> tuple[float, int, tuple[int, int]]:
        """Return the sort key of a topic: many partitions for each subscriber first, then few subscribers, then id."""
        subscribers = len(self.subscribers_of[topic_id])
        return -self.spec.partitions[topic_id] / subscribers, subscribers, halves(topic_id)

    def _retain_owned(self) -> dict[str, list[int]]:
        """Leave members what they may keep; return the free partitions by topic, the most urgent topic first."""
        is_taken = {topic_id: bytearray(self.spec.partitions[topic_id]) for topic_id in self.topics}
        for number, member in enumerate(self.members):
            for topic_id, partitions in member.target.items():
                if topic_id in member.topic_ids:
                    self.owned[number][topic_id] = set(partitions)
                    self.sizes[number] += len(partitions)
                    for partition in partitions:
                        is_taken[topic_id][partition] = 1
        return {topic_id: [n for n, is_one in enumerate(taken) if not is_one] for topic_id, taken in is_taken.items()}

    def _fill(self, topic_id: str, free: Sequence[int]) -> None:
        """Assign each free partition of a topic to a subscriber with the fewest partitions."""
        if free:
            leveller = _Leveller(self.subscribers_of[topic_id], self.sizes)
            for partition in free:
                self._give(leveller.least(), topic_id, partition)

    def _balance(self) -> None:
        """Level the topics, one after the other, until one round has moved nothing."""
        shared = [topic_id for topic_id in self.topics if len(self.subscribers_of[topic_id]) > 1]
        last_moved: int | None = None
        for _ in range(ROUNDS_MAX):
            for place, topic_id in enumerate(shared):
                if place == last_moved:
                    return
                if self._level(topic_id) or last_moved is None:
                    last_moved = place

    def _level(self, topic_id: str) -> bool:
        """Move partitions of one topic between its subscribers; return whether any has moved."""
        subscribers = self.subscribers_of[topic_id]
        sizes = [self.sizes[number] for number in subscribers]
        if max(sizes) - min(sizes) <= 1:
            return False
        leveller = _Leveller(subscribers, self.sizes)
        movable = {number: sorted(self.owned[number].get(topic_id, ())) for number in subscribers}
        has_moved = False
        while True:
            giver = leveller.most()
            while giver is not None and not movable[giver]:
                leveller.exclude()
                giver = leveller.most()
            if giver is None:
                break
            partition = movable[giver].pop()
            taker = leveller.least()
            if leveller.is_balanced:
                break
            self.owned[giver][topic_id].remove(partition)
            self.sizes[giver] -= 1
            self._give(taker, topic_id, partition)
            has_moved = True
        return has_moved

    def _give(self, number: int, topic_id: str, partition: int) -> None:
        self.owned[number].setdefault(topic_id, set()).add(partition)
        self.sizes[number] += 1


class _Leveller:
    """The subscribers of a topic by their numbers of partitions, from both ends.

    The low level rises and the high level falls as members are taken from the two ends. Sizes change meanwhile, and
    the levels do not follow them; Kafka's plans depend on that.

    Args:
        sizes: How many partitions each member has; it may change at any time.
    """

    def __init__(self, members: Sequence[int], sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._members = sorted(members, key=lambda number: (sizes[number], number))
        self._low, self._low_end, self._low_level = 0, 0, sizes[self._members[0]] - 1
        last = len(self._members)
        self._high, self._high_start, self._high_end = last - 1, last, last
        self._high_level = sizes[self._members[-1]] + 1

    @property
    def is_balanced(self) -> bool:
        return self._high_level - self._low_level <= 1

    def least(self) -> int:
        """Return the next member of the low level; the level rises if none of it is left."""
        if self._low >= self._low_end:
            self._low_level += 1
            while self._low_end < len(self._members) and self._size(self._low_end) == self._low_level:
                self._low_end += 1
            self._low = 0
        self._low += 1
        return self._members[self._low - 1]

    def most(self) -> int | None:
        """Return the next member of the high level; the level falls if none of it is left. None after the last one."""
        if self._high < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                self._high_level = self._size(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._size(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._high = self._high_end - 1
        if self._high < 0:
            return None
        self._high -= 1
        return self._members[self._high + 1]

    def exclude(self) -> None:
        """Exclude the member that `most` returned last: it has nothing to move."""
        here, last = self._high + 1, self._high_end - 1
        self._members[here], self._members[last] = self._members[last], self._members[here]
        self._high_end -= 1

    def _size(self, place: int) -> int:
        return self._sizes[self._members[place]]
