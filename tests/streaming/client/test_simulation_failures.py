"""Tests of groups in which leaders and listeners fail, and static members restart."""

from collections.abc import Iterable

import pytest
from kafka.errors import KafkaError

from coordinator.assignors import Cluster, Plan, Range, Subscriber
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import LeaveGroup, SyncGroup
from tests.streaming.client.simulation import COOPERATIVE, Faults, MeantToFail, Simulation, words
from tests.streaming.client.test_simulation import reasons

# -- leaders that fail -------------------------------------------------------------------------------------------------


class FailsOnce(Range):
    """One of our assignors, which fails once."""

    def __init__(self) -> None:
        self.is_spent = False

    def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
        if not self.is_spent:
            self.is_spent = True
            raise MeantToFail
        return super().assign(cluster, list(subscribers))


def test_a_leader_whose_assignor_raises_computes_again(s: Simulation) -> None:
    """The poll in which the assignor fails raises the error; the group waits no longer than a backoff."""
    c1 = s.start("c1", strategies=[FailsOnce()])
    s.settle(within_ms=3_000)
    (error,) = c1.raised
    assert isinstance(error, KafkaError)
    assert isinstance(error.__cause__, MeantToFail)
    assert s.generation_id == 1
    assert c1.history == ["assigned t0 t1 t2"]
    assert reasons(c1) == ["subscribed", "subscribed"]


class FirstLookUpFails(Faults):
    is_spent = False

    def fails(self, what: str) -> bool:
        is_first, self.is_spent = what == "look-up" and not self.is_spent, self.is_spent or what == "look-up"
        return is_first


def test_a_look_up_that_times_out_is_repeated_without_an_error(s: Simulation) -> None:
    """The brokers are unreachable for a short time, and the owner gets no error."""
    s.faults = FirstLookUpFails()
    c1 = s.start("c1")
    s.settle(within_ms=3_000)
    assert s.faults.is_spent
    assert c1.raised == []
    assert s.generation_id == 1
    assert s.joins(c1) == 2


def test_assignments_of_an_ended_generation_are_not_sent(s: Simulation) -> None:
    """S92, W6: c1 does not send assignments of an ended generation, as its owner did not poll for too long."""
    c1 = s.start("c1", max_poll_interval_ms=5_000)
    s.turn()
    c1.is_polling = False
    s.run(6_000)
    s.start("c2")
    s.run(1_000)
    c1.is_polling = True
    s.settle()
    plans = [r.generation_id for r in c1.wire.sent if isinstance(r, SyncGroup) and r.assignments]
    assert plans == []
    assert s.histories() == {"c1": ["assigned t0 t1"], "c2": ["assigned t0 t1 t2", "revoked t0 t1 t2", "assigned t2"]}


# -- listeners that raise ----------------------------------------------------------------------------------------------


class ListenersFail(Faults):
    def fails(self, what: str) -> bool:
        return what == "listener"


@pytest.mark.parametrize("strategies", [("range",), COOPERATIVE])
def test_a_listener_that_raises_does_not_stop_a_rebalance(s: Simulation, strategies: tuple[str]) -> None:
    """Protocol.md 6.5: the error is raised after the step is complete, and the owned partitions equal the assignment.

    If a step has two calls, revoked and assigned under cooperative, the first error is raised.
    """
    s.faults = ListenersFail()
    c1 = s.start("c1", strategies=strategies)
    s.settle()
    s.start("c2", strategies=strategies)
    s.settle()
    assert [str(error) for error in c1.raised] == [
        f"KafkaError: User rebalance callback on_partitions_{kind} throws an error"
        for kind in ("assigned", "revoked", "assigned")
    ]


# -- static members ----------------------------------------------------------------------------------------------------


def test_a_restarted_static_member_gets_its_partitions_back_without_a_rebalance(s: Simulation) -> None:
    """KIP-345: within its session, with the same subscription, it causes no rebalance; it sends no LeaveGroup."""
    c1, c2 = s.start("c1", group_instance_id="i1"), s.start("c2", group_instance_id="i2")
    s.settle()
    s.forget()
    c2.leave()
    assert c2.wire.sent == []
    s.kill(c2)
    again = s.start("c2 again", group_instance_id="i2")
    s.settle()
    assert s.causes() == []
    assert (c1.history, again.history) == ([], ["assigned t2"])


def test_a_replaced_process_is_fenced(s: Simulation) -> None:
    """KIP-345: it has lost its partitions; its listener is called before its poll raises."""
    c1, c2 = s.start("c1", group_instance_id="i1"), s.start("c2")
    s.settle()
    s.forget()
    s.start("c1 again", group_instance_id="i1")
    s.settle()
    assert c1.history == ["lost t0 t1", "fenced"]
    assert c2.history == []


def test_a_returned_static_leader_notices_new_partitions_with_the_next_change(s: Simulation) -> None:
    """KIP-814: the assignments stay, and a leader that did not compute them cannot know the number of partitions then.

    Kafka's leader does the same: `assignmentSnapshot = metadataSnapshot`, if the coordinator tells it to skip.
    """
    c1 = s.start("c1", group_instance_id="i1")
    s.settle()
    s.kill(c1)
    s.topics["t"] = 4
    again = s.start("c1 again", group_instance_id="i1")
    s.run(5_000)
    assert (s.generation_id, words(again.owned)) == (1, "t0 t1 t2")
    s.topics["t"] = 5
    s.settle(within_ms=2_500)
    assert words(again.owned) == "t0 t1 t2 t3 t4"


def test_an_owner_that_does_not_poll_loses_its_partitions_and_rejoins(s: Simulation) -> None:
    """W24, S127: the member sends a LeaveGroup, and its heartbeats stop; its next poll joins again."""
    c1, c2 = s.start("c1"), s.start("c2", max_poll_interval_ms=5_000)
    s.settle()
    s.forget()
    c2.is_polling = False
    s.run(10_000)
    assert words(c1.owned) == "t0 t1 t2"
    assert isinstance(c2.wire.sent[-1], LeaveGroup)
    assert 1 <= len([r for r in c2.wire.sent if isinstance(r, Heartbeat)]) <= 2
    c2.is_polling = True
    s.settle()
    assert c2.history == ["lost t2", "assigned t2"]
