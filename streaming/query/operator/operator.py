"""The stateful operator handles one batch of one shard: rows in, rows out. The logic is in `coordinator`.

Spark calls it with the rows of one request partition, in no particular order, and with that shard's state. Spark also
calls it without rows, when the processing-time timeout shows that a deadline has passed.
"""

import gc
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pandas as pd
import pybase64
from msgspec import structs
from pyspark.sql.streaming.state import GroupState

from coordinator.base.access import ANONYMOUS
from coordinator.base.config import Config
from coordinator.base.errors import CorruptState
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.outputs import Output
from coordinator.messages.requests import Received, StopCoordinator, Wake
from coordinator.messages.responses import HeartbeatsAnswer, Reply, StopCoordinatorAnswer
from coordinator.shard.shard import Shard
from coordinator.state.member_index import MemberIndexCache
from streaming.query.operator import failpoints
from streaming.query.operator.continuity import LastRecord, Row, check_last_record, follow, last_record
from streaming.query.operator.durable import sync_before_output
from streaming.query.operator.ownership import check_batch
from streaming.wire.peering import Peering
from streaming.wire.records import OutputTopics, Pack, Tally, decode_request, encode_request, pack
from streaming.wire.signing import Signing

INPUT_COLUMNS = ("key", "offset", "at_ms", "value")

OUTPUT_SCHEMA = (
    "topic string, partition int, keys array<binary>, values array<binary>, versions array<binary>,"
    " times array<binary>, tally string"
)
"""`Pack`s of records to write. Each shard's last row has only the shard's `Tally` for the progress report."""

OUTPUT_COLUMNS = ["topic", "partition", "keys", "values", "versions", "times", "tally"]

ALARM_WAIT_MS = 3_000
"""The time that the alarm has to wake a shard that is due, before Spark's timeout does; less than `late_notice_ms` by
default."""

_encode_rows = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[tuple[int, int, bytes | None]]).decode

STATE_SCHEMA = "shard string"
"""The text that `packed` returns. Spark pickles the state for Python: slowly if it is `binary`, as a copy if it is
text."""


class Held(NamedTuple):
    """The contents of the state.

    Args:
        shard: The shard as bytes; None for a shard without data.
        next_offset: The offset of the first record that was not read; None before the first record.
        deferred: Earlier records that were not handled yet, in the order of their offsets.
    """

    shard: bytes | None = None
    next_offset: int | None = None
    deferred: Sequence[Row] = ()


