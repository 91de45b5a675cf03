"""`sticky`: sizes as equal as subscriptions allow, and then as many partitions as possible left where they are.

What a member owned comes with its user data: under the eager protocol it owns nothing any more when it joins.

Source: Kafka's StickyAssignor and AbstractStickyAssignor; KIP-54, KIP-341. Their rack awareness (KIP-881) is left out.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence

from coordinator.assignors import sticky_constrained, sticky_general
from coordinator.assignors.assignor import Assignor, Cluster, Plan, Subscriber, TopicPartition, by_topic
from coordinator.assignors.ownership import NO_GENERATION, Claim, Ownership, settle
from coordinator.consumer_protocol import Reader, Subscription, write_partitions

GENERATION = struct.Struct(">i")


class Sticky(Assignor):
    """Even shares, kept by their owners."""

    name = "sticky"

    def user_data(self, owned: Mapping[str, Sequence[int]], generation_id: int) -> bytes | None:
        """Write the partitions and their generation; nothing as long as no plan has reached the member."""
        if generation_id == NO_GENERATION:
            return None
        return write_partitions(owned) + GENERATION.pack(generation_id)

    def claim(self, subscription: Subscription) -> Claim:
        """Read what a member says it owned. The oldest form has no generation; what cannot be read claims nothing."""
        data = subscription.user_data or b""
        reader = Reader(data)
        try:
            partitions = pairs(reader.partitions())
            is_oldest = len(data) - reader.at < GENERATION.size
            return Claim(partitions, NO_GENERATION if is_oldest else reader.int32())
        except (struct.error, ValueError):
            return Claim()

    def may_have(self, member_id: str, partition: TopicPartition, ownership: Ownership) -> bool:
        """Tell whether a member may be given a partition in this round already."""
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
    """List partitions one by one."""
    return [(topic, number) for topic, numbers in partitions.items() for number in numbers]
