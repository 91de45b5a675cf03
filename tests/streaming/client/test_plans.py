"""Tests of a member's assignors, and of subscriptions and assignments as bytes of Kafka's ConsumerProtocol."""

import logging
from collections.abc import Iterable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.abstract import RebalanceProtocol as TheirRebalanceProtocol
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaConfigurationError, KafkaError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from coordinator.assignors import ASSIGNORS, Assignor, Cluster, Plan, Range, RebalanceProtocol, Subscriber
from coordinator.base.consumer_protocol import (
    Subscription,
    assigned_partitions,
    read_subscription,
    write_assignment,
    write_subscription,
)
from coordinator.messages.responses import JoinedMember
from streaming.client.plans import effective_protocol, make_plan, offer, read_assignment, resolve
from streaming.client.strategies import LastAssignment, Strategy

TOPICS = {"t": range(3), "u": range(2)}
KAFKA_PYTHONS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def partitions_of(topic: str) -> set[int] | None:
    """Return a topic's partitions as kafka-python's consumer does."""
    return set(TOPICS[topic]) if topic in TOPICS else None


def owned(*words: str) -> list[TopicPartition]:
    return [TopicPartition(word[0], int(word[1:])) for word in words]


class Everything(Assignor):
    """An assignor of our kind that assigns every partition to the first member."""

    name = "everything"

    def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
        first, *others = sorted(s.member_id for s in subscribers)
        return {first: {topic: list(range(n)) for topic, n in cluster.partitions.items()}, **{m: {} for m in others}}


class Backwards(AbstractPartitionAssignor):
    """An assignor for kafka-python that assigns every partition to the last member, and keeps its own assignments."""

    name = "backwards"

    def __init__(self) -> None:
        self.assignments: list[tuple[list[TopicPartition], int]] = []

    def supported_protocols(self) -> list[TheirRebalanceProtocol]:
        return [TheirRebalanceProtocol.COOPERATIVE, TheirRebalanceProtocol.EAGER]

    def metadata(self, topics: Iterable[str]) -> Any:
        return ConsumerProtocolSubscription(1, list(topics), f"{len(self.assignments)} plans".encode(), [])

    def assign(self, cluster: Any, members: list[Any]) -> dict[str, Any]:
        last = max(members, key=lambda m: m.member_id)
        topics = sorted(cluster.topics() & set(last.metadata.topics))
        parts = [(topic, sorted(cluster.partitions_for_topic(topic))) for topic in topics]
        user_data = b", ".join(m.metadata.user_data for m in members)
        return {m.member_id: ConsumerProtocolAssignment(1, parts if m is last else [], user_data) for m in members}

    def on_assignment(self, assignment: Any, generation: int) -> None:
        self.assignments.append((assignment.partitions(), generation))


class Unmakeable(Backwards):
    def __init__(self, needed: int) -> None:
        self.needed = needed


def joined(strategy: Strategy, **topics: str) -> list[JoinedMember]:
    return [JoinedMember(m, None, offer([strategy], each.split())[0].metadata) for m, each in topics.items()]


def assignments_by_member(
    strategy: Strategy, members: list[JoinedMember], **more: Any
) -> dict[str, dict[str, list[int]] | None]:
    return {p.member_id: assigned_partitions(p.assignment) for p in make_plan(strategy, members, partitions_of, **more)}


# -- the configuration -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ASSIGNORS)
def test_kafka_pythons_assignors_resolve_to_ours(name: str) -> None:
    """S134: an assignor may be given by name, class or instance."""
    for each in name, KAFKA_PYTHONS[name], KAFKA_PYTHONS[name](), ASSIGNORS[name], ASSIGNORS[name]():
        (strategy,) = resolve([each])
        assert strategy.name == name
        assert strategy.supported_protocols == set(ASSIGNORS[name].supported_protocols)


def test_custom_assignors_keep_their_order() -> None:
    """S134: an assignor may be of either kind, a class or an instance; a subclass of kafka-python's stays itself."""

    class Named(RangePartitionAssignor):
        name = "named"

    mine = Backwards()
    strategies = resolve([f"{__name__}.Everything", mine, Named, Range])
    assert [s.name for s in strategies] == ["everything", "backwards", "named", "range"]
    read_assignment(strategies[1], write_assignment({"t": [0]}), 3)
    assert mine.assignments == [(owned("t0"), 3)]


