"""The lookup of single records of a topic by their offsets: small requests, however long the topic is."""

import time
from collections.abc import Mapping
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, Message, TopicPartition

from streaming.config.settings import Settings
from streaming.kafka.clients import Options, consumer, poll_all

MESSAGES_AT_ONCE = 1_000

_OPTIONS: Options = {
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",
    "fetch.message.max.bytes": 65_536,  # a larger batch of records comes too, but takes a request of its own
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 10,  # the default waits for a second between two lookups
}

_NONE_THERE = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)
"""The log ends before the offset, or begins after it."""


class Found(NamedTuple):
    """A record that was looked up.

    Args:
        at_ms: The time of the record, Unix milliseconds.
        epoch: The leader epoch in which the record was appended; None if the brokers did not store one.
    """

    offset: int
    at_ms: int
    epoch: int | None


class Lookup:
    """A client that looks up records of one topic, for one thread. Between two lookups it sends no request."""

    def __init__(self, settings: Settings, topic: str, client_id: str) -> None:
        self._topic = topic
        self._consumer = consumer(settings, client_id, _OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def records(self, offsets: Mapping[int, int], wait_s: float) -> dict[int, Found | None]:
        """Return, by partition, the first record at an offset or after it; None if the log does not reach to the
        offset, or begins after it.

        A partition whose broker does not answer in time is omitted.

        Args:
            offsets: The offset of each partition.
            wait_s: The longest wait for the records of all partitions together, seconds.
        """
        found: dict[int, Found | None] = {}
        self._consumer.assign([TopicPartition(self._topic, partition, at) for partition, at in offsets.items()])
        until_s = time.monotonic() + wait_s
        try:
            while len(found) < len(offsets) and (left_s := until_s - time.monotonic()) > 0:
                for message in poll_all(self._consumer, left_s, MESSAGES_AT_ONCE):
                    self._handle(message, found)
        finally:
            self._consumer.resume([TopicPartition(self._topic, partition) for partition in found])  # it outlives assign
            self._consumer.unassign()
        return found

    def _handle(self, message: Message, found: dict[int, Found | None]) -> None:
        partition, error = message.partition(), message.error()
        if partition is None or partition in found:
            return
        if error is None:
            found[partition] = Found(message.offset() or 0, message.timestamp()[1], message.leader_epoch())
        elif error.code() in _NONE_THERE:
            found[partition] = None
        else:
            return  # librdkafka retries
        self._consumer.pause([TopicPartition(self._topic, partition)])
