"""The stateful operator handles one batch of one partition of `__consumer_offsets`. The logic is in `partition`.

Spark calls it with the records of one partition, and with what the driver has written for that partition, the names of
topic ids and the changed topics of metadata hashes, in no particular order.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pybase64
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState

from coordinator.base.errors import CorruptState
from coordinator.base.hashing import shard_of
from coordinator.messages.observed_events import TopicChange
from coordinator.messages.outputs import Output
from streaming.observe.partition import UNNAMED_REPORTED_MAX, Named, Partition, Span
from streaming.observe.state import Row
from streaming.observe.tally import Tally
from streaming.query.operator.durable import BATCH, sync_before_output
from streaming.query.operator.operator import OUTPUT_COLUMNS, disable_garbage_collection
from streaming.wire.records import OutputTopics, Pack, pack

INPUT_COLUMNS = ("number", "is_name", "offset", "at_ms", "key", "value")

STATE_SCHEMA = "partition string"
"""The state's bytes in base 64. Spark pickles the state for Python: slowly if it is `binary`."""


class Name(msgspec.Struct, frozen=True):
    """The value of a record with the name of a topic id. `shard` is the partition of the source that asked for it."""

    shard: int
    topic_id: str
    name: str


class TopicsOfEpoch(msgspec.Struct, frozen=True):
    """The value of a record with the changed topics of a group epoch; see `partition.Named`."""

    shard: int
    group_id: str
    group_epoch: int
    hash: int
    changes: tuple[TopicChange, ...]


class Start(msgspec.Struct, frozen=True):
    """The facts at a start of the query. They hold from `first_batch` on, also for a batch that is repeated later.

    Args:
        ends: The end of each partition of the source.
        retention_ms: The brokers' retention of offsets; None if it is not known.
    """

    first_batch: int
    ends: dict[int, int]
    retention_ms: int | None = None


_decoders: tuple[Callable[[bytes], Name | TopicsOfEpoch], ...] = (
    msgspec.json.Decoder(Name).decode,
    msgspec.json.Decoder(TopicsOfEpoch).decode,
)


@dataclass(frozen=True)
class ObserveOperator:
    """The function that `applyInPandasWithState` calls. Spark pickles it for each task, so it is small and importable.

    Args:
        partitions: The number of partitions of each output topic. A group's records are in the partition of its id.
        starts: The starts of the query, the earliest first.
        synced: The folder of Spark's files that are synced before any output; None if none are synced.
    """

    topics: OutputTopics
    partitions: int
    starts: Sequence[Start]
    synced: Path | None = None

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Handle a batch of the partition of the source whose number is in the rows.

        Raises:
            CorruptState: The state cannot be trusted. A record never raises.
        """
        disable_garbage_collection()
        sync_before_output(self.synced)
        number, rows, names, changed = _sorted(frames)
        stored = state.getOption
        partition = Partition(number, None if stored is None else unpacked(stored[0]), self._span(number))
        partition.read(rows, names, changed)
        state.update((pybase64.b64encode_as_string(partition.to_bytes()),))
        written: list[tuple[Any, ...]] = [(*each, None) for each in self._packs(partition)]
        written.append((None, None, None, None, None, None, _tally(partition).to_json()))
        yield pd.DataFrame(written, columns=OUTPUT_COLUMNS, dtype=object)

    def _span(self, number: int) -> Span:
        """Return the facts of the latest start that was before the batch."""
        task = TaskContext.get()
        batch = task.getLocalProperty(BATCH) if task is not None else None
        known = [start for start in self.starts if batch is None or start.first_batch <= int(batch)]
        if not known:
            return Span()
        return Span(known[-1].ends.get(number, 0), known[-1].retention_ms)

    def _packs(self, partition: Partition) -> Iterator[Pack]:
        """Yield the outputs as packs. The records of a group stay in their order."""
        parts: dict[int, list[Output]] = {}
        for output in partition.outputs:
            group_id = getattr(output, "group_id", None)
            number = partition.number % self.partitions if group_id is None else shard_of(group_id, self.partitions)
            parts.setdefault(number, []).append(output)
        for number, outputs in sorted(parts.items()):
            yield from pack(outputs, self.topics, number)


def unpacked(stored: str) -> bytes:
    """Return the bytes of a stored state.

    Raises:
        CorruptState: The text is not base 64.
    """
    try:
        return pybase64.b64decode(stored, validate=True)
    except ValueError as error:
        raise CorruptState(f"a partition's state is not base 64: {error}") from error


def _sorted(frames: Iterator[pd.DataFrame]) -> tuple[int, list[Row], list[tuple[str, str]], list[Named]]:
    """Return the partition's number, its records in the order of the log, the names of topic ids, and the changed
    topics of metadata hashes."""
    number, rows, written = 0, list[Row](), list[tuple[int, Name | TopicsOfEpoch]]()
    for frame in frames:
        for each in frame[list(INPUT_COLUMNS)].itertuples(index=False, name=None):
            number, is_name, offset, at_ms, key, value = each
            if not is_name:
                rows.append((offset, at_ms, key, value))
            elif (found := _driver_record(value)) is not None:
                written.append((offset, found))
    rows.sort(key=itemgetter(0))
    written.sort(key=itemgetter(0))
    names = [(each.topic_id, each.name) for _, each in written if isinstance(each, Name)]
    changed = [
        Named(each.group_id, each.group_epoch, each.hash, each.changes)
        for _, each in written
        if isinstance(each, TopicsOfEpoch)
    ]
    return int(number), rows, names, changed


def _driver_record(value: bytes | None) -> Name | TopicsOfEpoch | None:
    """Return the value of a record of the driver; None if it is none. Only the driver should write such records."""
    for decode in _decoders:
        with suppress(msgspec.MsgspecError, ValueError):
            return decode(value or b"")
    return None


def _tally(partition: Partition) -> Tally:
    unnamed = sorted(partition.names.unnamed)
    return Tally(
        partition=partition.number,
        groups=len(partition.stored.groups),
        members=partition.members,
        records=dict(partition.counts),
        published=len(partition.outputs),
        unnamed=unnamed[:UNNAMED_REPORTED_MAX],
        unnamed_total=len(unnamed),
        hash_changes=partition.hash_changes,
        topics=partition.topics,
    )
