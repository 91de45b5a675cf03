"""The tested clients: the command that starts each of them, its output, and its limits."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.clients import go_programs, java, java_programs, node_programs, quix

Config = dict[str, Any]
Event = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A client.

    Args:
        name: The name that its project gives it.
        version: Returns the installed version.
        command: Makes the command line for a configuration and a folder. The folder has the Go programs, and a worker
            may write its own files there.
        translate: Turns a line of its output into events (see `tests.clients`).
        obeys: Whether it reads commands from stdin. If not, it reacts only to SIGTERM, and commits by itself.
    """

    name: str
    version: Callable[[], str]
    command: Callable[[Config, Path], list[str]]
    translate: Callable[[str], list[Event]] = lambda line: [json.loads(line)]
    obeys: bool = True

    def __str__(self) -> str:
        return self.name


def _python(module: str, **options: str) -> Callable[[Config, Path], list[str]]:
    return lambda config, _: [sys.executable, "-m", f"tests.clients.{module}", json.dumps(config | options)]


def _go(program: str, **options: str) -> Callable[[Config, Path], list[str]]:
    return lambda config, folder: [str(folder / program), json.dumps(config | options)]


def _java(**options: str) -> Callable[[Config, Path], list[str]]:
    return lambda config, folder: java.command(config | options, folder)


KAFKA_PYTHON = Kind("kafka-python", lambda: version("kafka-python"), _python("with_kafka_python"))
LIBRDKAFKA = Kind("librdkafka", lambda: version("confluent-kafka"), _python("with_confluent"))
AIOKAFKA = Kind("aiokafka", lambda: version("aiokafka"), _python("with_aiokafka"))
JAVA = Kind("Java", java.version, _java(), java.translate, obeys=False)
FRANZ_GO = Kind("franz-go", lambda: go_programs.version("github.com/twmb/franz-go"), _go("franz"))
SARAMA = Kind("sarama", lambda: go_programs.version("github.com/IBM/sarama"), _go("sarama"))

LIBRDKAFKA_848 = Kind(
    "librdkafka, consumer protocol", lambda: version("confluent-kafka"), _python("with_confluent", protocol="consumer")
)
JAVA_848 = Kind("Java, consumer protocol", java.version, _java(protocol="consumer"), java.translate, obeys=False)
FRANZ_GO_848 = Kind(
    "franz-go, consumer protocol",
    lambda: go_programs.version("github.com/twmb/franz-go"),
    _go("franz", protocol="consumer"),
)

KINDS = (
    KAFKA_PYTHON,
    LIBRDKAFKA,
    AIOKAFKA,
    JAVA,
    FRANZ_GO,
    SARAMA,
    LIBRDKAFKA_848,
    JAVA_848,
    FRANZ_GO_848,
)

NEXT = (LIBRDKAFKA_848, JAVA_848, FRANZ_GO_848)
"""The clients that use the protocol of KIP-848. Their session timeout is the coordinator's setting."""


COPIER = Kind("librdkafka, copying", LIBRDKAFKA.version, _python("copying_with_confluent"))
COPIER_848 = Kind(
    "librdkafka, copying, consumer protocol", LIBRDKAFKA.version, _python("copying_with_confluent", protocol="consumer")
)
COPIERS = (COPIER, COPIER_848)
"""The workers of librdkafka that copy records in transactions; see `tests.clients.copying`."""

JAVA_COPIER = Kind("Java, copying", java.version, java_programs.command)
FRANZ_GO_COPIER = Kind("franz-go, copying", FRANZ_GO.version, _go("franz"))
SARAMA_COPIER = Kind("sarama, copying", SARAMA.version, _go("sarama"))
KAFKAJS_COPIER = Kind("KafkaJS, copying", lambda: node_programs.version("kafkajs"), node_programs.command)
QUIX_COPIER = Kind("Quix Streams, copying", lambda: quix.VERSION, quix.command)

TRANSACTIONAL = (JAVA_COPIER, COPIER, FRANZ_GO_COPIER, SARAMA_COPIER, KAFKAJS_COPIER)
"""One copier of each client that has transactions."""


def another(kind: Kind) -> Kind:
    """Return the next kind in the table. So every kind is in two mixed groups."""
    return KINDS[(KINDS.index(kind) + 1) % len(KINDS)]
