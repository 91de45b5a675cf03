"""Tests of the end offsets of partitions, without brokers: one partition's error does not affect others."""

from collections.abc import Iterable

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.kafka.offsets import EARLIEST, LATEST, Offsets, TopicAndPartition, Why
from streaming.views.state.lag import Bounds, Committed, EndOffsets, committed_offsets, gone_unread, lag, total_lag
from tests.streaming.views.observing import Observed

PLACES = [("t", partition) for partition in range(3)]


class Brokers:
    """A stand-in for `OffsetAsker`: each partition ends at 10, but for those with a reason."""

    def __init__(self, unknown: dict[int, Why], *, are_unreachable: bool = False) -> None:
        self.unknown, self.are_unreachable = unknown, are_unreachable
        self.asked: list[tuple[int, list[TopicAndPartition]]] = []
        self.begins: dict[TopicAndPartition, int] = {}

    def ask(self, places: Iterable[TopicAndPartition], at_ms: int) -> Offsets:
        places = list(places)
        self.asked.append((at_ms, places))
        if self.are_unreachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        of = {place: self.unknown.get(place[1]) for place in places}
        at = self.begins.get if at_ms == EARLIEST else {}.get
        known = {place: at(place, 10) for place, why in of.items() if why is None}
        return Offsets(known, {place: why for place, why in of.items() if why}, {}, frozenset(), frozenset())


@pytest.fixture
def ends() -> EndOffsets:
    return EndOffsets(Settings())


@pytest.mark.parametrize("why", Why)
def test_only_a_partition_whose_leader_does_not_answer_has_no_end_offset(ends: EndOffsets, why: Why) -> None:
    ends._asker = Brokers({1: why})
    assert ends.of(PLACES) == {("t", 0): 10, ("t", 2): 10}
    assert ends.of(PLACES[1:2]) == {}


@pytest.mark.parametrize("why", [Why.NO_LEADER, Why.SILENT])
def test_an_unknown_end_is_an_error_for_a_request_by_time(ends: EndOffsets, why: Why) -> None:
    """Without the error a reset would treat it as a partition without later records, and go to its end."""
    ends._asker = Brokers({1: why})
    with pytest.raises(BrokerUnreachable, match="t-1"):
        ends.of(PLACES, 1)
    ends._asker = Brokers({1: Why.ABSENT})
    assert len(ends.of(PLACES, 1)) == 2


def test_unreachable_brokers_are_an_error(ends: EndOffsets) -> None:
    ends._asker = Brokers({}, are_unreachable=True)
    with pytest.raises(BrokerUnreachable):
        ends.of(PLACES)


@pytest.mark.parametrize("place", [("t", -1), ("t", 2**31), ("", 0), ("a/b", 0)])
def test_an_impossible_partition_is_not_requested(ends: EndOffsets, place: tuple[str, int]) -> None:
    """Groups may commit offsets of such partitions, as with Kafka."""
    ends._asker = Brokers({})
    assert ends.of([place, ("t", 0)]) == {("t", 0): 10}


@pytest.mark.parametrize(
    ("log", "committed", "behind", "gone"),
    [
        (Bounds(0, 100), 10, 90, 0),
        (Bounds(100, 100), 10, 0, 90),  # all records are gone
        (Bounds(40, 100), 10, 60, 30),
        (Bounds(40, 100), 40, 60, 0),
        (Bounds(0, 100), 100, 0, 0),
        (Bounds(0, 100, beyond=120), 120, -20, 0),
        (Bounds(0, 0, beyond=1_000), 1_000, -1_000, 0),  # the topic was made anew
        (Bounds(0, 100, beyond=120), 121, 0, 0),  # committed since the end was read
        (Bounds(0, 100), 120, 0, 0),
        (Bounds(0, 100), -1, None, None),
        (Bounds(0, 100), None, None, None),
        (None, 10, None, None),
    ],
)
def test_lag_counts_the_records_that_exist(
    log: Bounds | None, committed: int | None, behind: int | None, gone: int | None
) -> None:
    """Public reports, R6: records that retention has deleted counted as lag, which no consumer could make smaller."""
    assert (lag(log, committed), gone_unread(log, committed)) == (behind, gone)


def test_the_beginning_of_a_log_is_asked_for_where_it_matters(ends: EndOffsets) -> None:
    """Not for a partition that is read to its end, nor for one without a committed offset."""
    ends._asker = brokers = Brokers({2: Why.SILENT})
    brokers.begins = {("t", 0): 4}
    places: list[TopicAndPartition] = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]
    committed = [Committed(3, 10), Committed(10, 12), Committed(5, 5), None]
    assert ends.bounds(dict(zip(places, committed, strict=True))) == {
        ("t", 0): Bounds(4, 10), ("t", 1): Bounds(0, 10, beyond=12), ("t", 3): Bounds(0, 10),
    }  # fmt: skip
    assert brokers.asked == [(LATEST, places), (EARLIEST, [("t", 0)])]


def test_a_negative_lag_hides_no_other_one() -> None:
    assert total_lag([90, -1_000, 0]) == 90


def test_the_lowest_and_the_highest_committed_offset_count() -> None:
    groups = [Observed("a").commits(1, 0, 17).commits(1, 1, 3), Observed("b").commits(1, 0, 4).record(2, {"c": [2]})]
    found = committed_offsets(each.views().groups[each.group_id] for each in groups)
    assert found == {("orders", 0): Committed(4, 17), ("orders", 1): Committed(3, 3), ("orders", 2): None}
