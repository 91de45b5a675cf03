"""`range`: contiguous blocks of each topic (protocol.md 7.1)."""

import pytest
from hypothesis import given

from coordinator.assignors import Cluster, Range
from tests.coordinator.assignors.groups import (
    Drawn,
    check_every_partition_has_one_owner,
    check_order_is_free,
    draw,
    flat,
    groups,
    plan,
    subscriber,
    subscribers,
)

EXAMPLES = {
    "ten for three": (
        {"t": 10}, "C1 t; C2 t; C3 t",
        "C1 t-0 t-1 t-2 t-3; C2 t-4 t-5 t-6; C3 t-7 t-8 t-9",
    ),
    "each topic anew": (
        {"t0": 3, "t1": 3}, "C0 t0 t1; C1 t0 t1",
        "C0 t0-0 t0-1 t1-0 t1-1; C1 t0-2 t1-2",
    ),
    "one for two": ({"t": 1}, "C0 t; C1 t", "C0 t-0; C1"),
    "different subscriptions": (
        {"t0": 3, "t1": 2}, "C0 t0; C1 t0 t1; C2 t0",
        "C0 t0-0; C1 t0-1 t1-0 t1-1; C2 t0-2",
    ),
    "a topic that is not there": ({"t": 1}, "C0 t nowhere; C1 nowhere", "C0 t-0; C1"),
}  # fmt: skip


@pytest.mark.parametrize(("partitions", "topics", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples(partitions: dict[str, int], topics: str, expected: str):
    """S130: the assignments are those of the examples."""
    assert Range().assign(Cluster(partitions), subscribers("range", topics)) == plan(expected)


def test_static_members_come_first_by_instance_id():
    """S130; KIP-345: so a restarted member with a new member id gets the same partitions."""
    group = [subscriber("C3", "t", instance="i1"), subscriber("C1", "t"), subscriber("C2", "t", instance="i0")]
    assert Range().assign(Cluster({"t": 3}), group) == plan("C3 t-1; C1 t-2; C2 t-0")


def racks(*words: str) -> list[frozenset[str]]:
    return [frozenset(word) for word in words]


RACKS = {
    "each gets what is near": ({"t": racks("b", "a", "b", "a")}, "a b", "A t-1 t-3; B t-0 t-2"),
    "sizes count more than racks": ({"t": racks("a", "a", "a", "b")}, "a b", "A t-0 t-1; B t-2 t-3"),
    "the first may have one more, if it is near": ({"t": racks("b", "a", "b")}, "a b", "A t-1; B t-0 t-2"),
    "everything is everywhere: as without racks": ({"t": racks("ab", "ab")}, "b a", "A t-0; B t-1"),
    "everything is everywhere but with one member": ({"t": racks("ab", "ab")}, "c a", "A t-0; B t-1"),
    "one topic is, and another is not": (
        {"t": racks("ab", "ab"), "u": racks("a", "b", "a")}, "c a",
        "A t-0 u-1; B t-1 u-0 u-2",
    ),
    "no rack in common: as without racks": ({"t": racks("x", "y")}, "b -", "A t-0; B t-1"),
    "who has no rack is near everything": ({"t": racks("a", "b", "a", "b")}, "- a", "A t-0 t-1; B t-2 t-3"),
    "topics alike are matched together": (
        {"t": racks("b", "a"), "u": racks("b", "a")}, "a b",
        "A t-1 u-1; B t-0 u-0",
    ),
    "what cannot be matched together is not matched": (
        {"t": racks("b", "a"), "u": racks("a", "b")}, "a b",
        "A t-0 u-0; B t-1 u-1",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("replicas", "where", "expected"), RACKS.values(), ids=RACKS)
def test_racks(replicas: dict[str, list[frozenset[str]]], where: str, expected: str):
    """S130; KIP-881: the assignments are those of the examples with racks."""
    a, b = (None if rack == "-" else rack for rack in where.split())
    cluster = Cluster({topic: len(each) for topic, each in replicas.items()}, replicas)
    group = [subscriber("A", replicas, rack=a), subscriber("B", replicas, rack=b)]
    assert Range().assign(cluster, group) == plan(expected)


@given(groups("range"))
def test_any_group(drawn: Drawn):
    plan = Range().assign(drawn.cluster, drawn.subscribers)
    check_every_partition_has_one_owner(drawn, plan)
    check_order_is_free(drawn, "range", plan)


@pytest.mark.parametrize("seed", range(50))
def test_racks_change_no_sizes(seed: int):
    """KIP-881: equal sizes come before equal racks."""
    drawn = draw(seed, "range", alike=False, racks=True)
    near = flat(Range().assign(drawn.cluster, drawn.subscribers))
    anyhow = flat(Range().assign(Cluster(drawn.cluster.partitions), drawn.subscribers))
    for topic, count in drawn.cluster.partitions.items():
        sizes, others = (
            [len([p for p in share if p[0] == topic]) for share in each.values()] for each in (near, anyhow)
        )
        assert sorted(sizes) == sorted(others), f"{topic} has {count} partitions"
