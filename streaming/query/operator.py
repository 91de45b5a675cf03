"""The stateful operator: one shard through one batch. Rows in, rows out; all thinking is in `coordinator`.

Spark calls it with the rows of one request partition, in no promised order, and with that shard's state; also without
rows, when the processing-time timeout says that a deadline has passed.
"""

import gc
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pandas as pd
import pybase64
from msgspec import structs
from pyspark.sql.streaming.state import GroupState

from coordinator.codec import Rosters
from coordinator.config import Config
from coordinator.errors import CorruptState
from coordinator.outputs import Output, Reply
from coordinator.requests import Heartbeat, Received, Wake
from coordinator.shard import Shard
from streaming.query import failpoints
from streaming.query.continuity import Row, follow
from streaming.query.durable import sync_before_output
from streaming.wire.records import OutputTopics, Pack, Tally, decode_request, encode_request, pack
from streaming.wire.signing import Signing

INPUT_COLUMNS = ("key", "offset", "at_ms", "value")

OUTPUT_SCHEMA = (
    "topic string, partition int, keys array<binary>, values array<binary>, versions array<binary>,"
    " times array<binary>, tally string"
)
"""`Pack`s of records to write; and in each shard's last row no record but its `Tally` for the progress report."""

OUTPUT_COLUMNS = ["topic", "partition", "keys", "values", "versions", "times", "tally"]

ALARM_WAIT_MS = 3_000
"""How long after a shard is due it is left to the alarm to wake it; less than `late_notice_ms` by default."""

_encode_rows = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[tuple[int, int, bytes | None]]).decode

STATE_SCHEMA = "shard string"
"""What `packed` writes. To hand it to Python Spark pickles it: a slow walk over `binary`, a copy of text."""


class Held(NamedTuple):
    """What the state holds.

    Args:
        shard: Its bytes; None where there is no group to speak of.
        next_offset: Of the first record that was not read; None where older code did not write it down.
        deferred: Records before that which were not handled yet, in the order of their offsets.
    """

    shard: bytes | None = None
    next_offset: int | None = None
    deferred: Sequence[Row] = ()


