"""The calls of a consumer that concern its partitions and records only, and not the group."""

from collections.abc import Collection, Mapping
from typing import Any

from kafka import TopicPartition

from streaming.client.partition_reader import PartitionReader


class ReadsPartitions:
    """A consumer's partitions: where it reads on, which of them it pauses, and what the brokers know of them."""

    _reading: PartitionReader

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the offset of the next `poll` in a partition. The committed offset does not change."""
        self._reading.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Set the position to the oldest record, in all owned partitions if none are given."""
        self._reading.seek_to_beginning(partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Set the position behind the newest record, in all owned partitions if none are given."""
        self._reading.seek_to_end(partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Exclude partitions from `poll` until they are resumed or given up. This member still owns them."""
        self._reading.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Include paused partitions in `poll` again."""
        self._reading.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._reading.paused()

    # -- topics and partitions -----------------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """Return all topics that the brokers show to this client."""
        return set(self._reading.kafka.topics())

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the partitions of a topic."""
        return set(self._reading.kafka.partitions_for_topic(topic))

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the oldest offset of each partition, from the brokers."""
        return dict(self._reading.kafka.beginning_offsets(partitions))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition, from the brokers."""
        return dict(self._reading.kafka.end_offsets(partitions))

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """Return the first offset at or after a time, Unix milliseconds, of each partition, from the brokers."""
        return dict(self._reading.kafka.offsets_for_times(timestamps))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end offset of a partition in the last fetch; None before that."""
        offset: int | None = self._reading.kafka.highwater(partition)
        return offset

    def metrics(self, raw: bool = False) -> Any:
        """Return KafkaConsumer's metrics of fetching."""
        return self._reading.kafka.metrics(raw)
