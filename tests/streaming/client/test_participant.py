"""Tests of a participant between a member and its owner, with failures on the owner's side."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import FencedInstanceIdError, KafkaError

from coordinator.assignors import Range, Subscriber
from coordinator.member.member import MemberState
from coordinator.member.owned_partitions import Change, ListenerCall
from coordinator.messages.requests import JoinGroup
from streaming.testing import InMemoryCoordinator
from tests.streaming.client.simulation import COOPERATIVE, EAGER, Faults, MeantToFail, Simulation, Worker, words

BOTH = pytest.mark.parametrize("strategies", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])


# -- listeners ---------------------------------------------------------------------------------------------------------


def interrupt(worker: Worker, what: ListenerCall) -> None:
    """Raise KeyboardInterrupt in one call of a worker's listener, once."""
    tell = worker.notify

    def interrupted(change: Change[TopicPartition]) -> None:
        if change.call is what:
            worker.notify = tell  # type: ignore[method-assign]
            worker.simulation.faults = Faults()
        tell(change)
        if change.call is what:
            raise KeyboardInterrupt

    worker.notify = interrupted  # type: ignore[method-assign]


def run_into_interrupt(s: Simulation, worker: Worker) -> None:
    with pytest.raises(KeyboardInterrupt):
        s.run(60_000)
    worker.calls.step_ended()


@BOTH
@pytest.mark.parametrize("what", [ListenerCall.ASSIGNED, ListenerCall.REVOKED], ids=lambda told: told.name.lower())
def test_a_member_stays_in_the_group_after_ctrl_c_in_a_listener(
    s: Simulation, strategies: tuple[str], what: ListenerCall
) -> None:
    """S121: this happens in a notebook. Revoked partitions are no longer owned, and the rebalance continues."""
    c1 = s.start("c1", strategies=strategies)
    s.settle()
    interrupt(c1, what)
    s.start("c2", strategies=strategies)
    run_into_interrupt(s, c1)
    s.settle(within_ms=3_000)


@BOTH
def test_ctrl_c_does_not_prevent_the_loss_of_partitions(s: Simulation, strategies: tuple[str]) -> None:
    c1 = s.start("c1", strategies=strategies, max_poll_interval_ms=5_000)
    s.settle()
    c1.is_polling = False
    s.run(6_000)
    interrupt(c1, ListenerCall.LOST)
    c1.is_polling = True
    run_into_interrupt(s, c1)
    assert not c1.owned
    s.settle(within_ms=3_000)


def test_ctrl_c_does_not_prevent_leaving(s: Simulation) -> None:
    c1 = s.start("c1")
    s.settle()
    interrupt(c1, ListenerCall.REVOKED)
    with pytest.raises(KeyboardInterrupt):
        c1.leave()
    assert not c1.owned
    assert c1.driver.member.state is MemberState.UNJOINED


def test_ctrl_c_is_raised_before_any_other_error(s: Simulation) -> None:
    """One step has two calls: the first one fails, the second one is interrupted."""
    c1 = s.start("c1", strategies=COOPERATIVE)
    s.settle()
    s.start("c2", strategies=COOPERATIVE)
    s.faults = ListenersFail()
    interrupt(c1, ListenerCall.ASSIGNED)
    run_into_interrupt(s, c1)
    assert c1.history[-2:] == ["revoked t2", "assigned nothing"]


class ListenersFail(Faults):
    def fails(self, what: str) -> bool:
        return what == "listener"


def test_an_error_of_a_listener_is_raised_after_leaving(s: Simulation) -> None:
    """Protocol.md 6.4: the member has left the group, and owns no partition."""
    c1 = s.start("c1")
    s.settle()
    s.faults = ListenersFail()
    c1.leave()
    (error,) = c1.raised
    assert isinstance(error.__cause__, MeantToFail)
    assert c1.driver.member.state is MemberState.UNJOINED
    s.turn()
    assert s.group is not None
    assert not s.group.members


def test_a_former_member_that_leaves_has_lost_its_partitions(s: Simulation) -> None:
    """Protocol.md 6.4: it did not poll for too long, and others may own its partitions, so it must not commit."""
    c1 = s.start("c1", max_poll_interval_ms=5_000)
    s.settle()
    c1.is_polling = False
    s.run(6_000)
    c1.leave()
    assert c1.history == ["assigned t0 t1 t2", "lost t0 t1 t2"]


def test_a_member_that_leaves_during_a_rebalance_has_lost_its_partitions(s: Simulation) -> None:
    """Protocol.md 6.4: the member does not know its next assignment."""
    c1 = s.start("c1", strategies=COOPERATIVE)
    s.settle()
    c1.driver.request_rejoin("for the test")
    c1.poll()
    assert c1.driver.member.state is MemberState.PREPARING_REBALANCE
    c1.leave()
    assert c1.history == ["assigned t0 t1 t2", "lost t0 t1 t2"]


def test_a_pending_join_from_before_leaving_is_not_sent(s: Simulation) -> None:
    """A listener failed when partitions were lost, so that the later effects were delayed.

    The owner then left and came back: it joins once, and is one member.
    """
    c1 = s.start("c1", max_poll_interval_ms=5_000)
    s.settle()
    c1.is_polling = False
    s.run(6_000)
    s.faults = ListenersFail()
    c1.poll()
    s.faults = Faults()
    c1.leave()
    s.forget()
    c1.come_back()
    c1.is_polling = True
    s.run(1_000)
    assert s.joins(c1) == 1
    assert s.is_at_rest


