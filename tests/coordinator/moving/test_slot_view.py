"""The owners of slots, as an operator sees them (moving.md 4.2)."""

from unittest.mock import patch

from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.base.slots import slot_of
from coordinator.messages.move_requests import DescribeSlots
from coordinator.messages.responses import OwnedSlots
from coordinator.moves import slot_target
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.moving.released import OTHER, given

G, ALL = slot_of("g"), "0-1023"
REST = f"0-{G - 1},{G + 1}-1023"


def described(coordinator: Coordinator, after: str = "") -> dict[str, object]:
    """Return what a coordinator answers about its slots, without what is empty."""
    answer = coordinator.ask("op", DescribeSlots, group_id="", after=after).hears(ErrorCode.NONE).said
    fields = {each: getattr(answer, each) for each in ("owned", "arriving", "guests", "has_more")}
    return {name: value for name, value in fields.items() if value}


def owned(slots: str, owner: str | None, number: int = 0) -> OwnedSlots:
    """Return the slots of one owner."""
    return OwnedSlots(slots=slots, owner=owner, number=number)


def test_slots_that_never_moved_have_the_owner_of_the_setting():
    pair = Pair.stable("c1")
    assert described(pair.a) == {"owned": (owned(ALL, "A"),)}
    assert described(pair.b) == {"owned": (owned(ALL, None),)}


def test_a_released_slot_has_another_owner_and_its_groups_are_guests():
    pair, record = given()
    assert described(pair.a) == {"owned": (owned(REST, "A"), owned(str(G), "B", 60_000)), "guests": ("g",)}
    assert described(pair.b) == {"owned": (owned(ALL, None),)}
    pair.b.reads(record)
    assert described(pair.b) == {"owned": (owned(REST, None), owned(str(G), "B", 60_000))}


def test_a_slot_with_missing_records_is_arriving():
    pair, record = given("g", OTHER)
    pair.b.reads(replace(record, parts=2))
    assert described(pair.b)["arriving"] == ",".join(map(str, sorted((G, slot_of(OTHER)))))


def test_guests_are_named_in_their_order_and_in_pages():
    """moving.md 4.2: at most `GUESTS_LISTED_MAX` in one response; the next request begins behind the last one."""
    names = ["a", "b", "c"]
    pair = Pair.stable("c1")
    for name in names:
        pair.a.commit("", {("t", 0): 1}, group_id=name, generation_id=-1, member_id="")
    pair.a.release_slots(*names)
    with patch.object(slot_target, "GUESTS_LISTED_MAX", 2):
        first = described(pair.a)
        assert (first["guests"], first["has_more"]) == (("a", "b"), True)
        assert described(pair.a, after="b")["guests"] == ("c",)
        assert "has_more" not in described(pair.a, after="b")
    assert described(pair.a)["guests"] == ("a", "b", "c")


def test_a_coordinator_without_peers_owns_its_slots_and_keeps_nothing():
    alone = Coordinator("alone", "")
    alone.ask("op", DescribeSlots, group_id="").hears(ErrorCode.NONE, owned=(owned(ALL, "alone"),))
    assert alone.shard.is_blank
