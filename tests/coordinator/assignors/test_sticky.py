"""`sticky`: equal sizes first, then few moves (protocol.md 7.3 to 7.5), and its user data (7.6)."""

from typing import NamedTuple

import pytest
from hypothesis import given
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from coordinator.assignors import Cluster, Plan, Sticky
from coordinator.assignors.assignor import by_topic
from coordinator.base.consumer_protocol import Subscription
from tests.coordinator.assignors.groups import (
    GENERATION,
    Drawn,
    check_evenness,
    check_every_partition_has_one_owner,
    check_order_is_free,
    draw,
    groups,
    imbalance,
    kept,
    plan,
    subscriber,
    subscribers,
)

FOUR = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
ALL = "t0 t1 t2 t3"
NESTED = {"t0": 1, "t1": 2, "t2": 3}

EXAMPLES = {
    "fresh": (
        FOUR, f"C0 {ALL}; C1 {ALL}; C2 {ALL}", "",
        "C0 t0-0 t1-1 t3-0; C1 t0-1 t2-0 t3-1; C2 t1-0 t2-1",
    ),
    "one leaves": (
        FOUR, f"C0 {ALL}; C2 {ALL}", "C0 t0-0 t1-1 t3-0; C2 t1-0 t2-1",
        "C0 t0-0 t1-1 t3-0 t0-1; C2 t1-0 t2-1 t2-0 t3-1",
    ),
    "different subscriptions": (
        NESTED, "C0 t0; C1 t0 t1; C2 t0 t1 t2", "",
        "C0 t0-0; C1 t1-0 t1-1; C2 t2-0 t2-1 t2-2",
    ),
    "different subscriptions, one leaves": (
        NESTED, "C1 t0 t1; C2 t0 t1 t2", "C1 t1-0 t1-1; C2 t2-0 t2-1 t2-2",
        "C1 t0-0 t1-0 t1-1; C2 t2-0 t2-1 t2-2",
    ),
    "one joins": ({"t": 3}, "C1 t; C2 t", "C1 t-0 t-1 t-2", "C1 t-0 t-1; C2 t-2"),
    "a third one joins": (
        {"t": 6}, "C1 t; C2 t; C3 t", "C1 t-0 t-1 t-2; C2 t-3 t-4 t-5",
        "C1 t-0 t-1; C2 t-3 t-4; C3 t-2 t-5",
    ),
    "two claim one, and neither keeps it": (
        {"t": 4}, "C1 t; C2 t", "C1 t-0 t-1; C2 t-1 t-2",
        "C1 t-0 t-1; C2 t-2 t-3",  # by chance; protocol.md has assignments of members without a generation
    ),
    "what is not there any more is forgotten": ({"t": 2}, "C1 t; C2 t", "C1 t-5 gone-0 t-0", "C1 t-0; C2 t-1"),
    "every topic loses some": (
        {"t": 2, "u": 2}, "C1 t u; C2 t u", "C1 t-0 t-1 u-0 u-1",
        "C1 t-0 u-0; C2 t-1 u-1",
    ),
    "a topic not subscribed to any more": (
        {"t": 2, "u": 2}, "C1 t; C2 t u", "C1 t-0 u-0; C2 t-1 u-1",
        "C1 t-0 t-1; C2 u-0 u-1",
    ),
    "what nobody owned is moved first": (
        {"t": 2, "u": 9}, "m0 t u; m1 t u; m3 u; m4 t", "m0 u-0 u-3 u-6; m3 u-1 u-4 u-7; m4 t-1",
        "m0 u-0 u-3 u-6; m1 u-2 u-5 u-8; m3 u-1 u-4 u-7; m4 t-0 t-1",
    ),
    "what would be swapped stays": (
        {"t": 3, "u": 8, "v": 1}, "m1 t u v; m2 t u; m3 t v", "m1 t-0 t-1 t-2 u-2 u-4 u-6 v-0",
        "m1 t-2 u-2 u-4 u-6; m2 u-0 u-1 u-3 u-5 u-7; m3 t-0 t-1 v-0",
    ),
    "more members than partitions": ({"t": 1}, "C1 t; C2 t; C3 t", "C2 t-0", "C1; C2 t-0; C3"),
    "no topics": ({}, "C1; C2 nowhere", "", "C1; C2"),
}  # fmt: skip


