"""The demo's records: a topic of six partitions, and a thread that writes to it."""

import json
from contextlib import suppress

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError, TopicAlreadyExistsError

from streaming.config.settings import Settings
from streaming.demo.worker import TOPIC
from streaming.errors import BrokerUnreachable
from streaming.watcher import Watcher

PARTITIONS = 6
EVERY_S = 0.25
GOODS = ("tea", "bread", "apples", "ink", "candles")

CLOSE_WAIT_S = 4.0
_PATIENCE = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 3_000, "max_block_ms": 1_000}
"""How long an order waits for brokers: less than `CLOSE_WAIT_S`, since a producer with orders cannot be closed."""


class Orders(Watcher):
    """The demo's topic and its producer. In a `with` block, each partition gets an order every quarter of a second.

    Raises:
        BrokerUnreachable: no broker answers, or the brokers did not create the topic.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__("the demo's orders")
        arguments = settings.kafka_client_arguments()
        try:
            with KafkaAdminClient(**arguments) as admin:
                wanted = {"num_partitions": PARTITIONS, "replication_factor": settings.replication_factor}
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics({TOPIC: wanted}, wait_for_metadata=True)
            self._producer = KafkaProducer(enable_idempotence=False, **{**arguments, **_PATIENCE})
        except KafkaError as error:
            raise BrokerUnreachable(
                f"The demo's topic {TOPIC} cannot be created at {settings.bootstrap_servers} ({error}): see the broker."
            ) from error

    def close(self) -> None:
        """Stop the thread and the producer."""
        super().close()
        with suppress(KafkaError):  # the last orders are lost if the brokers are gone
            self._producer.close(timeout=CLOSE_WAIT_S)

    def _watch(self) -> None:
        number = 0
        while not self._closing.wait(EVERY_S):
            for partition in range(PARTITIONS):
                number += 1
                order = {"order": number, "item": GOODS[number % len(GOODS)]}
                with suppress(KafkaError):  # during an outage of the brokers orders are lost
                    self._producer.send(TOPIC, json.dumps(order).encode(), partition=partition)
