"""Subscriptions and plans as bytes: those of Kafka's ConsumerProtocol, which our coordinator reads as well."""

import pytest
from kafka import TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError

from coordinator.consumer_protocol import assigned_partitions, subscribed_topics
from coordinator.outputs import JoinedMember
from streaming.client.plans import make_plan, protocols, read_assignment

TOPICS = {"t": range(3), "u": range(2)}


def partitions_of(topic: str) -> range:
    return TOPICS.get(topic, range(0))


def members(assignor: object, **subscriptions: list[str]) -> list[JoinedMember]:
    return [
        JoinedMember(member_id, None, protocols([assignor], topics)[0].metadata)
        for member_id, topics in subscriptions.items()
    ]


def test_a_subscription_is_the_same_bytes_in_whatever_order_its_topics_come() -> None:
    """Protocol.md 7.6, version 0; else a member would seem to change its subscription with each join."""
    (one,) = protocols([RangePartitionAssignor()], {"foo", "bar"})
    assert one.name == "range"
    assert one.metadata == bytes.fromhex("0000 00000002 0003626172 0003666f6f 00000000".replace(" ", ""))
    assert subscribed_topics(one.metadata) == ["bar", "foo"]


@pytest.mark.parametrize("kind", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor])
def test_equal_subscriptions_share_evenly(kind: type) -> None:
    assignor = kind()
    plan = make_plan(assignor, members(assignor, ana=["t", "u"], bo=["t", "u"]), partitions_of)
    sizes = [sum(map(len, (assigned_partitions(part.assignment) or {}).values())) for part in plan]
    assert sorted(sizes) == [2, 3]


@pytest.mark.parametrize("kind", [RangePartitionAssignor, StickyPartitionAssignor])
def test_a_plan_gives_each_partition_to_one_subscriber(kind: type) -> None:
    assignor = kind()
    plan = make_plan(assignor, members(assignor, ana=["t", "u"], bo=["t"], cy=["nowhere"]), partitions_of)
    shares = {part.member_id: assigned_partitions(part.assignment) or {} for part in plan}
    owned = [(topic, p) for share in shares.values() for topic, ps in share.items() for p in ps]
    assert sorted(owned) == [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)]
    assert "u" not in shares["bo"]
    assert not any(shares["cy"].values()), "everybody is in the plan, also with nothing"


def test_range_is_kafkas() -> None:
    """Protocol.md 7.1: t0:3 t1:3 for two."""
    assignor = RangePartitionAssignor()
    plan = make_plan(assignor, members(assignor, ana=["t", "u"], bo=["t", "u"]), partitions_of)
    assert {p.member_id: assigned_partitions(p.assignment) for p in plan} == {
        "ana": {"t": [0, 1], "u": [0]}, "bo": {"t": [2], "u": [1]},
    }  # fmt: skip


def test_an_assignment_is_read_in_any_of_kafkas_versions() -> None:
    v3 = bytes.fromhex("0003 00000001 0003666f6f 00000002 00000000 00000001 ffffffff".replace(" ", ""))
    for version in range(4):
        data = version.to_bytes(2, "big") + v3[2:]
        assert read_assignment(RangePartitionAssignor(), data, 1) == [TopicPartition("foo", p) for p in (0, 1)]
    assert read_assignment(RangePartitionAssignor(), b"", 1) == []


def test_an_assignor_that_fails_is_named() -> None:
    """kafka-python 3.0.12's roundrobin does, where subscriptions differ."""
    assignor = RoundRobinPartitionAssignor()
    with pytest.raises(KafkaError, match="The assignor roundrobin throws an error"):
        make_plan(assignor, members(assignor, ana=["t", "u"], bo=["t"]), partitions_of)
