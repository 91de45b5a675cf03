"""Topics and their records in memory, and the part of KafkaConsumer that a `GroupConsumer` uses to read them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import NoOffsetForPartitionError
from kafka.serializer import Deserializer, DeserializeWrapper

from streaming.client.member import resource_id
from streaming.client.topics import Snapshot, Topic

RECORDS_MAX = 1_000_000
"""The most records of all topics together."""


class Topics:
    """The topics with their records. It is the `TopicWatch` of the members too: they see each change at once."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, list[ConsumerRecord]] = {}
        self.snapshot = Snapshot(known=None)

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic, or add partitions to it.

        Raises:
            ValueError: the topic has as many partitions already.
        """
        present = len(self.snapshot.topics[topic].racks) if topic in self.snapshot.topics else 0
        if partitions <= present:
            raise ValueError(f"{topic!r} has {present} partitions already; more than that are needed, not {partitions}")
        for number in range(present, partitions):
            self.records[TopicPartition(topic, number)] = []
        made = Topic(racks=(frozenset(),) * partitions, topic_id=resource_id(topic))
        self.snapshot = Snapshot({**self.snapshot.topics, topic: made}, known=None)

    def append(self, at: TopicPartition, value: bytes | None, key: bytes | None, at_ms: int) -> int:
        """Append a record to a partition. Return its offset.

        Raises:
            ValueError: the partition does not exist, or all topics have `RECORDS_MAX` records together.
        """
        if at not in self.records:
            raise ValueError(f"{at.topic!r} has no partition {at.partition}: call create_topic first")
        if sum(map(len, self.records.values())) >= RECORDS_MAX:
            raise ValueError(f"the topics have {RECORDS_MAX} records, which is the most that a test can have")
        log = self.records[at]
        sizes = -1 if key is None else len(key), -1 if value is None else len(value)
        log.append(ConsumerRecord(*at, -1, len(log), at_ms, 0, key, value, [], None, *sizes, -1))
        return len(log) - 1

    # -- as a TopicWatch -----------------------------------------------------------------------------------------------

    def ask(self, who: object, names: Collection[str] | None, age_ms: int | None = None) -> None:
        """Ignore the question: all topics are known always."""

    def forget(self, who: object) -> None:
        """Ignore the call: no topic is watched."""

    def id_of(self, topic: str) -> str | None:
        """Return None: no topic is deleted and made anew here, so commits need no ids."""
        return None

    def wait(self, names: Collection[str], wait_s: float) -> Snapshot:
        """Return the topics."""
        return self.snapshot


class Reader:
    """The records of assigned partitions, as KafkaConsumer returns them.

    Args:
        config: KafkaConsumer's configuration: `auto_offset_reset` and the deserializers are used.
        wait: Called with milliseconds when no record is there.
    """

    def __init__(self, topics: Topics, config: Mapping[str, Any], wait: Callable[[float], None]) -> None:
        self._topics, self._wait = topics, wait
        self._reset = config.get("auto_offset_reset", "latest")
        self._read_key = _deserializer(config.get("key_deserializer"))
        self._read_value = _deserializer(config.get("value_deserializer"))
        self._at: dict[TopicPartition, int | None] = {}
        self._paused: set[TopicPartition] = set()

    def close(self, autocommit: bool = False) -> None:
        """Stop reading."""
        self.assign(())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions. Those that were assigned before keep their positions."""
        self._at = {partition: self._at.get(partition) for partition in partitions}
        self._paused &= self._at.keys()

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions."""
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._paused.difference_update(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set a position."""
        self._at[partition] = offset

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set positions to the oldest records."""
        self._at |= dict.fromkeys(partitions, 0)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Set positions behind the newest records."""
        self._at |= self.end_offsets(partitions)

    def position(self, partition: TopicPartition, timeout_ms: float = 0) -> int:
        """Return a position.

        Raises:
            NoOffsetForPartitionError: it has none, and `auto_offset_reset` is "none".
        """
        at = self._at[partition]
        if at is None or at > len(self._log(partition)):
            if self._reset == "none":
                raise NoOffsetForPartitionError(partition)
            at = self._at[partition] = 0 if self._reset == "earliest" else len(self._log(partition))
        return at

    def poll(self, timeout_ms: float, max_records: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the next records. Without any, let the time pass."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for partition in self._at.keys() - self._paused:
            at, left = self.position(partition), max_records - sum(map(len, found.values()))
            if batch := self._log(partition)[at : at + left]:
                found[partition] = [self._read(record) for record in batch]
                self._at[partition] = at + len(batch)
        if not found and timeout_ms > 0:
            self._wait(timeout_ms)
        return found

    def _log(self, partition: TopicPartition) -> list[ConsumerRecord]:
        return self._topics.records[partition]

    def _read(self, record: ConsumerRecord) -> ConsumerRecord:
        key = self._read_key.deserialize(record.topic, record.headers, record.key)
        value = self._read_value.deserialize(record.topic, record.headers, record.value)
        return record._replace(key=key, value=value)

    # -- topics and partitions -----------------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """Return all topics."""
        return set(self._topics.snapshot.topics)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the partitions of a topic."""
        return {partition.partition for partition in self._topics.records if partition.topic == topic}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the oldest offset of each partition."""
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition."""
        return {partition: len(self._log(partition)) for partition in partitions}

    def highwater(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of a partition."""
        return len(self._log(partition))


class _Unchanged(Deserializer):  # type: ignore[misc]
    def deserialize(self, topic: str, headers: Any, data: bytes | None) -> bytes | None:
        return data


def _deserializer(given: Any) -> Any:
    if given is None:
        return _Unchanged()
    return given if isinstance(given, Deserializer) else DeserializeWrapper(given)