# -- assignors ---------------------------------------------------------------------------------------------------------


def test_under_sticky_revoked_partitions_come_back(s: Simulation) -> None:
    """Protocol.md 7.3: a member keeps its last assignment, and sends it to the next leader."""
    s.topics["t"] = 6
    workers = []
    for name in ("c2", "c1"):
        workers.append(s.start(name, strategies=["sticky"]))
        s.settle()
    before = [worker.owned for worker in workers]
    s.start("c0", strategies=["sticky"])
    s.settle()
    for had, worker in zip(before, workers, strict=True):
        assert len(worker.owned) == 2
        assert worker.owned < had


class FailsOnUserData(Range):
    """An assignor that fails once to return its user data for a subscription."""

    is_spent = False

    def user_data(self, owned: Any, generation_id: int) -> bytes | None:
        if not self.is_spent:
            self.is_spent = True
            raise MeantToFail
        return None


def test_an_assignor_that_fails_on_user_data_is_called_again(s: Simulation) -> None:
    """`poll` raises the error; the next poll joins, or raises again. The member must not stay out without an error."""
    c1 = s.start("c1", strategies=[FailsOnUserData()])
    with pytest.raises(MeantToFail):
        s.run(1_000)
    s.settle(within_ms=10_000)
    assert words(c1.owned) == "t0 t1 t2"


class FailsOnAssignment(RangePartitionAssignor):
    """An assignor for kafka-python that fails when it gets its assignment."""

    name = "cannot"

    def on_assignment(self, assignment: Any, generation: int) -> None:
        raise MeantToFail


def test_an_assignment_is_accepted_although_the_assignor_fails(s: Simulation) -> None:
    """Kafka's onJoinComplete also calls the listener, and raises the error after that; here it is logged."""
    c1 = s.start("c1", strategies=[FailsOnAssignment()])
    s.settle(within_ms=10_000)
    assert words(c1.owned) == "t0 t1 t2"


class AssignsUnsubscribed(Range):
    """An assignor that assigns a topic to members without a subscription to it, once."""

    is_spent = False

    def assign(self, cluster: Any, subscribers: Iterable[Subscriber]) -> Any:
        subscribers = list(subscribers)
        if self.is_spent:
            return super().assign(cluster, subscribers)
        self.is_spent = True
        return {s.member_id: {"u": [0]} for s in subscribers}


def test_an_assignment_of_an_unsubscribed_topic_is_refused(s: Simulation) -> None:
    """S99: the member rejoins with the reason, whichever assignor computed the assignment."""
    s.topics["u"] = 1
    c1 = s.start("c1", strategies=[AssignsUnsubscribed()])
    s.settle()
    reasons = [r.reason for r in c1.wire.sent if isinstance(r, JoinGroup)]
    assert reasons == ["subscribed", "the plan is for another subscription"]
    assert c1.history == ["assigned t0 t1 t2"]


# -- refusals of the coordinator ---------------------------------------------------------------------------------------


def test_a_refusal_is_raised_after_partitions_are_lost(s: Simulation) -> None:
    """KIP-345: every later poll raises it again, as the error is permanent."""
    c1 = s.start("c1", group_instance_id="i1")
    s.settle()
    s.start("c1 again", group_instance_id="i1")
    while c1.history[-1] != "fenced":
        s.turn()
    assert c1.history == ["assigned t0 t1 t2", "lost t0 t1 t2", "fenced"]
    s.inboxes[c1.wire.inbox] = c1
    for _ in range(3):
        with pytest.raises(FencedInstanceIdError):
            until(s, c1.participant.attend)


def until(s: Simulation, attend: Callable[[], None]) -> None:
    """Call `attend` until it raises."""
    for _ in range(50):
        attend()
        s.turn()
    raise AssertionError("it raised nothing")


def test_a_refused_session_timeout_is_raised(s: Simulation) -> None:
    """S38: the error has Kafka's name."""
    c1 = s.start("c1", session_timeout_ms=5_999)
    with pytest.raises(KafkaError, match="InvalidSessionTimeout"):
        s.run(1_000)
    assert c1.driver.member.state is MemberState.UNJOINED


# -- a consumer --------------------------------------------------------------------------------------------------------


def test_a_consumer_returns_no_records_between_revoke_and_assignment(group_coordinator: InMemoryCoordinator) -> None:
    """S124, W2: c1 reads while it is alone; after its revoke it reads nothing until it has its assignment."""
    group_coordinator.create_topic("t", 3)

    def poll() -> set[int]:
        """Return the partitions with records. Each partition has one more record at each poll."""
        for partition in range(3):
            group_coordinator.produce("t", b"a record", partition=partition)
        return {partition.partition for partition in c1.poll()}

    c1 = group_coordinator.consumer("t", client_id="c1", auto_offset_reset="earliest")
    group_coordinator.settle()
    assert poll() == {0, 1, 2}
    c2 = group_coordinator.consumer("t", client_id="c2")
    c2.poll()
    while poll():
        group_coordinator.advance(100)
    states = [c1.state]
    while not (read := poll()):
        states.append(c1.state)
        c2.poll()
        group_coordinator.advance(100)
    assert MemberState.PREPARING_REBALANCE in states
    assert read == {0, 1}
