"""The transactions of a topic's partitions: who has written, and the control records that end transactions.

librdkafka and Kafka's own consumers hide control records. kafka-python parses them and then leaves them out, in one
method of its fetcher, which is replaced here. So its fetching, leaders, security and retries are used as they are. Only
the headers of batches are read: all records of a batch have one producer.

Source: KIP-98; kafka.consumer.fetcher.Fetcher.PartitionRecords of kafka-python 3.0.
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, Self

from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, UnknownTopicOrPartitionError

from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S, RECONNECT_BACKOFF_MAX_MS, REQUEST_TIMEOUT_MS
from streaming.kafka.pausing import PausingConsumer
from streaming.kafka.starting import started

BATCHES_AT_ONCE = 1_000
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 16 * 2**20
TOPIC_CHECK_MS = 5_000
"""How often the id of the topic is compared, if no error of the brokers shows that it is gone."""

CLOSE_WAIT_MS = 2_000


class Batch(NamedTuple):
    """Records of a transaction, or its end.

    Args:
        first: The offset of the first record.
        offset: The offset of the last record.
        is_committed: Of an end, whether the transaction was committed, and not aborted; None for records.
    """

    partition: int
    producer_id: int
    first: int
    offset: int
    is_committed: bool | None = None


class TransactionLog:
    """A reader of all partitions from their oldest records on. One thread may use it.

    Args:
        topic_id: The id of the topic. If it was made anew, reading fails.

    Raises:
        KafkaError: No broker answers.
    """

    def __init__(
        self, settings: Settings, topic: str, topic_id: str, partitions: Collection[int], client_id: str
    ) -> None:
        self._topic, self._topic_id = topic, topic_id
        config = {
            **settings.kafka_client_arguments(),
            "client_id": client_id,
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "allow_auto_create_topics": False,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "reconnect_backoff_max_ms": RECONNECT_BACKOFF_MAX_MS,
            "fetch_max_wait_ms": FETCH_WAIT_MS,
            "fetch_max_bytes": FETCH_BYTES_MAX,
            "max_poll_records": BATCHES_AT_ONCE,
            "metadata_max_age_ms": TOPIC_CHECK_MS,
        }
        self._reader: Any = started(lambda attempt: PausingConsumer(**attempt.config(config)), ANSWER_WAIT_S)
        self._reader._fetcher.PartitionRecords = _Batches
        self._places = [TopicPartition(topic, each) for each in partitions]
        self._reader.assign(self._places)
        self._reader.seek_to_beginning(*self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close(autocommit=False, timeout_ms=CLOSE_WAIT_MS)

    def read(self, wait_s: float) -> list[Batch]:
        """Wait for batches, and return those of each partition in their order.

        Raises:
            KafkaError: The topic cannot be read, or is another one.
        """
        polled = self._reader.poll(int(wait_s * 1_000))
        known = self._reader._cluster.topic_id(self._topic)
        if known is not None and str(known) != self._topic_id:
            raise UnknownTopicOrPartitionError(f"the topic {self._topic} was made anew")
        return [batch for some in polled.values() for batch in some]

    def pause(self, partitions: Collection[int]) -> None:
        """Read no more of these partitions, and read all others."""
        wanted = {place for place in self._places if place.partition in partitions}
        paused = self._reader.paused()
        self._reader.pause(*(wanted - paused))
        self._reader.resume(*(paused - wanted))

    def ends(self) -> dict[int, int]:
        """Return the ends of the partitions as the last responses had them."""
        ends = {place.partition: self._reader.highwater(place) for place in self._places}
        return {partition: end for partition, end in ends.items() if end is not None}


class _Batches(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The batches of one response for a partition, in place of their records."""

    def _unpack_records(self, tp: TopicPartition, records: Any, *_: object) -> Iterator[Batch]:
        while (batch := records.next_batch()) is not None:
            if self.check_crcs and not batch.validate_crc():
                raise CorruptRecordError(f"the batch at {batch.base_offset} of {tp} has another checksum")
            self.next_fetch_offset = batch.next_offset
            if batch.is_transactional:
                yield _read(tp.partition, batch)
        self.drain()


def _read(partition: int, batch: Any) -> Batch:
    is_committed = next(iter(batch)).commit if batch.is_control_batch else None
    return Batch(partition, batch.producer_id, batch.base_offset, batch.last_offset, is_committed)
