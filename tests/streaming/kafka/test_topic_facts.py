"""The facts about topics in the brokers' responses."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.errors import InvalidTopicError, LeaderNotAvailableError, TopicAuthorizationFailedError
from kafka.errors import UnknownTopicOrPartitionError as UnknownTopic

from coordinator.messages.consumer_requests import TopicFact
from streaming.config.settings import Settings
from streaming.config.timeouts import ATTEMPT_WAIT_S
from streaming.errors import BrokerUnreachable
from streaming.kafka import topic_facts as module
from streaming.kafka.topic_facts import TopicFacts, facts_in
from tests.ports import free_port
from tests.system.waiting import HANG_S

NO_ID = UUID(int=0)


def entry(name: str, error: Any = None, topic_id: UUID = NO_ID, partitions: int = 0) -> Any:
    code = 0 if error is None else error.errno
    return SimpleNamespace(name=name, error_code=code, topic_id=topic_id, partitions=[None] * partitions)


@pytest.mark.parametrize(
    ("topic_id", "text"),
    [
        (UUID(int=2**128 - 1), "_" * 21 + "w"),
        (UUID(int=0), "A" * 22),
        (UUID(bytes=b"\xfb\xfb\xfb\xfb" * 4), "-_v7-_v7-_v7-_v7-_v7-w"),
    ],
)
def test_an_id_is_written_as_kafka_prints_it(topic_id: UUID, text: str):
    assert facts_in([entry("t", None, topic_id, 3)]) == {"t": TopicFact("t", text, 3)}


@pytest.mark.parametrize("error", [UnknownTopic, InvalidTopicError])
def test_a_topic_that_cannot_be_found_does_not_exist(error: Any):
    assert facts_in([entry("t", error)]) == {"t": TopicFact("t")}


@pytest.mark.parametrize("error", [LeaderNotAvailableError, TopicAuthorizationFailedError])
def test_a_topic_with_another_error_is_left_out(error: Any):
    """Groups would lose all their partitions if the process lost its right to describe topics."""
    assert facts_in([entry("t", error), entry("u", None, UUID(int=1), 1)]).keys() == {"u"}


class Answering(TopicFacts):
    """A client whose brokers know every topic."""

    def __init__(self) -> None:
        super().__init__(Settings.load(bootstrap_servers="unused:1"), "test")
        self.asked: list[list[str]] = []

    def _request(self, names: Any, until_s: float) -> Any:
        self.asked.append(list(names))
        return [entry(name, None, UUID(int=1), 1) for name in names]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 250, ".", ".."])
def test_an_illegal_name_is_not_requested(name: str):
    facts = Answering()
    assert facts.of([name], 5) == {name: TopicFact(name)}
    assert facts.asked == []


def test_many_topics_are_requested_in_parts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "AT_ONCE_MAX", 2)
    facts = Answering()
    assert facts.of("abca", 5).keys() == set("abc")
    assert facts.asked == [["a", "b"], ["c"]]


def test_a_request_that_waits_ends_when_the_client_is_closed():
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        facts = TopicFacts(Settings.load(bootstrap_servers="{}:{}".format(*silent.getsockname())), "test")
        waiting = pool.submit(facts.of, ["t"], 10 * HANG_S)
        silent.accept()
        closed_s = time.monotonic()
        facts.close()
        with pytest.raises(BrokerUnreachable):
            waiting.result(HANG_S)
        assert time.monotonic() - closed_s < ATTEMPT_WAIT_S / 2
        with pytest.raises(BrokerUnreachable):
            facts.of(["t"], 10 * HANG_S)


def test_brokers_that_do_not_answer_are_an_error():
    facts = TopicFacts(Settings.load(bootstrap_servers=f"127.0.0.1:{free_port()}"), "test")
    with pytest.raises(BrokerUnreachable):
        facts.of(["t"], 0.5)
    facts.close()
