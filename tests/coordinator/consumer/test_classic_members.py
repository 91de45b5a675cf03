"""Tests of members of the classic protocol in a group of the consumer protocol (next-generation.md 8.3)."""

from typing import Any

import pytest

from coordinator.base.consumer_protocol import Subscription, read_assignment, write_subscription
from coordinator.messages.events import MemberExpired, MemberJoined, RebalanceStarted
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.requests import JoinGroup, Protocol, Received, SyncGroup
from tests.coordinator.consumer.test_mixed import Mixed


def beside_a_consumer() -> Mixed:
    """Return a Stable group at epoch 3 of A with 0 and 1, and the classic member C with 2 and 3, which has synced."""
    c = Mixed()
    c.plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000")
    assert c.joins("C").generation_id == 3
    c.plays("A 2 -> 2 {0 1}\nA 2 own 0 1 -> 3")
    assert c.joins("C").generation_id == 3
    assert c.syncs("C", 3) == "2 3"
    c.plays("= Stable 3 3")
    return c


def behind() -> Mixed:
    """Return the same group after the target assignment of epoch 4, of which C has not heard yet."""
    c = beside_a_consumer()
    c.plays("-- 1000\nB 0 -> 4 {}")
    return c


# -- joins -------------------------------------------------------------------------------------------------------------


def test_join_arms_the_session_and_the_sync():
    c = Mixed()
    c.plays("T:1\nA 0 -> 2 {0}\n-- 100")
    c.joins("C", session_timeout_ms=7_000, rebalance_timeout_ms=9_000, client_id="old", client_host="/10.0.0.9")
    hot_state, member = c.group.hot_state, c.group.members["C"]
    assert (hot_state.sessions["C"].deadline_ms, hot_state.syncs["C"].deadline_ms) == (
        c.now_ms + 7_000,
        c.now_ms + 9_000,
    )
    assert (hot_state.sessions["C"].timeout_ms, hot_state.sessions["C"].is_classic) == (7_000, True)
    assert (member.client_id, member.client_host, member.reply_to) == ("old", "/10.0.0.9", "box-C")
    assert (member.rebalance_timeout_ms, member.names, member.regex) == (9_000, ("T",), "")


def test_next_join_updates_the_member():
    """Its timeouts, its client and its subscription are those of the latest join."""
    c = beside_a_consumer()
    metadata = write_subscription(Subscription(("U", "T"), None, {}, -1, "rack"))
    fields: dict[str, Any] = {"session_timeout_ms": 7_000, "rebalance_timeout_ms": 9_000, "client_id": "new",
                              "client_host": "/10.0.0.9", "reply_to": "another", "reason": "more"}  # fmt: skip
    c._offset += 1
    request = JoinGroup(request_id="again", group_id="g", member_id="C", protocol_type="consumer",
                        protocols=(Protocol("range", metadata),), **fields)  # fmt: skip
    c.steps([Received(c._offset, c.now_ms, request)])
    member, session = c.group.members["C"], c.group.hot_state.sessions["C"]
    assert (member.client_id, member.client_host, member.reply_to) == ("new", "/10.0.0.9", "another")
    assert (member.names, member.rack_id, member.rebalance_timeout_ms) == (("T", "U"), "rack", 9_000)
    assert (session.timeout_ms, session.deadline_ms) == (7_000, c.now_ms + 7_000)
    started = c.events(RebalanceStarted)[-1]
    assert (started.cause, started.member_id, started.reason) == ("subscription_changed", "C", "more")


def test_join_that_brings_partitions_of_a_topic_raises_the_epoch():
    c = beside_a_consumer()
    c.plays("T:5")
    assert c.joins("C").code == 0
    assert [(e.cause, e.member_id) for e in c.events(RebalanceStarted)][-1] == ("topics_changed", "C")


def test_member_without_a_rebalance_timeout_has_no_time_to_sync():
    c = Mixed()
    c.plays("T:1\nA 0 -> 2 {0}")
    c.joins("C", rebalance_timeout_ms=-1)
    assert [(e.member_id, e.why) for e in c.events(MemberExpired)] == [("C", "syncs_overdue")]


def test_members_that_do_not_sync_are_dropped_in_the_order_of_their_joins():
    c = Mixed()
    c.plays("T:1\nA 0 -> 2 {0}")
    for name in "QP":
        c.joins(name, session_timeout_ms=60_000)
    c.passes(20_000)
    assert [(e.member_id, e.why) for e in c.events(MemberExpired)] == [("Q", "syncs_overdue"), ("P", "syncs_overdue")]


