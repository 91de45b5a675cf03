"""Groups of an export are imported into another coordinator, which needs no peers (moving.md 7)."""

import zlib
from typing import Any

import pytest

from coordinator.base import limits
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import crc32c
from coordinator.base.limits import LOST_GENERATIONS, MOVE_CLOCK_MS, MOVE_PART_BYTES, VERDICT_MS
from coordinator.base.states import Phase
from coordinator.messages.fields import Event
from coordinator.messages.group_records import Published
from coordinator.messages.move_events import GroupArrived
from coordinator.messages.move_requests import ImportGroup
from coordinator.messages.requests import OffsetToCommit, OffsetTopic, Received, TxnOffsetCommit
from coordinator.messages.responses import Reply
from coordinator.moves import transfer
from coordinator.state import codec
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup
from tests.coordinator.consumer.conversation import Conversation, reconciling
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.scenario import Scenario


def exported(state: transfer.Carried | Group | ConsumerGroup, /, **fields: Any) -> dict[str, Any]:
    """Return the fields of the import of a state that is one part."""
    carried = transfer.living(state) if isinstance(state, Group | ConsumerGroup) else state
    data = transfer.encode(carried)
    token = 0 if isinstance(state, transfer.Living | transfer.Nothing) else state.token
    whole = {"codec": codec.VERSION, "bytes": len(data), "crc": crc32c(data), "part": 1, "parts": 1, "state": data}
    place = {"group_id": "g", "move_id": "import/c/7/g", "number": max(token, 1), "source": "old", "token_floor": 1}
    return {**whole, **place, **fields}


