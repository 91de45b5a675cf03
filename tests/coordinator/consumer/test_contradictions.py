"""Facts about topics that contradict each other. A record that raises would raise at every replay, so none may."""

from typing import Any

import pytest

from coordinator.assignors.server import SERVER_ASSIGNORS
from coordinator.consumer import target_assignment, topics
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, GroupTopics, TopicFact
from coordinator.messages.events import PlanMade
from coordinator.messages.requests import Assignment, JoinGroup, Protocol, SyncGroup
from coordinator.state.consumer_group import Change, Topic
from tests.coordinator.consumer.conversation import Conversation, topic_id
from tests.coordinator.wire import assignment, subscription

GONE, ANEW = TopicFact("T"), TopicFact("T", topic_id("T"), 1)
JOIN: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "topic_partitions": ()}


@pytest.mark.parametrize("assignor", SERVER_ASSIGNORS)
@pytest.mark.parametrize("names", [("U",), ("T", "U")])
def test_a_fact_with_the_id_of_another_topic_is_ignored(assignor: str, names: tuple[str, ...]):
    """The partitions of both would be the same ones, with two different counts."""
    c = Conversation().plays(f"T:4\nA 0 by {assignor} -> 2 {{0 1 2 3}}\n-- 1000")
    facts = (TopicFact("U", topic_id("T"), 1),)
    c.sends(ConsumerGroupHeartbeat, member_id="B", subscribed_topic_names=names, topics=facts, **JOIN)
    assert c.group.topics == {"T": Topic(topic_id("T"), 4)}
    assert not c.sends(GroupTopics, topics=facts).changed


def test_the_facts_after_one_that_is_ignored_are_taken():
    c = Conversation().plays("T:4\nA 0 names T U V -> 2 {0 1 2 3}\n-- 1000")
    old, wrong = TopicFact("T", topic_id("T"), 1), TopicFact("U", topic_id("T"), 1)
    assert c.sends(GroupTopics, topics=(old, wrong, TopicFact("V", topic_id("V"), 1))).changed
    assert c.group.topics == {"T": Topic(topic_id("T"), 4), "U": Topic(), "V": Topic(topic_id("V"), 1)}


def test_a_topic_that_does_not_exist_has_no_partitions():
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}")
    assert c.sends(GroupTopics, topics=(TopicFact("T", None, 5),)).changed
    assert c.group.topics == {"T": Topic(None, 0)}


def test_an_id_is_free_when_its_topic_has_another_one():
    """A topic cannot be renamed, but facts of one request are taken one after the other."""
    c = Conversation().plays("T:4\nU:1\nA 0 names T U -> 2 {T 0 1 2 3, U 0}")
    facts = TopicFact("T", topic_id("T", 1), 2), TopicFact("U", topic_id("T"), 4)
    assert c.sends(GroupTopics, topics=facts).changed
    assert c.group.topics == {"T": Topic(topic_id("T", 1), 2), "U": Topic(topic_id("T"), 4)}


def test_a_topic_that_comes_back_within_one_request_may_have_fewer_partitions():
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000")
    c.sends(GroupTopics, topics=(GONE, ANEW))
    c.plays("A 2 -> 2 {0}\nA 2 own 0 -> 3\n= Stable 3 3")


def test_a_topic_that_comes_back_before_the_next_assignment_may_have_fewer_partitions():
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}")
    assert c.sends(GroupTopics, topics=(GONE,)).changed
    assert c.sends(GroupTopics, topics=(ANEW,)).changed
    c.plays("-- 1000\n= Reconciling 4 4\nA 2 -> 2 {0}\nA 2 own 0 -> 4")


def test_a_topic_that_goes_and_comes_back_within_one_request_has_not_changed():
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}")
    assert not c.sends(GroupTopics, topics=(GONE, c.fact("T"))).changed


def test_a_state_of_earlier_code_with_two_topics_of_one_id_is_assigned():
    c = Conversation().plays("T:4\nU:1\nA 0 names T U -> 2 {T 0 1 2 3, U 0}\nB 0 names T -> 2 {}")
    group = c.group
    group.topics["U"] = Topic(topic_id("T"), 1)
    group.hot_state.group_epoch += 1
    list(target_assignment.make_plan(group, c.now_ms, c.config))
    assert sorted(n for target in group.targets.values() for numbers in target.values() for n in numbers) == [0]


def test_two_topics_of_one_id_both_get_another_one():
    c = Conversation().plays("T:4\nU:1\nA 0 names T U -> 2 {T 0 1 2 3, U 0}")
    group = c.group
    group.topics["U"] = Topic(topic_id("T"), 1)
    facts = TopicFact("T", topic_id("T", 1), 1), TopicFact("U", topic_id("U", 1), 1)
    told = topics.reported_topics(group, facts, is_authoritative=True)
    assert told == {"T": Topic(topic_id("T", 1), 1), "U": Topic(topic_id("U", 1), 1)}


def test_a_target_assignment_begins_a_rebalance_if_the_state_has_none():
    """A raise of the group epoch begins one, so only a wrong state can lack it."""
    c = Conversation().plays("T:1\nA 0 -> 2 {0}\nB 0 -> 2 {}")
    group = c.group
    group.change = None
    (made,) = target_assignment.make_plan(group, c.now_ms, c.config)
    assert isinstance(made, PlanMade)
    assert (made.waited_ms, group.change) == (0, Change(c.now_ms, c.now_ms, ("A", "B")))


def test_a_conversion_ignores_a_fact_with_the_id_of_another_topic():
    """A member of the classic group keeps the partitions of the first topic only."""
    c = Conversation(group_initial_rebalance_delay_ms=0)
    protocols = (Protocol("range", subscription(["T", "U"])),)
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000}
    who: dict[str, Any] = {"protocol_type": "consumer", "protocols": protocols, "require_known_member_id": False}
    member_id = c.sends(JoinGroup, member_id="", **times, **who).member_id
    plan = (Assignment(member_id, assignment({"T": [0, 1, 2, 3], "U": [0, 1]})),)
    c.sends(SyncGroup, member_id=member_id, generation_id=1, assignments=plan)
    facts = TopicFact("T", topic_id("T"), 4), TopicFact("U", topic_id("T"), 2)
    c.sends(ConsumerGroupHeartbeat, member_id="X", subscribed_topic_names=("T",), topics=facts, **JOIN)
    assert c.group.topics == {"T": Topic(topic_id("T"), 4)}
    assert {t: list(numbers) for t, numbers in c.group.members[member_id].assigned.items()} == {
        topic_id("T"): [0, 1, 2, 3]
    }
