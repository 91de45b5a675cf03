"""What a `GroupConsumer` can do, over the real broker and query: subscribing, rebalancing, reading, committing."""

import logging
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import groupby, islice
from typing import Any

import pytest
from kafka import (
    AsyncConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaProducer,
    TopicPartition,
)
from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    RetriableError,
)
from kafka.structs import OffsetAndMetadata

from coordinator.member import MemberState
from coordinator.outputs import CommitRejected, GroupRecord, MemberFenced, MemberLeft, OffsetRecord
from coordinator.phases import Phase
from streaming.client import GroupConsumer, Transport, sharing
from streaming.query.coordinator import Coordinator
from tests.system.reading import Reader
from tests.system.staging import Listener, Stage, numbers, read

MakeStage = Callable[[int], Stage]

COOPERATIVE = ["cooperative-sticky"]


@pytest.fixture
def stage(coordinator: Coordinator) -> Iterator[MakeStage]:
    with ExitStack() as stack:
        yield lambda partitions: stack.enter_context(Stage(coordinator.settings, partitions))


def calls(listener: Listener, kind: str) -> list[list[int]]:
    return [partitions for what, partitions in listener.calls if what == kind]


def borrowers(transport: Transport) -> int:
    return next(count for shared, count in sharing._shared.values() if shared is transport)


def at(offset: int, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, metadata, -1)


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_member_joins_and_syncs_and_the_leader_alone_makes_the_plan(stage: MakeStage) -> None:
    """S02, S89, S119: the steps as they stand in the log, and the member's states between them."""
    s = stage(2)
    ana = s.consumer(client_id="ana")
    states = [ana.state]

    def turn() -> None:
        s.turn()
        states.append(ana.state)

    s.until(lambda: s.is_shared_out([0, 1]), alone=turn)
    assert [state for state, _ in groupby(states)] == [
        MemberState.UNJOINED, MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE, MemberState.STABLE,
    ]  # fmt: skip
    s.consumer(client_id="bo")
    s.until(lambda: s.is_shared_out([0], [1]))
    joins = [(join["client_id"], join["member_id"]) for join in s.requests("join_group")]
    assert joins[0] == ("ana", "")
    assert sorted(joins[1:]) == [("ana", ana.member_id), ("bo", "")]
    leader = s.asker.describe().leader
    plans = [sync for sync in s.requests("sync_group") if sync["assignments"]]
    assert [(plan["generation_id"], plan["member_id"]) for plan in plans] == [(1, ana.member_id), (2, leader)]
    assert len(s.requests("sync_group")) == 3


def test_three_come_one_by_one_the_topic_grows_and_one_wants_another(stage: MakeStage) -> None:
    """W3, S123: assigned 3, 2 and 1 times. W23, S07, S08: each change is one rebalance of the same three members."""
    s = stage(3)
    listeners = [Listener() for _ in range(3)]
    for count, listener in enumerate(listeners, start=1):
        s.consumer(client_id=f"c{count}", listener=listener, metadata_max_age_ms=500)
        s.until(s.are_settled)
    assert [len(calls(listener, "assigned")) for listener in listeners] == [3, 2, 1]
    assert [len(calls(listener, "revoked")) for listener in listeners] == [2, 1, 0]
    ids, generation = [c.member_id for c in s.consumers], s.consumers[0].generation

    with KafkaAdminClient(bootstrap_servers=s.settings.bootstrap_servers) as admin:
        admin.create_partitions({s.topic: 4})
    s.until(lambda: s.is_shared_out([0, 1], [2], [3]))
    assert [c.member_id for c in s.consumers] == ids
    assert {c.generation for c in s.consumers} == {generation + 1}

    other = s.create(f"other-{s.number}")
    chooser, follower = s.consumers[1], s.consumers[0]
    new = TopicPartition(other, 0)
    chooser.subscribe([s.topic, other])
    s.until(lambda: new in chooser.assignment() and s.are_settled())
    assert all(new not in c.assignment() for c in s.consumers if c is not chooser)
    assert (chooser.subscription(), follower.subscription()) == ({s.topic, other}, {s.topic})
    chooser.subscribe([s.topic])
    s.until(lambda: s.is_shared_out([0, 1], [2], [3]))
    assert [c.member_id for c in s.consumers] == ids
    assert {c.generation for c in s.consumers} == {generation + 3}

    grown, *chosen = s.rebalances()[-3:]
    assert grown[0] == "leader_rejoined"
    assert f"{s.topic} has 4, had 3" in grown[1]
    assert [cause for cause, _ in chosen] == ["metadata_changed", "metadata_changed"]
    assert other in chosen[0][1]


