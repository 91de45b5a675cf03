"""The orders in which Kafka's hash tables list members, topics and partitions.

Kafka's server assignors go through hash tables. So these orders decide which member gets one partition more than
another, and a plan is the same as Kafka's only if the orders are the same. Entries of one bucket have an order of their
own here, because in Kafka it depends on the history of the table.

Source: java.util.HashMap and HashSet, `hash` and `tableSizeFor`; Kafka's Uuid.hashCode.
"""

from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

from coordinator.base.hashing import MASK, java_hash

BUCKETS_MIN = 16

IDS_CACHED = 2**16
"""Topic ids whose numbers are cached, some 200 bytes each."""


def buckets_after_growth(entries: int) -> int:
    """Return the size of a Java hash table into which entries were put one by one."""
    buckets = BUCKETS_MIN
    while entries > buckets * 3 // 4:
        buckets *= 2
    return buckets


def buckets_of_copy(entries: int) -> int:
    """Return the size of a Java `HashSet` that was made from a collection of that size."""
    needed = max(int(entries / 0.75) + 1, BUCKETS_MIN)
    return 1 << (needed - 1).bit_length()


def bucket(hashed: int, buckets: int) -> int:
    """Return the bucket of a 32-bit hash in a Java hash table."""
    return (hashed ^ hashed >> 16) & (buckets - 1)


@lru_cache(IDS_CACHED)
def halves(topic_id: str) -> tuple[int, int]:
    """Return the two signed 64-bit numbers of a topic id, in the order in which Kafka compares ids."""
    data = urlsafe_b64decode(topic_id + "==")
    return int.from_bytes(data[:8], "big", signed=True), int.from_bytes(data[8:], "big", signed=True)


def id_hash(topic_id: str) -> int:
    """Return the hash of Kafka's `Uuid.hashCode`, as an unsigned 32-bit number."""
    high, low = halves(topic_id)
    mixed = high ^ low
    return (mixed >> 32 ^ mixed) & MASK


def members_in_order(member_ids: Sequence[str]) -> list[int]:
    """Return the places of members, in the order in which a Java `HashMap` lists their ids.

    Args:
        member_ids: In the order in which the members joined.
    """
    buckets = buckets_after_growth(len(member_ids))
    keyed = [(bucket(java_hash(member_id), buckets), place) for place, member_id in enumerate(member_ids)]
    return [place for _, place in sorted(keyed)]


def topics_in_order(topic_ids: Iterable[str], names: Mapping[str, str], buckets: int) -> list[str]:
    """Return topic ids in the order of a Java hash table of that size; those of one bucket by name."""
    keyed = [(bucket(id_hash(each), buckets), names.get(each, ""), each) for each in topic_ids]
    return list(map(itemgetter(2), sorted(keyed)))


def partitions_in_order(numbers: Collection[int]) -> list[int]:
    """Return partition numbers in the order of a Java `HashSet` that was made from them."""
    buckets = buckets_of_copy(len(numbers))
    if max(numbers, default=0) < buckets:
        return sorted(numbers)
    return sorted(numbers, key=lambda number: (bucket(number, buckets), number))
