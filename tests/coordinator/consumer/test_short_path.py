"""Tests of the heartbeats that need only the hot state of their group: a settled member renews its session."""

from typing import Any

import pytest
from msgspec import structs

from coordinator.consumer import checks
from coordinator.consumer.heartbeat import answer_heartbeat, repeats_the_assignment
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions, TopicFact
from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer, Reply
from coordinator.state.classic_group import HotState
from tests.coordinator.consumer.conversation import Conversation, topic_id

OWNED = (OwnedPartitions(topic_id("T"), (0, 1)),)


def settled() -> Conversation:
    """Return a Stable group of the static members A and B."""
    return Conversation().plays("T:1\nA(i) 0 -> 2 {0}\nB(j) 0 names none -> 2 {}\n= Stable 2 2")


def plain(**fields: Any) -> ConsumerGroupHeartbeat:
    """Return a heartbeat of A that only renews its session, unless `fields` say otherwise."""
    usual: dict[str, Any] = {"member_id": "A", "member_epoch": 2}
    return ConsumerGroupHeartbeat(request_id="r", reply_to="box", group_id="g", **usual | fields)


PLAIN = {}, {"group_instance_id": "i"}, {"topic_partitions": ()}, {"topic_partitions": OWNED}


@pytest.mark.parametrize("fields", PLAIN, ids=str)
def test_plain_heartbeat_is_answered_and_renews_the_session(fields: dict[str, Any]):
    c = settled()
    hot_state = c.group.hot_state
    answer = ConsumerGroupHeartbeatAnswer(request_id="r", member_id="A", member_epoch=2, heartbeat_interval_ms=5_000)
    now_ms = c.now_ms + 100
    assert answer_heartbeat(hot_state, plain(**fields), now_ms, c.config) == Reply("box", answer)
    assert hot_state.sessions["A"].deadline_ms == now_ms + 45_000


def test_heartbeat_on_the_members_behalf_is_answered():
    c = settled()
    before = c.group.hot_state.sessions["A"].deadline_ms
    hot_state = c.group.hot_state
    assert answer_heartbeat(hot_state, plain(again=True), c.now_ms + 100, c.config) is not None
    assert hot_state.sessions["A"].deadline_ms == before


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": "X"},
        {"member_epoch": 1},
        {"member_epoch": 0},
        {"group_instance_id": "j"},
        {"group_instance_id": "unknown"},
        {"rebalance_timeout_ms": 1},
        {"subscribed_topic_names": ()},
        {"subscribed_topic_regex": ""},
        {"server_assignor": "range"},
        {"rack_id": "r"},
        {"topics": (TopicFact("T"),)},
        {"topic_partitions": (OwnedPartitions(topic_id("T"), (0, 1, 2)),)},
    ],
    ids=str,
)
def test_every_other_heartbeat_needs_the_group(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "OWNED_PARTITIONS_MAX", 2)
    c = settled()
    assert answer_heartbeat(c.group.hot_state, plain(**fields), c.now_ms, c.config) is None


def test_a_group_that_waits_for_something_needs_the_long_path():
    """For a target assignment, or for the topics of a pattern."""
    c = settled()
    hot_state = c.group.hot_state
    hot_state.group_epoch += 1
    assert answer_heartbeat(hot_state, plain(), c.now_ms, c.config) is None
    hot_state = c.group.hot_state
    hot_state.asks = True
    assert answer_heartbeat(hot_state, plain(), c.now_ms, c.config) is None


@pytest.mark.parametrize(
    ("fields", "is_costly"),
    [
        ({}, False),
        ({"topic_partitions": ()}, False),
        ({"member_epoch": 0}, True),
        ({"rebalance_timeout_ms": 1, "subscribed_topic_names": (), "topic_partitions": ()}, True),
        ({"rebalance_timeout_ms": 1, "subscribed_topic_regex": "", "topic_partitions": ()}, True),
        ({"rebalance_timeout_ms": 1, "topic_partitions": ()}, False),
        ({"subscribed_topic_names": (), "topic_partitions": ()}, False),
        ({"rebalance_timeout_ms": 1, "subscribed_topic_names": ()}, False),
    ],
    ids=str,
)
def test_joins_and_full_requests_are_answered_with_the_whole_assignment(fields: dict[str, Any], is_costly: bool):
    """next-generation.md 1.1: so their responses count against the allowance for large ones."""
    assert repeats_the_assignment(settled().group, plain(**fields)) is is_costly


@pytest.mark.parametrize("session", [{"is_settled": False}, {"is_classic": True}], ids=str)
def test_a_member_that_is_not_settled_or_classic_needs_the_long_path(session: dict[str, bool]):
    c = settled()
    hot_state = c.group.hot_state
    hot_state.sessions["A"] = structs.replace(hot_state.sessions["A"], **session)
    assert answer_heartbeat(hot_state, plain(), c.now_ms, c.config) is None


def test_classic_group_has_no_members_of_this_protocol():
    assert answer_heartbeat(HotState(), plain(), 0, Conversation().config) is None
