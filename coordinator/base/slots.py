"""Slots: 1,024 sets of names, of which each has an owner (moving.md 4.1).

A bitmap has the bit `slot % 8`, the lowest first, of the byte `slot // 8` for each of its slots.

The hash of a name decides its slot and its request partition at each coordinator. So two partitions, of one coordinator
or of two, have names of a slot in common only if their remainders fit: a hash that leaves three given remainders exists
if each two of them are equal modulo the common divisor of their moduli (the Chinese remainder theorem).
"""

from collections.abc import Iterable
from functools import lru_cache
from math import gcd

from msgspec import Struct

from coordinator.base.hashing import shard_of
from coordinator.base.limits import SLOT_BITMAP_BYTES, SLOTS

HERE = ""
"""The owner of a slot that is this coordinator's own."""


def slot_of(name: str) -> int:
    """Return the slot of a name."""
    return shard_of(name, SLOTS)


def bitmap_of(slots: Iterable[int]) -> bytes:
    """Return slots as a bitmap."""
    return sum(1 << slot for slot in frozenset(slots)).to_bytes(SLOT_BITMAP_BYTES, "little")


def slots_in(bitmap: bytes) -> frozenset[int]:
    """Return the slots of a bitmap."""
    return frozenset(slot for slot in range(SLOTS) if _has(bitmap, slot))


def ranges_of(slots: Iterable[int]) -> str:
    """Return slots as text, such as "0-511,600"."""
    ranges = list[list[int]]()
    for slot in sorted(slots):
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _has(bitmap: bytes, slot: int) -> bool:
    return bool(bitmap[slot // 8] >> slot % 8 & 1)


class PartitionRef(Struct, frozen=True):
    """One of the partitions of a request topic."""

    partition: int
    partitions: int

    def meets(self, other: "PartitionRef") -> bool:
        """Return whether the hash of a name may be in both partitions."""
        return (self.partition - other.partition) % gcd(self.partitions, other.partitions) == 0


def slots_at(shard: PartitionRef) -> frozenset[int]:
    """Return the slots that have names in a partition."""
    return frozenset(slot for slot in range(SLOTS) if shard.meets(PartitionRef(slot, SLOTS)))


@lru_cache(4_096)
def slots_between(source: PartitionRef, target: PartitionRef) -> frozenset[int]:
    """Return the slots that have names in a partition of one coordinator and in a partition of another one."""
    return slots_at(source) & slots_at(target) if source.meets(target) else frozenset()


def partitions_with(slot: int, partitions: int, target: PartitionRef) -> list[int]:
    """Return the partitions of one coordinator that have names of a slot in a partition of another one."""
    places = (PartitionRef(partition, partitions) for partition in range(partitions))
    return [shard.partition for shard in places if shard.meets(target) and shard.meets(PartitionRef(slot, SLOTS))]


class Holding(Struct, array_like=True, frozen=True):
    """Slots that have moved with one number.

    Args:
        owner: The prefix of the owner, or `HERE`.
        slots: A bitmap.
        since_ms: The time at which that was known here.
    """

    number: int
    owner: str
    slots: bytes
    since_ms: int


class Owners(Struct, array_like=True, frozen=True):
    """The owners of slots, each with the number of its last move. The setting `slots` has the owner of all others."""

    holdings: tuple[Holding, ...] = ()

    def of(self, slot: int) -> Holding | None:
        """Return the latest move of a slot; None if it has never moved."""
        return next((holding for holding in self.holdings if _has(holding.slots, slot)), None)

    def number_of(self, slot: int) -> int:
        """Return the number of a slot; 0 if it has never moved."""
        holding = self.of(slot)
        return 0 if holding is None else holding.number

    def moved(self, slots: Iterable[int], number: int, owner: str, at_ms: int) -> "Owners":
        """Return the owners after a move of some slots."""
        slots = frozenset(slots)
        left = [(each, slots_in(each.slots) - slots) for each in self.holdings]
        kept = (Holding(each.number, each.owner, bitmap_of(those), each.since_ms) for each, those in left if those)
        return Owners((*kept, Holding(number, owner, bitmap_of(slots), at_ms)))
