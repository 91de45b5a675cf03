"""Tests of the values that a group computes once, and drops or updates when it changes. Its stored bytes have none."""

from coordinator.state.consumer_group import ConsumerGroup, Resolution, Topic
from coordinator.state.consumer_member import ConsumerMember, MemberSession
from tests.coordinator.consumer.conversation import Conversation, topic_id
from tests.coordinator.consumer.test_mixed import Mixed, classic


def group() -> ConsumerGroup:
    """Return a Stable group of A, which has T-0 and T-1, and of B without partitions, and read all its caches."""
    c = Conversation().plays("T:2\nA(i) 0 -> 2 {0 1}\nB 0 names none -> 2 {}")
    group = c.group
    assert (group.subscribed, group.names_by_id) == ({"T"}, {topic_id("T"): "T"})
    assert group.holders == group.planned == {topic_id("T"): {0: "A", 1: "A"}}
    assert (group.protocols_bytes, group.resolutions_bytes) == (0, 0)
    return group


def test_subscribed_topics_follow_a_new_member():
    g = group()
    new = ConsumerMember(
        member_id="C", group_instance_id=None, client_id="c", client_host="/h", reply_to="box", names=("U",)
    )
    g.add(new, MemberSession(0, 1_000))
    assert g.subscribed == {"T", "U"}
    assert g.subscriptions_bytes == 2 + 2
    g.remove(new)
    assert g.subscribed == {"T"}
    assert g.subscriptions_bytes == 2


def test_subscribed_topics_follow_a_subscription_and_a_pattern():
    g = group()
    g.set_subscription(g.members["B"], ("U",), "V.*")
    assert g.subscribed == {"T", "U"}
    g.set_pattern("V.*", Resolution("B", ("V1", "V2")))
    assert (g.subscribed, g.resolutions_bytes) == ({"T", "U", "V1", "V2"}, 6)
    g.set_pattern("V.*", None)
    assert (g.subscribed, g.resolutions_bytes) == ({"T", "U"}, 0)


def test_planned_partitions_follow_the_targets():
    g = group()
    g.set_target("B", {topic_id("U"): [0]})
    assert g.planned == {topic_id("T"): {0: "A", 1: "A"}, topic_id("U"): {0: "B"}}
    g.set_target("A", None)
    assert g.planned == {topic_id("U"): {0: "B"}}
    g.set_targets({"A": {topic_id("T"): [1]}, "B": {}})
    assert g.planned == {topic_id("T"): {1: "A"}}


def test_names_of_topics_follow_the_facts():
    g = group()
    g.set_topic("T", Topic(topic_id("T", 1), 1))
    assert g.names_by_id == {topic_id("T", 1): "T"}
    g.set_topic("T", None)
    assert g.names_by_id == {}


def test_size_of_the_subscriptions_stays_when_a_static_member_is_replaced():
    c = Conversation().plays("A(i) 0 names abc -> 2 {}\nA(i) -2 -> -2\nB(i) 0 names abc -> 2 {}")
    assert c.group.subscriptions_bytes == 4


def test_size_of_the_subscriptions_counts_converted_members():
    c = Mixed(group_initial_rebalance_delay_ms=0)
    classic(c)
    c.plays("X 0 names T -> 3 {}")
    assert c.group.subscriptions_bytes == 3 * 2
    assert c.group.protocols_bytes == sum(member.protocols_bytes for member in c.group.members.values()) > 0
