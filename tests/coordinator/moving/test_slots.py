"""Slots move from A to B: trace 5 of moving.md 8, and the rules of 4.1 to 4.3."""

import pytest
from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import SLOTS_AGAIN_MS, SLOTS_AHEAD_MS, VERDICTS_DROPPED_EVERY_MS
from coordinator.base.slots import bitmap_of, slot_of, slots_in
from coordinator.messages.move_events import SlotsAdopted, SlotsIgnored, SlotsReleased
from coordinator.messages.move_requests import AdoptGroup, AdoptionRefused, AdoptSlots, Elsewhere
from coordinator.messages.responses import Moved
from coordinator.moves.custody import Custody
from coordinator.state import codec
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.moving.released import OTHER, N, adopt_record, given

NOT_HERE, REFUSED = ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_REQUEST


def test_a_slot_moves_while_a_group_lives_in_it():
    """Trace 5."""
    pair = Pair.stable("c1", "c2", session_timeout_ms=120_000)
    a, b = pair.a.at(60_000), pair.b
    a.release_slots("g", made_ms=59_990).hears(ErrorCode.NONE, slots=1, listed=1)
    record = adopt_record(pair)
    assert (record.number, record.elsewhere[0].name, record.elsewhere[0].at) == (59_990, "g", "A")
    assert a.shard.moves.guests == {"g": record.elsewhere[0].number}
    slot = Moved("B", 59_990, "slot")
    a.at(60_050).join("n1", group_id=N, require_known_member_id=True).hears(NOT_HERE, moved=slot)
    b.at(60_200).join("n1", group_id=N, require_known_member_id=True).hears(NOT_HERE)
    b.at(60_300).reads(record)
    (adopted,) = b.events(SlotsAdopted)
    assert (adopted.source, adopted.number, adopted.slots, adopted.listed) == ("A", 59_990, str(slot_of("g")), 1)
    b.at(60_350).join("n1", group_id=N, require_known_member_id=True).hears(ErrorCode.MEMBER_ID_REQUIRED)
    pair.know()
    name = Moved("A", record.elsewhere[0].number)
    b.at(60_400).heartbeat("c1").hears(NOT_HERE, moved=name)
    a.at(60_450).heartbeat("c1").hears(ErrorCode.NONE)
    a.written.clear()
    a.at(61_000).release()
    assert pair.adopt_record().home is False, "the target owns the slot"
    pair.carry()
    b.is_("Stable", members="c1 c2").heartbeat("c1").hears(ErrorCode.NONE)
    assert b.shard.moves.guests == {}
    a.heartbeat("c1").hears(NOT_HERE, moved=Moved("B", 61_000_000))


def test_a_release_of_slots_is_one_event_and_so_is_their_adoption():
    pair, record = given("g", OTHER)
    (released,) = pair.a.events(SlotsReleased)
    assert (released.to, released.number, released.partition, released.listed) == ("B", 60_000, 0, 1)
    assert released.slots == ",".join(map(str, sorted(map(slot_of, ("g", OTHER)))))
    assert pair.b.reads(record, record).events(SlotsAdopted)[0].slots == released.slots
    (ignored,) = pair.b.events(SlotsIgnored)
    assert (ignored.source, ignored.from_shard, ignored.number) == ("A", 0, 60_000)
    assert ignored.why == "its slots have the number 60000 here already"


# -- the source --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"to": "A"}, "A is this coordinator itself"),
        ({"to": "C"}, "C is no peer of this coordinator"),
        ({"made_ms": 60_001 + SLOTS_AHEAD_MS}, "made_ms is 360001, which is in the future: it is 60000 now"),
        ({"made_ms": 0}, "made_ms is 0, and these slots have the number 0 already"),
        ({"slots": bitmap_of([])}, "the request names no slot"),
    ],
)
def test_slots_that_cannot_be_released_stay(fields: dict, why: str):
    pair = Pair.stable("c1", session_timeout_ms=120_000)
    before = pair.a.at(60_000).heartbeat("c1").shard.slots
    pair.a.release_slots("g", **fields).hears(REFUSED, error_message=why)
    assert pair.a.shard.slots == before
    assert not pair.a.written
    pair.a.release_slots("g", made_ms=60_000 + SLOTS_AHEAD_MS).hears(ErrorCode.NONE)


