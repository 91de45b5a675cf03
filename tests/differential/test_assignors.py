"""The assignors of this project and Kafka's compute the same assignments of the same bytes, with few exceptions."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from coordinator.assignors import ASSIGNORS, Cluster, Plan, Sticky
from coordinator.base.consumer_protocol import Subscription, write_assignment, write_subscription
from tests.coordinator.assignors.groups import Drawn, draw, flat, imbalance, kept, plan, subscribers
from tests.differential.java_assignors import Java, java

SEEDS = 50

KINDS: dict[str, dict[str, Any]] = {
    "range": {},
    "range, with racks": {"racks": True},
    "roundrobin": {},
    "sticky": {},
    "sticky, with stale claims": {"stale": True},
    "cooperative-sticky": {},
    "cooperative-sticky, with stale claims": {"stale": True},
}


@pytest.fixture(scope="module")
def kafkas() -> Iterator[Java]:
    with java() as kafkas:
        yield kafkas


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
@pytest.mark.parametrize(("kind", "drawing"), KINDS.items(), ids=KINDS)
def test_plans(kafkas: Java, kind: str, drawing: dict[str, Any], alike: bool):
    """S130 to S133: all assignments are equal, for any members that join, leave, claim and subscribe.

    If subscriptions differ, the assignments may differ too, if they are as equal and move no more partitions.
    """
    name = kind.partition(",")[0]
    equal = 0
    for seed in range(SEEDS):
        drawn = draw(seed, name, alike=alike, **drawing)
        ours = ASSIGNORS[name]().assign(drawn.cluster, drawn.subscribers)
        theirs = kafkas_plan(kafkas, name, drawn)
        if theirs is None or has_three_claims(drawn):
            continue
        if name == "cooperative-sticky":
            remove_partitions_with_two_claims(drawn, ours, theirs)
        assert worth(drawn, ours) <= worth(drawn, theirs), f"seed {seed}"
        assert alike <= (ours == theirs), f"seed {seed}"
        equal += ours == theirs
    assert equal >= 0.8 * SEEDS


@pytest.mark.parametrize("seed", [2360, 9655, 9954])
def test_kafka_moves_a_partition_back_to_its_owner(kafkas: Java, seed: int):
    """S132: in three groups of 12,000 Kafka moves a partition back to an owner that is already full."""
    drawn = draw(seed, "sticky", alike=False, most=8, grows=False)
    ours, theirs = (p(drawn.cluster, drawn.subscribers) for p in (Sticky().assign, partial(kafkas.plan, "sticky")))
    assert ours != theirs
    assert worth(drawn, ours) <= worth(drawn, theirs)


def worth(drawn: Drawn, plan: Plan) -> tuple[int, int]:
    """Return the inequality of assignments, then the negative number of partitions that stay. Less is better."""
    return imbalance(plan), -kept(plan, drawn.claims)


def kafkas_plan(kafkas: Java, name: str, drawn: Drawn) -> Plan | None:
    """Return Kafka's assignments; None if they are invalid or Kafka fails.

    In both cases Kafka moves a partition back to an owner of an older generation that no longer subscribes to the
    topic.
    """
    topics_of = {s.member_id: s.subscription.topics for s in drawn.subscribers}
    try:
        plan = kafkas.plan(name, drawn.cluster, drawn.subscribers)
    except Py4JJavaError:
        return None
    return None if any(topic not in topics_of[m] for m, share in plan.items() for topic in share) else plan


def has_three_claims(drawn: Drawn) -> bool:
    """Check whether a partition has three claims. If two are equal, Kafka also revokes it from the newest."""
    claims = Counter(partition for claimed in drawn.claims.values() for partition in claimed)
    return any(count > 2 for count in claims.values())


def remove_partitions_with_two_claims(drawn: Drawn, ours: Plan, theirs: Plan) -> None:
    """Remove partitions with two claims from Kafka's assignments, if this project's assignor holds them back.

    Kafka leaves them with one member if subscriptions differ, though the other member may still be reading.
    """
    claims = Counter(partition for claimed in drawn.claims.values() for partition in claimed)
    given = flat(ours)
    for m, share in flat(theirs).items():
        for topic, number in share - given[m]:
            if claims[topic, number] > 1:
                theirs[m][topic].remove(number)
                if not theirs[m][topic]:
                    del theirs[m][topic]


@pytest.mark.parametrize("topics", ["C1 t; C2 t", "C1 t; C2 t u"], ids=["alike", "different"])
def test_two_claims_of_one_generation(kafkas: Java, topics: str):
    """S132, protocol.md 7.3: neither member keeps the partition."""
    group = subscribers("sticky", topics, "C1 t-0 t-1; C2 t-1 t-2")
    assert kafkas.plan("sticky", Cluster({"t": 4}), group) == plan("C1 t-0 t-1; C2 t-2 t-3")


SUBSCRIPTIONS = [
    Subscription(("t",)),
    Subscription(("u", "t"), b"", {}, 0, "r"),
    Subscription(("u", "t"), b"\x00\x01", {"u": [3, 1], "t": [0]}, 5, "rack"),
    Subscription((), None, {"gone": [7]}, -1, None),
]


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("subscription", SUBSCRIPTIONS, ids=range(len(SUBSCRIPTIONS)))
def test_subscription_bytes(kafkas: Java, subscription: Subscription, version: int):
    """Protocol.md 7.6: Kafka reads this project's subscriptions, and writes the same bytes."""
    theirs = kafkas.subscription(write_subscription(subscription))
    assert kafkas.subscription_bytes(theirs, version) == write_subscription(subscription, version)
    assert list(kafkas.subscription(write_subscription(subscription, version)).topics()) == sorted(subscription.topics)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("user_data", [None, b"", b"\x00\x01"])
def test_assignment_bytes(kafkas: Java, user_data: bytes | None, version: int):
    """Protocol.md 7.6: Kafka and this project write an assignment as the same bytes."""
    theirs = kafkas.assignment_bytes([("t", 0), ("t", 2), ("u", 1)], user_data, version)
    assert theirs == write_assignment({"u": [1], "t": [2, 0]}, user_data, version)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_user_data_bytes(kafkas: Java, name: str):
    """Protocol.md 7.6: members of both sides send the same user data about the same assignments."""
    for share, generation_id in ({"t": [0, 1]}, 1), ({}, 7):
        listed = [(topic, n) for topic, numbers in share.items() for n in numbers]
        assert kafkas.user_data(name, listed, generation_id) == ASSIGNORS[name]().user_data(share, generation_id)
    assert kafkas.user_data(name, None, -1) == ASSIGNORS[name]().user_data({}, -1)
