"""Records of the partitions that a member owns, and the caller's position in each of them.

The records come through a `KafkaConsumer` with assigned partitions and without a group, so that Kafka's own coordinator
never gets a request. Fetched records and positions are separate: KafkaConsumer knows the fetched records, and a
position follows the records that the caller has received. An automatic commit uses positions only.

A new partition has no start until its committed offset is known. The other partitions are read meanwhile. A caller that
seeks sets the start itself.

Source: kafka-python's KafkaConsumer, Fetcher and SubscriptionState.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import TopicPartition
from kafka.errors import IllegalStateError
from kafka.structs import OffsetAndMetadata

Records = dict[TopicPartition, list[Any]]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class PartitionReader:
    """The records of one member.

    Args:
        kafka: A KafkaConsumer without a group.
    """

    def __init__(self, kafka: Any) -> None:
        self.kafka = kafka
        self.owned: frozenset[TopicPartition] = frozenset()
        self._placed: frozenset[TopicPartition] = frozenset()  # KafkaConsumer reads these
        self._paused: frozenset[TopicPartition] = frozenset()
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}  # behind the records that the caller has received
        self._sought: frozenset[TopicPartition] = (
            frozenset()
        )  # sought in these, perhaps without a record received since
        self._fetched: deque[tuple[TopicPartition, Any]] = deque()  # records that an iterator has not handed out yet

    def close(self) -> None:
        """Stop reading."""
        self.kafka.close(autocommit=False)

    # -- partitions ----------------------------------------------------------------------------------------------------

    @property
    def unplaced(self) -> frozenset[TopicPartition]:
        """The owned partitions that are not read yet, since their start is unknown."""
        return self.owned - self._placed

    def own(self, partitions: frozenset[TopicPartition]) -> None:
        """Read these partitions, and no others. Those that were owned before keep their positions."""
        self.owned, self._paused = partitions, self._paused & partitions
        self._positions = {p: at for p, at in self._positions.items() if p in partitions}
        self._sought &= partitions
        self._fetched = deque((p, record) for p, record in self._fetched if p in partitions)
        self._place(self._placed & partitions)

    def start(self, committed: Mapping[TopicPartition, int]) -> None:
        """Read partitions from the group's committed offsets. If one is -1, `auto_offset_reset` sets the start."""
        new = self.unplaced & committed.keys()
        self._place(self._placed | new)
        for partition in new:
            if committed[partition] >= 0:
                self.kafka.seek(partition, committed[partition])

    def _place(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions != self._placed:
            new, self._placed = partitions - self._placed, partitions
            self.kafka.assign(sorted(partitions))
            self.kafka.pause(*sorted(new & self._paused))

    # -- records -------------------------------------------------------------------------------------------------------

    def fetch(self, wait_ms: float, max_records: int) -> Records:
        """Fetch records and return them. The caller has received them then."""
        for partition in {p for p, _ in self._fetched}:
            self._rewind(partition)
        records = self._fetch(wait_ms, max_records)
        for partition, batch in records.items():
            self._had(partition, batch[-1])
        return records

    def fetch_ahead(self, wait_ms: float, max_records: int) -> None:
        """Fetch records for `hand_out`."""
        for partition, batch in self._fetch(wait_ms, max_records).items():
            self._positions.setdefault(partition, OffsetAndMetadata(batch[0].offset, "", -1))
            self._fetched.extend((partition, record) for record in batch)

    def hand_out(self) -> Any | None:
        """Return the next record that was fetched ahead; None without one."""
        if not self._fetched:
            return None
        partition, record = self._fetched.popleft()
        self._had(partition, record)
        return record

    def _fetch(self, wait_ms: float, max_records: int) -> Records:
        if not self._placed:
            return {}
        records: Records = self.kafka.poll(timeout_ms=int(wait_ms), max_records=max_records)
        return records

    @property
    def can_fetch(self) -> bool:
        """Whether any partition can be fetched from."""
        return bool(self._placed - self._paused)

    def _had(self, partition: TopicPartition, record: Any) -> None:
        epoch = -1 if record.leader_epoch is None else record.leader_epoch
        self._positions[partition] = OffsetAndMetadata(record.offset + 1, "", epoch)

    def _rewind(self, partition: TopicPartition) -> None:
        """Drop the records of a partition that were fetched ahead, so that they are fetched again."""
        first = next((record for p, record in self._fetched if p == partition), None)
        if first is not None:
            self._forget(partition)
            self.kafka.seek(partition, first.offset)

    def _forget(self, partition: TopicPartition) -> None:
        self._fetched = deque((p, record) for p, record in self._fetched if p != partition)

    # -- positions -----------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float) -> int | None:
        """Return the offset of the next record that the caller will get from a partition with a known start."""
        if partition in self._positions:
            return int(self._positions[partition].offset)
        position: int | None = self.kafka.position(partition, timeout_ms=timeout_ms)
        return position

    @property
    def had(self) -> Offsets:
        """The caller's position in each partition in which it has received records or has sought."""
        return {**self._unread(self._sought), **self._positions}

    def positions(self) -> Offsets:
        """Return the caller's position in each partition, also in those without a received record."""
        return {**self._unread(self._placed), **self._positions}

    def _unread(self, partitions: frozenset[TopicPartition]) -> Offsets:
        """Return the positions at which reading begins. Only KafkaConsumer knows whether these offsets exist."""
        found = {p: self.kafka.position(p, timeout_ms=0) for p in partitions - self._positions.keys()}
        return {p: OffsetAndMetadata(at, "", -1) for p, at in found.items() if at is not None}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position in a partition to an offset.

        Raises:
            ValueError: the offset is not an int >= 0, or this member does not own the partition.
        """
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be int >= 0")
        self._move([partition], lambda: self.kafka.seek(partition, offset))
        self._sought |= {partition}

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the position to the oldest record, in all partitions if none are given."""
        wanted = list(partitions) or sorted(self.owned)
        self._move(wanted, lambda: self.kafka.seek_to_beginning(*wanted))

    def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the position behind the newest record, in all partitions if none are given."""
        wanted = list(partitions) or sorted(self.owned)
        self._move(wanted, lambda: self.kafka.seek_to_end(*wanted))

    def _move(self, partitions: list[TopicPartition], seek: Callable[[], None]) -> None:
        self._check_owned(partitions, ValueError)
        self._place(self._placed | set(partitions))
        self._sought -= set(partitions)
        for partition in partitions:
            self._positions.pop(partition, None)
            self._forget(partition)
        seek()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop handing out records of these partitions until they are resumed or lost.

        Raises:
            IllegalStateError: this member does not own one of them.
        """
        wanted = frozenset(partitions)
        self._check_owned(wanted, IllegalStateError)
        self._paused |= wanted
        for partition in wanted:
            self._rewind(partition)
        self.kafka.pause(*sorted(wanted & self._placed))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Start to hand out records of paused partitions again.

        Raises:
            IllegalStateError: this member does not own one of them.
        """
        wanted = frozenset(partitions)
        self._check_owned(wanted, IllegalStateError)
        self._paused -= wanted
        self.kafka.resume(*sorted(wanted & self._placed))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._paused)

    def _check_owned(self, partitions: Iterable[TopicPartition], error: type[Exception]) -> None:
        for partition in partitions:
            if not isinstance(partition, TopicPartition):
                raise TypeError("partitions must be TopicPartition namedtuples")
            if partition not in self.owned:
                raise error(f"Partition is not assigned: {partition.topic} {partition.partition}")
