"""The facts about topics that librdkafka's client returns."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid

from coordinator.consumer_requests import TopicFact
from streaming.kafka import topic_facts as module
from streaming.kafka.topic_facts import topic_facts


@dataclass
class Admin:
    """A client that describes topics by a table: a topic, or the code of an error."""

    topics: dict[str, Any]
    asked: list[Sequence[str]]

    def describe_topics(self, topics: TopicCollection, request_timeout: float) -> dict[str, Future[Any]]:
        assert request_timeout == 5
        self.asked.append(topics.topic_names)
        return {name: self._future(self.topics[name]) for name in topics.topic_names}

    def _future(self, told: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(told, int):
            future.set_exception(KafkaException(KafkaError(told)))
        else:
            future.set_result(told)
        return future


def described(topic_id: Uuid, partitions: int) -> Any:
    return SimpleNamespace(topic_id=topic_id, partitions=[None] * partitions)


def facts(topics: dict[str, Any], *names: str) -> dict[str, TopicFact]:
    return topic_facts(Admin(topics, []), names, 5)


@pytest.mark.parametrize(
    ("topic_id", "text"),
    [
        (Uuid(-1, -1), "_" * 21 + "w"),
        (Uuid(0, 0), "A" * 22),
        (Uuid(-289360691352306693, -289360691352306693), "-_v7-_v7-_v7-_v7-_v7-w"),
    ],
)
def test_an_id_is_written_as_kafka_prints_it(topic_id: Uuid, text: str):
    """librdkafka prints + and / where Kafka prints - and _."""
    assert facts({"t": described(topic_id, 3)}, "t") == {"t": TopicFact("t", text, 3)}


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION])
def test_a_topic_that_cannot_be_found_does_not_exist(code: int):
    assert facts({"t": code}, "t") == {"t": TopicFact("t")}


@pytest.mark.parametrize("code", [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_topic_with_another_error_is_left_out(code: int):
    """Groups would lose all their partitions if the process lost its right to describe topics."""
    assert facts({"t": code, "u": described(Uuid(0, 1), 1)}, "t", "u").keys() == {"u"}


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN])
def test_no_answer_is_no_fact(code: int):
    with pytest.raises(KafkaException):
        facts({"t": code}, "t")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 250, ".", ".."])
def test_an_illegal_name_is_not_requested(name: str):
    """librdkafka refuses the whole request for an empty name."""
    admin = Admin({}, [])
    assert topic_facts(admin, [name], 5) == {name: TopicFact(name)}
    assert admin.asked == []


def test_many_topics_are_requested_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "AT_ONCE_MAX", 2)
    admin = Admin({name: described(Uuid(0, 1), 1) for name in "abc"}, [])
    assert topic_facts(admin, "abca", 5).keys() == set("abc")
    assert [list(part) for part in admin.asked] == [["a", "b"], ["c"]]
