"""Tests of fetched records, positions and committed offsets with a stand-in for KafkaConsumer."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError
from kafka.structs import OffsetAndMetadata

from streaming.client.partition_reader import PartitionReader

A, B, C = (TopicPartition("t", n) for n in range(3))
RECORDS = 10
"""The number of records in each partition."""


class FakeKafka:
    """The part of KafkaConsumer that a `PartitionReader` uses.

    It keeps the state of partitions that stay assigned, and refuses partitions that are not assigned to it.
    """

    def __init__(self) -> None:
        self.at: dict[TopicPartition, int | None] = {}
        self.paused: set[TopicPartition] = set()
        self.fetched: list[tuple[TopicPartition, int]] = []
        self.is_open = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.at = {p: self.at.get(p) for p in partitions}
        self.paused &= set(self.at)

    def pause(self, *partitions: TopicPartition) -> None:
        self._check(partitions)
        self.paused |= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._check(partitions)
        self.paused -= set(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._check([partition])
        self.at[partition] = offset

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.seek(partition, 0)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        for partition in partitions:
            self.seek(partition, RECORDS)

    def position(self, partition: TopicPartition, timeout_ms: float) -> int:
        self._check([partition])
        at = self.at[partition] = self.at[partition] or 0
        return at

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        found: dict[TopicPartition, list[Any]] = {}
        for partition in sorted(self.at.keys() - self.paused):
            first = self.position(partition, 0)
            last = min(RECORDS, first + max_records)
            max_records -= last - first
            if last > first:
                found[partition] = [SimpleNamespace(offset=n, leader_epoch=None) for n in range(first, last)]
                self.at[partition] = last
                self.fetched += [(partition, n) for n in range(first, last)]
        return found

    def close(self, autocommit: bool) -> None:
        assert not autocommit
        self.is_open = False

    def _check(self, partitions: Iterable[TopicPartition]) -> None:
        if unknown := set(partitions) - set(self.at):
            raise ValueError(f"Unassigned partition {unknown}")


@pytest.fixture
def reading() -> PartitionReader:
    return PartitionReader(FakeKafka())


def own(reading: PartitionReader, **committed: int) -> None:
    """Own partitions, and start them at their committed offsets: `a=3`, and -1 for no commit."""
    partitions = {TopicPartition("t", "abc".index(name)): offset for name, offset in committed.items()}
    reading.own(frozenset(partitions))
    reading.start(partitions)


def fetch(reading: PartitionReader, max_records: int = 100) -> dict[TopicPartition, list[int]]:
    return {p: [r.offset for r in batch] for p, batch in reading.fetch(0, max_records).items()}


def iterate(reading: PartitionReader, count: int, ahead: int = 100) -> list[int]:
    """Return the offsets of at most `count` records, read one by one as an iterator does."""
    offsets: list[int] = []
    while len(offsets) < count:
        if (record := reading.hand_out()) is None:
            before = len(reading.kafka.fetched)
            reading.fetch_ahead(0, ahead)
            if len(reading.kafka.fetched) == before:
                return offsets
        else:
            offsets.append(record.offset)
    return offsets


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


# -- the first position ------------------------------------------------------------------------------------------------


def test_no_record_is_read_before_the_first_position_is_known(reading: PartitionReader) -> None:
    """S139: otherwise the caller would get records that are committed already."""
    reading.own(frozenset({A, B}))
    assert reading.unplaced == {A, B}
    assert not reading.can_fetch
    assert fetch(reading) == {}
    reading.start({A: 7})
    assert reading.unplaced == {B}
    assert fetch(reading) == {A: [7, 8, 9]}


def test_without_a_committed_offset_kafka_decides(reading: PartitionReader) -> None:
    """S137: KafkaConsumer applies `auto_offset_reset`."""
    own(reading, a=-1)
    assert reading.kafka.at == {A: None}
    assert len(fetch(reading)[A]) == RECORDS


def test_a_committed_offset_of_a_revoked_partition_is_ignored(reading: PartitionReader) -> None:
    own(reading, a=0)
    reading.own(frozenset({A}))
    reading.start({A: 5, B: 5})
    assert reading.kafka.at == {A: 0}


def test_a_seek_before_the_committed_offset_is_known_sets_the_first_position(reading: PartitionReader) -> None:
    """This happens in on_partitions_assigned: the later response does not override the seek."""
    reading.own(frozenset({A, B}))
    reading.seek(A, 4)
    reading.start({A: 1, B: 8})
    assert fetch(reading) == {A: [4, 5, 6, 7, 8, 9], B: [8, 9]}


@pytest.mark.parametrize(("seek", "first"), [("seek_to_beginning", 0), ("seek_to_end", RECORDS)])
@pytest.mark.parametrize("given", [[A], []], ids=["named", "all"])
def test_seeking_to_the_beginning_or_end_sets_the_first_position(
    reading: PartitionReader, seek: str, first: int, given: list[TopicPartition]
) -> None:
    reading.own(frozenset({A}))
    getattr(reading, seek)(given)
    reading.start({A: 5})
    assert reading.position(A, 0) == first


# -- changes of owned partitions ---------------------------------------------------------------------------------------


def test_a_retained_partition_keeps_its_position_and_its_pause(reading: PartitionReader) -> None:
    """S133, KIP-429: B is revoked, C is assigned, and A does not change."""
    own(reading, a=2, b=0)
    fetch(reading, max_records=3)
    reading.pause([A])
    reading.own(frozenset({A}))
    reading.own(frozenset({A, C}))
    reading.start({C: 9})
    assert reading.paused() == reading.kafka.paused == {A}
    assert fetch(reading) == {C: [9]}
    reading.resume([A])
    assert fetch(reading) == {A: [5, 6, 7, 8, 9]}


def test_a_returned_partition_is_not_paused_and_starts_at_its_committed_offset(reading: PartitionReader) -> None:
    """Another member owned it meanwhile."""
    own(reading, a=2)
    fetch(reading, max_records=1)
    reading.pause([A])
    reading.own(frozenset())
    assert reading.positions() == {}
    own(reading, a=6)
    assert reading.paused() == set()
    assert fetch(reading) == {A: [6, 7, 8, 9]}


def test_a_pause_before_the_first_position_stays(reading: PartitionReader) -> None:
    """This happens in on_partitions_assigned, before the committed offset is known."""
    reading.own(frozenset({A, B}))
    reading.pause([A])
    reading.start({A: 0, B: 8})
    assert fetch(reading) == {B: [8, 9]}


def test_records_of_a_lost_partition_are_not_returned(reading: PartitionReader) -> None:
    """S124: records fetched ahead are dropped, and the other records keep their order."""
    own(reading, a=8, b=8)
    assert iterate(reading, 1) == [8]
    reading.own(frozenset({B}))
    assert A not in reading.had
    assert iterate(reading, 10) == [8, 9]
    assert reading.had == {B: at(10)}


# -- iterating, pausing, seeking ---------------------------------------------------------------------------------------


def test_a_pause_during_an_iteration_loses_no_record(reading: PartitionReader) -> None:
    """Records fetched ahead are fetched again after resume."""
    own(reading, a=0)
    assert iterate(reading, 3) == [0, 1, 2]
    reading.pause([A])
    assert not reading.can_fetch
    assert iterate(reading, 3) == []
    assert reading.positions() == {A: at(3)}
    reading.resume([A])
    assert iterate(reading, 100) == [3, 4, 5, 6, 7, 8, 9]


def test_a_poll_after_an_iteration_returns_records_fetched_ahead(reading: PartitionReader) -> None:
    own(reading, a=0)
    iterate(reading, 3)
    assert fetch(reading) == {A: [3, 4, 5, 6, 7, 8, 9]}
    assert iterate(reading, 1) == []


@pytest.mark.parametrize("to", [1, 9])
def test_a_seek_during_an_iteration_continues_at_the_new_position(reading: PartitionReader, to: int) -> None:
    own(reading, a=0, b=RECORDS)
    iterate(reading, 3)
    reading.seek(A, to)
    assert reading.position(A, 0) == to
    assert iterate(reading, 1) == [to]


# -- positions ---------------------------------------------------------------------------------------------------------


def test_a_position_never_passes_the_returned_records(reading: PartitionReader) -> None:
    """S135: a commit during an iteration covers the returned records, not those fetched ahead."""
    own(reading, a=4, b=8)
    for had in range(1, 9):
        (offset,) = iterate(reading, 1)
        partition = A if had <= 6 else B
        assert reading.positions()[partition] == reading.had[partition] == at(offset + 1)
        assert reading.positions()[B].offset == max(8, 8 + had - 6)
    assert reading.kafka.at == {A: RECORDS, B: RECORDS}


def test_the_position_is_before_records_that_are_only_fetched_ahead(reading: PartitionReader) -> None:
    own(reading, a=4)
    reading.fetch_ahead(0, 100)
    assert reading.positions() == {A: at(4)}
    assert reading.position(A, 0) == 4


def test_a_position_is_known_before_the_first_read(reading: PartitionReader) -> None:
    """S135: a partition with a first position has a position, and a commit of all positions includes it."""
    own(reading, a=4, b=-1)
    assert reading.positions() == {A: at(4), B: at(0)}
    assert reading.had == {}


def test_positions_carry_the_leader_epoch_of_the_last_record(
    reading: PartitionReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(reading, a=4)
    records = {A: [SimpleNamespace(offset=4, leader_epoch=2), SimpleNamespace(offset=7, leader_epoch=3)]}
    monkeypatch.setattr(reading.kafka, "poll", lambda timeout_ms, max_records: records)
    reading.fetch(0, 100)
    assert reading.had == {A: OffsetAndMetadata(8, "", 3)}


def test_the_offset_of_a_seek_can_be_committed(reading: PartitionReader) -> None:
    """S135: the seek replaces the position of earlier records; a revoked partition has no position."""
    own(reading, a=0, b=0)
    fetch(reading, max_records=3)
    reading.seek(A, 7)
    assert reading.had == {A: at(7)}
    assert reading.positions() == {A: at(7), B: at(0)}
    reading.own(frozenset({B}))
    assert reading.had == {}


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 1.5, None])
def test_an_invalid_offset_is_refused(reading: PartitionReader, offset: Any) -> None:
    own(reading, a=0)
    with pytest.raises(ValueError, match="int >= 0"):
        reading.seek(A, offset)


def test_a_partition_that_is_not_owned_is_refused_and_no_position_changes(reading: PartitionReader) -> None:
    own(reading, a=0)
    iterate(reading, 2)
    for call in (
        lambda: reading.seek(B, 1),
        lambda: reading.seek_to_end([A, B]),
        lambda: reading.seek_to_beginning([B]),
    ):
        with pytest.raises(ValueError, match="not assigned: t 1"):
            call()
    for pause in (reading.pause, reading.resume):
        with pytest.raises(IllegalStateError):
            pause([A, B])
        with pytest.raises(TypeError):
            pause([("t", 0)])  # type: ignore[list-item]
    assert reading.paused() == set()
    assert iterate(reading, 1) == [2]


def test_closing_commits_nothing(reading: PartitionReader) -> None:
    """The client must never send a commit to Kafka's own coordinator."""
    reading.close()
    assert not reading.kafka.is_open