class Target(Scenario):
    """A coordinator without peers. The checkers of a single coordinator do not know that groups arrive."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self._checkers = []

    @classmethod
    def of(cls, source: Scenario, **config: Any) -> "Target":
        """Return a blank coordinator that knows the names of the members of another one."""
        target = cls(**config)
        target.ids, target.names = dict(source.ids), dict(source.names)
        target.generations = dict(source.generations)
        return target

    def imports(self, fields: dict[str, Any]) -> str:
        """Import a part, and return the result."""
        self.ask("op", ImportGroup, **fields)
        return str(self.said.result)


def source() -> Scenario:
    s = Scenario().at(1_000)
    for name in ("c1", "c2", "c1"):
        s.join(name, session_timeout_ms=45_000, rebalance_timeout_ms=40_000)
    s.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}}).sync("c2")
    return s.commit("c1", {("t", 0): 5}, metadata="ü").commit("c2", {("u", 1): 6}).is_("Stable")


def test_a_stable_group_continues():
    """Members, assignments, generation and offsets are those of the export; its members notice nothing."""
    s = source()
    t = Target.of(s).at(9_000_000)
    assert t.imports(exported(s.group)) == "adopted"
    t.hears(ErrorCode.NONE)
    assert (t.group.generation_id, t.group.leader_id, t.group.offsets) == (2, s.group.leader_id, s.group.offsets)
    assert {m.reply_to for m in t.group.members.values()} == {""}, "mailboxes come with the members' next requests"
    (arrived,) = t.events(GroupArrived)
    assert (arrived.source, arrived.move_id, arrived.version_before) == ("old", "import/c/7/g", 0)
    assert [o for o in t.outputs if isinstance(o, Event) and not isinstance(o, GroupArrived)] == []
    versions = [o.version for o in t.outputs if isinstance(o, Published | Event)]
    assert versions == [1, 2, 3, 4], "an event, the group, two offsets"
    t.at(9_044_999).heartbeat("c1").hears(ErrorCode.NONE).heartbeat("c2").hears(ErrorCode.NONE)
    t.commit("c1", {("t", 0): 8}).hears(ErrorCode.NONE)
    t.sync("c2").hears(ErrorCode.NONE, assignment=s.group.members[s.ids["c2"]].assignment)
    assert all(o.to for o in t.outputs if isinstance(o, Reply)), "nothing is sent to a missing mailbox"


def test_the_ids_of_topics_are_those_of_other_brokers():
    """R1: the file may come from another Kafka cluster. A report binds the offsets to the topics that exist here."""
    there, here = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    s = Scenario().at(1_000).commit_from_outside("tool", {("t", 0): 5}, topic_id=there)
    t = Target.of(s).at(9_000_000)
    assert t.imports(exported(s.group)) == "adopted"
    t.fetch("reader", {"t": [0]}, topic_id=here)
    assert [f.offset for f in t.said.partitions] == [5]
    t.topics(OffsetTopic("t", None, here, 9_000_000)).hears(ErrorCode.NONE, bound=1, dropped=0)


def test_members_that_are_gone_expire_once():
    s = source()
    t = Target.of(s).at(9_000_000)
    t.imports(exported(s.group))
    t.until(9_044_999).is_("Stable").until(9_045_000).is_("Empty")


def test_the_next_token_is_above_the_floor_and_the_time():
    for floor, at_ms, least in ((1, 9_000, 9_000_000), (8_000_000, 5_000, 8_000_000)):
        s = source()
        t = Target.of(s).at(at_ms)
        t.imports(exported(s.group, token_floor=floor))
        assert t.group.token == least
    t = Target.of(s, fencing_token_floor=10_000_000).at(5_000)
    t.imports(exported(s.group))
    assert t.group.token == 10_000_000


def test_an_export_is_imported_once():
    """The second time changes nothing, also if the group has changed or was deleted since."""
    s = source()
    fields = exported(s.group)
    t = Target.of(s).at(9_000_000)
    assert t.imports(fields) == "adopted"
    t.commit("c1", {("t", 0): 99})
    assert t.imports(fields) == "adopted before"
    t.hears(ErrorCode.NONE)
    assert t.group.offsets["t"][0].offset == 99
    t.leave("c1", "c2").delete().is_gone()
    assert t.imports(fields) == "adopted before"
    t.is_gone()
    t.until(9_000_000 + VERDICT_MS - 1)
    assert t.imports(fields) == "adopted before"
    t.until(9_000_000 + VERDICT_MS + 3_600_000)
    assert t.imports(fields) == "adopted"


def test_another_export_of_the_group_is_refused():
    s = source()
    t = Target.of(s).at(9_000_000)
    t.imports(exported(s.group))
    assert t.imports(exported(s.group, move_id="import/c/8/g")) == "older"
    t.hears(ErrorCode.INVALID_REQUEST)
    newer = exported(s.group, move_id="import/c/8/g", number=limits.MOVE_NUMBER_MAX)
    assert t.imports(newer) == "lives_here"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"crc": 1}, "damaged"),
        ({"bytes": 5}, "damaged"),
        ({"codec": codec.VERSION - 1}, "codec"),
        ({"codec": codec.VERSION + 1}, "codec"),
        ({"state": b"?", "bytes": 1, "crc": crc32c(b"?")}, "unsound"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_may_come_again(change: dict[str, Any], reason: str):
    """Unlike that of a move, a refusal is not final: no source takes the group back."""
    s = source()
    t = Target.of(s).at(9_000)
    assert t.imports(exported(s.group, **change)) == reason
    t.hears(ErrorCode.INVALID_REQUEST).is_gone()
    assert t.shard.is_blank
    assert t.imports(exported(s.group)) == "adopted"


def test_the_name_of_another_group_is_refused():
    s = source()
    assert Target.of(s).at(9_000).imports(exported(s.group, group_id="h", move_id="import/c/7/h")) == "unsound"


def test_the_bounds_of_the_target_count():
    s = source()
    assert Target.of(s, group_max_size=2).at(9_000).imports(exported(s.group)) == "adopted"
    assert Target.of(s, group_max_size=1).at(9_000).imports(exported(s.group)) == "too_large"
    s.at(1_000 + MOVE_CLOCK_MS + 500).heartbeat("c1")
    assert Target.of(s).at(1_499).imports(exported(s.group)) == "clock"
    assert Target.of(s).at(1_500).imports(exported(s.group)) == "adopted"


def test_only_names_of_own_slots_are_taken():
    s = source()
    guest = Coordinator("B", "A", slots="none").at(9_000)
    guest.ask("op", ImportGroup, **exported(s.group))
    assert guest.said.result == "not_home"


def test_a_group_in_transit_from_here_is_refused():
    s = source()
    peer = Coordinator("A", "B").at(9_000)
    peer.ask("op", ImportGroup, **exported(s.group)).release()
    peer.ask("op", ImportGroup, **exported(s.group, move_id="import/c/8/g", number=10**10))
    assert peer.said.result == "in_transit"
    peer.ask("op", ImportGroup, **exported(s.group))
    assert peer.said.result == "adopted before"


def test_a_group_that_has_moved_from_here_is_refused():
    """Also in place of a removed group: another coordinator serves it."""
    pair = Pair.stable("c1")
    pair.a.at(10_000).release()
    pair.b.at(10_100)
    pair.carry()
    for replaces in (False, True):
        pair.a.ask("op", ImportGroup, **exported(source().group, replaces=replaces))
        assert pair.a.said.result == "older"


def test_a_group_that_lives_here_stays():
    s = source()
    t = Target().at(9_000).join("x")
    before = t.group
    assert t.imports(exported(s.group, number=10**10)) == "lives_here"
    assert t.imports(exported(s.group, number=10**10, replaces=True)) == "lives_here"
    assert t.group.members == before.members


def test_a_removed_group_is_replaced_on_request():
    """Its token would refuse the import. Its generation and the time of its records are not used again."""
    s = source()
    t = Target().at(9_000).join("x").sync("x", plan={"x": {"t": [0]}})
    for _ in range(3):
        t.rebalance().join("x").sync("x", plan={"x": {"t": [0]}})
    generation = t.leave("x").group.generation_id
    assert generation > s.group.generation_id
    t.delete()
    assert t.imports(exported(s.group)) == "older"
    assert t.imports(exported(s.group, replaces=True)) == "adopted"
    assert t.group.generation_id == generation + LOST_GENERATIONS
    (arrived,) = t.events(GroupArrived)
    assert arrived.at_ms == 9_001, "after the tombstones of the removed group"
    t.is_("Empty")
    assert t.group.offsets == s.group.offsets


def test_a_removed_group_of_a_lower_generation_changes_nothing():
    s = source()
    for _ in range(2):
        s.rebalance().join("c1").join("c2").sync("c1", plan={"c1": {"t": [0]}}).sync("c2")
    t = Target.of(s).at(9_000).join("x", member_id="").sync("x", plan={"x": {"t": [0]}}).leave("x").delete()
    assert t.imports(exported(s.group, replaces=True)) == "adopted"
    t.is_("Stable", generation=4)


def test_an_older_state_makes_members_join_anew():
    """No assignment of a lost generation counts: their heartbeats and commits are refused."""
    s = source()
    t = Target.of(s).at(9_000)
    assert t.imports(exported(s.group, is_older=True)) == "adopted"
    t.is_("Empty", generation=2 + LOST_GENERATIONS)
    assert (t.group.offsets, t.group.version) == (s.group.offsets, 4)
    t.heartbeat("c1").hears(ErrorCode.UNKNOWN_MEMBER_ID)
    t.commit("c2", {("t", 0): 9}).hears(ErrorCode.UNKNOWN_MEMBER_ID)
    t.join("c3").hears(ErrorCode.NONE, generation_id=3 + LOST_GENERATIONS)
    t.sync("c3", plan={"c3": {"t": [0, 1]}}).hears(ErrorCode.NONE).is_("Stable", generation=3 + LOST_GENERATIONS)
    assert t.group.members[t.ids["c3"]].fencing_token > 9_000_000


def test_an_empty_group_expires_as_others_do():
    retained = {"offsets_retention_ms": 50_000}
    s = Scenario(**retained).at(1_000).commit_from_outside("x", {("t", 1): 7})
    for is_older in (False, True):
        t = Target(**retained).at(9_000)
        assert t.imports(exported(s.group, is_older=is_older)) == "adopted"
        t.until(50_999).is_("Empty").until(51_000).is_gone()


def test_parked_joins_and_syncs_are_answered_when_they_come_again():
    s = Scenario().at(1_000)
    for name in ("c1", "c2", "c1"):
        s.join(name, session_timeout_ms=45_000, rebalance_timeout_ms=40_000)
    s.sync("c2").is_parked()
    t = Target.of(s).at(9_000)
    assert t.imports(exported(s.group)) == "adopted"
    t.is_("CompletingRebalance").sync("c1", plan={"c2": {"t": [0]}}).hears(ErrorCode.NONE)
    t.sync("c2").hears(ErrorCode.NONE)
    preparing = Scenario().at(1_000).join("a").join("b")
    u = Target.of(preparing).at(9_000)
    assert u.imports(exported(preparing.group)) == "adopted"
    u.is_("PreparingRebalance").join("b").is_parked().join("a").hears(ErrorCode.NONE)


def test_a_removed_group_continues_its_generation():
    removed = transfer.Tombstone(7, 5_000_000)
    t = Target().at(9_000)
    assert t.imports(exported(removed)) == "adopted"
    assert t.imports(exported(removed)) == "adopted before"
    t.join("x").is_("CompletingRebalance", generation=8).sync("x", plan={"x": {"t": [0]}})
    assert t.group.token > 9_000_000
    older = Target().at(9_000)
    older.imports(exported(removed, is_older=True))
    older.join("x").is_("CompletingRebalance", generation=8 + LOST_GENERATIONS)


def imported(c: Conversation, **fields: Any) -> Conversation:
    """Return a coordinator into which the group of another conversation was imported."""
    group = c.shard.consumer_group("g")
    assert group is not None
    d = Conversation()
    d.counts, d.lives, d.now_ms = c.counts, c.lives, c.now_ms + 1_000_000
    request = ImportGroup(request_id="i", reply_to="op", **exported(group, **fields))
    d.steps([Received(1, d.now_ms, request)])
    (answer,) = [o.answer for o in d.latest if isinstance(o, Reply) and o.to == "op"]
    assert answer.result == "adopted"
    return d


def test_members_of_the_consumer_protocol_continue():
    imported(reconciling()).plays("""
        = Reconciling 3 3
        A 2 own 0 1       -> 3
        B(i) 3            -> 3 {2 3}
        = Stable 3 3
    """)


def test_an_older_state_of_the_consumer_protocol_makes_members_join_anew():
    imported(reconciling(), is_older=True).plays("""
        = Empty 1003 1003
        A 3               -> 25
        A 0               -> 1004 {0 1 2 3}
        = Stable 1004 1004
    """)


def test_open_transactions_are_refused_or_dropped():
    """Their ends are in the transactions topic of the other coordinator, which nobody reads here."""
    s = source()
    offsets = (OffsetToCommit("t", 0, 50),)
    s.ask("p", TxnOffsetCommit, place=3, producer_id=1, producer_epoch=0, offsets=offsets, member_id="")
    s.hears(ErrorCode.NONE)
    t = Target.of(s).at(9_000)
    assert t.imports(exported(s.group)) == "unsound"
    assert t.said.error_message == "the group has open transactions"
    assert t.imports(exported(s.group, drops_open_transactions=True)) == "adopted"
    assert (t.group.pending_commits, t.group.offsets["t"][0].offset) == ({}, 5)


def test_a_large_group_comes_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transfer, "MOVE_PART_BYTES", 100)
    s = source()
    fields = exported(s.group)
    whole, parts = fields["state"], transfer.parts_of(fields["state"])
    assert parts > 3
    t = Target.of(s).at(9_000)
    for part in range(1, parts + 1):
        t.is_gone()
        result = t.imports({**fields, "part": part, "parts": parts, "state": transfer.part_of(whole, part)})
        assert result == ("adopted" if part == parts else "kept")
    t.is_("Stable")


def test_a_state_that_inflates_to_very_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch):
    """It must not need more memory than there is: the batch would never succeed."""
    bomb = transfer.Living(b"", zlib.compress(b"\0" * (limits.MOVE_INFLATED_BYTES_MAX + 1), 9))
    t = Target().at(9_000)
    assert t.imports(exported(bomb)) == "unsound"
    assert t.said.error_message == "the state inflates to too many bytes"
    s = source()
    size = len(zlib.decompress(transfer.living(s.group).rest))
    for bound, result in ((size - 1, "unsound"), (size, "adopted")):
        monkeypatch.setattr(transfer, "MOVE_INFLATED_BYTES_MAX", bound)
        assert Target.of(s).at(9_000).imports(exported(s.group)) == result


def test_too_many_groups_in_parts_wait():
    s = source()
    fields = exported(s.group, parts=2, state=b"x")
    t = Target.of(s).at(9_000)
    for number in range(limits.PARTIAL_TRANSFERS_MAX):
        assert t.imports({**fields, "move_id": f"import/c/7/{number}"}) == "kept"
    assert t.imports({**fields, "move_id": "import/c/7/more"}) == "busy"


def test_the_largest_part_is_read_and_a_larger_one_is_not():
    from streaming.wire.records import decode_request, encode_request

    for size, is_read in ((MOVE_PART_BYTES, True), (MOVE_PART_BYTES + 1, False)):
        fields = exported(transfer.Nothing(), state=b"x" * size)
        request = ImportGroup(request_id="i", reply_to="op", **fields)
        assert isinstance(decode_request(encode_request(request)), ImportGroup) is is_read


def test_a_coordinator_that_imported_nothing_is_unchanged():
    """A refused import leaves the state without moves."""
    t = Target().at(9_000)
    t.imports(exported(source().group, crc=1))
    assert codec.decode_shard(t.shard.to_bytes()).moves is None
    t.imports(exported(source().group))
    assert codec.decode_shard(t.shard.to_bytes()).moves is not None
    assert t.group.phase is Phase.STABLE