@pytest.mark.parametrize(("partitions", "topics", "owned", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples(partitions: dict[str, int], topics: str, owned: str, expected: str):
    """S132: the assignments are those of the examples."""
    assert Sticky().assign(Cluster(partitions), subscribers("sticky", topics, owned)) == plan(expected)


@pytest.mark.parametrize("topics", ["t", "t u"], ids=["alike", "different"])
def test_the_higher_generation_wins(topics: str):
    """S132; KIP-341: a member that missed a rebalance claims its earlier partitions."""
    zombie = subscriber("C1", ["t"], {"t": [0, 1]}, 3, assignor="sticky")
    owner = subscriber("C2", topics.split(), {"t": [0, 1]}, 4, assignor="sticky")
    shares = Sticky().assign(Cluster({"t": 4}), [zombie, owner])
    assert shares == plan("C1 t-2 t-3; C2 t-0 t-1")


def test_a_moved_partition_goes_to_its_former_owner():
    """S132, protocol.md 7.5 step 5: to its owner of an older generation, though another member has as few."""
    home = subscriber("C3", ["t"], {"t": [0]}, 3, assignor="sticky")
    holder = subscriber("C1", ["t", "u"], {"t": [0, 1, 2, 3]}, 4, assignor="sticky")
    shares = Sticky().assign(Cluster({"t": 4}), [subscriber("C2", ["t"], assignor="sticky"), home, holder])
    assert shares == plan("C1 t-2 t-3; C2 t-1; C3 t-0")


def test_a_member_that_loses_a_partition_may_lose_more():
    """S132, protocol.md 7.5 steps 1 and 5: `m2` dropped a topic, so all may move, not free ones first."""
    group = [
        subscriber("m0", ["t", "u", "v"], {"t": [0, 2]}, 5, assignor="sticky"),
        subscriber("m1", ["t", "v"], {"t": [1, 3], "v": [0]}, 3, assignor="sticky"),
        subscriber("m2", ["u"], {"t": [0, 1]}, 4, assignor="sticky"),
    ]
    shares = Sticky().assign(Cluster({"t": 4, "u": 6, "v": 1}), group)
    assert shares == plan("m0 t-1 t-2 u-3 u-5; m1 t-0 t-3 v-0; m2 u-0 u-1 u-2 u-4")


# -- user data ---------------------------------------------------------------------------------------------------------


def test_user_data():
    """S132, protocol.md 7.6: a member's user data have its partitions and its generation."""
    written = bytes.fromhex("00000001 000174 00000002 00000000 00000001 00000001")
    assert Sticky().user_data({"t": [1, 0]}, 1) == written
    claim = Sticky().claim(Subscription(("t",), written))
    assert (list(claim.partitions), claim.generation_id) == ([("t", 0), ("t", 1)], 1)
    assert Sticky().user_data({}, -1) is None, "the member has no assignment yet"


def test_user_data_of_the_oldest_form_has_no_generation():
    claim = Sticky().claim(Subscription(("t",), bytes.fromhex("00000001 000174 00000001 00000000")))
    assert (list(claim.partitions), claim.generation_id) == ([("t", 0)], -1)


@pytest.mark.parametrize(
    "data", [None, b"", b"\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00\x01\xff\x00\x00\x00\x00"]
)
def test_unreadable_user_data_claim_no_partitions(data: bytes | None):
    """As in Kafka's StickyAssignor: they may be another assignor's."""
    assert list(Sticky().claim(Subscription(("t",), data)).partitions) == []


# -- random groups -----------------------------------------------------------------------------------------------------


@given(groups("sticky"))
def test_any_group(drawn: Drawn):
    plan = Sticky().assign(drawn.cluster, drawn.subscribers)
    check_every_partition_has_one_owner(drawn, plan)
    check_evenness(drawn, plan)
    check_order_is_free(drawn, "sticky", plan)


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
@pytest.mark.parametrize("seed", range(30))
def test_assignments_stay_as_long_as_nothing_changes(seed: int, alike: bool):
    drawn = draw(seed, "sticky", alike=alike)
    topics = {s.member_id: s.subscription.topics for s in drawn.subscribers}
    before = Sticky().assign(drawn.cluster, drawn.subscribers)
    again = [subscriber(m, topics[m], before[m], GENERATION, assignor="sticky") for m in topics]
    assert Sticky().assign(drawn.cluster, again) == before


# -- kafka-python ------------------------------------------------------------------------------------------------------


class Theirs:
    """A member and a cluster of kafka-python, with the parts that its assignor uses."""

    class Member(NamedTuple):
        member_id: str
        metadata: ConsumerProtocolSubscription

    def __init__(self, cluster: Cluster) -> None:
        self.counts = cluster.partitions

    def topics(self) -> set[str]:
        return set(self.counts)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.counts[topic])) if topic in self.counts else None


def kafka_pythons(drawn: Drawn) -> Plan:
    """Return the assignments of kafka-python's assignor; its user data begin with a version, unlike Kafka's."""
    joined = []
    for s in drawn.subscribers:
        owned = list(by_topic(drawn.claims[s.member_id]).items())
        user_data = StickyAssignorUserData(owned, s.subscription.generation_id) if owned else b""
        told = ConsumerProtocolSubscription(0, sorted(s.subscription.topics), user_data)
        joined.append(Theirs.Member(s.member_id, told))
    parts = StickyPartitionAssignor().assign(Theirs(drawn.cluster), joined)
    return {m: {topic: sorted(numbers) for topic, numbers in part.assigned_partitions} for m, part in parts.items()}


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
def test_never_less_even_or_less_sticky_than_kafka_pythons(alike: bool):
    """S132: a hundred groups each.

    Only if subscriptions differ, this assignor may move more partitions for more equal sizes.
    """
    for seed in range(100):
        drawn = draw(seed, "sticky", alike=alike)
        ours, theirs = Sticky().assign(drawn.cluster, drawn.subscribers), kafka_pythons(drawn)
        assert imbalance(ours) <= imbalance(theirs), f"seed {seed}"
        if imbalance(ours) == imbalance(theirs):
            assert kept(ours, drawn.claims) >= kept(theirs, drawn.claims), f"seed {seed}"