def test_a_peer_whose_partitions_are_not_known_gets_no_slots():
    a = Coordinator("A", "B").at(1_000)
    a.config = replace(a.config, peer_partitions={})
    a.shard = a._living = a.new_shard()
    a.release_slots("g").hears(REFUSED, error_message="the number of request partitions of B is not known")


def test_a_coordinator_without_peers_refuses_to_release_slots():
    alone = Coordinator("", "").at(1_000)
    alone.config = replace(alone.config, peers=(), peer_partitions={})
    alone.shard = alone._living = alone.new_shard()
    alone.release_slots("g", to="B").hears(REFUSED)
    assert alone.shard.is_blank


def test_slots_of_another_owner_are_redirected():
    pair, _ = given()
    pair.a.at(70_000).release_slots("g", OTHER).hears(NOT_HERE, moved=Moved("B", 60_000, "slot"))
    assert pair.a.custody(OTHER) is Custody.HERE
    pair.a.release(group_id=N).hears(NOT_HERE, moved=Moved("B", 60_000, "slot"))
    pair.b.at(70_000).release_slots(OTHER).hears(NOT_HERE)
    assert not pair.b.said.moved, "B owns none, and does not know the owner"


def test_slots_with_a_name_in_transit_stay_until_it_is_answered():
    pair = Pair.stable("c1", "c2")
    pair.a.at(10_000).release().release_slots("g").hears(REFUSED, error_message="g is in transit to B")
    pair.a.release_slots(OTHER).hears(ErrorCode.NONE)
    pair.b.at(10_100)
    pair.carry()
    pair.a.at(10_200).release_slots("g").hears(ErrorCode.NONE)


def test_slots_move_again_only_with_a_higher_number():
    pair, _ = given()
    pair.carry()
    pair.b.at(60_200).release_slots("g", made_ms=60_000).hears(REFUSED)
    pair.b.release_slots("g", made_ms=60_001).hears(ErrorCode.NONE)
    pair.carry()
    assert pair.a.custody(N) is Custody.HERE
    assert pair.b.custody(N) is Custody.FOREIGN


def test_two_releases_have_two_numbers():
    pair, _ = given()
    pair.a.release_slots(OTHER).hears(REFUSED, error_message="other slots have moved with the number 60000")


def test_everything_that_is_known_of_a_slot_is_listed():
    """Groups, tombstones, guests, names that are away, and verdicts."""
    pair = Pair.stable("c1", session_timeout_ms=900_000)
    a, b = pair.a.at(10_000), pair.b.at(10_000)
    names = [name for name in map(str, range(30_000)) if slot_of(name) == slot_of("g")]
    gone, away, refused, free = names[:4]
    a.commit_from_outside("x", {("t", 0): 5}, group_id=gone).delete(group_id=gone)
    a.release(group_id=away)
    pair.carry()
    a.release(group_id=free)
    (record,) = a.written
    a.written.clear()
    a.reads(replace(record, source="B", to="A", group_id=refused, crc=1, move_id="B/0/1"))
    assert isinstance(a.written.pop(), AdoptionRefused)
    b.reads(record)
    a.reads(*b.written)
    b.written.clear()
    a.release_slots("g").hears(ErrorCode.NONE, listed=5)
    where = {each.name: each.at for each in adopt_record(pair).elsewhere}
    assert where == {"g": "A", gone: "A", refused: "A", away: "B", free: "B"}
    assert set(a.shard.moves.guests) == {"g", gone, refused}


def test_the_same_number_sends_the_slots_again():
    pair, record = given()
    pair.a.written.clear()
    pair.a.at(70_000).release_slots("g", made_ms=60_000).hears(ErrorCode.NONE, slots=1, listed=1)
    again = adopt_record(pair)
    assert again == replace(record, offset=again.offset, elsewhere=again.elsewhere)
    assert [(each.name, each.at) for each in again.elsewhere] == [("g", "A")]
    assert len(pair.a.events(SlotsReleased)) == 1
    pair.b.reads(again, record)
    assert pair.b.custody(N) is Custody.HERE


def test_a_guest_in_transit_is_listed_when_its_slot_is_sent_again():
    pair, _ = given()
    pair.a.release()
    number = pair.a.shard.moves.sent["g"].number
    pair.a.written.clear()
    pair.a.release_slots("g", made_ms=60_000).hears(ErrorCode.NONE, listed=1)
    again = next(record for record in pair.a.written if isinstance(record, AdoptSlots))
    assert again.elsewhere == (Elsewhere("g", number, "A"),)