@dataclass(frozen=True)
class ShardOperator:
    """The function that `applyInPandasWithState` calls. Spark pickles it for each task, so it is small and importable.

    Args:
        signing: Checks the signatures of records, if access rules are in use; else None.
        peering: Checks the records of other coordinators; None without peers.
        synced: The folder of Spark's files that are synced before any output; None if none are synced.
        checkpoint: The folder of the checkpoint, if it is on a disk of this machine; else None.
        driver: The id of the driver, if it holds a lease; else None.
        replanned: The plans that were moved aside, the earliest first: their times, and their ends in each shard. Their
            requests are handled with that time, in whichever batch they are now.
        last_records: By shard, the last record that the log had, at the start of the query, before the records of the
            next batch.
    """

    partitions: int
    secret: bytes
    config: Config
    topics: OutputTopics
    signing: Signing | None = None
    peering: Peering | None = None
    synced: Path | None = None
    checkpoint: Path | None = None
    driver: str | None = None
    replanned: Sequence[tuple[int, Mapping[int, int]]] = ()
    last_records: Mapping[int, LastRecord] = field(default_factory=dict)

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Handle a batch of one shard, whose number is `key[0]` modulo `partitions`.

        Raises:
            CorruptState: The state cannot be trusted. A client's bad record never raises.
            NotOurBatch: Another driver runs the batch, or has run it.
            LogReplaced: Requests that the shard has handled are no longer in the log.
        """
        disable_garbage_collection()
        now_ms = state.getCurrentProcessingTimeMs()
        check_batch(self.checkpoint, now_ms, self.driver)
        sync_before_output(self.synced)
        number = int(key[0]) % self.partitions
        _reach("called", number)
        stored = state.getOption
        held = Held() if stored is None else unpacked(stored[0])
        shard = Shard(number, self.partitions, self.secret, self.config, held.shard, _member_indexes())
        check_last_record(number, last_record(held.next_offset, shard.last_ms), self.last_records)
        fresh, breaks, next_offset = follow(number, _rows(frames), held.next_offset)
        read = [*held.deferred, *fresh]
        log = _log(read, self.signing, self.peering, len(held.deferred))
        outputs = list[Output](breaks)
        for planned_ms, part in self._by_plan(number, log, now_ms):
            outputs += shard.step([*shard.deferred, *part], planned_ms)
        _reach("stepped", number)
        left = {received.offset for received in shard.deferred}
        deferred = [row for row in read if row[0] in left] if left else []
        self._store(shard, Held(None, next_offset, deferred), state)
        packs = list(pack(outputs, self.topics, number))
        if not read and shard.due_in_ms is not None:
            packs.append(self._wake(number))
        rows: list[tuple[Any, ...]] = [(*packed, None) for packed in packs]
        tally = _tally(number, shard, log, outputs, now_ms, last_record(next_offset, shard.last_ms))
        rows.append((None, None, None, None, None, None, tally.to_json()))
        yield pd.DataFrame(rows, columns=OUTPUT_COLUMNS, dtype=object)
        _reach("yielded", number)

    def _by_plan(self, number: int, log: Sequence[Received], now_ms: int) -> Iterator[tuple[int, Sequence[Received]]]:
        """Divide the log of a batch at the ends of the plans that were moved aside. Yield each part with its time.

        So outputs that such a batch has written already are written again with equal bytes.
        """
        start = 0
        for planned_ms, ends in self.replanned:
            end = bisect_left(log, ends.get(number, 0), start, key=attrgetter("offset"))
            if end > start:
                yield planned_ms, log[start:end]
                start = end
        if start < len(log) or not log:
            yield now_ms, log[start:]

    def _store(self, shard: Shard, held: Held, state: GroupState) -> None:
        """Store the shard in the state, and set its timeout."""
        if shard.is_blank and held.next_offset is None:
            state.remove()
            return
        state.update((packed(held._replace(shard=shard.to_bytes())),))
        if (due_in_ms := shard.due_in_ms) is not None:
            state.setTimeoutDuration(max(due_in_ms, 1) + (0 if held.deferred else ALARM_WAIT_MS))

    def _wake(self, number: int) -> Pack:
        """Return a wake record for a shard that is due and that the alarm has not woken.

        Only the log advances a shard's time: a timeout without a record does not show whether the whole log was read.
        """
        return Pack(self.topics.requests, number, [b""], [encode_request(Wake())])


def _waited_ms(log: list[Received], now_ms: int) -> int:
    return max((now_ms - received.at_ms for received in log if type(received.request) is not Wake), default=0)


def _reach(point: str, shard: int) -> None:
    if failpoints.reach is not None:
        failpoints.reach(point, shard)


def packed(held: Held) -> str:
    """Return the contents of the state as text, separated by blanks: the next offset, the shard in base 64, and the
    deferred requests, if any.
    """
    shard = pybase64.b64encode_as_string(held.shard or b"")
    if not held.deferred:
        return f"{held.next_offset} {shard}"
    return f"{held.next_offset} {shard} {pybase64.b64encode_as_string(_encode_rows(held.deferred))}"


def unpacked(stored: str) -> Held:
    """Read the text that `packed` has written.

    Raises:
        CorruptState: The text cannot be trusted.
    """
    parts = stored.split(" ")
    try:
        match parts:
            case [offset, shard]:
                return Held(pybase64.b64decode(shard, validate=True) or None, int(offset))
            case [offset, shard, rows]:
                deferred = _decode_rows(pybase64.b64decode(rows, validate=True))
                return Held(pybase64.b64decode(shard, validate=True) or None, int(offset), deferred)
    except (ValueError, msgspec.MsgspecError) as error:
        raise CorruptState(f"a shard's state is not an offset and base 64: {error}") from error
    raise CorruptState(f"a shard's state has {len(parts)} parts")


@cache
def disable_garbage_collection() -> None:
    """Disable garbage collections within tasks, and exclude imported objects from all of them, once for each worker.

    Spark's worker collects garbage after every task. Each collection would search all of pandas, which takes 40 ms; and
    collections within a task would search all its requests again and again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


