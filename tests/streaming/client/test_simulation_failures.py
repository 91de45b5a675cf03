"""A group of participants whose leaders and listeners fail, and static members that restart."""

from collections.abc import Iterable

import pytest
from kafka.errors import KafkaError

from coordinator.assignors import Cluster, Plan, Range, Subscriber
from coordinator.requests import Heartbeat, LeaveGroup, SyncGroup
from tests.streaming.client.simulation import COOPERATIVE, Fate, MeantToFail, Simulation, words
from tests.streaming.client.test_simulation import reasons

# -- leaders in trouble ------------------------------------------------------------------------------------------------


class FailsOnce(Range):
    """Ours, and it fails once."""

    def __init__(self) -> None:
        self.is_spent = False

    def assign(self, cluster: Cluster, subscribers: Iterable[Subscriber]) -> Plan:
        if not self.is_spent:
            self.is_spent = True
            raise MeantToFail
        return super().assign(cluster, list(subscribers))


def test_a_leader_whose_assignor_raises_is_asked_again(s: Simulation) -> None:
    """Its owner knows, from the poll in which it happened; the group waits no longer than a backoff."""
    c1 = s.start("c1", strategies=[FailsOnce()])
    s.settle(within_ms=3_000)
    (error,) = c1.raised
    assert isinstance(error, KafkaError)
    assert isinstance(error.__cause__, MeantToFail)
    assert s.generation_id == 1
    assert c1.story == ["assigned t0 t1 t2"]
    assert reasons(c1) == ["subscribed", "subscribed"]


class FirstLookUpFails(Fate):
    is_spent = False

    def fails(self, what: str) -> bool:
        is_first, self.is_spent = what == "look-up" and not self.is_spent, self.is_spent or what == "look-up"
        return is_first


def test_a_look_up_that_takes_too_long_is_done_again_and_raises_nothing(s: Simulation) -> None:
    """The brokers are away for a moment: that is nothing to trouble an owner with."""
    s.fate = FirstLookUpFails()
    c1 = s.start("c1")
    s.settle(within_ms=3_000)
    assert s.fate.is_spent
    assert c1.raised == []
    assert s.generation_id == 1
    assert s.joins(c1) == 2


def test_a_plan_that_is_overtaken_is_void(s: Simulation) -> None:
    """S92, W6: c1 plans for a generation that has ended meanwhile, as its owner was away for too long."""
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
    assert s.stories() == {"c1": ["assigned t0 t1"], "c2": ["assigned t0 t1 t2", "revoked t0 t1 t2", "assigned t2"]}


# -- listeners that raise ----------------------------------------------------------------------------------------------


class ListenersFail(Fate):
    def fails(self, what: str) -> bool:
        return what == "listener"


@pytest.mark.parametrize("strategies", [("range",), COOPERATIVE])
def test_a_listener_that_raises_stops_no_round(s: Simulation, strategies: tuple[str]) -> None:
    """Protocol.md 6.5: its owner knows, after what had to be done has been done; what it owns is what the plan says.
    Of two calls in one step, revoked and assigned under cooperative, the first one's error is raised."""
    s.fate = ListenersFail()
    c1 = s.start("c1", strategies=strategies)
    s.settle()
    s.start("c2", strategies=strategies)
    s.settle()
    assert [str(error) for error in c1.raised] == [
        f"KafkaError: User rebalance callback on_partitions_{told} throws an error"
        for told in ("assigned", "revoked", "assigned")
    ]


# -- static members ----------------------------------------------------------------------------------------------------


def test_a_static_member_that_restarts_has_its_partitions_back_and_nobody_else_notices(s: Simulation) -> None:
    """KIP-345: within its session, with the same subscription, there is no rebalance; it has sent no LeaveGroup."""
    c1, c2 = s.start("c1", group_instance_id="i1"), s.start("c2", group_instance_id="i2")
    s.settle()
    s.forget()
    c2.leave()
    assert c2.wire.sent == []
    s.kill(c2)
    again = s.start("c2 again", group_instance_id="i2")
    s.settle()
    assert s.causes() == []
    assert (c1.story, again.story) == ([], ["assigned t2"])


def test_the_process_that_was_replaced_is_fenced(s: Simulation) -> None:
    """KIP-345: it has lost what it owned, which it is told before its poll raises."""
    c1, c2 = s.start("c1", group_instance_id="i1"), s.start("c2")
    s.settle()
    s.forget()
    s.start("c1 again", group_instance_id="i1")
    s.settle()
    assert c1.story == ["lost t0 t1", "fenced"]
    assert c2.story == []


def test_what_grew_while_a_static_leader_was_away_is_seen_with_the_next_change(s: Simulation) -> None:
    """KIP-814: the plan stands, and a leader that did not make it cannot know for how many partitions it was made.
    Kafka's leader does the same: `assignmentSnapshot = metadataSnapshot`, when the coordinator says to skip."""
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


def test_an_owner_that_does_not_poll_loses_what_it_has_and_comes_back(s: Simulation) -> None:
    """W24, S127: it leaves by itself, and says so; heartbeats stop; its next poll joins again."""
    c1, c2 = s.start("c1"), s.start("c2", max_poll_interval_ms=5_000)
    s.settle()
    s.forget()
    c2.is_polling = False
    s.run(10_000)
    assert words(c1.owned) == "t0 t1 t2"
    assert isinstance(c2.wire.sent[-1], LeaveGroup)
    assert len([r for r in c2.wire.sent if isinstance(r, Heartbeat)]) == 1
    c2.is_polling = True
    s.settle()
    assert c2.story == ["lost t2", "assigned t2"]