def test_same_first_join_to_another_group_gets_another_id():
    c = Mixed()
    c.plays("T:1\nA 0 -> 2 {0}")
    first = c.joins(require_known_member_id=True).member_id
    c._offset, c.group_id = 0, "h"
    c.plays("A 0 -> 2 {0}")
    assert c.joins(require_known_member_id=True).member_id != first


# -- syncs -------------------------------------------------------------------------------------------------------------


def test_sync_is_answered_with_the_token_and_renews_the_session():
    c = Mixed()
    c.plays("T:2\nA 0 -> 2 {0 1}\nA -1 -> -1\nB 0 names none -> 3 {}\n-- 1000")
    c.joins("C")
    c.plays("-- 1000")
    assert c.joins("C").generation_id == 4
    c.passes(500)
    answer = c.sends(SyncGroup, member_id="C", generation_id=4, protocol_type="consumer", protocol_name="range")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert answer.fencing_token == c.group.members["C"].fencing_token > 0
    assert c.group.hot_state.sessions["C"].deadline_ms == c.now_ms + 10_000
    assert "C" not in c.group.hot_state.syncs
    assert c.syncs("C", 4) == "0 1", "a repeated sync has the same answer"


def test_sync_after_a_later_assignment_asks_for_a_join():
    """REBALANCE_IN_PROGRESS, as to a heartbeat. The first such answer arms the join deadline."""
    c = behind()
    assert c.syncs("C", 3) == "27"
    deadline_ms = c.group.hot_state.joins["C"].deadline_ms
    assert deadline_ms == c.now_ms + 20_000
    c.passes(100)
    assert c.syncs("C", 3) == "27"
    assert c.beats("C", 3) == 27
    assert c.group.hot_state.joins["C"].deadline_ms == deadline_ms
    assert c.joins("C").generation_id == 4
    assert "C" not in c.group.hot_state.joins


def test_heartbeat_that_asks_for_a_join_arms_its_deadline_once():
    c = behind()
    assert c.beats("C", 3) == 27
    deadline_ms = c.group.hot_state.joins["C"].deadline_ms
    assert deadline_ms == c.now_ms + 20_000
    c.passes(100)
    assert c.beats("C", 3) == 27
    assert c.group.hot_state.joins["C"].deadline_ms == deadline_ms
    assert c.group.hot_state.sessions["C"].deadline_ms == c.now_ms + 10_000


def test_member_that_does_not_join_again_is_dropped():
    c = behind()
    for _ in range(4):
        assert c.beats("C", 3) == 27
        c.passes(5_000)
    assert [(e.member_id, e.why, e.silence_ms) for e in c.events(MemberExpired)] == [("C", "joins_overdue", None)]


