"""The partition owners before an assignment, from the members' claims, which may be out of date.

Source: Kafka's AbstractStickyAssignor.allSubscriptionsEqual and prepopulateCurrentAssignments; KIP-792.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from coordinator.assignors.assignor import TopicPartition

NO_GENERATION = -1


class Claim(Struct, frozen=True):
    """The partitions that one member claims to own, and their generation; `NO_GENERATION` if the member has none."""

    partitions: Iterable[TopicPartition] = ()
    generation_id: int = NO_GENERATION


class Ownership(Struct, frozen=True):
    """The owners that result from the claims.

    Args:
        owned: The partitions that each member owns; a member without any has an entry too.
        owner_of: The same by partition.
        owner_before: By partition, the latest member that claims it from a generation older than the newest of all.
        claimants: By partition, all members that claim it, rightly or not.
    """

    owned: dict[str, list[TopicPartition]]
    owner_of: dict[TopicPartition, str]
    owner_before: dict[TopicPartition, str]
    claimants: Mapping[TopicPartition, list[str]]

    def is_others(self, member_id: str, partition: TopicPartition) -> bool:
        """Return whether another member may still be reading a partition that the member does not rightly own."""
        return self.owner_of.get(partition) != member_id and self.claimants.get(partition, [member_id]) != [member_id]


def settle(claims: Mapping[str, Claim], sizes: Mapping[str, int]) -> Ownership:
    """Return the rightful owners: the claim of the highest generation counts; two such claims are both void.

    Args:
        claims: Every member's claim, by member id.
        sizes: How many partitions each topic has; claims of other partitions are void.
    """
    claimants: defaultdict[TopicPartition, list[str]] = defaultdict(list)
    for member_id in sorted(claims):
        for topic, number in dict.fromkeys(claims[member_id].partitions):
            if 0 <= number < sizes.get(topic, 0):
                claimants[topic, number].append(member_id)
    generation_of = {member_id: claim.generation_id for member_id, claim in claims.items()}
    newest = max(generation_of.values(), default=NO_GENERATION)
    ownership = Ownership({member_id: [] for member_id in sorted(claims)}, {}, {}, claimants)
    for partition, members in claimants.items():
        latest_first = sorted(members, key=generation_of.__getitem__, reverse=True)
        generations = [generation_of[member_id] for member_id in latest_first]
        if generations.count(generations[0]) == 1:
            ownership.owned[latest_first[0]].append(partition)
            ownership.owner_of[partition] = latest_first[0]
        older = (m for m, generation in zip(latest_first, generations, strict=True) if generation < newest)
        if (before := next(older, None)) is not None:
            ownership.owner_before[partition] = before
    return ownership
