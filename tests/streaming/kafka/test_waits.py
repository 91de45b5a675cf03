"""Each client of kafka-python that outlives an outage gives up a broker that hangs before the brokers' session ends."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kafka.net.manager import KafkaConnectionManager

from streaming.client.sending import Outage, RequestProducer
from streaming.client.topics import TopicWatch
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.config.timeouts import CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS
from streaming.kafka.any_broker import AnyBroker
from streaming.kafka.starting import Attempt
from streaming.kafka.transaction_log import TransactionLog
from streaming.kafka.transactional import TransactionWriter

KAFKA = {"bootstrap_servers": "127.0.0.1:1"}
SETTINGS = Settings(**KAFKA)
BROKERS_SESSION_MS = 9_000
"""Kafka's broker.session.timeout.ms: after it, the partitions of a broker that hangs have other leaders."""


class Seen(Exception):
    """The settings of a client's connections."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config


MAKERS: dict[str, Callable[[], object]] = {
    "requests and responses of a member": lambda: Transport(KAFKA, "p"),
    "topics of a member": lambda: TopicWatch(KAFKA)._open(Attempt(0, 1_000)),
    "records of a member's partitions": lambda: Transport.record_reader(None, KAFKA),  # type: ignore[arg-type]
    "control records": lambda: TransactionLog(SETTINGS, "t", "id", [0], "test"),
    "commits in transactions": lambda: TransactionWriter(SETTINGS, "t")._connect(float("inf")),
    "questions for any broker": lambda: AnyBroker(KAFKA),
}


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    make = KafkaConnectionManager.__init__

    def made(self: Any, *arguments: Any, **config: Any) -> None:
        make(self, *arguments, **config)
        raise Seen(self.config)

    monkeypatch.setattr(KafkaConnectionManager, "__init__", made)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_connection_to_a_broker_that_hangs_is_given_up_soon(maker: str) -> None:
    with pytest.raises(Seen) as raised:
        MAKERS[maker]()
    config = raised.value.config
    assert CONNECT_TIMEOUT_MS < BROKERS_SESSION_MS
    assert config["socket_connection_setup_timeout_ms"] <= CONNECT_TIMEOUT_MS
    assert config["socket_connection_setup_timeout_max_ms"] <= CONNECT_TIMEOUT_MS


def test_a_request_to_a_broker_that_hangs_is_sent_again_before_its_session_has_ended() -> None:
    made: list[Mapping[str, Any]] = []

    def client(**config: Any) -> Any:
        made.append(config)
        raise Seen(config)

    with pytest.raises(Seen):
        RequestProducer({**KAFKA, "kafka_client": client}, Outage("x"))
    assert made[0]["request_timeout_ms"] == REQUEST_TIMEOUT_MS < BROKERS_SESSION_MS
