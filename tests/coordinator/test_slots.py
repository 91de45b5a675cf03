"""The slots of names, the partitions that have them, and their owners (moving.md 4.1)."""

from random import Random

import pytest

from coordinator.base.hashing import murmur2, shard_of
from coordinator.base.limits import SLOTS
from coordinator.base.slots import (
    HERE,
    Holding,
    Owners,
    PartitionRef,
    bitmap_of,
    partitions_with,
    ranges_of,
    slot_of,
    slots_at,
    slots_between,
    slots_in,
)

PARTITIONS = (1, 2, 3, 6, 16, 63, 64, 1000)


def names(count: int) -> list[str]:
    chance = Random(count)
    return [f"group-{chance.randrange(10**9)}-é" for _ in range(count)]


def test_the_slot_of_a_name_is_its_hash_modulo_1024():
    assert [slot_of(name) for name in ("", "g", "billing")] == [
        (murmur2(name) & 0x7FFFFFFF) % 1024 for name in (b"", b"g", b"billing")
    ]


def test_a_bitmap_has_the_lowest_slot_in_the_lowest_bit_of_the_first_byte():
    assert bitmap_of([0, 9, 9, 1023]) == b"\x01\x02" + bytes(125) + b"\x80"
    assert slots_in(bitmap_of([0, 9, 1023])) == {0, 9, 1023}
    assert bitmap_of(range(SLOTS)) == b"\xff" * 128


@pytest.mark.parametrize(
    ("slots", "text"),
    [([], ""), ([7], "7"), ([3, 2, 1], "1-3"), ([0, 1, 5, 1023], "0-1,5,1023"), (range(1024), "0-1023")],
)
def test_slots_are_shown_as_ranges(slots: list[int], text: str):
    assert ranges_of(slots) == text


@pytest.mark.parametrize("partitions", [1, 2, 16, 64, 1024])
def test_a_slot_is_in_one_shard_if_the_number_of_partitions_divides_1024(partitions: int):
    for partition in range(partitions):
        assert slots_at(PartitionRef(partition, partitions)) == frozenset(range(partition, SLOTS, partitions))


@pytest.mark.parametrize("source", PARTITIONS)
@pytest.mark.parametrize("target", PARTITIONS)
def test_each_name_is_in_a_slot_of_both_of_its_shards(source: int, target: int):
    for name in names(50):
        slot, there = slot_of(name), PartitionRef(shard_of(name, target), target)
        assert slot in slots_between(PartitionRef(shard_of(name, source), source), there)
        assert shard_of(name, source) in partitions_with(slot, source, there)


@pytest.mark.parametrize(("source", "target"), [(6, 4), (3, 2), (4, 6), (12, 18)])
def test_a_source_writes_to_exactly_the_shards_that_wait_for_it(source: int, target: int):
    for partition in range(target):
        there = PartitionRef(partition, target)
        for slot in slots_at(there):
            waits = partitions_with(slot, source, there)
            assert waits == [p for p in range(source) if slot in slots_between(PartitionRef(p, source), there)]
            assert waits


def test_no_record_goes_to_a_shard_that_has_no_name_in_common():
    assert slots_between(PartitionRef(0, 2), PartitionRef(1, 4)) == frozenset()
    assert slots_between(PartitionRef(0, 2), PartitionRef(2, 4)) == frozenset(range(2, SLOTS, 4))


def test_the_latest_move_of_a_slot_has_its_owner():
    owners = Owners().moved({1, 2}, 5, "B", 10).moved({2, 3}, 6, HERE, 20)
    assert owners.holdings == (Holding(5, "B", bitmap_of([1]), 10), Holding(6, HERE, bitmap_of([2, 3]), 20))
    assert [owners.number_of(slot) for slot in (0, 1, 2, 3)] == [0, 5, 6, 6]
    assert owners.of(0) is None
    assert len(owners.moved({1}, 7, "C", 30).holdings) == 2, "a move without slots is dropped"
