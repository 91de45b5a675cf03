"""The records that a `GroupConsumer` reads while its group rebalances, and the causes of rebalances."""

import pytest
from kafka import (
    TopicPartition,
)
from kafka.errors import (
    KafkaError,
)

from coordinator.member.member import MemberState
from coordinator.messages.group_records import GroupRecord
from tests.system.reading import Reader
from tests.system.staging import Listener, MakeStage, calls, numbers, read

pytestmark = pytest.mark.long

COOPERATIVE = ["cooperative-sticky"]


def test_eager_member_reads_nothing_during_a_rebalance(stage: MakeStage) -> None:
    """S124: records that are produced during the rebalance are read after the assignment."""
    s = stage(1)
    listener = Listener()
    ana = s.consumer(client_id="ana", listener=listener)
    s.until(lambda: s.is_shared_out([0]))
    s.produce(b"Z")
    assert read(ana, 1) == [b"Z"]
    ana.commit()
    bo = s.consumer(client_id="bo")
    s.until(lambda: s.is_shared_out([0], []))
    s.consumer(client_id="cy")
    s.consumers.remove(bo)  # the rebalance waits for bo now
    s.until(lambda: listener.calls[-1] == ("revoked", [0]))
    s.until(lambda: s.asker.describe().awaited == (bo.member_id,))
    s.read.clear()
    s.produce(b"meanwhile")
    assert (ana.poll(500), ana.assignment(), s.read) == ({}, set(), [])
    assert ana.state is MemberState.PREPARING_REBALANCE
    s.consumers.append(bo)
    s.until(lambda: [record.value for record in s.read] == [b"meanwhile"])


def test_cooperative_member_reads_its_kept_partitions_during_a_rebalance(stage: MakeStage) -> None:
    """S133, S122: c1 keeps two partitions and its positions in them; the third moves in the second round."""
    s = stage(3)
    first, second = Listener(), Listener()
    c1 = s.consumer(client_id="c1", listener=first, partition_assignment_strategy=COOPERATIVE)
    s.until(lambda: s.is_shared_out([0, 1, 2]))
    for number in range(3):
        s.produce(b"%d before" % number, partition=number)
    assert len(read(c1, 3)) == 3
    c2 = s.consumer(client_id="c2", listener=second, partition_assignment_strategy=COOPERATIVE)
    c2.poll(0)  # it joins and does not know of the second round yet
    s.until(lambda: len(c1.assignment()) == 2, alone=lambda: c1.poll(20))
    s.until(lambda: c1.state is MemberState.PREPARING_REBALANCE, alone=lambda: c1.poll(20))
    kept, paused = sorted(c1.assignment())
    (moved,) = {0, 1, 2} - {kept.partition, paused.partition}
    c1.pause(paused)
    s.produce(b"meanwhile", partition=kept.partition)
    s.produce(b"not yet", partition=paused.partition)
    assert read(c1, 1) == [b"meanwhile"]  # though nothing is committed
    assert c1.state is MemberState.PREPARING_REBALANCE
    s.until(lambda: s.is_shared_out([kept.partition, paused.partition], [moved]))
    assert first.calls == [
        ("assigned", [0, 1, 2]), ("revoked", [moved]), ("assigned", []), ("assigned", []),
    ]  # fmt: skip
    assert second.calls == [("assigned", []), ("assigned", [moved])]
    assert (c1.position(kept), c1.position(paused), c1.paused()) == (2, 1, {paused})
    c1.resume(paused)
    s.until(lambda: b"not yet" in {record.value for record in s.read})  # c2 reads the moved partition meanwhile
    assert [record.value for record in s.read if record.partition != moved] == [b"not yet"]


@pytest.mark.nightly
def test_two_rolling_restarts_make_a_group_cooperative(stage: MakeStage) -> None:
    """S134: a group is eager while a member offers range; members with and without range can share a group."""
    s = stage(2)

    def add(name: str, *strategies: str) -> Listener:
        listener = Listener()
        s.consumer(client_id=name, listener=listener, partition_assignment_strategy=list(strategies))
        s.until(lambda: s.is_shared_out([0], [1], *[[]] * (len(s.consumers) - 2)))
        return listener

    def restart(name: str, *strategies: str) -> Listener:
        s.consumers.pop(0).close()
        s.until(lambda: s.is_shared_out([0, 1]))
        return add(name, *strategies)

    s.consumer(client_id="a0", partition_assignment_strategy=["range"])
    s.until(lambda: s.is_shared_out([0, 1]))
    add("b0", "range", "cooperative-sticky")
    eager = restart("a1", "range", "cooperative-sticky")
    add("c", "range", "cooperative-sticky")
    assert [what for what, _ in eager.calls] == ["assigned", "revoked", "assigned"]
    s.consumers.pop().close()
    s.until(lambda: s.is_shared_out([0], [1]))
    restart("b2", "cooperative-sticky")
    assert next(r for r in s.published(GroupRecord) if r.protocol_name == "cooperative-sticky")
    cooperative = restart("a2", "cooperative-sticky")
    del cooperative.calls[:]
    add("c", "cooperative-sticky")
    assert {tuple(partitions) for what, partitions in cooperative.calls if what == "assigned"} == {()}
    assert not calls(cooperative, "revoked")


def test_partitions_stay_owned_when_on_partitions_assigned_fails(stage: MakeStage) -> None:
    s = stage(1)

    class Failing(Listener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            super().on_partitions_assigned(assigned)
            raise ZeroDivisionError

    s.produce(b"a")
    listener = Failing()
    ana = s.consumer(listener=listener)
    with pytest.raises(KafkaError, match="on_partitions_assigned") as failed:
        s.until(lambda: False)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert (numbers(ana.assignment()), listener.calls) == ([0], [("assigned", [0])])
    assert read(ana, 1) == [b"a"]


def test_leader_and_follower_can_request_a_rebalance(stage: MakeStage) -> None:
    """KIP-568, KIP-800: the events hold the reason of the rebalance."""
    s = stage(2)
    ana, bo = s.consumer(), s.consumer()
    s.until(lambda: s.is_shared_out([0], [1]))
    first = ana.generation
    ana.enforce_rebalance("new disks")
    s.until(lambda: ana.generation == first + 1 and s.is_shared_out([0], [1]))
    assert s.rebalances()[-1][1] == "new disks"
    bo.enforce_rebalance()
    s.until(lambda: ana.generation == first + 2 and s.is_shared_out([0], [1]))
    assert s.rebalances()[-1][1] == "rebalance enforced by user"


def test_member_that_leaves_during_its_first_join_does_not_delay_others(stage: MakeStage) -> None:
    """Protocol.md 6.4: the coordinator has already added the member, which does not know its own id yet."""
    s = stage(1)
    ana = s.consumer(session_timeout_ms=30_000)
    ana.poll(0)
    s.consumers.remove(ana)
    ana.close()
    s.consumer()
    s.until(lambda: s.is_shared_out([0]))
    assert "member_expired" not in [e["event"] for e in Reader(s.settings, s.group_id).events()]
