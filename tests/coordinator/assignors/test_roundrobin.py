"""`roundrobin`: the partitions of all topics in one sequence (protocol.md 7.2)."""

import pytest
from hypothesis import given

from coordinator.assignors import Cluster, RoundRobin
from tests.coordinator.assignors.groups import (
    Drawn,
    check_every_partition_has_one_owner,
    check_order_is_free,
    groups,
    plan,
    subscriber,
    subscribers,
)

EXAMPLES = {
    "ten for three": (
        {"t": 10}, "C1 t; C2 t; C3 t",
        "C1 t-0 t-3 t-6 t-9; C2 t-1 t-4 t-7; C3 t-2 t-5 t-8",
    ),
    "one topic after the other": (
        {"t0": 3, "t1": 3}, "C0 t0 t1; C1 t0 t1",
        "C0 t0-0 t0-2 t1-1; C1 t0-1 t1-0 t1-2",
    ),
    "the more topics, the more partitions": (
        {"t0": 1, "t1": 2, "t2": 3}, "C0 t0; C1 t0 t1; C2 t0 t1 t2",
        "C0 t0-0; C1 t1-0; C2 t1-1 t2-0 t2-1 t2-2",
    ),
    "who does not subscribe is passed over": (
        {"t1": 3, "t2": 2}, "C1 t1; C2 t1 t2; C3 t1",
        "C1 t1-0; C2 t1-1 t2-0 t2-1; C3 t1-2",
    ),
    "a topic that is not there": ({"t": 1}, "C0 t nowhere; C1 nowhere", "C0 t-0; C1"),
}  # fmt: skip


@pytest.mark.parametrize(("partitions", "topics", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples(partitions: dict[str, int], topics: str, expected: str):
    """S131: the assignments are those of the examples."""
    assert RoundRobin().assign(Cluster(partitions), subscribers("roundrobin", topics)) == plan(expected)


def test_static_members_come_first_by_instance_id():
    """S131; KIP-345: static members come first, in the order of their instance ids."""
    group = [subscriber("C3", "t", instance="i1"), subscriber("C1", "t"), subscriber("C2", "t", instance="i0")]
    assert RoundRobin().assign(Cluster({"t": 4}), group) == plan("C3 t-1; C1 t-2; C2 t-0 t-3")


@given(groups("roundrobin"))
def test_any_group(drawn: Drawn):
    plan = RoundRobin().assign(drawn.cluster, drawn.subscribers)
    check_every_partition_has_one_owner(drawn, plan)
    check_order_is_free(drawn, "roundrobin", plan)
