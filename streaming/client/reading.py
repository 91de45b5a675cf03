"""Records of the partitions that a member owns, and where the caller is in each of them.

They come through a `KafkaConsumer` that is told its partitions and knows of no group, so that Kafka's own coordinator
never hears of it. Two things are kept apart: what has been fetched, which is KafkaConsumer's to know, and what the
caller has had, its position. Only the latter is ever committed without being asked for.

A partition that is new has no place to start from until its committed offset is known; what is owned beside it is read
on meanwhile. A caller that seeks has said where to start.

Source: kafka-python's KafkaConsumer, Fetcher and SubscriptionState.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import IllegalStateError
from kafka.structs import OffsetAndMetadata

Records = dict[TopicPartition, list[Any]]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Reading:
    """What one member reads.

    Args:
        config: KafkaConsumer's, without a group.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.kafka: Any = KafkaConsumer(**config)
        self.owned: frozenset[TopicPartition] = frozenset()
        self._placed: frozenset[TopicPartition] = frozenset()  # KafkaConsumer reads these
        self._paused: frozenset[TopicPartition] = frozenset()
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}  # of records that the caller has had
        self._sought: frozenset[TopicPartition] = frozenset()  # where the caller may have had no record since it sought
        self._fetched: deque[tuple[TopicPartition, Any]] = deque()  # records that an iterator has not handed out yet

    def close(self) -> None:
        """Read no more."""
        self.kafka.close(autocommit=False)

    # -- partitions ----------------------------------------------------------------------------------------------------

    @property
    def unplaced(self) -> frozenset[TopicPartition]:
        """What is owned and not read yet, as it is not known from where."""
        return self.owned - self._placed

    def own(self, partitions: frozenset[TopicPartition]) -> None:
        """Read these, and nothing else. Those that were owned before go on where they are."""
        self.owned, self._paused = partitions, self._paused & partitions
        self._positions = {p: at for p, at in self._positions.items() if p in partitions}
        self._sought &= partitions
        self._fetched = deque((p, record) for p, record in self._fetched if p in partitions)
        self._place(self._placed & partitions)

    def start(self, committed: Mapping[TopicPartition, int]) -> None:
        """Read partitions from where the group has committed; from where `auto_offset_reset` says where it is -1."""
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
        """Fetch records that the caller is to have at once."""
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
        """Give the caller the next record there is; None where none has been fetched ahead."""
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
        """Whether there is anything to fetch from."""
        return bool(self._placed - self._paused)

    def _had(self, partition: TopicPartition, record: Any) -> None:
        epoch = -1 if record.leader_epoch is None else record.leader_epoch
        self._positions[partition] = OffsetAndMetadata(record.offset + 1, "", epoch)

    def _rewind(self, partition: TopicPartition) -> None:
        """Forget what was fetched ahead, to be fetched again."""
        first = next((record for p, record in self._fetched if p == partition), None)
        if first is not None:
            self._forget(partition)
            self.kafka.seek(partition, first.offset)

    def _forget(self, partition: TopicPartition) -> None:
        self._fetched = deque((p, record) for p, record in self._fetched if p != partition)

    # -- positions -----------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float) -> int | None:
        """Tell the offset of the next record that the caller will have of a partition that is placed."""
        if partition in self._positions:
            return int(self._positions[partition].offset)
        position: int | None = self.kafka.position(partition, timeout_ms=timeout_ms)
        return position

    @property
    def had(self) -> Offsets:
        """Where the caller stands in each partition that it has had records of, or has sought in."""
        return {**self._unread(self._sought), **self._positions}

    def positions(self) -> Offsets:
        """Tell where the caller stands in each partition, also where it has not had a record yet."""
        return {**self._unread(self._placed), **self._positions}

    def _unread(self, partitions: frozenset[TopicPartition]) -> Offsets:
        """Tell where reading begins; KafkaConsumer knows better than the caller whether an offset is there."""
        found = {p: self.kafka.position(p, timeout_ms=0) for p in partitions - self._positions.keys()}
        return {p: OffsetAndMetadata(at, "", -1) for p, at in found.items() if at is not None}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset.

        Raises:
            ValueError: the offset is not an int >= 0, or the partition is not this member's.
        """
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be int >= 0")
        self._move([partition], lambda: self.kafka.seek(partition, offset))
        self._sought |= {partition}

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on at the oldest record there is, of all partitions where none are given."""
        wanted = list(partitions) or sorted(self.owned)
        self._move(wanted, lambda: self.kafka.seek_to_beginning(*wanted))

    def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on behind the newest record there is, of all partitions where none are given."""
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
        """Hand out no records of these until they are resumed, or lost.

        Raises:
            IllegalStateError: one of them is not this member's.
        """
        wanted = frozenset(partitions)
        self._check_owned(wanted, IllegalStateError)
        self._paused |= wanted
        for partition in wanted:
            self._rewind(partition)
        self.kafka.pause(*sorted(wanted & self._placed))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with partitions that were paused.

        Raises:
            IllegalStateError: one of them is not this member's.
        """
        wanted = frozenset(partitions)
        self._check_owned(wanted, IllegalStateError)
        self._paused -= wanted
        self.kafka.resume(*sorted(wanted & self._placed))

    def paused(self) -> set[TopicPartition]:
        """Tell what is paused."""
        return set(self._paused)

    def _check_owned(self, partitions: Iterable[TopicPartition], error: type[Exception]) -> None:
        for partition in partitions:
            if not isinstance(partition, TopicPartition):
                raise TypeError("partitions must be TopicPartition namedtuples")
            if partition not in self.owned:
                raise error(f"Partition is not assigned: {partition.topic} {partition.partition}")