@cache
def _member_indexes() -> MemberIndexCache:
    """Return the worker's cache of member indexes. It outlives the tasks; each task gets another `ShardOperator`."""
    return MemberIndexCache()


def _tally(
    number: int, shard: Shard, log: list[Received], outputs: Iterable[Output], now_ms: int, last: LastRecord | None
) -> Tally:
    """Count a shard's work in a batch.

    Args:
        log: The records of the batch, after the records that had been deferred to it.
    """
    deferred = len(shard.deferred)
    return Tally(
        shard=number,
        groups=len(shard.group_ids),
        members=shard.members,
        requests=sum(map(_requests_in, log)) - deferred,
        heartbeats=sum(map(_heartbeats_in, log)),
        answered=sum(map(_answers_in, outputs)),
        oldest_ms=_waited_ms(log, now_ms),
        deferred=deferred,
        due_in_ms=shard.due_in_ms,
        settled=(shard.settled.topic_id, shard.settled.before),
        last=last,
        stop=_stop(log, outputs),
    )


def _stop(log: Iterable[Received], outputs: Iterable[Output]) -> tuple[int, int, str] | None:
    """Return the last permitted request to stop as `Tally` has it; None without one."""
    requested: dict[int, Any] = {each.offset: each.request for each in log if type(each.request) is StopCoordinator}
    if not requested:
        return None
    answers = (output.answer for output in outputs if isinstance(output, Reply))
    granted = [each.offset for each in answers if isinstance(each, StopCoordinatorAnswer) and each.offset in requested]
    if not granted:
        return None
    request = requested[granted[-1]]
    return request.log_end_offset, granted[-1], request.principal or ANONYMOUS


def _requests_in(received: Received) -> int:
    """Return the number of requests of a record."""
    request = received.request
    if type(request) is Heartbeats:
        return len(request.request_ids)
    return type(request) is not Wake


def _heartbeats_in(received: Received) -> int:
    """Return the number of heartbeats, of both protocols, of a record."""
    request = received.request
    if type(request) is Heartbeats:
        return len(request.request_ids)
    return type(request) is Heartbeat or type(request) is ConsumerGroupHeartbeat


def _answers_in(output: Output) -> int:
    """Return the number of responses in an output."""
    if isinstance(output, Reply):
        return len(output.answer.codes) if isinstance(output.answer, HeartbeatsAnswer) else 1
    return 0


def _rows(frames: Iterable[pd.DataFrame]) -> list[Row]:
    """Return a shard's records in the order of the log. Spark does not keep this order."""
    rows = [
        row
        for frame in frames
        for row in zip(frame["offset"].tolist(), frame["at_ms"].tolist(), frame["value"].tolist(), strict=True)
    ]
    rows.sort(key=itemgetter(0))
    return rows


def _log(rows: Sequence[Row], signing: Signing | None, peering: Peering | None, deferred: int) -> list[Received]:
    """Decode the requests. An earlier batch has read the first `deferred` of them already."""
    if signing is not None:
        log = [signing.received(*row) for row in rows]
    else:
        log = [Received(offset, at_ms, decode_request(value), None, len(value or b"")) for offset, at_ms, value in rows]
    if peering is not None:
        log = [peering.received(received, row[2]) for received, row in zip(log, rows, strict=True)]
    log[:deferred] = [structs.replace(received, was_deferred=True) for received in log[:deferred]]
    return log