REFUSED = {
    "unknown": (["rnage"], "'rnage' is not an assignor of range, roundrobin, sticky, cooperative-sticky"),
    "no such module": (["no.such.Assignor"], "'no.such.Assignor' cannot be imported: No module named 'no'"),
    "not in the module": ([f"{__name__}.Nobody"], "cannot be imported"),
    "imported, and no assignor": (["logging.Logger"], "'logging.Logger' is not an assignor"),
    "no assignor": ([dict], "is not an assignor"),
    "no class": ([7], "7 is not an assignor"),
    "abstract": ([AbstractPartitionAssignor], "cannot be made"),
    "needs more": ([Unmakeable], "cannot be made: .*needed"),
    "none": ([], "at least one assignor is needed"),
    "text": ("range", "'range' is a string; a list of assignors is needed"),
    "twice": (["range", RangePartitionAssignor], "two assignors have one name among range, range"),
}


@pytest.mark.parametrize(("strategy", "why"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_assignor_is_refused(strategy: Any, why: str) -> None:
    """S134: the error names the invalid assignor."""
    with pytest.raises(KafkaConfigurationError, match=why):
        resolve(strategy)


def test_assignors_without_a_common_protocol_are_refused() -> None:
    """KIP-429: without a common protocol the vote would decide whether a member still owns its partitions."""

    class CooperativeOnly(Everything):
        supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    with pytest.raises(KafkaConfigurationError, match=r"in common \(range: EAGER; everything: COOPERATIVE\)"):
        resolve(["range", CooperativeOnly])


def test_the_default_protocol_is_eager_until_range_is_removed() -> None:
    """S134: two rolling restarts change a group from one protocol to the other."""
    assert effective_protocol(resolve(["range", "cooperative-sticky"])) is RebalanceProtocol.EAGER
    assert effective_protocol(resolve(["cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE
    assert effective_protocol(resolve([Backwards, "cooperative-sticky"])) is RebalanceProtocol.COOPERATIVE


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_a_subscription_has_the_same_bytes_in_any_order() -> None:
    """Protocol.md 7.6: other bytes would look like a changed subscription at each join."""
    strategies = resolve(["cooperative-sticky"])
    one = offer(strategies, ["foo", "bar"], owned=owned("t1", "t0"), generation_id=5)
    assert one == offer(strategies, {"bar", "foo"}, owned=owned("t0", "t1"), generation_id=5)
    assert read_subscription(one[0].metadata).topics == ("bar", "foo")


def test_under_cooperative_the_subscription_has_the_owned_partitions() -> None:
    """Protocol.md 6.5, 7.6: it also has the generation and the member's rack."""
    strategies = resolve(["cooperative-sticky"])
    (offered,) = offer(strategies, ["t"], owned=owned("t0", "t2"), generation_id=5, rack_id="r")
    assert offered.name == "cooperative-sticky"
    assert read_subscription(offered.metadata) == Subscription(("t",), b"\xff\xff\xff\xff", {"t": [0, 2]}, 5, "r")
    assert read_subscription(offer(strategies, ["t"], rack_id="")[0].metadata).rack_id is None


def test_under_eager_only_sticky_sends_the_last_assignment() -> None:
    """Protocol.md 6.5, 7.3: its user data has the member's last assignment and its generation."""
    strategies = resolve(["range", "sticky", "cooperative-sticky"])
    told = {"sticky": LastAssignment(owned("t1", "t0"), 1)}
    offered = offer(strategies, ["t"], owned=owned("u0"), generation_id=9, last=told)
    subscriptions = {p.name: read_subscription(p.metadata) for p in offered}
    assert all((s.owned, s.generation_id) == ({}, 9) for s in subscriptions.values())
    assert subscriptions["range"].user_data is None
    assert subscriptions["sticky"].user_data == bytes.fromhex("00000001 000174 00000002 00000000 00000001 00000001")
    assert subscriptions["cooperative-sticky"].user_data == b"\xff\xff\xff\xff", "it has no assignment yet"


def test_an_assignor_for_kafka_python_sends_its_own_user_data() -> None:
    (strategy,) = resolve([Backwards])
    read_assignment(strategy, write_assignment({"t": [0]}), 1)
    (offered,) = offer([strategy], {"u", "t"}, owned=owned("t0"), generation_id=1)
    assert read_subscription(offered.metadata) == Subscription(("t", "u"), b"1 plans")


# -- assignments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ASSIGNORS)
def test_equal_subscriptions_get_even_assignments(name: str) -> None:
    (strategy,) = resolve([name])
    plan = assignments_by_member(strategy, joined(strategy, ana="t u", bo="t u"))
    assert sorted(sum(map(len, (share or {}).values())) for share in plan.values()) == [2, 3]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_partition_is_assigned_to_one_subscriber(name: str) -> None:
    """This includes `roundrobin`, which fails in kafka-python 3.0.12 if subscriptions differ."""
    (strategy,) = resolve([KAFKA_PYTHONS[name]])
    plan = assignments_by_member(strategy, joined(strategy, ana="t u", bo="t", cy="nowhere"))
    given = [(topic, n) for share in plan.values() for topic, numbers in (share or {}).items() for n in numbers]
    assert sorted(given) == [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)]
    assert "u" not in (plan["bo"] or {})
    assert plan["cy"] == {}, "a member without partitions has an assignment, too"


def test_the_rounds_of_a_cooperative_rebalance() -> None:
    """S133: each round uses only the bytes of the round before."""
    (strategy,) = resolve(["cooperative-sticky"])
    ana, *bo = joined(strategy, ana="t", bo="t")
    had: dict[str, list[TopicPartition]] = {}
    for generation_id, members, t in [
        (1, [ana], {"ana": 3}),
        (2, bo, {"ana": 2, "bo": 0}),
        (3, [], {"ana": 2, "bo": 1}),
    ]:
        again = [
            JoinedMember(m, None, offer([strategy], ["t"], owned=p, generation_id=generation_id - 1)[0].metadata)
            for m, p in had.items()
        ]
        plan = make_plan(strategy, [*again, *members], partitions_of)
        had = {p.member_id: read_assignment(strategy, p.assignment, generation_id) for p in plan}
        assert {m: len(p) for m, p in had.items()} == t
        assert set(owned("t0", "t1")) <= set(had["ana"])


def test_racks_are_looked_up_only_if_a_member_has_one() -> None:
    """S130, KIP-881: racks decide the assignment, and are looked up only if a member has a rack."""
    (strategy,) = resolve(["range"])
    looked_up = []

    def racks_of(topic: str) -> list[frozenset[str]]:
        looked_up.append(topic)
        return [frozenset("b"), frozenset("a")]

    members = [JoinedMember(m, None, offer([strategy], ["u"])[0].metadata) for m in ("ana", "bo")]
    assert assignments_by_member(strategy, members, racks_of=racks_of) == {"ana": {"u": [0]}, "bo": {"u": [1]}}
    assert not looked_up
    members = [JoinedMember(m, None, offer([strategy], ["u"], rack_id=rack)[0].metadata) for m, rack in ("aa", "bb")]
    assert assignments_by_member(strategy, members, racks_of=racks_of) == {"a": {"u": [1]}, "b": {"u": [0]}}


def test_an_assignor_for_kafka_python_computes_assignments() -> None:
    """The assignor gets all user data of the members, and the members get its user data."""
    (strategy,) = resolve([Backwards])
    members = [
        *joined(strategy, ana="t"),
        JoinedMember("bo", None, write_subscription(Subscription(("t", "no"), b"hi"))),
    ]
    plan = {p.member_id: p.assignment for p in make_plan(strategy, members, partitions_of)}
    assert ConsumerProtocolAssignment.decode(plan["ana"]).user_data == b"0 plans, hi"
    assert read_assignment(strategy, plan["ana"], 1) == []
    assert read_assignment(strategy, plan["bo"], 1) == owned("t0", "t1", "t2")


@pytest.mark.parametrize("assignor", ["range", Backwards])
def test_a_member_with_an_unreadable_subscription_gets_no_partitions(
    assignor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One member's unreadable bytes must not leave the group without assignments."""
    (strategy,) = resolve([assignor])
    members = [*joined(strategy, ana="t"), JoinedMember("zoe", None, b"\x00\x03\x00")]
    with caplog.at_level(logging.WARNING):
        assert assignments_by_member(strategy, members) == {"ana": {"t": [0, 1, 2]}, "zoe": {}}
    assert "'zoe' gets no partitions" in caplog.text


def test_an_assignor_that_fails_is_named() -> None:
    class Failing(Everything):
        name = "failing"

        def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
            raise ZeroDivisionError

    (strategy,) = resolve([Failing])
    with pytest.raises(KafkaError, match="The assignor failing throws an error") as failed:
        make_plan(strategy, joined(strategy, ana="t"), partitions_of)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("assignor", ["range", Backwards])
def test_an_assignment_is_read_in_any_of_kafkas_versions(assignor: Any) -> None:
    (strategy,) = resolve([assignor])
    for version in range(4):
        assert read_assignment(strategy, write_assignment({"t": [1, 0]}, None, version), 1) == owned("t0", "t1")
    assert read_assignment(strategy, b"", 1) == []
    with pytest.raises(KafkaError, match="cannot be read"):
        read_assignment(strategy, b"\x00\x03\x00", 1)
