"""The figures of the transactions that no shard has settled."""

from typing import ClassVar

from confluent_kafka import TopicPartition

from streaming.config.settings import Settings
from streaming.query.progress import Tallies
from streaming.query.settling import TransactionWatch
from streaming.query.unsettled import Unsettled


def test_records_behind_the_settled_place_are_counted():
    unsettled = Unsettled()
    unsettled.note({0: 12, 1: 7, 2: 3}, {0: 10, 1: 7}, 1_000)
    assert unsettled.records() == {0: 2}, "shard 1 has settled all, and of shard 2 nothing is known"
    assert unsettled.waited_ms(4_500) == {0: 3_500}


def test_the_time_counts_from_the_last_progress():
    unsettled = Unsettled()
    unsettled.note({0: 12}, {0: 10}, 1_000)
    unsettled.note({0: 15}, {0: 10}, 2_000)
    assert (unsettled.records(), unsettled.waited_ms(3_000)) == ({0: 5}, {0: 2_000})
    unsettled.note({0: 15}, {0: 13}, 4_000)
    assert (unsettled.records(), unsettled.waited_ms(5_000)) == ({0: 2}, {0: 1_000})
    unsettled.note({0: 15}, {0: 15}, 6_000)
    assert (unsettled.records(), unsettled.waited_ms(7_000)) == ({}, {})
    unsettled.note({0: 16}, {0: 15}, 8_000)
    assert unsettled.waited_ms(9_000) == {0: 1_000}


class Reader:
    """A consumer of three partitions: one without a response so far, and one whose end is unknown."""

    marks: ClassVar[dict[int, tuple[int, int] | None]] = {0: (0, 9), 1: None, 2: (-1_001, -1_001)}

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("transactions", partition) for partition in self.marks]

    def get_watermark_offsets(self, place: TopicPartition, *, cached: bool) -> tuple[int, int] | None:
        assert cached, "no request to the brokers"
        return self.marks[place.partition]


def test_only_ends_that_the_brokers_have_told_are_noted():
    watch = TransactionWatch(Settings(), Tallies())
    assert watch._ends(Reader()) == {0: 9}  # type: ignore[arg-type]
