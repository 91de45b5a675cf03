"""`sticky`: numbers of partitions as equal as subscriptions allow, with as few changes of owners as possible.

A member's earlier partitions come with its user data: under the eager protocol it owns none when it joins.

Source: Kafka's StickyAssignor and AbstractStickyAssignor; KIP-54, KIP-341. Their rack awareness (KIP-881) is left out.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence

from coordinator.assignors import sticky_constrained, sticky_general
from coordinator.assignors.assignor import Assignor, Cluster, Plan, Subscriber, TopicPartition, by_topic
from coordinator.assignors.ownership import NO_GENERATION, Claim, Ownership, settle
from coordinator.base.binary import Malformed, Reader
from coordinator.base.consumer_protocol import Subscription, read_partitions, write_partitions

GENERATION = struct.Struct(">i")


class Sticky(Assignor):
    """Equal numbers of partitions, which stay with their owners."""

    name = "sticky"

    def user_data(self, owned: Mapping[str, Sequence[int]], generation_id: int) -> bytes | None:
        """Return the partitions and their generation as bytes; None before the member's first assignment."""
        if generation_id == NO_GENERATION:
            return None
        return write_partitions(owned) + GENERATION.pack(generation_id)

    def claim(self, subscription: Subscription) -> Claim:
        """Read the earlier partitions of a member. The oldest form has no generation; unreadable data claim nothing."""
        data = subscription.user_data or b""
        reader = Reader(data)
        try:
            partitions = pairs(read_partitions(reader))
            is_oldest = len(data) - reader.position < GENERATION.size
            return Claim(partitions, NO_GENERATION if is_oldest else reader.int32())
        except Malformed:
            return Claim()

    def may_have(self, member_id: str, partition: TopicPartition, ownership: Ownership) -> bool:
        """Return whether a member may be given a partition in this round already."""
        return True

    def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
        subscriptions = {s.member_id: s.subscription for s in subscribers}
        topics_of = {member_id: frozenset(s.topics) for member_id, s in subscriptions.items()}
        wanted = frozenset().union(*topics_of.values())
        sizes = {topic: count for topic, count in cluster.partitions.items() if topic in wanted}
        ownership = settle({member_id: self.claim(s) for member_id, s in subscriptions.items()}, sizes)
        if len(set(topics_of.values())) > 1:
            shares = sticky_general.share_out(sizes, topics_of, ownership)
        else:
            shares = sticky_constrained.share_out(sizes, ownership)
        return {
            member_id: by_topic(p for p in share if self.may_have(member_id, p, ownership))
            for member_id, share in shares.items()
        }


def pairs(partitions: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    """Return partitions one by one, as pairs of topic and number."""
    return [(topic, number) for topic, numbers in partitions.items() for number in numbers]
