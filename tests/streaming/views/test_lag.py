"""Where partitions end, as brokers tell it that are not there: one partition's trouble is its own."""

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
    """Answers as librdkafka's admin client does: 10 for each partition that is not in trouble."""

    def __init__(self, troubles: dict[int, int], *, are_away: bool = False) -> None:
        self.troubles, self.are_away = troubles, are_away

    def list_offsets(self, asked: Any, request_timeout: float) -> dict[Any, Any]:
        answers: dict[Any, Future[Found]] = {place: Future() for place in asked}
        for place, answer in answers.items():
            if place.partition in self.troubles:
                answer.set_exception(KafkaException(KafkaError(self.troubles[place.partition])))
            else:
                answer.set_result(Found(10))
        return answers

    def list_topics(self, timeout: float) -> None:
        if self.are_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def ends() -> EndOffsets:
    return EndOffsets(Settings())


def test_a_partition_without_a_leader_has_no_end_and_the_others_have_theirs(ends: EndOffsets) -> None:
    ends._admin = Brokers({1: KafkaError.LEADER_NOT_AVAILABLE})
    assert ends.of(PLACES) == {("t", 0): 10, ("t", 2): 10}
    assert ends.of(PLACES[1:2]) == {}


def test_asked_for_a_time_an_end_that_nobody_knows_is_told(ends: EndOffsets) -> None:
    """A reset would take it for a partition without younger records, and go to its end."""
    ends._admin = Brokers({1: KafkaError.LEADER_NOT_AVAILABLE})
    with pytest.raises(BrokerUnreachable):
        ends.of(PLACES, OffsetSpec.for_timestamp(1))
    ends._admin = Brokers({1: KafkaError.UNKNOWN_TOPIC_OR_PART})
    assert len(ends.of(PLACES, OffsetSpec.for_timestamp(1))) == 2


@pytest.mark.parametrize("error", [KafkaError._NOENT, KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE])
def test_where_nobody_answers_the_brokers_are_away(ends: EndOffsets, error: int) -> None:
    ends._admin = Brokers(dict.fromkeys(range(3), error), are_away=True)
    with pytest.raises(BrokerUnreachable):
        ends.of(PLACES)
    ends._admin = Brokers(dict.fromkeys(range(3), error))
    assert ends.of(PLACES) == {}


@pytest.mark.parametrize("place", [("t", -1), ("t", 2**31), ("", 0), ("a/b", 0)])
def test_what_cannot_be_there_is_not_asked_for(ends: EndOffsets, place: tuple[str, int]) -> None:
    """Groups may commit for it all the same, as they may with Kafka."""
    ends._admin = Brokers({}, are_away=True)
    assert ends.of([place, ("t", 0)]) == {("t", 0): 10}