def test_a_topic_that_is_made_later_is_found_soon(stage: MakeStage) -> None:
    """S08: who subscribes to a name before there is such a topic need not wait for the metadata's age to pass."""
    s = stage(1)
    later = f"later-{s.number}"
    s.consumer(later)
    s.until(lambda: s.is_shared_out([]))
    s.create(later)
    s.until(lambda: s.is_shared_out([0]))


# -- subscribing -------------------------------------------------------------------------------------------------------


def test_a_pattern_takes_the_topics_there_are_and_those_that_come(stage: MakeStage) -> None:
    """S07, S08: also by pattern, and never Kafka's own topics."""
    s = stage(1)
    with KafkaAdminClient(bootstrap_servers=s.settings.bootstrap_servers) as admin:

        def ask_kafkas_own() -> None:
            with suppress(RetriableError):
                admin.list_group_offsets("kafkas-own")  # for which it makes its own offsets topic

        s.until(lambda: "__consumer_offsets" in admin.list_topics(), alone=ask_kafkas_own)
    ana, bo = (s.consumer(metadata_max_age_ms=500) for _ in range(2))
    with pytest.raises(IllegalStateError, match="by name or by a pattern"):
        ana.subscribe(pattern=s.topic)
    s.until(lambda: s.is_shared_out([0], []))
    for consumer in (ana, bo):
        consumer.unsubscribe()
        consumer.subscribe(pattern=rf"{s.topic}$|more-{s.number}\.|__consumer")
        with pytest.raises(IllegalStateError):
            consumer.subscribe([s.topic])
    s.until(lambda: s.is_shared_out([0], []))
    assert not [reason for _, reason in s.rebalances() if "nothing" in reason], "who joins has looked for topics first"
    s.create(f"more-{s.number}.a")
    s.create(f"no-more-{s.number}.b")
    s.until(lambda: s.is_shared_out([0], [0]) or s.is_shared_out([0, 0], []))
    wanted = {s.topic, f"more-{s.number}.a"}
    assert {p.topic for c in s.consumers for p in c.assignment()} == wanted
    assert ana.subscription() == bo.subscription() == wanted
    generation = ana.generation
    ana.subscribe(pattern=s.topic)
    s.until(lambda: ana.generation > generation and s.are_settled())
    assert ana.subscription() == {s.topic}
    assert TopicPartition(f"more-{s.number}.a", 0) in bo.assignment()


def test_what_cannot_be_subscribed_to_is_refused_and_changes_nothing(stage: MakeStage) -> None:
    s = stage(1)
    ana = s.consumer()

    class Awaiting(AsyncConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...

        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None: ...

    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        (ValueError, {"topics": []}),
        (ValueError, {"pattern": ""}),
        (TypeError, {"topics": s.topic}),
        (ValueError, {"topics": ["no topic"]}),
        (TypeError, {"topics": [s.topic], "listener": print}),
        (TypeError, {"topics": [s.topic], "listener": Awaiting()}),
        (TypeError, {"pattern": Listener()}),
        (re.error, {"pattern": "("}),
        (IllegalStateError, {"topics": [s.topic], "pattern": "work"}),
    ]
    for error, wanted in refused:
        if "pattern" in wanted and "topics" not in wanted:
            ana.unsubscribe()
        with pytest.raises(error):
            ana.subscribe(**wanted)
    ana.subscribe([s.topic])
    with pytest.raises(ValueError, match="topics or pattern"):
        ana.subscribe([])
    assert ana.subscription() == {s.topic}
    transport, lent = ana._transport, borrowers(ana._transport)
    with pytest.raises(ValueError, match="no topic"):
        GroupConsumer("no topic", **s.config())
    assert borrowers(transport) == lent, "nothing is left open"
    ana.close()
    with pytest.raises(IllegalStateError):
        ana.subscribe([s.topic])
    with pytest.raises(IllegalStateError):
        ana.poll()


