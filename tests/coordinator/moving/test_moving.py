"""One group moves from A to B: the traces 1 to 4 of moving.md 8, and the cells of its tables."""

import pytest
from msgspec.structs import replace

from coordinator.base.errors import ErrorCode
from coordinator.messages.fields import Event
from coordinator.messages.group_records import Published
from coordinator.messages.move_events import GroupArrived, GroupMoved, GroupReleased, GroupTakenBack, MoveIgnored
from coordinator.messages.move_requests import AdoptionRefused, GroupAdopted, ReleaseGroup
from coordinator.messages.requests import JoinGroup, SyncGroup
from coordinator.messages.responses import Moved
from coordinator.state import codec
from tests.coordinator.moving.pair import Coordinator, Pair

NOT_HERE = ErrorCode.NOT_COORDINATOR


def versions(side: Coordinator) -> list[int]:
    """Return the versions that a coordinator has published for the group, in order."""
    published = [o.version for o in side.outputs if isinstance(o, Published | Event) and o.group_id == "g"]
    return [version for version in published if version is not None]


def test_a_stable_group_moves():
    """Trace 1: B's clock is 2 s behind, so the group's time stands until B's time is there."""
    pair = Pair.stable("c1", "c2")
    a, b = pair.a, pair.b
    a.commit("c1", {("t", 0): 5}).commit("c2", {("t", 1): 6, ("u", 0): 1})
    before = a.group
    a.at(10_100).release().is_parked()
    record = pair.adopt_record()
    assert (record.number, record.part, record.parts, record.home) == (10_100_000, 1, 1, True)
    released = a.events(GroupReleased)[0]
    assert (released.to, released.version) == ("B", before.version + 1)
    a.at(10_150).commit("c2", {("t", 1): 7}).hears(NOT_HERE, moved=Moved("B", 10_100_000))
    assert {p.code for p in a.said.partitions} == {NOT_HERE.number}
    b.at(8_400).heartbeat("c1").hears(NOT_HERE)
    pair.know()
    b.reads(record)
    arrived = b.events(GroupArrived)[0]
    assert (arrived.source, arrived.at_ms) == ("A", 10_100)
    assert arrived.version_before == released.version + 1 + 4, "one event and four tombstones are A's"
    assert b.group.hot_state.sessions[b.ids["c1"]].deadline_ms == 10_100 + 45_000
    assert (b.group.generation_id, b.group.leader_id) == (before.generation_id, before.leader_id)
    b.at(8_450).commit("c2", {("t", 1): 7}).hears(ErrorCode.NONE)
    assert b.events(MoveIgnored) == []
    a.at(10_600).reads(*b.written)
    assert a.events(GroupMoved)[0].at_ms == 10_600
    a.is_gone()
    assert [p.key for p in a.latest if isinstance(p, Published)][-1] == ("group", "g")
    assert versions(a) == list(range(1, arrived.version_before + 1))
    assert versions(b) == list(range(arrived.version, arrived.version + len(versions(b))))
    (answer,) = a.answers[a.last_request("op", ReleaseGroup).request_id]
    assert (answer.error, answer.number) == ("NONE", 10_100_000)


def test_parked_joins_move_without_their_addresses():
    """Trace 2: B's round ends on time without the address of a join; a join that comes again is answered at once."""
    pair = Pair.stable("c1", "c2")
    a, b = pair.a, pair.b
    a.at(20_000).join("d1", rebalance_timeout_ms=40_000, session_timeout_ms=45_000)
    a.join("c1", rebalance_timeout_ms=40_000, session_timeout_ms=45_000).is_("PreparingRebalance")
    a.release()
    for name in ("c1", "d1"):
        told = a.heard(name, JoinGroup)
        assert (told.code, told.member_id, told.moved.to) == (NOT_HERE.number, a.ids[name], "B")
    pair.know()
    b.at(20_300).reads(*a.written)
    assert b.group.hot_state.joins_ms == 60_300
    newcomer = b.group.hot_state.sessions[b.ids["d1"]]
    assert newcomer.deadline_ms == 320_300, "the first join round of a newcomer has the time that was left"
    b.at(20_350).join("c1").is_parked()
    b.at(20_900).join("c2").hears(ErrorCode.NONE, generation_id=b.group.generation_id)
    first = b.heard("c1", JoinGroup)
    assert (first.error, [b.name(m.member_id) for m in first.members]) == ("NONE", ["c1", "c2", "d1"])
    b.at(20_950).join("d1").hears(ErrorCode.NONE, generation_id=b.group.generation_id)
    assert all(output.to for output in b.outputs if hasattr(output, "to")), "nothing is written to a missing mailbox"


