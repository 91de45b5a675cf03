"""Tests of hostile and of large input to a group of the consumer protocol."""

from typing import Any

import msgspec
import pytest

from coordinator import limits
from coordinator.consumer import checks
from coordinator.consumer_requests import ConsumerGroupHeartbeat, GroupTopics, TopicFact
from tests.coordinator.consumer.conversation import Conversation, topic_id

JOIN: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("T",), "topic_partitions": ()}


@pytest.mark.parametrize(
    "fields",
    [
        {"member_epoch": 2**31},
        {"member_epoch": -(2**31) - 1},
        {"subscribed_topic_names": ["t"] * (limits.SUBSCRIBED_NAMES_MAX + 1)},
        {"subscribed_topic_regex": "a" * (limits.PATTERN_CHARS_MAX + 1)},
        {"topics": [{"topic": "t", "topic_id": topic_id("T"), "partitions": limits.TOPIC_PARTITIONS_MAX + 1}]},
        {"topics": [{"topic": "t", "topic_id": topic_id("T"), "partitions": -1}]},
        {"topics": [{"topic": "t", "topic_id": "no id"}]},
        {"topic_partitions": [{"topic_id": topic_id("T") + "A", "partitions": []}]},
        {"version": 2},
    ],
    ids=str,
)
def test_a_record_beyond_a_bound_is_no_request(fields: dict[str, Any]):
    record = {"kind": "consumer_group_heartbeat", "request_id": "r", "reply_to": "b", "group_id": "g"}
    msgspec.convert(record, ConsumerGroupHeartbeat)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(record | fields, ConsumerGroupHeartbeat)


def test_the_subscriptions_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "GROUP_SUBSCRIPTIONS_BYTES_MAX", 8)
    c = Conversation().plays("""
        A 0 names abc    -> 2 {}
        B 0 names abc    -> 2 {}
        C 0 names a      -> 81
        A 2 names abcd   -> 81
        A 2 names ab     -> 2
        A 2 names abc    -> 2
    """)
    assert c.group.subscriptions_bytes == 8
    c.plays("B -1 -> -1")
    assert c.group.subscriptions_bytes == 4


def test_the_patterns_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "PATTERNS_MAX", 1)
    Conversation().plays("A 0 regex a -> 1 {}\nB 0 regex b -> 81\nB 0 regex a -> 1 {}")


def test_the_partitions_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "PLANNED_PARTITIONS_MAX", 5)
    c = Conversation().plays("T:3\nU:2\nA 0 names T U -> 2 {T 0 1 2, U 0 1}\nT:4\nB 0 names T -> 42")
    assert c.sends(GroupTopics, topics=(TopicFact("T", topic_id("T"), 4),)).code == 42
    c.plays("T:3\nB 0 names T -> 2 {}")


def test_facts_that_contradict_each_other_are_taken_one_after_the_other():
    c = Conversation().plays("T:2\nA 0 -> 2 {0 1}")
    facts = TopicFact("T", topic_id("T", 1), 1), TopicFact("T", None, 5), TopicFact("T", topic_id("T", 2), 2)
    answer = c.sends(GroupTopics, topics=facts)
    assert (answer.changed, answer.group_epoch) == (True, 3)
    c.plays("-- 1000\nA 2 -> 2 {}")
    c.lives["T"] = 2
    c.plays("A 2 own U 0 -> 3 {0 1}")


def test_an_owner_that_names_unknown_topics_is_no_owner():
    Conversation().plays("T:2\nA 0 -> 2 {0 1}\nA 2 own U 0 1 2 V 7 -> 2\n= Stable 2 2")


def test_the_record_of_a_large_group_is_written_at_a_bounded_rate():
    """200 members that join within a fifth of a second cause some records, not one each."""
    c = Conversation()
    c.counts["T"] = 2_000
    for number in range(200):
        c.sends(ConsumerGroupHeartbeat, member_id=f"m{number}", topics=(c.fact("T"),), **JOIN)
        c.now_ms += 1
    records = [o for o in c.outputs if type(o).__name__ == "Published"]
    assert len(records) < 120
