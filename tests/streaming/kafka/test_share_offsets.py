"""The positions of share groups, as a real broker describes them."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.kafka.offsets import ShareOffset
from streaming.kafka.share_offsets import ShareOffsetReader
from tests.system.waiting import wait_until

GROUP, TOPIC = "share-offsets", "share-offsets-lines"


@pytest.fixture(scope="module")
def producer(broker: Broker) -> Iterator[Producer]:
    """Return a producer, beside a topic of one partition that a share group reads from its beginning."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[earliest])
    admin.incremental_alter_configs([resource])[resource].result()
    with closing(Producer({"bootstrap.servers": broker.bootstrap_servers})) as producer:
        yield producer


@pytest.fixture
def reader(broker: Broker) -> Iterator[ShareOffsetReader]:
    with closing(ShareOffsetReader(Settings.load(bootstrap_servers=broker.bootstrap_servers))) as reader:
        yield reader


def append(producer: Producer, records: int) -> None:
    for _ in range(records):
        producer.produce(TOPIC, b"line")
    assert producer.flush(60) == 0


def test_lag_of_a_share_group_is_the_one_that_the_broker_tells(
    broker: Broker, producer: Producer, reader: ShareOffsetReader
) -> None:
    """It does not follow from the start offset, which stays behind."""
    append(producer, 20)

    def position() -> ShareOffset | None:
        return reader.of([GROUP]).get(GROUP, {}).get((TOPIC, 0))

    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP}
    with closing(ShareConsumer(config)) as consumer:
        consumer.subscribe([TOPIC])
        read = 0

        def is_acknowledged() -> bool:
            """Read on: each poll acknowledges the records of the one before."""
            nonlocal read
            read += len(list(consumer.poll(0.5) or ()))
            return read >= 20 and (found := position()) is not None and found.lag == 0

        wait_until(is_acknowledged, account=lambda: f"{read} records were read; {position()}")
    append(producer, 7)
    wait_until(lambda: (found := position()) is not None and found.lag == 7, account=position)


def test_group_that_is_not_there_has_no_positions(reader: ShareOffsetReader) -> None:
    """Kafka answers about it without an error."""
    assert reader.of(["nobody"]) == {"nobody": {}}
    assert reader.of([]) == {}
