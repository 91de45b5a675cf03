"""The target of slots: which records it ignores, and which names are elsewhere afterwards (moving.md 4.3)."""

from unittest.mock import patch

import pytest
from msgspec.structs import replace

from coordinator.base.slots import slot_of
from coordinator.messages.events import AccessDenied
from coordinator.messages.move_events import SlotsAdopted, SlotsIgnored
from coordinator.messages.move_requests import Elsewhere
from coordinator.moves import slot_target
from coordinator.moves.custody import Custody
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.moving.released import OTHER, N, adopt_record, given


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"to": "C"}, "it is meant for C"),
        ({"to_shard": 1, "to_partitions": 2}, "it is meant for shard 1 of 2"),
        ({"to_partitions": 2}, "it is meant for shard 0 of 2"),
        ({"from_shard": 1}, "its numbers do not fit each other"),
        ({"part": 2}, "its numbers do not fit each other"),
        ({"from_shard": (slot_of("g") + 1) % 2, "from_partitions": 2}, "none of its slots has names in both shards"),
    ],
)
def test_a_record_that_does_not_fit_is_ignored(change: dict, why: str):
    pair, record = given()
    pair.b.reads(replace(record, **change))
    (ignored,) = pair.b.events(SlotsIgnored)
    assert ignored.why == why
    assert pair.b.custody(N) is Custody.FOREIGN
    pair.b.reads(record)
    assert pair.b.custody(N) is Custody.HERE


@pytest.mark.parametrize("access", ["open", "rules"])
def test_a_record_without_a_mac_or_of_no_peer_is_an_event(access: str):
    _, record = given()
    b = Coordinator("B", "A", slots="none", access=access).at(60_100)
    b.reads(record, doubt="its MAC is wrong").reads(replace(record, source="C"))
    assert [event.why for event in b.events(AccessDenied)] == ["its MAC is wrong", "C is no peer of this coordinator"]
    assert b.custody(N) is Custody.FOREIGN
    assert b.reads(record).custody(N) is Custody.HERE, "no access rule is needed"


def test_a_late_record_moves_no_slot():
    """A slot goes there and back, and the first record comes again."""
    pair, record = given()
    pair.carry()
    pair.b.at(61_000).release_slots("g")
    pair.a.at(61_100)
    pair.carry()
    pair.b.reads(record)
    assert pair.b.custody(N) is Custody.FOREIGN
    assert pair.a.custody(N) is Custody.HERE


def test_moves_with_missing_records_have_a_bound():
    pair, record = given()
    with patch.object(slot_target, "PARTIAL_SLOT_TRANSFERS_MAX", 1):
        pair.b.reads(replace(record, parts=2, number=60_001))
        assert pair.b.reads(record).custody(N) is Custody.FOREIGN
        assert pair.b.events(SlotsIgnored)[-1].why == "1 others have missing records"


@pytest.mark.parametrize(("ahead", "where"), [(-1, "A"), (0, "C"), (1, "C")])
def test_the_higher_number_of_a_name_counts(ahead: int, where: str):
    pair = Pair.blank()
    pair.a.at(10_000).release()
    pair.carry()
    pair.b.at(20_000).release()
    pair.carry()
    away = pair.b.shard.moves.away["g"]
    assert away.to == "A"
    pair.a.at(30_000).release_slots("g")
    pair.b.reads(replace(adopt_record(pair), elsewhere=(Elsewhere("g", away.number + ahead, "C"),)))
    assert pair.b.shard.moves.away["g"].to == where


def test_a_group_that_lives_at_the_target_stays():
    _, record = given()
    b = Coordinator("B", "A").at(60_000)
    b.join("x1").reads(record)
    assert b.custody("g") is Custody.HERE
    assert b.reads(replace(record, number=60_001, elsewhere=())).custody("g") is Custody.HERE


def test_a_name_that_the_source_does_not_know_any_more_is_free():
    """An older entry of the target is wrong: the owner of a slot knows each of its names that is elsewhere."""
    pair = Pair.blank()
    pair.a.at(10_000).release()
    pair.carry()
    pair.b.at(20_000).release()
    pair.carry()
    assert pair.b.custody("g") is Custody.AWAY
    pair.a.at(30_000).release_slots("g")
    record = replace(adopt_record(pair), elsewhere=())
    pair.b.reads(record)
    assert pair.b.custody("g") is Custody.HERE


def test_a_name_in_transit_to_the_source_is_away_when_it_is_answered():
    pair = Pair.stable("c1", "c2")
    pair.a.at(10_000).release()
    pair.carry()
    pair.b.at(11_000).release()
    (record,) = pair.b.written
    pair.b.written.clear()
    pair.a.at(11_100).reads(record).release_slots("g")
    answer, slots = pair.a.written
    pair.b.at(11_200).reads(slots)
    assert pair.b.custody("g") is Custody.IN_TRANSIT
    assert pair.b.shard.moves.away == {}
    pair.b.reads(answer)
    assert pair.b.custody("g") is Custody.AWAY
    assert pair.a.custody("g") is Custody.HERE


def test_a_guest_of_an_adopted_slot_is_a_guest_no_more():
    pair = Pair.stable("c1", "c2")
    pair.a.at(10_000).release()
    pair.carry()
    assert pair.b.shard.moves.guests == {"g": 10_000_000}
    pair.a.at(11_000).release_slots("g")
    assert adopt_record(pair).elsewhere == (Elsewhere("g", 10_000_000, "B"),)
    pair.b.at(11_100)
    pair.carry()
    assert pair.b.shard.moves.guests == {}
    assert pair.b.custody("g") is Custody.HERE


def test_a_free_name_that_is_a_guest_stays_whatever_is_listed():
    pair = Pair.blank()
    pair.a.at(10_000).release()
    pair.carry()
    pair.a.at(11_000).release_slots("g")
    pair.b.reads(replace(adopt_record(pair), elsewhere=(Elsewhere("g", 2**53, "C"),)))
    assert pair.b.custody("g") is Custody.HERE


def test_a_name_that_is_listed_at_the_target_itself_is_here():
    pair, record = given()
    pair.b.reads(replace(record, elsewhere=(Elsewhere("g", 5, "B"),)))
    assert pair.b.custody("g") is Custody.HERE


def test_a_listed_name_of_another_slot_changes_nothing():
    pair, record = given()
    pair.b.reads(replace(record, elsewhere=(*record.elsewhere, Elsewhere(OTHER, 5, "A"))))
    assert set(pair.b.shard.moves.away) == {"g"}
    assert pair.b.events(SlotsAdopted)[0].listed == 1