def test_parked_syncs_move_without_their_addresses():
    """ParkedIsAnswered: a follower's sync is parked again at B, and the leader's assignments count."""
    pair = Pair.stable("c1", "c2")
    a, b = pair.a, pair.b
    a.at(20_000).join("c1").join("c2").sync("c2").is_("CompletingRebalance")
    a.release()
    assert a.heard("c2", SyncGroup).moved.to == "B"
    pair.carry()
    b.at(20_100).sync("c2").is_parked()
    b.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}}).hears(ErrorCode.NONE)
    assert b.heard("c2", SyncGroup).error == "NONE"
    b.is_("Stable")


def test_a_refused_group_is_served_again_by_its_source():
    """Trace 3: a late repeat of A's batch changes nothing."""
    pair = Pair.stable("c1", "c2")
    a, b = pair.a, pair.b
    a.at(30_000).commit("c2", {("t", 1): 8}).release()
    record = replace(pair.adopt_record(), codec=codec.VERSION + 1)
    a.at(30_050).commit("c2", {("t", 1): 9}).hears(NOT_HERE)
    b.at(30_200).reads(record)
    (refused,) = b.written
    assert isinstance(refused, AdoptionRefused)
    assert refused.reason == "codec"
    a.at(30_500).reads(refused).is_("Stable")
    assert a.events(GroupTakenBack)[0].reason == "codec"
    (answer,) = a.answers[a.last_request("op", ReleaseGroup).request_id]
    assert (answer.error, answer.error_message) == ("INVALID_REQUEST", f"codec: {refused.why}")
    assert versions(a) == list(range(1, len(versions(a)) + 1))
    a.at(30_700).commit("c2", {("t", 1): 9}).hears(ErrorCode.NONE)
    b.at(99_000).reads(record)
    assert b.written == [refused, refused], "all answers about one move are equal"
    a.at(99_100).reads(refused)
    assert a.events(MoveIgnored)[0].why == "no such move waits for an answer"


def test_a_cancel_that_comes_too_late_and_one_that_comes_in_time():
    """Trace 4."""
    pair = Pair.stable("c1")
    a, b = pair.a, pair.b
    a.at(40_000).release()
    record = pair.adopt_record()
    b.at(40_200).reads(record)
    b.at(40_210).cancel(record).hears(ErrorCode.NONE, verdict="adopted")
    assert b.written[0] == b.written[1]
    assert isinstance(b.written[0], GroupAdopted)
    pair = Pair.stable("c1")
    a, b = pair.a, pair.b
    a.at(20_000).release()
    record = pair.adopt_record()
    b.at(20_190).cancel(record).hears(ErrorCode.NONE, verdict="cancelled")
    b.at(20_200).reads(record)
    assert b.written[0] == b.written[1]
    assert b.shard.group("g") is None
    a.written.clear()
    pair.carry()
    a.is_("Stable")


# -- the source --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"to": "A"}, "A is this coordinator itself"),
        ({"to": "C"}, "C is no peer of this coordinator"),
        ({"last_move": 7}, "the number of the group is"),
    ],
)
def test_a_release_that_is_refused_changes_nothing(fields: dict, why: str):
    pair = Pair.stable("c1")
    before = pair.a.group
    pair.a.release(**fields).hears(ErrorCode.INVALID_REQUEST)
    assert pair.a.said.error_message.startswith(why)
    assert pair.a.group == before
    assert not pair.a.written


def test_a_release_is_sent_again_with_equal_bytes():
    pair = Pair.stable("c1")
    pair.a.at(10_000).release().release(to="B").is_parked()
    first, again = pair.a.written
    assert first == again
    earlier = [a for answers in pair.a.answers.values() for a in answers if a.error == "INVALID_REQUEST"]
    assert len(earlier) == 1, "the earlier request of the operator is superseded"


def test_no_deadline_fires_in_transit():
    """MovesAreQuiet: time changes nothing while the group is in transit; NobodyExpiresInTransit at B."""
    pair = Pair.stable("c1", "c2")
    a, b = pair.a, pair.b
    a.at(10_000).release()
    seen = len(a.outputs)
    a.until(900_000)
    assert a.outputs[seen:] == []
    b.at(1_000_000)
    pair.carry()
    b.until(1_000_000 + 44_999)
    b.is_("Stable", members="c1 c2").heartbeat("c1").hears(ErrorCode.NONE)


