"""The names of released slots in parts, and records that later steps write (moving.md 4.2)."""

from unittest.mock import patch

import pytest
from msgspec import json

from coordinator.base.errors import ErrorCode
from coordinator.messages.move_events import SlotsIgnored
from coordinator.messages.move_requests import AdoptSlots
from coordinator.messages.outputs import ToPeer
from coordinator.moves import slot_source
from coordinator.moves.custody import Custody
from coordinator.shard import budget
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.waking import wake


def many_names(count: int) -> list[str]:
    return [f"name {number}" for number in range(count)]


def known(side: Coordinator, names: list[str]) -> Coordinator:
    """Return a coordinator with a group of each name."""
    for name in names:
        side.commit_from_outside("x", {("t", 0): 5}, group_id=name)
    return side


@pytest.mark.parametrize("bound", [{"ELSEWHERE_MAX": 4}, {"MOVE_PART_BYTES": 80}])
def test_names_are_sent_in_parts(bound: dict):
    pair, names = Pair.blank(), many_names(9)
    known(pair.a.at(10_000), names)
    with patch.multiple(slot_source, **bound):
        pair.a.release_slots(*names).hears(ErrorCode.NONE, listed=9)
    records = [record for record in pair.a.written if isinstance(record, AdoptSlots)]
    assert [(r.part, r.parts) for r in records] == [(1, 3), (2, 3), (3, 3)]
    assert [len(r.elsewhere) for r in records][:2] in ([4, 4], [3, 3])
    assert all(len(json.encode(r.elsewhere)) <= 82 for r in records) or "ELSEWHERE_MAX" in bound
    assert [each.name for r in records for each in r.elsewhere] == sorted(names)
    pair.b.at(10_100).reads(records[2], records[0], records[0])
    assert pair.b.custody("name 0") is Custody.FOREIGN, "a part is missing"
    pair.b.reads(records[1])
    assert {pair.b.custody(name) for name in names} == {Custody.AWAY}
    assert pair.b.shard.slots.partial == []


def test_the_number_of_parts_has_a_bound():
    pair, names = Pair.blank(), many_names(9)
    known(pair.a.at(10_000), names)
    with patch.object(slot_source, "ELSEWHERE_MAX", 3), patch.object(slot_source, "MOVE_PARTS_MAX", 2):
        pair.a.release_slots(*names).hears(ErrorCode.INVALID_REQUEST)
        assert "take 3 parts, and 2 are allowed" in pair.a.said.error_message
        assert pair.a.custody("free") is Custody.HERE
        pair.a.release_slots(*names[:6]).hears(ErrorCode.NONE)


def test_records_that_do_not_fit_into_a_step_are_written_by_later_ones():
    pair, names = Pair.blank(), many_names(9)
    known(pair.a.at(10_000), names)
    with patch.object(slot_source, "ELSEWHERE_MAX", 4), patch.object(budget, "STEP_BYTES_MAX", 100):
        pair.a.release_slots(*names)
        for written in (1, 2):
            assert len(pair.a.written) == written
            assert pair.a.shard.due_in_ms == 0
            pair.a.step([], 10_000 + written)
    assert [record.part for record in pair.a.written] == [1, 2, 3]
    assert pair.a.shard.slots.sent == {}


def test_records_for_a_peer_that_was_removed_are_not_written():
    """A sink that cannot write fails its batch again and again."""
    pair, names = Pair.blank(), many_names(9)
    known(pair.a.at(10_000), names)
    with patch.object(slot_source, "ELSEWHERE_MAX", 4), patch.object(budget, "STEP_BYTES_MAX", 100):
        pair.a.release_slots(*names)
        alone = pair.a.new_shard(pair.a.shard.to_bytes(), peers=())
        assert alone.due_in_ms != 0
        assert not [o for o in alone.step([wake(10_001)], 10_001) if isinstance(o, ToPeer)]
        again = pair.a.new_shard(alone.to_bytes())
        assert [o.record.part for o in again.step([wake(10_002)], 10_002) if isinstance(o, ToPeer)] == [2]


def test_the_parts_of_two_sendings_are_not_put_together():
    """The names may be cut at other places."""
    pair, names = Pair.blank(), many_names(9)
    known(pair.a.at(10_000), names)
    with patch.object(slot_source, "ELSEWHERE_MAX", 5):
        pair.a.release_slots(*names)
    with patch.object(slot_source, "ELSEWHERE_MAX", 8):
        pair.a.release_slots(*names, made_ms=10_000)
    first, _, again, rest = pair.a.written
    pair.b.at(10_100).reads(first, rest)
    assert pair.b.custody("name 0") is Custody.FOREIGN
    pair.b.reads(first)
    assert pair.b.events(SlotsIgnored)[-1].why == "a later request has sent the slots again"
    pair.b.reads(again)
    assert {pair.b.custody(name) for name in names} == {Custody.AWAY}
