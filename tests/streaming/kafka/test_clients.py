"""Tests of the use of Kafka libraries: one module makes confluent-kafka's clients, listed modules kafka-python's."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from streaming.config.settings import Settings
from streaming.kafka import clients

ROOT = Path(__file__).parents[3]
CONFLUENT, PYTHON = (
    {"Consumer", "Producer", "AdminClient"},
    {"KafkaConsumer", "PausingConsumer", "KafkaProducer", "KafkaAdminClient"},
)

BY_KAFKA_PYTHON = {
    "streaming/client/sending.py",
    "streaming/client/topics.py",
    "streaming/client/transport.py",
    "streaming/demo/orders.py",
    "streaming/embedded/broker.py",
    "streaming/kafka/transaction_log.py",
}
"""The member's client, the packages that create topics, and the reader of control records."""


def makers(names: set[str]) -> set[str]:
    """Return the modules that call one of these names."""
    return {
        str(file.relative_to(ROOT))
        for file in (ROOT / "streaming").rglob("*.py")
        if names & set(_called(ast.parse(file.read_text())))
    }


def _called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def test_clients_of_confluent_kafka_are_made_in_one_place() -> None:
    assert makers(CONFLUENT) == {"streaming/kafka/clients.py"}


def test_clients_of_kafka_python_are_made_by_the_members_client() -> None:
    assert makers(PYTHON) == BY_KAFKA_PYTHON


def test_every_client_gets_its_name_and_the_callers_options() -> None:
    """librdkafka checks options when a client is made, and asks no broker."""
    settings = Settings(bootstrap_servers="127.0.0.1:1")
    clients.consumer(settings, "test", {"auto.offset.reset": "earliest"}).close()
    assert clients.producer(settings, "test", {"linger.ms": 0}).flush(0) == 0
    assert clients.admin(settings, "test") is not None
    with pytest.raises(KafkaException, match="no such option"):
        clients.producer(settings, "test", {"no such option": 0})
