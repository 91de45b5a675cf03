"""Topics that come and go behind a gateway: new ones are accepted at once, and offsets do not outlive their topic."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaAdminClient
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.requests import OffsetFetch, TopicPartitions
from streaming.embedded import Broker
from streaming.gateway import Gateway
from tests.system.asking import TOLD_BY_THE_TRANSPORT, Asker
from tests.system.waiting import HANG_S, wait_until
from tests.system.wire import Wire, connect

pytestmark = pytest.mark.long

RECORDS = 10
ABSENT = 3


@pytest.fixture
def admin(broker: Broker) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def wire(gateway: Gateway) -> Iterator[Wire]:
    with connect(gateway.bootstrap_servers) as wire:
        wire.call(ApiVersionsRequest(version=0))  # a connection that says nothing for half a minute is closed
        yield wire


def make(admin: Any, topic: str, address: str) -> None:
    """Make a topic with one partition, and write records to it."""
    admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
    producer = Producer({"bootstrap.servers": address})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(HANG_S) == 0


def make_anew(admin: Any, topic: str, address: str) -> None:
    admin.delete_topics([topic])
    wait_until(lambda: topic not in admin.list_topics())
    make(admin, topic, address)


def consume(gateway: Gateway, group_id: str, topic: str, records: int) -> list[int]:
    """Read records with a stock consumer, commit, and return their offsets."""
    config = {"group.id": group_id, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with closing(Consumer({"bootstrap.servers": gateway.bootstrap_servers, **config})) as consumer:
        consumer.subscribe([topic])
        read: list[int] = []

        def has_all() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                read.append(message.offset() or 0)
            return len(read) == records

        wait_until(has_all, account=lambda: read)
        consumer.commit(asynchronous=False)
    return read


def test_no_record_of_a_topic_that_was_made_anew_is_skipped(
    broker: Broker, gateway: Gateway, admin: Any, wire: Wire, asker: Asker
):
    """Public reports, R1 (franz-go 1426, KAFKA-19154): offsets 5 to 9 were read, and 0 to 4 were lost."""
    topic = group_id = asker.group_id
    make(admin, topic, broker.bootstrap_servers)
    assert consume(gateway, group_id, topic, 5) == [0, 1, 2, 3, 4]
    make_anew(admin, topic, broker.bootstrap_servers)
    assert consume(gateway, group_id, topic, RECORDS) == list(range(RECORDS))

    def kept(**fields: Any) -> list[int]:
        """Return the offset that the coordinator has, whichever topic it is of."""
        asked = OffsetFetch(
            **TOLD_BY_THE_TRANSPORT, group_id=group_id, topics=(TopicPartitions(topic, (0,), **fields),)
        )
        return [each.offset for each in asker.ask(asked).partitions]

    assert kept() == [RECORDS]
    admin.delete_topics([topic])
    fetch = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    by_name = OffsetFetchRequest(version=5, group_id=group_id, topics=[fetch])
    wait_until(lambda: wire.call(by_name).topics[0].partitions[0].committed_offset == -1)
    wait_until(lambda: kept() == [-1])  # the driver has asked the brokers
    assert kept(topic_id=NO_TOPIC) == [-1]
    everything = wire.call(OffsetFetchRequest(version=5, group_id=group_id, topics=None))
    assert everything.topics == []


def test_a_topic_is_accepted_as_soon_as_metadata_show_it(admin: Any, wire: Wire, group_id: str):
    """Public reports, R7: create, see, commit, back to back; and the same with added partitions.

    Each refused commit makes the gateway ask for a topic, or a partition, that does not exist yet.
    """

    def committed(topic: str, partition: int) -> int:
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        one = kind.OffsetCommitRequestPartition(partition_index=partition, committed_offset=5, committed_metadata="")
        said = wire.call(OffsetCommitRequest(version=8, group_id=group_id, topics=[kind(name=topic, partitions=[one])]))
        return int(said.topics[0].partitions[0].error_code)

    def await_seen(topic: str, partitions: int) -> None:
        named = [MetadataRequest.MetadataRequestTopic(name=topic)]
        request = MetadataRequest(version=12, topics=named, allow_auto_topic_creation=False)
        wait_until(lambda: len(wire.call(request).topics[0].partitions) == partitions)

    for number in range(4):
        topic = f"{group_id}-{number}"
        assert committed(topic, 0) == ABSENT
        admin.create_topics({topic: {"num_partitions": 1}})
        await_seen(topic, 1)
        assert (committed(topic, 0), committed(topic, 1)) == (0, ABSENT)
        admin.create_partitions({topic: 2})
        await_seen(topic, 2)
        assert committed(topic, 1) == 0
