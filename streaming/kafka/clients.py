"""The only module that makes clients of confluent-kafka. The purpose of each of the two libraries for Kafka:

    kafka-python       the member's client (`streaming.client`): a GroupConsumer mirrors KafkaConsumer, with its names,
                       its settings and its errors, so a program that moves to it keeps its library
                       the administration of topics: the coordinator's topics (`topics`), the demo's topic and records
                       (`demo.orders`), and the readiness of the embedded broker (`embedded.broker`)
                       the records that a gateway writes into the transactions of its clients (`transactional`)
    confluent-kafka    all other clients: librdkafka works in its own threads, reads large topics in a fraction of the
                       time, and reports the end of a partition

`streaming.gateway` also uses kafka-python's classes of messages, without a client.
"""

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient

from streaming.config.settings import Settings

kafka_log = logging.getLogger("kafka.librdkafka")
"""librdkafka's own log. Its warnings are about requests that it retries, so it is as quiet as kafka-python's."""

ANSWER_WAIT_S = 15.0
"""The longest wait for the brokers' response to a request."""

REPEATED_ANSWER_WAIT_S = 5.0
"""The longest wait if the same request is repeated every few seconds."""

Options = Mapping[str, Any]
"""librdkafka's settings, by its own names."""


def consumer(settings: Settings, client_id: str, options: Options | None = None) -> Consumer:
    """Return a consumer with partitions assigned by hand: it joins no group and commits no offset."""
    arguments = {
        **_arguments(settings, client_id),
        "group.id": f"unused-{uuid.uuid4().hex}",  # librdkafka requires one
        "enable.auto.commit": False,
        **(options or {}),
    }
    return Consumer(arguments, logger=kafka_log)


def poll_all(consumer: Consumer, wait_s: float, messages_max: int) -> list[Message]:
    """Return the next messages as soon as any have come, or none after a time.

    `consume` alone returns when it has all the messages that it may have, or when its time is over.
    """
    first = consumer.poll(wait_s)
    return [] if first is None else [first, *consumer.consume(messages_max - 1, 0)]


def producer(settings: Settings, client_id: str, options: Options | None = None) -> Producer:
    """Return a producer. Delivery reports are called while it is polled or flushed."""
    return Producer({**_arguments(settings, client_id), **(options or {})}, logger=kafka_log)


def admin(settings: Settings, client_id: str) -> Any:
    """Return a client for requests about topics, offsets and access control lists.

    The caller keeps it until its futures are done, since they end with it.
    """
    return AdminClient(_arguments(settings, client_id), logger=kafka_log)


def _arguments(settings: Settings, client_id: str) -> dict[str, Any]:
    return {**settings.librdkafka_arguments(), "client.id": client_id}
