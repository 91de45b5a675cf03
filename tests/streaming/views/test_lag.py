"""Tests of the end offsets of partitions, without brokers: one partition's error does not affect others."""

from concurrent.futures import Future
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.views.lag import EndOffsets

PLACES = [("t", partition) for partition in range(3)]


class Found(NamedTuple):
    offset: int


class Brokers:
    """A stand-in for librdkafka's admin client, which answers 10 for each partition without an error."""

    def __init__(self, errors: dict[int, int], *, are_unreachable: bool = False) -> None:
        self.errors, self.are_unreachable = errors, are_unreachable

    def list_offsets(self, requested: Any, request_timeout: float) -> dict[Any, Any]:
        answers: dict[Any, Future[Found]] = {place: Future() for place in requested}
        for place, answer in answers.items():
            if place.partition in self.errors:
                answer.set_exception(KafkaException(KafkaError(self.errors[place.partition])))
            else:
                answer.set_result(Found(10))
        return answers

    def list_topics(self, timeout: float) -> None:
        if self.are_unreachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def ends() -> EndOffsets:
    return EndOffsets(Settings())


def test_only_a_partition_without_a_leader_has_no_end_offset(ends: EndOffsets) -> None:
    ends._admin = Brokers({1: KafkaError.LEADER_NOT_AVAILABLE})
    assert ends.of(PLACES) == {("t", 0): 10, ("t", 2): 10}
    assert ends.of(PLACES[1:2]) == {}


def test_an_unknown_end_is_an_error_for_a_request_by_time(ends: EndOffsets) -> None:
    """Without the error a reset would treat it as a partition without later records, and go to its end."""
    ends._admin = Brokers({1: KafkaError.LEADER_NOT_AVAILABLE})
    with pytest.raises(BrokerUnreachable):
        ends.of(PLACES, OffsetSpec.for_timestamp(1))
    ends._admin = Brokers({1: KafkaError.UNKNOWN_TOPIC_OR_PART})
    assert len(ends.of(PLACES, OffsetSpec.for_timestamp(1))) == 2


@pytest.mark.parametrize("error", [KafkaError._NOENT, KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE])
def test_if_no_partition_answers_unreachable_brokers_are_an_error(ends: EndOffsets, error: int) -> None:
    ends._admin = Brokers(dict.fromkeys(range(3), error), are_unreachable=True)
    with pytest.raises(BrokerUnreachable):
        ends.of(PLACES)
    ends._admin = Brokers(dict.fromkeys(range(3), error))
    assert ends.of(PLACES) == {}


@pytest.mark.parametrize("place", [("t", -1), ("t", 2**31), ("", 0), ("a/b", 0)])
def test_an_impossible_partition_is_not_requested(ends: EndOffsets, place: tuple[str, int]) -> None:
    """Groups may commit offsets of such partitions, as with Kafka."""
    ends._admin = Brokers({}, are_unreachable=True)
    assert ends.of([place, ("t", 0)]) == {("t", 0): 10}