def test_slots_are_sent_again_as_long_as_nothing_about_them_is_forgotten():
    """The names that were away keep their entries for that time, counted from the release of the slots."""
    pair = Pair.blank()
    pair.a.at(10_000).release()
    pair.carry()
    released_ms = 10_000 + 2 * VERDICTS_DROPPED_EVERY_MS + SLOTS_AGAIN_MS
    pair.a.at(released_ms).release_slots("g", made_ms=10_000)
    first = adopt_record(pair)
    pair.a.written.clear()
    pair.a.until(released_ms + SLOTS_AGAIN_MS - 10_000)
    pair.a.at(released_ms + SLOTS_AGAIN_MS - 1).release_slots("g", made_ms=10_000).hears(ErrorCode.NONE, listed=1)
    assert adopt_record(pair).elsewhere == first.elsewhere
    pair.a.at(released_ms + SLOTS_AGAIN_MS).release_slots("g", made_ms=10_000).hears(REFUSED)
    assert "forgotten" in pair.a.said.error_message


def test_a_guest_whose_group_has_ended_stays_a_guest():
    pair, record = given()
    pair.a.leave("c1", "c2").delete().hears(ErrorCode.NONE)
    assert pair.a.custody("g") is Custody.HERE
    pair.a.join("c3").hears(ErrorCode.NONE)
    pair.b.reads(record).join("c3").hears(NOT_HERE, moved=Moved("A", record.elsewhere[0].number))


def test_a_group_is_refused_that_neither_side_owns_the_slot_of():
    """2.3, row 8: a guest leaves only for the owner of its slot."""
    pair, record = given()
    pair.a.written.clear()
    pair.a.release()
    before = pair.adopt_record()
    pair.b.reads(before)
    (refused,) = pair.b.written
    assert isinstance(refused, AdoptionRefused)
    assert refused.reason == "not_home"
    pair.carry()
    assert pair.a.custody("g") is Custody.HERE
    pair.b.reads(record)
    pair.a.at(61_000).release()
    pair.carry()
    assert pair.b.custody("g") is Custody.HERE


def test_the_owner_sends_a_group_to_a_coordinator_that_does_not_own_its_slot():
    pair, _ = given()
    pair.carry()
    pair.a.at(61_000).release()
    pair.carry()
    pair.b.at(62_000).release()
    (record,) = pair.b.written
    assert isinstance(record, AdoptGroup)
    assert record.home
    pair.a.at(62_000)
    pair.carry()
    assert pair.a.shard.moves.guests == {"g": record.number}
    assert pair.b.custody("g") is Custody.AWAY


# -- rights and state --------------------------------------------------------------------------------------------------


def test_only_a_principal_that_may_alter_the_cluster_releases_slots():
    a = Coordinator("A", "B", access="rules", super_users=("User:root",)).at(1_000)
    a.release_slots("g", principal="User:ana").hears(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert a.custody("g") is Custody.HERE
    a.release_slots("g", principal="User:root").hears(ErrorCode.NONE)
    assert a.custody("g") is Custody.FOREIGN


def test_a_shard_whose_slots_have_not_moved_writes_none():
    pair = Pair.stable("c1")
    assert codec.decode_shard(pair.a.shard.to_bytes()).moves is None
    pair.a.at(10_000).release()
    kept = codec.decode_shard(pair.a.shard.to_bytes())
    assert kept.slots is None
    assert pair.a.shard.to_bytes() == codec.encode_shard(replace(kept, slots=None))


def test_slots_are_kept_in_the_state():
    pair, _ = given("g", OTHER)
    again = pair.a.new_shard(pair.a.shard.to_bytes())
    assert again.slots == pair.a.shard.slots
    (holding,) = again.slots.owners.holdings
    assert slots_in(holding.slots) == {slot_of("g"), slot_of(OTHER)}
    assert not again.is_blank


def test_an_own_slot_stays_so_without_peers():
    """A coordinator whose peers are removed has no prefix any more."""
    pair, record = given()
    pair.b.reads(record)
    pair.b.config = replace(pair.b.config, peers=(), prefix="", peer_partitions={})
    pair.b.shard = pair.b.new_shard(pair.b.shard.to_bytes())
    assert pair.b.custody(N) is Custody.HERE
    assert pair.b.custody(OTHER) is Custody.FOREIGN
