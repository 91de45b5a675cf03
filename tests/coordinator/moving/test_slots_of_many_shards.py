"""Slots move between coordinators with several shards: each name is served by exactly one shard (moving.md 4.3)."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.base.config import Config
from coordinator.base.hashing import shard_of
from coordinator.base.limits import SLOTS
from coordinator.base.slots import bitmap_of, slot_of
from coordinator.messages.move_events import SlotsAdopted, SlotsReleased
from coordinator.messages.move_requests import AdoptSlots, ReleaseSlots
from coordinator.messages.outputs import ToPeer
from coordinator.messages.requests import OffsetCommit, OffsetToCommit, Received
from coordinator.messages.responses import Reply
from coordinator.moves.custody import Custody, MoveStore
from coordinator.shard.shard import Shard
from tests.coordinator.scenario import SECRET

KNOWN, FREE = [[f"{kind} {number}" for number in range(60)] for kind in ("known", "free")]


class Side:
    """One coordinator with several shards, whose logs are delivered record by record."""

    def __init__(self, prefix: str, peer: str, partitions: int, peer_partitions: int, slots: Any) -> None:
        config = Config(prefix=prefix, peers=(peer,), peer_partitions={peer: peer_partitions}, slots=slots)
        self.peer, self.offset = peer, 0
        self.shards = [Shard(number, partitions, SECRET, config) for number in range(partitions)]

    def step(self, shard: int, request: Any, at_ms: int) -> list[Any]:
        self.offset += 1
        return self.shards[shard].step([Received(self.offset, at_ms, request)], at_ms)

    def commits(self, name: str, at_ms: int) -> str:
        """Commit an offset from outside, which creates the group, and return the error."""
        request = OffsetCommit(request_id=name, reply_to="i", group_id=name, offsets=(OffsetToCommit("t", 0, 1),))
        outputs = self.step(shard_of(name, len(self.shards)), request, at_ms)
        return next(o.answer.error for o in outputs if isinstance(o, Reply))

    def release(self, slots: Any, at_ms: int) -> list[ToPeer]:
        """Release slots in every shard, and return the records."""
        request = ReleaseSlots(request_id="s", reply_to="i", to=self.peer, slots=bitmap_of(slots), made_ms=at_ms)
        outputs = [o for shard in range(len(self.shards)) for o in self.step(shard, request, at_ms)]
        assert {o.answer.error for o in outputs if isinstance(o, Reply)} == {"NONE"}
        return [o for o in outputs if isinstance(o, ToPeer)]

    def kept(self, name: str) -> MoveStore:
        moves = self.shards[shard_of(name, len(self.shards))].move_store
        assert moves is not None
        return moves


def serving(name: str, *sides: Side) -> list[Side]:
    return [side for side in sides if side.kept(name).custody_of(name) is Custody.HERE]


@pytest.mark.parametrize(("source", "target"), [(1, 1), (4, 16), (16, 4), (3, 2), (6, 4), (4, 6), (5, 3)])
def test_slots_of_many_shards_move_in_any_order(source: int, target: int):
    chance = Random(source * 100 + target)
    a, b = Side("A", "B", source, target, "all"), Side("B", "A", target, source, "none")
    for name in KNOWN:
        assert a.commits(name, 1_000) == "NONE"
    records = a.release(range(SLOTS), 2_000)
    chance.shuffle(records)
    adopted = set[int]()
    for place, written in enumerate(records):
        assert isinstance(written.record, AdoptSlots)
        assert written.partition is not None
        for _ in range(chance.randint(1, 2)):
            outputs = b.step(written.partition, written.record, 3_000)
            adopted.update(place for o in outputs if isinstance(o, SlotsAdopted))
        for name in chance.sample(KNOWN + FREE, 8):
            assert len(serving(name, a, b)) <= 1
    for name in KNOWN:
        assert serving(name, a, b) == [a]
        assert b.commits(name, 4_000) == "NOT_COORDINATOR"
    for name in FREE:
        assert serving(name, a, b) == [b]
        assert a.commits(name, 4_000) == "NOT_COORDINATOR"
        assert b.commits(name, 4_000) == "NONE"
    assert len(adopted) >= target, "each shard adopts its slots, as their records come"
    assert not any(shard.slots.partial or shard.slots.sent for side in (a, b) for shard in side.shards)


def test_a_shard_releases_only_the_slots_that_have_names_in_it():
    a = Side("A", "B", 2, 4, "all")
    outputs = a.step(0, ReleaseSlots(request_id="1", reply_to="i", to="B", slots=bitmap_of([1, 2, 4]), made_ms=5), 5)
    assert [o.slots for o in outputs if isinstance(o, SlotsReleased)] == ["2,4"]
    assert [o.answer.slots for o in outputs if isinstance(o, Reply)] == [2]
    written = {o.partition: o.record.slots for o in outputs if isinstance(o, ToPeer)}
    assert written == {0: bitmap_of([4]), 2: bitmap_of([2])}
    before = a.shards[0].to_bytes()
    outputs = a.step(0, ReleaseSlots(request_id="2", reply_to="i", to="B", slots=bitmap_of([1, 3]), made_ms=6), 5)
    assert [o.answer.error for o in outputs if isinstance(o, Reply)] == ["NONE"]
    assert len(outputs) == 1
    assert a.shards[0].to_bytes() == before


def test_a_slot_of_several_shards_waits_for_all_of_them():
    """3 does not divide 1,024, so each slot has names in each of the 3 shards."""
    a, b = Side("A", "B", 3, 1, "all"), Side("B", "A", 1, 3, "none")
    first, second, third = a.release({slot_of(FREE[0])}, 2_000)
    for written in (first, third, first):
        b.step(0, written.record, 3_000)
        assert serving(FREE[0], a, b) == []
    b.step(0, second.record, 3_000)
    assert serving(FREE[0], a, b) == [b]


def test_a_slot_waits_for_all_parts_of_each_shard_of_one_source():
    a, b = Side("A", "B", 3, 1, "all"), Side("B", "A", 1, 3, "none")
    config = replace(b.shards[0].config, peers=("A", "C"))
    b.shards[0] = Shard(0, 1, SECRET, config)
    first, second, third = (written.record for written in a.release({slot_of(FREE[0])}, 2_000))
    for record in (first, replace(second, parts=2), replace(second, source="C"), third, replace(third, source="C")):
        b.step(0, record, 3_000)
        assert serving(FREE[0], a, b) == []
    b.step(0, replace(second, parts=2, part=2), 3_000)
    assert serving(FREE[0], a, b) == [b]


def test_shards_that_release_with_two_numbers_give_the_slot_all_the_same():
    """One shard has refused the first request, and gets another one with a number of its own."""
    a, b = Side("A", "B", 3, 1, "all"), Side("B", "A", 1, 3, "none")
    slot = slot_of(FREE[0])
    for shard, made_ms in ((0, 2_000), (1, 2_500), (2, 2_000)):
        request = ReleaseSlots(request_id="s", reply_to="i", to="B", slots=bitmap_of([slot]), made_ms=made_ms)
        (written,) = [o for o in a.step(shard, request, 2_600) if isinstance(o, ToPeer)]
        b.step(0, written.record, 3_000)
    assert serving(FREE[0], a, b) == [b]
    assert b.shards[0].slots.owners.number_of(slot) == 2_500
