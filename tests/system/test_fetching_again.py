"""librdkafka repeats an OffsetFetch that a gateway could not pass on, and reads its partitions (librdkafka 5586)."""

from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaAdminClient, KafkaProducer

from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.system.conftest import Service
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long

TOPIC, PARTITIONS = "fetching-again", 4


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with a record in each partition."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics({TOPIC: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers)) as producer:
        for partition in range(PARTITIONS):
            producer.send(TOPIC, b"record", partition=partition)
        producer.flush()
    return TOPIC


class Reading:
    """A consumer with partitions that it was assigned, each from its committed offset, and those that it has read."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": TOPIC,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._read: set[int] = set()

    def assign(self, *partitions: int) -> None:
        self._read.clear()
        self._consumer.assign([TopicPartition(TOPIC, partition) for partition in partitions])

    def has_read(self, *partitions: int) -> bool:
        """Read for a moment. Return whether a record of each of these partitions was read."""
        message = self._consumer.poll(0.1)
        if message is not None and not message.error():
            self._read.add(message.partition())
        return self._read >= set(partitions)

    def close(self) -> None:
        self._consumer.close()


def test_partitions_are_read_after_their_offsets_could_not_be_fetched(
    run_service: Callable[..., Service], topic: str
) -> None:
    """The fetch is on its way when the gateway cannot write to any shard for a moment."""
    service = run_service(TOPIC)
    service.await_ready()
    with (
        Gateway(service.settings.model_copy(update={"gateway_port": 0})) as gateway,
        closing(Reading(gateway.bootstrap_servers)) as reading,
    ):
        reading.assign(0)
        wait_until(lambda: reading.has_read(0))
        assert service.stop() == 0
        asking = gateway.coordinators.clients[service.settings.topic_prefix]
        reading.assign(*range(PARTITIONS))
        wait_until(lambda: reading.has_read() and asking.waiting)
        gateway._loop.call_soon_threadsafe(asking.lose, range(asking.shards))
        wait_until(lambda: reading.has_read() and not asking.waiting)
        gateway._loop.call_soon_threadsafe(asking.lose, ())
        run_service(TOPIC).await_ready()
        wait_until(lambda: reading.has_read(*range(PARTITIONS)))
