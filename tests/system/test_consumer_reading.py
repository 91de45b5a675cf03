"""The reader position of a `GroupConsumer` and the number of records of a poll, on the real broker and query."""

import itertools

import pytest
from kafka import (
    KafkaProducer,
    TopicPartition,
)
from kafka.errors import (
    IllegalStateError,
    NoOffsetForPartitionError,
)

from tests.system.staging import Listener, MakeStage, at, read


def test_caller_can_move_the_position(stage: MakeStage) -> None:
    """S135: seek, pause and resume change the position and never the committed offset."""
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


def test_seek_in_the_listener_overrides_the_committed_offset(stage: MakeStage) -> None:
    """S142: a new owner begins at the committed offset, unless it seeks to another one."""
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


def test_offset_out_of_range_is_reset_as_configured(stage: MakeStage) -> None:
    """S135: the position becomes the offset of the reset, and a commit commits that position."""
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


def test_iteration_continues_after_a_pause(stage: MakeStage) -> None:
    """S135: records that were fetched ahead are not handed out while the partition is paused, but after resume."""
    s = stage(1)
    zero = s.partition(0)
    s.produce(*(b"%d" % n for n in range(3)))
    ana = s.consumer(consumer_timeout_ms=300)
    s.until(ana.assignment, alone=lambda: ana.poll(0, max_records=1))
    ana.seek(zero, 0)
    found: list[bytes] = []
    s.until(lambda: found.extend(record.value for record in itertools.islice(ana, 1)) or found)
    ana.pause(zero)
    assert (found, list(ana), ana.position(zero)) == ([b"0"], [], 1)
    ana.resume(zero)
    s.until(lambda: found.extend(record.value for record in ana) or len(found) > 2)
    assert found == [b"0", b"1", b"2"]


def test_a_partition_is_read_on_after_its_pause(stage: MakeStage) -> None:
    """The pause begins in the middle of a response, and the other partition is read meanwhile: KAFKA-7548."""
    s = stage(2)
    for number in range(2):
        s.produce(*(b"%d" % n for n in range(100)), partition=number)
    ana, found = s.consumer(max_poll_records=10), {s.partition(0): 0, s.partition(1): 0}

    def has_read(partition: TopicPartition, count: int) -> bool:
        for place, records in ana.poll(200).items():
            found[place] += len(records)
        return found[partition] >= count

    s.until(lambda: any(has_read(each, 1) for each in found), alone=lambda: None)
    paused, other = sorted(found, key=found.__getitem__, reverse=True)
    ana.pause(paused)
    before = found[paused]
    s.until(lambda: has_read(other, 100), alone=lambda: None)
    assert found[paused] == before < 100
    ana.resume(paused)
    s.until(lambda: has_read(paused, 100), alone=lambda: None)


def test_offsets_and_topics_of_the_brokers_are_returned(stage: MakeStage) -> None:
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
def test_without_a_commit_the_configuration_chooses_the_first_offset(
    stage: MakeStage, reset: str, begins_at: int
) -> None:
    """S137: a missing commit is not a commit of offset 0."""
    s = stage(1)
    s.produce(b"0", b"1")
    ana = s.consumer(auto_offset_reset=reset)
    s.until(ana.assignment, alone=lambda: ana.poll(0))
    assert (ana.committed(s.partition(0)), ana.position(s.partition(0))) == (None, begins_at)
    s.produce(b"2")
    assert read(ana, 1) == [b"%d" % begins_at]


def test_without_a_commit_and_without_a_reset_the_caller_must_seek(stage: MakeStage) -> None:
    s = stage(1)
    s.produce(b"0", b"1")
    ana = s.consumer(auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError):
        s.until(lambda: False)
    ana.seek(s.partition(0), 1)
    assert read(ana, 1) == [b"1"]


def test_records_of_an_aborted_transaction_are_not_read(stage: MakeStage) -> None:
    """`isolation_level` is passed on to KafkaConsumer."""
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


def test_poll_returns_at_most_max_records(stage: MakeStage) -> None:
    """S128, W20: the position counts only records that a poll has returned."""
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
