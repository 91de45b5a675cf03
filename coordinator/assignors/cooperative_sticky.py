"""`cooperative-sticky`: the assignments of `sticky`, without partitions that another member has to revoke first.

A member that loses a partition revokes it and joins again. Then no member claims the partition, and the next round
assigns it to its new owner. All other partitions are read without interruption.

Source: Kafka's CooperativeStickyAssignor; KIP-429, KIP-792.
"""

from collections.abc import Mapping, Sequence

from coordinator.assignors.assignor import RebalanceProtocol, TopicPartition
from coordinator.assignors.ownership import NO_GENERATION, Claim, Ownership
from coordinator.assignors.sticky import GENERATION, Sticky, pairs
from coordinator.base.consumer_protocol import Subscription


class CooperativeSticky(Sticky):
    """Equal numbers of partitions, which stay with their owners. Members keep reading while other partitions move."""

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def user_data(self, owned: Mapping[str, Sequence[int]], generation_id: int) -> bytes | None:
        """Return the generation; the owned partitions have a field of their own in the subscription."""
        return GENERATION.pack(generation_id)

    def claim(self, subscription: Subscription) -> Claim:
        """Read a member's owned partitions. Before version 2 of subscriptions, the generation is in its user data."""
        generation_id = subscription.generation_id
        if generation_id < 0:
            data = subscription.user_data or b""
            (generation_id,) = GENERATION.unpack_from(data) if len(data) >= GENERATION.size else (NO_GENERATION,)
        return Claim(pairs(subscription.owned), generation_id)

    def may_have(self, member_id: str, partition: TopicPartition, ownership: Ownership) -> bool:
        """Return False for a partition that another member may still be reading."""
        return not ownership.is_others(member_id, partition)
