"""The records of one partition from a time to its present end."""

from collections.abc import Iterator

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from coordinator.hashing import shard_of
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.kafka.reader import TopicUnread

POLL_MS = 500
SILENCE_POLLS = 60
"""The polls without a record, half a minute, after which the brokers count as unavailable."""


def records(settings: Settings, topic: str, key: str, from_ms: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield partition, offset and value of each record in the partition of a key.

    Args:
        from_ms: Records that the brokers appended before it, in Unix milliseconds, may be left out.

    Raises:
        BrokerUnreachable: No broker answers.
        TopicUnread: The records could not be read to the end.
    """
    try:
        consumer = KafkaConsumer(**settings.kafka_client_arguments(), group_id=None)
    except KafkaError as error:
        raise BrokerUnreachable.at(settings.bootstrap_servers, error) from error
    try:
        yield from _read(consumer, topic, key, from_ms)
    except KafkaError as error:
        raise TopicUnread(f"{topic} could not be read ({error}). Run the command again.") from error
    finally:
        consumer.close()


def _read(consumer: KafkaConsumer, topic: str, key: str, from_ms: int) -> Iterator[tuple[int, int, bytes | None]]:
    partitions = consumer.partitions_for_topic(topic)
    if not partitions:
        raise TopicUnread(f"The brokers have no topic {topic}.")
    place = TopicPartition(topic, shard_of(key, len(partitions)))
    consumer.assign([place])
    end = consumer.end_offsets([place])[place]
    begin = consumer.offsets_for_times({place: max(0, from_ms)})[place]
    consumer.seek(place, begin.offset if begin is not None else end)
    silent = 0
    while consumer.position(place) < end:
        batch = consumer.poll(timeout_ms=POLL_MS).get(place, [])
        silent = 0 if batch else silent + 1
        if silent > SILENCE_POLLS:
            raise TopicUnread(f"{topic} could not be read to its end. Run the command again.")
        for record in batch:
            yield record.partition, record.offset, record.value
