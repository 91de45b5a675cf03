"""Tests of the coordinator in memory: each method that tests of users call, with real members of both protocols."""

import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import CommitFailedError, KafkaError, KafkaTimeoutError

from streaming.client import GroupConsumer, GroupMember
from streaming.client.config import MEMBER_DEFAULTS
from streaming.errors import BrokerUnreachable
from streaming.testing import InMemoryCoordinator, NotSettled
from streaming.testing import coordinator as module

CLASSIC: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky"]}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
both = pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Calls(ConsumerRebalanceListener):  # type: ignore[misc]
    """A listener that keeps its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._add("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._add("revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._add("lost", lost)

    def _add(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(" ".join([name, *(str(p.partition) for p in sorted(partitions))]))


@pytest.fixture
def topics(group_coordinator: InMemoryCoordinator) -> InMemoryCoordinator:
    group_coordinator.create_topic("orders", 2)
    return group_coordinator


# -- membership --------------------------------------------------------------------------------------------------------


@both
def test_members_join_leave_and_own_partitions(topics: InMemoryCoordinator, protocol: dict[str, Any]) -> None:
    c1 = topics.consumer("orders", client_id="c1", **protocol)
    topics.settle()
    assert c1.assignment() == {P0, P1}
    c2 = topics.consumer("orders", client_id="c2", **protocol)
    topics.settle()
    assert len(c1.assignment()) == len(c2.assignment()) == 1
    (kept,) = c1.assignment()
    topics.assert_owner("orders", kept.partition, c1)
    c1.close()
    topics.settle()
    topics.assert_owner("orders", 0, c2)
    topics.assert_owner("orders", 1, c2)


@both
def test_an_expired_member_owns_its_partitions_until_it_polls(
    topics: InMemoryCoordinator, protocol: dict[str, Any]
) -> None:
    listener = Calls()
    c1 = topics.consumer("orders", listener=listener, **protocol)
    c2 = topics.consumer("orders", **protocol)
    topics.settle()
    (mine,) = c1.assignment()
    topics.expire(c1)
    assert c1.assignment() == {mine}
    topics.assert_owner("orders", mine.partition, c2)
    assert "lost" not in " ".join(listener.calls)
    c1.poll()
    assert f"lost {mine.partition}" in listener.calls
    topics.settle()
    assert len(c1.assignment()) == 1


@both
def test_a_killed_member_keeps_its_partitions_until_its_session_ends(
    topics: InMemoryCoordinator, protocol: dict[str, Any]
) -> None:
    listener = Calls()
    c1 = topics.consumer("orders", listener=listener, **protocol)
    c2 = topics.consumer("orders", **protocol)
    topics.settle()
    (mine,) = c1.assignment()
    before = list(listener.calls)
    topics.kill(c1)
    topics.settle()
    topics.assert_owner("orders", mine.partition, c1)
    topics.expire(c1)
    topics.assert_owner("orders", mine.partition, c2)
    assert listener.calls == before, "a dead process calls nothing"


@both
def test_a_static_member_returns_without_a_rebalance(topics: InMemoryCoordinator, protocol: dict[str, Any]) -> None:
    c1 = topics.consumer("orders", group_instance_id="one", **protocol)
    c2 = topics.consumer("orders", group_instance_id="two", **protocol)
    topics.settle()
    mine, generation = c1.assignment(), c2.generation
    if protocol is CONSUMER:
        c1.close()  # with this protocol a static member says that it goes for a while
    else:
        topics.kill(c1)
    again = topics.consumer("orders", group_instance_id="one", **protocol)
    topics.settle()
    assert again.assignment() == mine
    topics.assert_owner("orders", next(iter(mine)).partition, again)
    assert c2.generation == generation


def test_a_member_that_does_not_poll_loses_its_resources(group_coordinator: InMemoryCoordinator) -> None:
    calls: list[str] = []
    member = group_coordinator.member(
        ["gate"],
        max_poll_interval_ms=60_000,
        on_lost=lambda names: calls.append(f"lost {sorted(names)}"),
    )
    group_coordinator.settle()
    group_coordinator.advance(59_000)
    member.poll()
    assert calls == []
    group_coordinator.advance(61_000)
    member.poll()
    assert calls == ["lost ['gate']"]


def test_heartbeats_go_on_while_time_passes(group_coordinator: InMemoryCoordinator) -> None:
    member = group_coordinator.member(["gate"])
    group_coordinator.settle()
    group_coordinator.advance(2 * MEMBER_DEFAULTS["session_timeout_ms"])
    group_coordinator.assert_owner("gate", 0, member)
    assert member.poll() == {"gate"}


def test_a_requested_rebalance_calls_an_eager_listener(topics: InMemoryCoordinator) -> None:
    listener = Calls()
    c1 = topics.consumer("orders", listener=listener, partition_assignment_strategy=["range"])
    topics.settle()
    generation = c1.generation
    topics.rebalance(c1)
    assert listener.calls == ["assigned 0 1", "revoked 0 1", "assigned 0 1"]
    assert c1.generation == generation + 1


def test_a_member_of_the_consumer_protocol_requests_no_rebalance(topics: InMemoryCoordinator) -> None:
    c1 = topics.consumer("orders", **CONSUMER)
    with pytest.raises(ValueError, match="requests no rebalance"):
        topics.rebalance(c1)


def test_a_member_that_the_code_under_test_makes_uses_the_coordinator_in_memory(
    group_coordinator: InMemoryCoordinator,
) -> None:
    with GroupMember(["gate"], group_id="group", bootstrap_servers="nowhere.invalid:9092") as member:
        assert member.wait_for_assignment(10.0) == {"gate"}
        other = GroupMember(["gate"], group_id="group")
        group_coordinator.poll_with(member)
        group_coordinator.poll_with(other)
        group_coordinator.settle()
        group_coordinator.assert_owner("gate", 0, member)


def test_an_error_of_a_callback_is_raised_by_settle(group_coordinator: InMemoryCoordinator) -> None:
    def fail(names: frozenset[str]) -> None:
        raise ZeroDivisionError

    group_coordinator.member(["gate"], on_assigned=fail)
    with pytest.raises(KafkaError) as raised:
        group_coordinator.settle()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


# -- records and offsets -----------------------------------------------------------------------------------------------


@both
def test_a_consumer_reads_commits_and_its_successor_reads_on(
    topics: InMemoryCoordinator, protocol: dict[str, Any]
) -> None:
    for number in range(4):
        topics.produce("orders", b"%d" % number)
    c1 = topics.consumer("orders", auto_offset_reset="earliest", enable_auto_commit=False, **protocol)
    topics.settle()
    assert [record.value for record in c1.poll(100, max_records=3)[P0]] == [b"0", b"1", b"2"]
    assert topics.committed("orders", 0) is None
    c1.commit()
    assert c1.committed(P0) == 3
    committed = topics.committed("orders", 0)
    assert committed is not None
    assert committed.offset == 3
    topics.kill(c1)
    topics.expire(c1)
    c2 = topics.consumer("orders", value_deserializer=int, **protocol)
    topics.settle()
    assert [record.value for record in c2.poll(100)[P0]] == [3]
    assert c2.position(P0) == 4
    c2.seek(P0, 1)
    assert next(c2).offset == 1


@both
def test_a_commit_of_an_expired_member_is_refused(topics: InMemoryCoordinator, protocol: dict[str, Any]) -> None:
    topics.produce("orders", b"a")
    c1 = topics.consumer("orders", auto_offset_reset="earliest", enable_auto_commit=False, **protocol)
    topics.settle()
    assert c1.poll(100)
    topics.expire(c1)
    with pytest.raises(CommitFailedError):
        c1.commit()
    assert topics.committed("orders", 0) is None


def test_a_wait_ends_at_its_timeout_without_real_time(topics: InMemoryCoordinator) -> None:
    c1 = topics.consumer("orders", auto_offset_reset="earliest")
    topics.settle()
    before_ms = topics.now_ms
    assert c1.poll(60_000) == {}
    assert topics.now_ms - before_ms == 60_000
    topics.is_available = False
    with pytest.raises(KafkaTimeoutError):
        c1.commit(timeout_ms=5_000)


# -- messages and bounds -----------------------------------------------------------------------------------------------


def test_assert_owner_names_the_owner_the_time_and_the_cause(group_coordinator: InMemoryCoordinator) -> None:
    with pytest.raises(AssertionError, match=r"gate-0 of the group group was never assigned to a member"):
        group_coordinator.assert_owner("gate", 0, group_coordinator.member(["gate"], client_id="first"))
    group_coordinator.settle()
    group_coordinator.advance(5_000)
    second = group_coordinator.member(["gate"], client_id="second")
    group_coordinator.settle()
    with pytest.raises(
        AssertionError,
        match=r"is owned by <GroupMember first-\S+ in group, STABLE> since [0-9.]+ s after the start of the test,"
        r" generation \d, because of .*, and not by <GroupMember second-",
    ):
        group_coordinator.assert_owner("gate", 0, second)


def test_assert_owner_names_a_partition_without_an_owner(group_coordinator: InMemoryCoordinator) -> None:
    member = group_coordinator.member(["gate"])
    group_coordinator.settle()
    member.leave()
    with pytest.raises(AssertionError, match="gate-0 of the group group has no owner since"):
        group_coordinator.assert_owner("gate", 0, member)


def test_a_test_that_cannot_settle_fails(
    group_coordinator: InMemoryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROUNDS_MAX", 100)
    monkeypatch.setattr(module, "WAITS_MAX", 100)
    group_coordinator.is_available = False
    member = group_coordinator.member(["gate"])
    with pytest.raises(NotSettled, match="100 turns were not enough for the group to settle"):
        group_coordinator.settle()
    with pytest.raises(NotSettled, match="A member waited for 100 turns"):
        member.wait_for_assignment()


def test_a_member_that_has_not_joined_cannot_expire(group_coordinator: InMemoryCoordinator) -> None:
    with pytest.raises(ValueError, match="is not a member of the group"):
        group_coordinator.expire(group_coordinator.member(["gate"]))


def test_a_record_needs_its_partition(group_coordinator: InMemoryCoordinator) -> None:
    with pytest.raises(ValueError, match="'orders' has no partition 0"):
        group_coordinator.produce("orders", b"")


def test_new_partitions_are_assigned(topics: InMemoryCoordinator) -> None:
    c1 = topics.consumer("orders")
    topics.settle()
    topics.create_topic("orders", 3)
    topics.settle()
    topics.assert_owner("orders", 2, c1)
    with pytest.raises(ValueError, match="has 3 partitions already"):
        topics.create_topic("orders", 3)


def test_consumers_are_real_again_after_the_block() -> None:
    with InMemoryCoordinator():
        pass
    with pytest.raises(BrokerUnreachable):
        GroupConsumer(group_id="g", bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100)


def test_the_plugin_imports_little() -> None:
    """Pytest imports the plugin at each start. The first use imports the client, but not Spark, pandas or Arrow."""
    code = (
        "import sys, streaming.testing.plugin; print({'kafka', 'msgspec'} & {*sys.modules});"
        "from streaming.testing import InMemoryCoordinator; print({'pyspark', 'pandas', 'pyarrow'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()", "set()"]
