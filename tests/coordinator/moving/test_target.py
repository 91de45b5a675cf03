"""The target of a move: the rows of moving.md 2.3, in their order."""

from random import Random
from string import ascii_letters, digits

import pytest
from msgspec.structs import replace

from coordinator.base.hashing import shard_of
from coordinator.base.limits import MOVE_AGE_MS, VERDICT_MS
from coordinator.messages.events import AccessDenied
from coordinator.messages.move_events import MoveIgnored
from coordinator.messages.move_requests import AdoptGroup, AdoptionRefused
from coordinator.messages.requests import Received
from coordinator.shard.shard import Shard
from coordinator.state import codec
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.scenario import SECRET


def refusal_of(side: Coordinator, record: AdoptGroup) -> str | None:
    """Return the reason for which a coordinator refuses a record; None if it adopts or ignores it."""
    side.written.clear()
    side.reads(record)
    return next((r.reason for r in side.written if isinstance(r, AdoptionRefused)), None)


def released(**config: object) -> tuple[Pair, AdoptGroup]:
    pair = Pair.stable("c1", "c2", **config)
    pair.a.at(10_000).release()
    pair.b.at(10_100)
    return pair, pair.adopt_record()


@pytest.mark.parametrize(
    ("change", "event"),
    [
        ({"source": "C"}, AccessDenied),
        ({"to": "C"}, MoveIgnored),
        ({"released_ms": 0, "group_id": "g"}, MoveIgnored),
    ],
)
def test_row_1_a_record_that_is_not_believed_is_an_event(change: dict, event: type):
    pair, record = released()
    if "released_ms" in change:
        pair.b.at(MOVE_AGE_MS + 10)
    assert refusal_of(pair.b, replace(record, **change)) is None
    assert len(pair.b.events(event)) == 1
    assert pair.b.written == []


def test_row_1_a_wrong_mac_is_an_event():
    pair, record = released()
    pair.b.reads(record, doubt="its MAC is wrong")
    assert pair.b.events(AccessDenied)[0].why == "its MAC is wrong"
    assert pair.b.shard.group("g") is None


def test_row_2_a_name_of_another_shard_is_ignored():
    """Only one shard may decide about a name."""
    pair, record = released()
    wrong = 1 - shard_of("g", 2)
    shard = Shard(wrong, 2, SECRET, pair.b.config)
    (ignored,) = shard.step([Received(1, 10_100, record)], 10_100)
    assert isinstance(ignored, MoveIgnored)
    assert ignored.why == "the name belongs to another shard"
    assert shard.is_blank


def test_row_3_a_verdict_is_repeated():
    pair, record = released()
    pair.b.reads(record, record)
    assert pair.b.written[0] == pair.b.written[1]
    pair.b.at(20_000).release()
    pair.b.reads(record)
    assert pair.b.written[-1] == pair.b.written[0], "also after the group has left again"


def test_row_4_an_older_move_is_refused():
    pair, record = released()
    pair.b.reads(record)
    older = replace(record, number=5, move_id="A/0/1")
    assert refusal_of(pair.b, older) == "older"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"crc": 1}, "damaged"),
        ({"bytes": 5}, "damaged"),
        ({"codec": codec.VERSION - 1}, "codec"),
        ({"codec": codec.VERSION + 1}, "codec"),
        ({"home": False}, "not_home"),
    ],
)
def test_rows_6_and_8_a_record_that_does_not_fit_is_refused(change: dict, reason: str):
    pair, record = released()
    assert refusal_of(pair.b, replace(record, **change)) == reason
    assert refusal_of(pair.b, record) == reason, "the verdict is final"


@pytest.mark.parametrize(
    ("slots", "home", "reason"), [("none", True, None), ("none", False, "not_home"), ("all", False, None)]
)
def test_row_8_a_check_has_the_refusal(slots: str, home: bool, reason: str | None):
    assert Coordinator("B", "A", slots=slots).check(group_id="g", home=home).said.reason == reason


@pytest.mark.parametrize("number", [codec.VERSION - 1, codec.VERSION + 1])
def test_row_6_a_check_has_the_refusal_of_another_codec(number: int):
    answer = Coordinator("B", "A").check(group_id="g", codec=number).said
    assert (answer.reason, answer.why) == ("codec", f"the target reads {codec.VERSION}, this one is {number}")


def test_row_7_a_group_with_too_many_members_is_refused():
    pair, record = released()
    small = Coordinator("B", "A", slots="none", group_max_size=1).at(10_100)
    assert refusal_of(small, record) == "too_large"
    assert pair.a.shard.moves.sent


def test_row_7_a_group_from_the_future_is_refused():
    pair = Pair.stable("c1")
    pair.a.at(1_000_000).release()
    pair.b.at(600_000)
    assert refusal_of(pair.b, pair.adopt_record()) == "clock"


def test_row_8_a_group_that_lives_at_the_target_stays():
    pair, record = released()
    twin = Coordinator("B", "A").at(9_000)
    twin.join("x1").at(10_100)
    assert refusal_of(twin, record) == "lives_here"
    twin.release()
    assert refusal_of(twin, replace(record, move_id="A/0/9", number=20_000_000)) == "in_transit"
    assert pair.a.shard.moves.sent


def test_a_state_of_several_parts_is_gathered_in_any_order():
    pair = Pair.stable("c1", offset_metadata_max_bytes=65_536)
    chance = Random(7)
    for partition in range(11):
        text = "".join(chance.choices(ascii_letters + digits, k=65_000))
        pair.a.commit("c1", {("t", partition): partition}, metadata=text)
    pair.a.at(10_000).release()
    records = pair.a.written[::-1]
    assert [(r.part, r.parts) for r in records if isinstance(r, AdoptGroup)] == [(2, 2), (1, 2)]
    pair.know()
    pair.b.at(10_100).reads(records[0], records[0])
    assert pair.b.shard.group("g") is None
    pair.b.reads(*records[1:])
    pair.b.is_("Stable")
    assert pair.b.shard.moves.partial == {}


def test_verdicts_are_dropped_when_no_copy_can_be_adopted_any_more():
    pair, record = released()
    pair.b.reads(replace(record, crc=1))
    pair.b.at(10_100 + VERDICT_MS + 10_000).heartbeat("c1")
    assert pair.b.shard.moves.verdicts == {}
