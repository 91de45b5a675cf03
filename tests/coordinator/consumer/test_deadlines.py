"""Tests of the deadlines of a group of the consumer protocol (next-generation.md 3.7, 10.5)."""

from typing import Any

import pytest

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import MemberExpired, PlanMade
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import OffsetCommit, OffsetToCommit, Received
from tests.coordinator.consumer.conversation import START_MS, Conversation
from tests.coordinator.consumer.test_members import two
from tests.coordinator.waking import wake


def test_a_member_that_gives_nothing_up_has_not_been_silent():
    """Its event has no time of silence, because it has sent heartbeats."""
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0 1}")
    for _ in range(30):
        c.plays("-- 1000")
        if "A" in c.group.members:
            c.plays("A 2 -> 2\nB 3 -> 3")
    (expired,) = c.events(MemberExpired)
    assert (expired.at_ms, expired.why, expired.silence_ms) == (START_MS + 31_000, "revocation_overdue", None)


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_a_member_without_a_rebalance_timeout_is_removed_at_once(timeout_ms: int):
    """Kafka accepts every timeout but -1."""
    c = Conversation()
    c.counts["T"] = 2
    fields: dict[str, Any] = {"subscribed_topic_names": ("T",), "topic_partitions": (), "topics": (c.fact("T"),)}
    c.sends(ConsumerGroupHeartbeat, member_id="A", rebalance_timeout_ms=timeout_ms, **fields)
    c.plays("-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0}")
    (expired,) = c.events(MemberExpired)
    assert (expired.member_id, expired.why, expired.at_ms) == ("A", "revocation_overdue", c.now_ms)


def test_a_second_late_notice_removes_the_members():
    """The session was extended once. Its length says nothing of the silence then."""
    c = two()
    c.passes(60_000)
    assert [session.extended for session in c.group.hot_state.sessions.values()] == [True, True]
    c.passes(60_000)
    assert [(e.member_id, e.why, e.silence_ms) for e in c.events(MemberExpired)] == [
        ("A", "session_expired", None),
        ("B", "session_expired", None),
    ]


def test_a_heartbeat_ends_the_extension():
    c = two()
    c.passes(60_000)
    c.plays("A 3 -> 3\nB 3 -> 3")
    assert [session.extended for session in c.group.hot_state.sessions.values()] == [False, False]


def test_a_target_assignment_is_computed_however_late_its_deadline_is_noticed():
    c = two().plays("C 0 -> 3 {}\n= Assigning 4 3")
    c.passes(60_000)
    assert c.state == "Reconciling 4 4"
    assert c.events(PlanMade)[-1].at_ms == START_MS + 2_000


def test_a_late_notice_extends_the_time_to_give_partitions_up():
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0 1}")
    c.passes(90_000)
    wait = c.group.hot_state.revocations["A"]
    assert (wait.deadline_ms, wait.extended) == (c.now_ms + c.config.clock_slack_ms + 30_000, True)


def test_a_member_that_leaves_takes_its_deadlines_and_its_target_along():
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0 1}\nA -1 -> -1")
    hot_state = c.group.hot_state
    assert (list(hot_state.sessions), hot_state.revocations, list(c.group.targets)) == (["B"], {}, ["B"])


def test_a_group_without_members_waits_for_no_target_assignment():
    c = two().plays("A -1 -> -1\nB -1 -> -1\n= Empty 5 5")
    plans = len(c.events(PlanMade))
    c.plays("-- 5000\n= Empty 5 5")
    assert len(c.events(PlanMade)) == plans


def test_the_offsets_of_a_group_without_members_expire():
    c = Conversation(offsets_retention_ms=5_000).plays("T:1\nA 0 -> 2 {0}")
    c.sends(OffsetCommit, member_id="A", generation_id=2, offsets=(OffsetToCommit("T", 0, 1),))
    c.plays("-- 1000\nA -1 -> -1\n-- 3999")
    assert c.group.offsets_count == 1
    c.passes(1)
    assert c.shard.consumer_group("g") is None or c.group.offsets_count == 0


def test_members_that_expire_at_the_same_time_are_removed_in_the_order_of_their_joins():
    c = Conversation(group_consumer_session_timeout_ms=10_000).plays("T:1\nB 0 -> 2 {0}\nA 0 -> 2 {}\n-- 10000")
    assert [e.member_id for e in c.events(MemberExpired)] == ["B", "A"]


@pytest.mark.parametrize("outage_ms", [9_000, 12_000], ids=["before the sessions end", "shortly after"])
def test_an_outage_expels_no_consumer_that_could_not_reach_the_coordinator(outage_ms: int):
    """I21: what shows the outage is a heartbeat with no member id, which came meanwhile."""
    c = two()
    about_it = Heartbeat(request_id="r", reply_to="box", group_id="g", generation_id=-1, member_id="")
    seen = Received(1_000, c.now_ms + 1_000, about_it)
    c.now_ms += outage_ms
    c.steps([seen, wake(c.now_ms, 1_001)])
    for _ in range(9):
        c.passes(1_000)
    assert list(c.group.members) == ["A", "B"]
    c.passes(1_000)
    assert [event.member_id for event in c.events(MemberExpired)] == ["A", "B"]
