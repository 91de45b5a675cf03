"""`cooperative-sticky`: the plan of `sticky`, without what somebody else has to give up first.

Whoever loses a partition by the plan gives it up and joins again; then nobody claims it, and the next round gives it to
its new owner. Everything else stays in use meanwhile.

Source: Kafka's CooperativeStickyAssignor; KIP-429, KIP-792.
"""

from collections.abc import Mapping, Sequence

from coordinator.assignors.assignor import RebalanceProtocol, TopicPartition
from coordinator.assignors.ownership import NO_GENERATION, Claim, Ownership
from coordinator.assignors.sticky import GENERATION, Sticky, pairs
from coordinator.consumer_protocol import Subscription


class CooperativeSticky(Sticky):
    """Even shares, kept by their owners, who read on while others move."""

    name = "cooperative-sticky"
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def user_data(self, owned: Mapping[str, Sequence[int]], generation_id: int) -> bytes | None:
        """Write the generation; what is owned has a field of its own in the subscription."""
        return GENERATION.pack(generation_id)

    def claim(self, subscription: Subscription) -> Claim:
        """Read what a member owns. Before version 2 of subscriptions, the generation is in its user data."""
        generation_id = subscription.generation_id
        if generation_id < 0:
            data = subscription.user_data or b""
            (generation_id,) = GENERATION.unpack_from(data) if len(data) >= GENERATION.size else (NO_GENERATION,)
        return Claim(pairs(subscription.owned), generation_id)

    def may_have(self, member_id: str, partition: TopicPartition, ownership: Ownership) -> bool:
        """Keep back what somebody else may still be reading."""
        return not ownership.is_others(member_id, partition)
