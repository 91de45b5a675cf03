"""The only module that makes clients of confluent-kafka. The purpose of each of the two libraries for Kafka:

    kafka-python       the member's client (`streaming.client`): a GroupConsumer mirrors KafkaConsumer, with its names,
                       its settings and its errors, so a program that moves to it keeps its library
                       the administration of topics: the coordinator's topics (`topics`, over the connections of
                       `any_broker`), the demo's topic and records (`demo.orders`), and the readiness of the embedded
                       broker (`embedded.broker`)
                       the records that a gateway writes into the transactions of its clients (`transactional`)
                       over the same connections, what any broker reports: the ids and partition counts of topics
                       (`topic_facts`) and access control lists (`gateway.security.acls`); and the deletion of records
                       (`deleting`)
                       the control records that end transactions (`transaction_log`), which librdkafka hides
    confluent-kafka    all other clients: librdkafka works in its own threads, reads large topics in a fraction of the
                       time, and reports the end of a partition

`streaming.gateway` also uses kafka-python's classes of messages, without a client.
"""

import logging
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from streaming.config import timeouts
from streaming.config.settings import Settings

kafka_log = logging.getLogger("kafka.librdkafka")
"""librdkafka's own log. Its warnings are about requests that it retries, so it is as quiet as kafka-python's."""

Options = Mapping[str, Any]
"""librdkafka's settings, by its own names."""

TIMED_OUT = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE})
"""The errors of a request without an answer. The second one is that of a request that could not even be sent, because
the broker has not answered the connection: of the same call, either of them comes."""

_WITHOUT_ANSWER = TIMED_OUT | {KafkaError._TRANSPORT}
"""The errors of a request after which another broker may answer it."""


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
    arguments = {"request.timeout.ms": timeouts.REQUEST_TIMEOUT_MS, **_arguments(settings, client_id)}
    return Producer({**arguments, **(options or {})}, logger=kafka_log)


def admin(settings: Settings, client_id: str) -> Any:
    """Return a client for requests about topics, offsets and access control lists.

    The caller keeps it until its futures are done, since they end with it.
    """
    return AdminClient(_arguments(settings, client_id), logger=kafka_log)


def metadata(client: Any, topic: str | None = None, within_s: float | None = None) -> Any:
    """Return the cluster's metadata, of all topics or of one, as a client's `list_topics`.

    librdkafka sends such a request to one broker only. So one that is frozen, or cut off, costs one attempt here; then
    librdkafka closes its connection to it, and chooses another one.

    Args:
        within_s: The longest wait for all attempts together; `ANSWER_WAIT_S` by default.

    Raises:
        KafkaException: No broker answers.
    """
    until_s = time.monotonic() + (timeouts.ANSWER_WAIT_S if within_s is None else within_s)
    of_one = {} if topic is None else {"topic": topic}
    while True:
        left_s = until_s - time.monotonic()
        try:
            return client.list_topics(timeout=min(left_s, timeouts.ATTEMPT_WAIT_S), **of_one)
        except KafkaException as error:
            if error.args[0].code() not in _WITHOUT_ANSWER or left_s <= timeouts.ATTEMPT_WAIT_S:
                raise
        time.sleep(timeouts.RETRY_WAIT_S)


def learn_leaders(client: Any) -> None:
    """Make a client request the leaders of all partitions, after one of them has not answered.

    librdkafka keeps a leader that it knows, although it waits for it in vain, until it refreshes its metadata after
    minutes. An outage of all brokers is no error here.
    """
    with suppress(KafkaException):
        metadata(client, within_s=timeouts.ATTEMPT_WAIT_S)


def _arguments(settings: Settings, client_id: str) -> dict[str, Any]:
    return {
        "socket.timeout.ms": timeouts.REQUEST_TIMEOUT_MS,
        "socket.connection.setup.timeout.ms": timeouts.CONNECT_TIMEOUT_MS,
        "reconnect.backoff.max.ms": timeouts.RECONNECT_BACKOFF_MAX_MS,
        **settings.librdkafka_arguments(),
        "client.id": client_id,
    }