def test_requests_for_a_name_that_is_away_are_redirected():
    pair = Pair.stable("c1")
    a = pair.a.at(10_000)
    a.release()
    pair.carry()
    moved = Moved("B", 10_000_000)
    a.heartbeat("c1").hears(NOT_HERE, moved=moved)
    a.join("n1").hears(NOT_HERE, moved=moved)
    a.fetch("c1", {"t": [0]}).hears(NOT_HERE, moved=moved)
    a.describe().hears(NOT_HERE, moved=moved)
    a.release().hears(NOT_HERE, moved=moved)
    a.list_groups().hears(ErrorCode.NONE, groups=())


def test_a_group_in_transit_is_listed():
    pair = Pair.stable("c1")
    pair.a.release().list_groups()
    assert [(g.group_id, g.protocol_type, g.state.value) for g in pair.a.said.groups] == [("g", "consumer", "Stable")]


def test_a_group_moves_there_and_back():
    """NumbersGrow: the numbers grow with each move, also if a clock is behind."""
    pair = Pair.stable("c1", "c2")
    a, b = pair.a, pair.b
    a.at(10_000).commit("c1", {("t", 0): 5}).release()
    pair.b.at(5_000)
    pair.carry()
    assert b.shard.moves.guests == {"g": 10_000_000}
    b.at(6_000).release()
    a.at(10_200)
    pair.carry()
    assert b.shard.moves.guests == {}
    assert a.shard.moves.away == {}
    a.is_("Stable", members="c1 c2").fetch("c1", {"t": [0]})
    assert a.said.partitions[0].offset == 5
    assert a.group.token == 10_000_001
    b.heartbeat("c1").hears(NOT_HERE, moved=Moved("A", 10_000_001))
    versions_of_a = versions(a)
    assert versions_of_a == sorted(set(versions_of_a))


def test_an_operator_takes_a_group_back_with_evidence():
    """moving.md 2.6."""
    pair = Pair.stable("c1")
    a = pair.a.at(10_000)
    a.release()
    record = pair.adopt_record()
    a.take_back(record, parts_before=1).hears(ErrorCode.INVALID_REQUEST)
    a.take_back(replace(record, number=1), parts_before=0).hears(ErrorCode.INVALID_REQUEST)
    a.take_back(record, parts_before=0).hears(ErrorCode.NONE).is_("Stable")
    assert a.events(GroupTakenBack)[0].reason == "taken_back"


# -- names without a group ---------------------------------------------------------------------------------------------


def test_a_free_name_moves():
    pair = Pair.blank()
    pair.a.at(10_000).release()
    pair.b.at(10_100)
    pair.carry()
    pair.a.join("n1").hears(NOT_HERE, moved=Moved("B", 10_000_000))
    pair.b.join("n1").is_("CompletingRebalance")
    assert pair.a.events() == []


def test_a_removed_group_moves_with_its_generation():
    pair = Pair.stable("c1")
    a = pair.a.at(2_000)
    a.leave("c1").delete().is_gone()
    generation = a.shard.store.removed_groups["g"].generation_id
    a.at(3_000).release()
    pair.b.at(3_100)
    pair.carry()
    pair.b.join("n1")
    assert pair.b.group.generation_id == generation + 1
    assert pair.b.sync("n1", plan={"n1": {"t": [0]}}).group.token > 3_000_000


def test_offsets_without_members_move():
    pair = Pair.blank()
    pair.a.at(5_000).commit_from_outside("x", {("t", 0): 5}).release()
    pair.b.at(5_100)
    pair.carry()
    pair.b.is_("Empty").fetch("x", {"t": [0]})
    assert pair.b.said.partitions[0].offset == 5
    assert pair.b.group.offsets["t"][0].commit_timestamp_ms == 5_000


# -- a coordinator alone -----------------------------------------------------------------------------------------------


def test_a_coordinator_without_peers_refuses_to_move_groups():
    alone = Coordinator("", "").at(1_000)
    alone.config = replace(alone.config, peers=())
    alone.shard = alone._living = alone.new_shard()
    alone.join("c1").release(to="B").hears(ErrorCode.INVALID_REQUEST)
    assert codec.decode_shard(alone.shard.to_bytes()).moves is None