@dataclass(frozen=True)
class ShardOperator:
    """What `applyInPandasWithState` calls. Small and importable: Spark pickles it for each task.

    Args:
        signing: What records are believed by, where rules say who may do what; None where nobody is asked.
        synced: The folder of Spark's files that are synced before anything is said; None for no such folder.
        replanned: Plans that were put aside, the earliest first: their times, and where they end in each shard. Their
            requests are handled as of that time, whatever batch takes them now.
    """

    partitions: int
    secret: bytes
    config: Config
    topics: OutputTopics
    signing: Signing | None = None
    synced: Path | None = None
    replanned: Sequence[tuple[int, Mapping[int, int]]] = ()

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Take the shard whose number `key[0]` is, but for multiples of `partitions`, through a batch.

        Raises:
            CorruptState: its state is not to be trusted. A client's bad record never raises.
        """
        _spare_the_collector()
        sync_before_output(self.synced)
        now_ms = state.getCurrentProcessingTimeMs()
        number = int(key[0]) % self.partitions
        _reach("called", number)
        stored = state.getOption
        held = Held() if stored is None else unpacked(stored[0])
        shard = Shard(number, self.partitions, self.secret, self.config, held.shard, _rosters())
        fresh, breaks, next_offset = follow(number, _rows(frames), held.next_offset)
        read = [*held.deferred, *fresh]
        log = _log(read, self.signing, len(held.deferred))
        outputs = list[Output](breaks)
        for planned_ms, part in self._by_plan(number, log, now_ms):
            outputs += shard.step([*shard.deferred, *part], planned_ms)
        _reach("stepped", number)
        left = {received.offset for received in shard.deferred}
        deferred = [row for row in read if row[0] in left] if left else []
        self._keep(shard, Held(None, next_offset, deferred), state)
        packs = list(pack(outputs, self.topics, number))
        if not read and shard.due_in_ms is not None:
            packs.append(self._wake(number))
        rows: list[tuple[Any, ...]] = [(*packed, None) for packed in packs]
        tally = _tally(number, shard, log, outputs, now_ms)
        rows.append((None, None, None, None, None, None, tally.to_json()))
        yield pd.DataFrame(rows, columns=OUTPUT_COLUMNS, dtype=object)
        _reach("yielded", number)

    def _by_plan(self, number: int, log: Sequence[Received], now_ms: int) -> Iterator[tuple[int, Sequence[Received]]]:
        """Cut the log of a batch where plans end that were put aside, and yield the time at which each part is handled.

        What such a batch had written already is so written again with equal bytes.
        """
        start = 0
        for planned_ms, ends in self.replanned:
            end = bisect_left(log, ends.get(number, 0), start, key=attrgetter("offset"))
            if end > start:
                yield planned_ms, log[start:end]
                start = end
        if start < len(log) or not log:
            yield now_ms, log[start:]

    def _keep(self, shard: Shard, held: Held, state: GroupState) -> None:
        """Write the shard down and set its timeout."""
        if shard.is_blank and held.next_offset is None:
            state.remove()
            return
        state.update((packed(held._replace(shard=shard.to_bytes())),))
        if (due_in_ms := shard.due_in_ms) is not None:
            state.setTimeoutDuration(max(due_in_ms, 1) + (0 if held.deferred else ALARM_WAIT_MS))

    def _wake(self, number: int) -> Pack:
        """Return the record by which a shard has time pass that is due and that nobody has woken.

        Time passes by the log alone: a timeout without a record does not say whether the whole log was read.
        """
        return Pack(self.topics.requests, number, [b""], [encode_request(Wake())])


def _waited_ms(log: list[Received], now_ms: int) -> int:
    return max((now_ms - received.at_ms for received in log if type(received.request) is not Wake), default=0)


def _reach(point: str, shard: int) -> None:
    if failpoints.reach is not None:
        failpoints.reach(point, shard)


def packed(held: Held) -> str:
    """Write what the state is to hold as text, apart by blanks: where the requests go on, the shard in base 64, and if
    requests were deferred, these.
    """
    shard = pybase64.b64encode_as_string(held.shard or b"")
    if held.next_offset is None:
        return shard
    if not held.deferred:
        return f"{held.next_offset} {shard}"
    return f"{held.next_offset} {shard} {pybase64.b64encode_as_string(_encode_rows(held.deferred))}"


def unpacked(stored: str) -> Held:
    """Read what `packed` has written, or wrote when it was the shard alone.

    Raises:
        CorruptState: it is not to be trusted.
    """
    parts = stored.split(" ")
    try:
        match parts:
            case [shard]:
                return Held(pybase64.b64decode(shard, validate=True) or None)
            case [offset, shard]:
                return Held(pybase64.b64decode(shard, validate=True) or None, int(offset))
            case [offset, shard, rows]:
                deferred = _decode_rows(pybase64.b64decode(rows, validate=True))
                return Held(pybase64.b64decode(shard, validate=True) or None, int(offset), deferred)
    except (ValueError, msgspec.MsgspecError) as error:
        raise CorruptState(f"a shard's state is not an offset and base 64: {error}") from error
    raise CorruptState(f"a shard's state has {len(parts)} parts")


@cache
def _spare_the_collector() -> None:
    """Once for each worker: no collection in the middle of a task, and none of what was imported.

    Spark's worker collects after every task. All of pandas would be looked through each time, 40 ms; and within a task
    all requests so far, again and again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


@cache
def _rosters() -> Rosters:
    """Return the worker's cache of rosters: it outlives the tasks, each of which is given another `ShardOperator`."""
    return Rosters()


def _tally(number: int, shard: Shard, log: list[Received], outputs: Iterable[Output], now_ms: int) -> Tally:
    """Count what a shard has done with a batch.

    Args:
        log: The records of the batch, those before them included that had been deferred.
    """
    deferred = len(shard.deferred)
    return Tally(
        shard=number,
        groups=len(shard.group_ids),
        members=shard.members,
        requests=sum(type(received.request) is not Wake for received in log) - deferred,
        heartbeats=sum(type(received.request) is Heartbeat for received in log),
        answered=sum(isinstance(output, Reply) for output in outputs),
        oldest_ms=_waited_ms(log, now_ms),
        deferred=deferred,
        due_in_ms=shard.due_in_ms,
    )


def _rows(frames: Iterable[pd.DataFrame]) -> list[Row]:
    """Collect a shard's records in the order of the log, which Spark does not keep."""
    rows = [
        row
        for frame in frames
        for row in zip(frame["offset"].tolist(), frame["at_ms"].tolist(), frame["value"].tolist(), strict=True)
    ]
    rows.sort(key=itemgetter(0))
    return rows


def _log(rows: Sequence[Row], signing: Signing | None, deferred: int) -> list[Received]:
    """Read the requests; the first `deferred` of them were read by an earlier batch."""
    if signing is not None:
        log = [signing.received(*row) for row in rows]
    else:
        log = [Received(offset, at_ms, decode_request(value), None, len(value or b"")) for offset, at_ms, value in rows]
    log[:deferred] = [structs.replace(received, was_deferred=True) for received in log[:deferred]]
    return log
