"""Who owns what before a plan is made, by what members say, who may be out of date.

Source: Kafka's AbstractStickyAssignor.allSubscriptionsEqual and prepopulateCurrentAssignments; KIP-792.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from coordinator.assignors.assignor import TopicPartition

NO_GENERATION = -1


class Claim(Struct, frozen=True):
    """What one member says it owns, and the generation it has it from; `NO_GENERATION` if it cannot tell."""

    partitions: Iterable[TopicPartition] = ()
    generation_id: int = NO_GENERATION


class Ownership(Struct, frozen=True):
    """What the claims come to.

    Args:
        owned: What each member owns, also where that is nothing.
        owner_of: The same by partition.
        owner_before: Who claims a partition from an older generation than the newest of all, the latest one of them.
        claimants: All who claim a partition, rightly or not.
    """

    owned: dict[str, list[TopicPartition]]
    owner_of: dict[TopicPartition, str]
    owner_before: dict[TopicPartition, str]
    claimants: Mapping[TopicPartition, list[str]]

    def is_others(self, member_id: str, partition: TopicPartition) -> bool:
        """Tell whether somebody else may still be reading a partition that does not rightly belong to the member."""
        return self.owner_of.get(partition) != member_id and self.claimants.get(partition, [member_id]) != [member_id]


def settle(claims: Mapping[str, Claim], sizes: Mapping[str, int]) -> Ownership:
    """Find the rightful owners: the claim from the highest generation counts, and of two such ones neither.

    Args:
        claims: Every member's, by member id.
        sizes: How many partitions each topic has; claims to anything else are void.
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