# -- who reads on during a rebalance -----------------------------------------------------------------------------------


def test_an_eager_member_reads_nothing_while_the_group_rebalances(stage: MakeStage) -> None:
    """S124: what comes meanwhile comes after the assignment."""
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
    s.consumers.remove(bo)  # who is waited for now
    s.until(lambda: listener.calls[-1] == ("revoked", [0]))
    s.until(lambda: s.asker.describe().awaited == (bo.member_id,))
    s.read.clear()
    s.produce(b"meanwhile")
    assert (ana.poll(500), ana.assignment(), s.read) == ({}, set(), [])
    assert ana.state is MemberState.PREPARING_REBALANCE
    s.consumers.append(bo)
    s.until(lambda: [record.value for record in s.read] == [b"meanwhile"])


def test_a_cooperative_member_reads_on_from_what_it_keeps(stage: MakeStage) -> None:
    """S133, S122: c1 never loses what it keeps, nor its place in it; one partition moves, in the second round."""
    s = stage(3)
    first, second = Listener(), Listener()
    c1 = s.consumer(client_id="c1", listener=first, partition_assignment_strategy=COOPERATIVE)
    s.until(lambda: s.is_shared_out([0, 1, 2]))
    for number in range(3):
        s.produce(b"%d before" % number, partition=number)
    assert len(read(c1, 3)) == 3
    c2 = s.consumer(client_id="c2", listener=second, partition_assignment_strategy=COOPERATIVE)
    c2.poll(0)  # it joins, and has not heard of the second round
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
    s.until(lambda: s.read[-1:] and s.read[-1].value == b"not yet")
    assert [record.value for record in s.read if record.partition != moved] == [b"not yet"]


def test_two_rolling_restarts_make_a_group_cooperative(stage: MakeStage) -> None:
    """S134: eager as long as a member offers range; those with it and those without can share a group."""
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


def test_a_listener_that_fails_on_what_is_new_leaves_it_owned(stage: MakeStage) -> None:
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


def test_a_rebalance_can_be_asked_for_by_leader_and_follower(stage: MakeStage) -> None:
    """KIP-568, KIP-800: its reason is in the events."""
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