@pytest.mark.parametrize(("version", "written"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_assignment_has_the_version_of_the_subscription(version: int, written: int):
    """A version above the newest one is read as the newest, and answered with it."""
    c = Mixed()
    c.plays("T:2\nA 0 names none -> 1 {}")
    metadata = write_subscription(Subscription(("T",)), min(version, 3))
    protocols = Protocol("range", version.to_bytes(2, "big") + metadata[2:]), Protocol("x", b"\0\0")
    assert c.joins("C", protocols=protocols).generation_id == 2
    answer = c.sends(SyncGroup, member_id="C", generation_id=2)
    assert int.from_bytes(answer.assignment[:2], "big") == written
    assert read_assignment(answer.assignment) == ({"T": [0, 1]}, b"")


# -- a member changes its protocol -------------------------------------------------------------------------------------


def test_member_of_the_consumer_protocol_joins_under_its_own_id():
    """It keeps its partitions, and has the session of a classic member."""
    c = Mixed()
    c.plays("T:2\nA 0 -> 2 {0 1}\nB 0 names none -> 2 {}")
    assert c.joins("A").generation_id == 2
    assert c.syncs("A", 2) == "0 1"
    session = c.group.hot_state.sessions["A"]
    assert (session.is_classic, session.timeout_ms) == (True, 10_000)
    c.plays("= Stable 2 2")


def test_member_that_becomes_classic_while_it_gives_up_has_no_deadline_for_that():
    """An eager join confirms the release, and a classic member that does not follow misses its sync."""
    c = Mixed()
    c.plays("T:4\nA 0 by range -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0 1}")
    assert c.joins("A", owned={"T": [0, 1, 2, 3]}).generation_id == 2
    assert (c.group.hot_state.revocations, c.group.members["A"].assignor) == ({}, None)
    assert c.beats("A", 2) == 27


def test_classic_member_that_uses_the_consumer_protocol_waits_for_no_sync():
    """Its record names the protocol, although nothing else has changed."""
    c = Mixed()
    c.plays("T:1\nA 0 -> 2 {0}\nB 0 names none -> 2 {}")
    c.joins("C")
    c.plays("-- 1000\nA 2 -> 3\nB 2 -> 3")
    c.joins("C")
    assert list(c.group.hot_state.syncs) == ["C"]
    c.plays("C 3 -> 3")
    assert (c.group.hot_state.syncs, c.group.hot_state.sessions["C"].timeout_ms) == ({}, 45_000)
    (record,) = [o.record for o in c.latest if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
    assert [m.protocol for m in record.members] == ["consumer"] * 3
    assert c.group.hot_state.sessions["C"].deadline_ms == c.now_ms + 45_000


def test_process_that_replaces_a_static_member_may_still_own_its_partitions():
    """It begins at epoch 0, and has to confirm the release first (next-generation.md 2.7)."""
    c = Mixed()
    c.plays("T:4\nA(i) 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}\nA(i) 2 -> 2 {0 1}")
    joined = c.joins(instance="i", owned={"T": [0, 1, 2, 3]})
    assert (joined.code, joined.generation_id) == (0, 0)
    assert c.group.members[joined.member_id].previous_epoch == 0
    assert c.syncs(joined.member_id, 0, group_instance_id="i") == "0 1"
    assert c.joins(joined.member_id, instance="i", owned={"T": [0, 1]}).generation_id == 3


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_event_of_a_classic_member_that_joins():
    c = Mixed()
    c.plays("T:1\nA 0 -> 2 {0}")
    answer = c.joins("C", reason="new")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    joined = c.events(MemberJoined)[-1]
    assert (joined.member_id, joined.client_id, joined.reason) == ("C", "client-C", "new")
    started = c.events(RebalanceStarted)[-1]
    assert (started.cause, started.member_id, started.reason) == ("member_joined", "C", "new")


def test_join_that_drops_a_topic_gives_its_partitions_up_at_once():
    """Before the next target assignment, which has to wait for a second."""
    c = Mixed()
    c.plays("T:1\nU:1\nA 0 names none -> 1 {}")
    both = Protocol("range", write_subscription(Subscription(("T", "U"))))
    facts = c.fact("T"), c.fact("U")
    assert c.joins("C", protocols=(both,), topics=facts).generation_id == 2
    assert read_assignment(c.sends(SyncGroup, member_id="C", generation_id=2).assignment)[0] == {"T": [0], "U": [0]}
    assert c.joins("C").generation_id == 2
    assert read_assignment(c.sends(SyncGroup, member_id="C", generation_id=2).assignment)[0] == {"T": [0]}
    c.plays("= Assigning 3 2")


def test_join_with_the_same_subscription_keeps_the_partitions_of_a_deleted_topic():
    """The next target assignment takes them away (next-generation.md 2.7)."""
    c = beside_a_consumer()
    c.plays("T:0")
    c.tells_topics("T")
    assert c.joins("C", topics=()).generation_id == 3
    assert (c.syncs("C", 3), c.state) == ("2 3", "Assigning 4 3")


def test_facts_of_a_join_do_not_change_the_id_of_a_topic():
    """As those of a heartbeat: only `group_topics` is authoritative."""
    c = beside_a_consumer()
    before = c.group.topics["T"]
    c.plays("T:4 anew")
    assert c.joins("C").generation_id == 3
    assert c.group.topics["T"] == before


def test_owned_partitions_of_unknown_topics_are_ignored():
    c = beside_a_consumer()
    assert c.joins("C", owned={"X": [0], "T": [2, 3]}).generation_id == 3
    assert c.syncs("C", 3) == "2 3"


# -- the way back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size_max", "is_converted"), [(2, True), (1, False)])
def test_group_with_more_members_than_a_classic_one_may_have_stays(size_max: int, is_converted: bool):
    """next-generation.md 8.4."""
    c = Mixed(group_max_size=size_max)
    c.plays("T:2\nA 0 -> 2 {0 1}")
    c.joins("C")
    c.joins("D")
    c.plays("A -1 -> -1")
    assert (c.shard.consumer_group("g") is None) == is_converted