def test_who_leaves_while_it_first_joins_keeps_nobody_waiting(stage: MakeStage) -> None:
    """Protocol.md 6.4: the coordinator has made a member of it by then, though it does not know its own id yet."""
    s = stage(1)
    ana = s.consumer(session_timeout_ms=3_000)
    ana.poll(0)
    s.consumers.remove(ana)
    ana.close()
    s.consumer()
    s.until(lambda: s.is_shared_out([0]))
    assert "member_expired" not in [e["event"] for e in Reader(s.settings, s.group_id).events()]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_the_position_is_the_callers_to_move(stage: MakeStage) -> None:
    """S135: seek, pause and resume move the position and never what is committed."""
    s = stage(2)
    zero, one = s.partition(0), s.partition(1)
    s.produce(*(b"%d" % n for n in range(10)))
    s.produce(b"x", partition=1)
    ana = s.consumer()
    with pytest.raises(IllegalStateError):
        ana.position(zero)
    s.until(ana.assignment, alone=lambda: ana.poll(0))
    ana.pause(zero, one)
    assert (ana.position(zero), ana.position(one)) == (0, 0)
    ana.resume(one)
    assert read(ana, 1) == [b"x"]
    assert (ana.paused(), ana.position(zero), ana.position(one)) == ({zero}, 0, 1)
    ana.resume(zero)
    ana.seek(zero, 7)
    assert (ana.position(zero), read(ana, 2)) == (7, [b"7", b"8"])
    ana.seek_to_beginning(zero)
    assert (ana.position(zero), read(ana, 1)) == (0, [b"0"])
    ana.seek_to_end()
    assert (ana.position(zero), ana.position(one)) == (10, 1)
    s.produce(b"10")
    assert read(ana, 1) == [b"10"]
    assert ana.highwater(zero) == 11
    ana.seek_to_beginning()
    assert read(ana, 3)[0] in (b"0", b"x")
    assert ana.committed(zero) is None
    for wrong in (-1, 1.5):
        with pytest.raises(ValueError, match="int >= 0"):
            ana.seek(zero, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not assigned"):
        ana.seek(s.partition(9), 0)
    with pytest.raises(IllegalStateError):
        ana.pause(s.partition(9))
    with pytest.raises(TypeError):
        ana.position("work")  # type: ignore[arg-type]


def test_a_seek_in_the_listener_wins_over_what_is_committed(stage: MakeStage) -> None:
    """S142: the committed offset is where a new owner begins, unless it says otherwise."""
    s = stage(2)
    zero, one = s.partition(0), s.partition(1)
    for number in range(2):
        s.produce(*(b"%d" % n for n in range(5)), partition=number)

    class Seeking(Listener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            super().on_partitions_assigned(assigned)
            assert assigned == ana.assignment()
            ana.seek(zero, 4)

    ana = s.consumer()
    s.until(lambda: s.is_shared_out([0, 1]))
    ana.commit({zero: at(2, "where I was"), one: at(3)})
    assert ana.committed(zero, metadata=True) == at(2, "where I was")
    ana.unsubscribe()
    ana.subscribe([s.topic], listener=Seeking())
    assert sorted(read(ana, 3)) == [b"3", b"4", b"4"]
    assert (ana.committed(zero), ana.committed(one)) == (2, 3)


def test_an_offset_that_is_not_there_is_where_the_configuration_says_instead(stage: MakeStage) -> None:
    """S135: and the position tells so, and is what is committed."""
    s = stage(1)
    s.produce(b"0", b"1")
    ana = s.consumer(auto_offset_reset="latest")
    s.until(ana.assignment, alone=lambda: ana.poll(0))
    ana.seek(s.partition(0), 100)
    ana.poll(500)
    s.produce(b"2")
    assert read(ana, 1) == [b"2"]
    ana.seek(s.partition(0), 100)
    s.until(lambda: ana.position(s.partition(0)) == 3)
    ana.commit()
    assert ana.committed(s.partition(0)) == 3


def test_iterating_goes_on_behind_a_pause(stage: MakeStage) -> None:
    """S135: what was fetched ahead is not handed out while it is paused, and comes afterwards."""
    s = stage(1)
    zero = s.partition(0)
    s.produce(*(b"%d" % n for n in range(3)))
    ana = s.consumer(consumer_timeout_ms=300)
    s.until(ana.assignment, alone=lambda: ana.poll(0, max_records=1))
    ana.seek(zero, 0)
    assert next(ana).value == b"0"
    ana.pause(zero)
    assert list(ana) == []
    assert ana.position(zero) == 1
    ana.resume(zero)
    assert [record.value for record in ana] == [b"1", b"2"]


def test_what_the_brokers_know_is_passed_on(stage: MakeStage) -> None:
    s = stage(1)
    zero = s.partition(0)
    with KafkaProducer(bootstrap_servers=s.settings.bootstrap_servers) as producer:
        sent = [producer.send(s.topic, b"%d" % n, partition=0).get(10) for n in range(3)]
        later_ms = sent[-1].timestamp + 1_000
        producer.send(s.topic, b"3", partition=0, timestamp_ms=later_ms).get(10)
    ana = s.consumer()
    assert (ana.beginning_offsets([zero]), ana.end_offsets([zero])) == ({zero: 0}, {zero: 4})
    found = ana.offsets_for_times({zero: later_ms})[zero]
    assert (found.offset, found.timestamp) == (3, later_ms)
    assert ana.offsets_for_times({zero: later_ms + 1})[zero] is None
    assert ana.partitions_for_topic(s.topic) == {0}
    assert s.topic in ana.topics()
    assert ana.metrics()


@pytest.mark.parametrize(("reset", "begins_at"), [("earliest", 0), ("latest", 2)])
def test_where_nothing_is_committed_the_configuration_says_where_to_begin(
    stage: MakeStage, reset: str, begins_at: int
) -> None:
    """S137: nothing committed is not offset 0."""
    s = stage(1)
    s.produce(b"0", b"1")
    ana = s.consumer(auto_offset_reset=reset)
    s.until(ana.assignment, alone=lambda: ana.poll(0))
    assert (ana.committed(s.partition(0)), ana.position(s.partition(0))) == (None, begins_at)
    s.produce(b"2")
    assert read(ana, 1) == [b"%d" % begins_at]


def test_where_nothing_is_committed_and_nothing_configured_the_caller_decides(stage: MakeStage) -> None:
    s = stage(1)
    s.produce(b"0", b"1")
    ana = s.consumer(auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError):
        s.until(lambda: False)
    ana.seek(s.partition(0), 1)
    assert read(ana, 1) == [b"1"]


def test_records_of_an_aborted_transaction_are_not_seen(stage: MakeStage) -> None:
    """`isolation_level` is KafkaConsumer's to act on."""
    s = stage(1)
    producer = KafkaProducer(bootstrap_servers=s.settings.bootstrap_servers, transactional_id=f"tx-{s.number}")
    producer.init_transactions()
    for value, end in ((b"aborted", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.send(s.topic, value, partition=0).get(10)
        end()
    producer.close()
    committed, any_ = (s.consumer(isolation_level=level) for level in ("read_committed", "read_uncommitted"))
    committed.unsubscribe()
    assert read(any_, 2) == [b"aborted", b"kept"]
    any_.unsubscribe()
    committed.subscribe([s.topic])
    assert read(committed, 1) == [b"kept"]


def test_a_poll_brings_no_more_than_it_may(stage: MakeStage) -> None:
    """S128, W20: and position tells of what was brought alone."""
    s = stage(1)
    s.produce(*(b"%d" % n for n in range(30)))
    ana = s.consumer(max_poll_records=20)
    s.until(lambda: s.read)
    assert [record.offset for record in s.read] == list(range(20))
    assert (ana.position(s.partition(0)), ana.committed(s.partition(0))) == (20, None)
    (few,) = ana.poll(1_000, max_records=3).values()
    assert [record.offset for record in few] == [20, 21, 22]
    for wrong in ({"max_records": 0}, {"timeout_ms": -1}):
        with pytest.raises(ValueError, match="must"):
            ana.poll(**wrong)
    s.consumers.remove(ana)
    ana.close()
    assert read(s.consumer(), 1) == [b"0"]


# -- time --------------------------------------------------------------------------------------------------------------


def test_who_works_for_too_long_leaves_and_comes_back(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    """W24, S127, S128: a warning, on_partitions_lost, and another member id."""
    s = stage(2)
    listener = Listener()
    s.consumer(client_id="bo")
    ana = s.consumer(client_id="ana", listener=listener, max_poll_interval_ms=1_500)
    s.until(lambda: s.is_shared_out([0], [1]))
    was, had = ana.member_id, numbers(ana.assignment())
    s.consumers.remove(ana)
    s.until(lambda: s.is_shared_out([0, 1]))
    left = next(s.published(MemberLeft))
    assert (left.client_id, left.reason) == ("ana", "consumer poll timeout has expired")
    with caplog.at_level(logging.WARNING, "streaming.client"):
        s.consumers.append(ana)
        s.until(lambda: s.is_shared_out([0], [1]))
    assert "max_poll_interval_ms is 1500" in caplog.text
    assert [what for what, _ in listener.calls] == ["assigned", "lost", "assigned"]
    assert listener.calls[1] == ("lost", had)
    assert ana.member_id not in ("", was)


def test_who_works_for_longer_than_a_session_stays_a_member(stage: MakeStage) -> None:
    """S111, S126: heartbeats go on beside the caller's work."""
    s = stage(1)
    ana = s.consumer(session_timeout_ms=3_000, heartbeat_interval_ms=900)
    s.until(lambda: s.is_shared_out([0]))
    since = len(s.requests("heartbeat"))
    s.until(lambda: len(s.requests("heartbeat")) >= since + 5, alone=lambda: None)
    s.turn()
    assert (ana.generation, len(s.rebalances())) == (1, 1)


def test_who_is_nearly_too_late_is_warned(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    """S128: from 80 % of max_poll_interval_ms on, where there is anything to lose."""
    s = stage(1)
    ana = s.consumer()

    def warnings_after(away_ms: int) -> int:
        caplog.clear()
        ana._polled_ms -= away_ms
        ana.poll(0)
        return caplog.text.count("went by between two polls, and max_poll_interval_ms is 300000")

    assert warnings_after(250_000) == 0
    s.until(lambda: s.is_shared_out([0]))
    assert [warnings_after(away_ms) for away_ms in (230_000, 250_000, 0)] == [0, 1, 0]


# -- committing --------------------------------------------------------------------------------------------------------


class Ends:
    """A callback that writes down how commits ended."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def __call__(self, offsets: Any, error: Exception | None) -> None:
        self.seen.append((offsets, error))


def test_commits_that_nobody_waits_for_end_in_a_later_poll(stage: MakeStage) -> None:
    """S136: in the order in which they were made, on the caller's thread, also by the default callback."""
    s = stage(1)
    zero = s.partition(0)
    default, own = Ends(), Ends()
    ana = s.consumer(default_offset_commit_callback=default)
    s.until(lambda: s.is_shared_out([0]))
    futures = [ana.commit_async({zero: at(n)}, own) for n in (3, 4, 5)]
    by_default = ana.commit_async({zero: at(6)})
    assert ana.committed(zero) == 6  # so all four have been answered
    assert (own.seen, default.seen, [future.is_done for future in futures]) == ([], [], [False] * 3)
    ana.poll(0)
    assert own.seen == [({zero: at(n)}, None) for n in (3, 4, 5)]
    assert default.seen == [({zero: at(6)}, None)]
    assert [future.value for future in [*futures, by_default]] == [{zero: at(n)} for n in (3, 4, 5, 6)]


def test_commits_before_a_commit_that_is_waited_for_have_ended_when_it_has(stage: MakeStage) -> None:
    """As Kafka has it: callbacks keep the order of the commits."""
    s = stage(1)
    zero, ends = s.partition(0), Ends()
    ana = s.consumer()
    s.until(lambda: s.is_shared_out([0]))
    ana.commit_async({zero: at(1)}, ends)
    ana.commit({zero: at(2)})
    assert ends.seen == [({zero: at(1)}, None)]


def test_a_callback_that_fails_stops_nobody(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    s = stage(1)
    zero, ends = s.partition(0), Ends()

    def fail(offsets: Any, error: Exception | None) -> None:
        raise ZeroDivisionError

    ana = s.consumer()
    s.until(lambda: s.is_shared_out([0]))
    ana.commit_async({zero: at(1)}, fail)
    ana.commit_async({zero: at(2)}, ends)
    s.until(lambda: ends.seen)
    assert ends.seen == [({zero: at(2)}, None)]
    assert "a commit's callback failed" in caplog.text


def test_who_was_expelled_hears_it_from_its_next_commit(stage: MakeStage) -> None:
    """S136, W21: by callback as well as by exception; the offset is as it was."""
    s = stage(1)
    zero, ends, listener = s.partition(0), Ends(), Listener()
    ana = s.consumer(heartbeat_interval_ms=5_000, listener=listener)
    s.until(lambda: s.is_shared_out([0]))
    ana.commit({zero: at(1)})
    s.expel(ana.member_id)
    future = ana.commit_async({zero: at(2)}, ends)
    s.until(lambda: ends.seen, alone=lambda: ana.poll(20))
    ((offsets, error),) = ends.seen
    assert offsets == {zero: at(2)}
    assert isinstance(error, CommitFailedError)
    assert future.exception is error
    assert ("lost", [0]) in listener.calls
    s.until(lambda: s.is_shared_out([0]))
    s.expel(ana.member_id)
    with pytest.raises(CommitFailedError):
        ana.commit({zero: at(3)})
    with pytest.raises(CommitFailedError):
        ana.commit({zero: at(4)})  # it is no member now, and knows it
    assert ana.committed(zero) == 1
    assert len(s.requests("offset_commit")) == 3
    assert next(s.published(CommitRejected)).error == "UNKNOWN_MEMBER_ID"


def test_what_is_not_ones_own_is_not_committed(stage: MakeStage) -> None:
    """S139: refused here, without a request."""
    s = stage(2)
    ends = Ends()
    ana, _ = s.consumer(), s.consumer()
    s.until(lambda: s.is_shared_out([0], [1]))
    (others,) = {s.partition(0), s.partition(1)} - ana.assignment()
    with pytest.raises(CommitFailedError, match="not this member's"):
        ana.commit({others: at(1)})
    future = ana.commit_async({others: at(1)}, ends)
    s.until(lambda: ends.seen)
    assert isinstance(ends.seen[0][1], CommitFailedError)
    assert future.exception is ends.seen[0][1]
    assert ana.committed(others) is None
    assert s.requests("offset_commit") == []


def test_a_commit_from_before_the_pause_does_not_count(stage: MakeStage) -> None:
    """W21, S13, S139: expelled while asleep, it is told so; what it had not committed is read twice, and no more."""
    s = stage(1)
    bo = s.consumer(client_id="bo")
    ana = s.worker(client_id="ana", session_timeout_ms=2_500)
    ana.tells("assigned", s.turn)
    s.until(lambda: s.is_shared_out([]))
    s.produce(*(b"%d" % n for n in range(20)))
    while ana.tells("read", s.turn)[-1] < 19:
        continue
    generation = bo.generation
    ana.signal(signal.SIGSTOP)
    ana.ask_for("commit")
    s.until(lambda: s.is_shared_out([0]), alone=lambda: bo.poll(20, max_records=1) and None)
    bo.seek(s.partition(0), 0)
    assert read(bo, 5) == [b"0", b"1", b"2", b"3", b"4"]
    bo.commit()
    ana.signal(signal.SIGCONT)
    assert ana.tells("refused", s.turn) == "CommitFailedError"
    assert ana.tells("lost", s.turn) == [0]
    rejected = next(s.published(CommitRejected))
    assert (rejected.client_id, rejected.error) == ("ana", "UNKNOWN_MEMBER_ID")
    assert rejected.claimed_generation_id == generation
    assert bo.committed(s.partition(0)) == 5


# -- coming back -------------------------------------------------------------------------------------------------------


def test_one_of_three_crashes_and_returns(stage: MakeStage) -> None:
    """W22, S15, S138: two rebalances; each owner goes on where the last one had committed."""
    s = stage(3)
    for name in ("ana", "bo"):
        s.consumer(client_id=name)

    def turn() -> None:
        s.turn()
        for consumer in s.consumers:
            consumer.commit_async()

    def produce() -> None:
        for number in range(3):
            s.produce(*(b"%d" % n for n in range(10)), partition=number)

    def are_shared_out(count: int) -> bool:
        return sum(map(len, s.shares())) == count and s.are_settled()

    def seen(number: int) -> list[int]:
        return [record.offset for record in s.read if record.partition == number]

    cy = s.worker(client_id="cy", session_timeout_ms=2_500, commits=True)
    (theirs,) = cy.tells("assigned", turn)
    produce()
    while cy.tells("committed", turn) != {str(theirs): 10}:
        continue
    cy.signal(signal.SIGKILL)
    s.until(lambda: are_shared_out(3), alone=turn)
    produce()
    s.until(lambda: all(19 in seen(number) for number in range(3)), alone=turn)
    assert seen(theirs) == list(range(10, 20)), "what was committed is not read again"
    again = s.worker(client_id="cy", session_timeout_ms=2_500, commits=True)
    (now_theirs,) = again.tells("assigned", turn)
    produce()
    assert again.tells("read", turn)[:2] == [now_theirs, 20]
    s.until(lambda: are_shared_out(2) and all(29 in seen(n) for n in {0, 1, 2} - {now_theirs}), alone=turn)
    assert all(set(seen(n)) == set(range(30)) for n in {0, 1, 2} - {theirs, now_theirs})
    assert [cause for cause, _ in s.rebalances()][-2:] == ["session_expired", "member_joined"]


def test_a_static_member_restarts_in_silence_and_a_double_is_fenced_off(stage: MakeStage) -> None:
    """S44, S101, KIP-345: the same partitions, no rebalance; then the older of two of one name hears of it."""
    s = stage(2)
    s.consumer(client_id="bo", group_instance_id="desk-2")
    ana = s.consumer(client_id="ana", group_instance_id="desk-1")
    s.until(lambda: s.is_shared_out([0], [1]))
    had, generation, was = ana.assignment(), ana.generation, ana.member_id
    s.consumers.remove(ana)
    ana.close()
    again = s.consumer(client_id="ana", group_instance_id="desk-1")
    s.until(lambda: s.is_shared_out([0], [1]))
    assert (again.assignment(), again.generation) == (had, generation)
    assert again.member_id != was
    assert s.requests("leave_group") == []
    rebalances = len(s.rebalances())

    s.consumers.remove(again)
    double = s.consumer(client_id="double", group_instance_id="desk-1")
    s.until(lambda: s.is_shared_out([0], [1]))
    with pytest.raises(FencedInstanceIdError):
        s.until(lambda: False, alone=lambda: again.poll(20))
    assert again.assignment() == set()
    assert double.assignment() == had
    assert {c.generation for c in s.consumers} == {generation}
    assert [e.replaced_by_client_id for e in islice(s.published(MemberFenced), 2)] == ["ana", "double"]
    assert len(s.rebalances()) == rebalances


def test_the_views_of_a_group_and_its_offsets_agree_with_its_members(stage: MakeStage) -> None:
    """S140, S141: records that anybody reads, by group, topic and partition."""
    s = stage(2)
    ana = s.consumer(client_id="ana")
    s.until(lambda: s.is_shared_out([0, 1]))
    ana.commit({s.partition(1): at(7, "seven")})
    offset = next(s.published(OffsetRecord))
    assert (offset.topic, offset.partition, offset.offset, offset.metadata) == (s.topic, 1, 7, "seven")
    assert (offset.generation_id, offset.member_id) == (ana.generation, ana.member_id)
    group = next(r for r in s.published(GroupRecord) if r.state is Phase.STABLE)
    assert [member.assigned for member in group.members] == [{s.topic: [0, 1]}]
