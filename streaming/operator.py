"""The stateful operator: one shard through one batch. Rows in, rows out; all thinking is in `coordinator`.

Spark calls it with the rows of one request partition, in no promised order, and with that shard's state; also without
rows, when the processing-time timeout says that a deadline has passed.
"""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import pandas as pd
import pybase64
from pyspark.sql.streaming.state import GroupState

from coordinator.config import Config
from coordinator.errors import CorruptState
from coordinator.outputs import LogBroken, Reply
from coordinator.requests import Heartbeat, Received
from coordinator.shard import Shard
from streaming import failpoints
from streaming.records import WAKE, OutputTopics, Tally, decode_request, pack
from streaming.signing import Signing

INPUT_COLUMNS = ("key", "offset", "at_ms", "value")

OUTPUT_SCHEMA = (
    "topic string, partition int, keys array<binary>, values array<binary>, versions array<binary>, tally string"
)
"""`Pack`s of records to write; and in each shard's last row no record but its `Tally` for the progress report."""

Row = tuple[int, int, bytes | None]
"""A record of the request topic: `offset`, `at_ms` and `value`."""

OUTPUT_COLUMNS = ["topic", "partition", "keys", "values", "versions", "tally"]

STATE_SCHEMA = "shard string"
"""What `packed` writes. To hand it to Python Spark pickles it: a slow walk over `binary`, a copy of text."""


@dataclass(frozen=True)
class ShardOperator:
    """What `applyInPandasWithState` calls. Small and importable: Spark pickles it for each task.

    Args:
        signing: What records are believed by, where rules say who may do what; None where nobody is asked.
    """

    partitions: int
    secret: bytes
    config: Config
    topics: OutputTopics
    signing: Signing | None = None

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Take the shard whose number `key[0]` is, but for multiples of `partitions`, through a batch.

        Raises:
            CorruptState: its state is not to be trusted. A client's bad record never raises.
        """
        _spare_the_collector()
        now_ms = state.getCurrentProcessingTimeMs()
        number = int(key[0]) % self.partitions
        _reach("called", number)
        stored = state.getOption
        held = Held() if stored is None else unpacked(stored[0])
        shard = Shard(number, self.partitions, self.secret, self.config, held.shard)
        rows_read = _rows(frames)
        broken = _broken(number, held, rows_read)
        fresh = [row for row in rows_read if row[0] >= (held.next_offset or 0)] if broken else rows_read
        log = _log(fresh, self.signing)
        outputs = [*broken, *shard.step(log, now_ms)]
        _reach("stepped", number)
        due_ms = self._keep(shard, fresh[-1][0] + 1 if fresh else held.next_offset, state, now_ms)
        rows: list[tuple[Any, ...]] = [(*packed, None) for packed in pack(outputs, self.topics, number)]
        tally = Tally(
            shard=number,
            groups=len(shard.group_ids),
            members=shard.members,
            requests=len(log),
            heartbeats=sum(type(received.request) is Heartbeat for received in log),
            answered=sum(isinstance(output, Reply) for output in outputs),
            oldest_ms=now_ms - log[0].at_ms if log else 0,
            due_ms=due_ms,
        )
        rows.append((None, None, None, None, None, tally.to_json()))
        yield pd.DataFrame(rows, columns=OUTPUT_COLUMNS, dtype=object)
        _reach("yielded", number)

    def _keep(self, shard: Shard, next_offset: int | None, state: GroupState, now_ms: int) -> int | None:
        """Write the shard down and set its timeout; say for when."""
        if shard.is_blank and next_offset is None:
            state.remove()
            return None
        state.update((packed(Held(None if shard.is_blank else shard.to_bytes(), next_offset)),))
        if (deadline_ms := shard.next_deadline_ms) is None:
            return None
        due_ms = max(now_ms + 1, deadline_ms + self.config.clock_slack_ms)
        state.setTimeoutDuration(due_ms - now_ms)
        return due_ms


def _reach(point: str, shard: int) -> None:
    if failpoints.reach is not None:
        failpoints.reach(point, shard)


class Held(NamedTuple):
    """What the state holds.

    Args:
        shard: Its bytes; None where there is no group to speak of.
        next_offset: Of the first record that was not handled; None where older code did not write it down.
    """

    shard: bytes | None = None
    next_offset: int | None = None


def packed(held: Held) -> str:
    """Write what the state is to hold as text: where the requests go on, a blank, and the shard in base 64."""
    shard = pybase64.b64encode_as_string(held.shard or b"")
    return shard if held.next_offset is None else f"{held.next_offset} {shard}"


def unpacked(stored: str) -> Held:
    """Read what `packed` has written, or wrote when it was the shard alone.

    Raises:
        CorruptState: it is not to be trusted.
    """
    offset, blank, shard = stored.rpartition(" ")
    try:
        return Held(pybase64.b64decode(shard, validate=True) or None, int(offset) if blank else None)
    except ValueError as error:
        raise CorruptState(f"a shard's state is not an offset and base 64: {error}") from error


@cache
def _spare_the_collector() -> None:
    """Once for each worker: no collection in the middle of a task, and none of what was imported.

    Spark's worker collects after every task. All of pandas would be looked through each time, 40 ms; and within a task
    all requests so far, again and again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


def _rows(frames: Iterable[pd.DataFrame]) -> list[Row]:
    """Collect a shard's records in the order of the log, which Spark does not keep."""
    rows = [
        row
        for frame in frames
        for row in zip(frame["offset"].tolist(), frame["at_ms"].tolist(), frame["value"].tolist(), strict=True)
    ]
    rows.sort(key=itemgetter(0))
    return rows


def _broken(shard: int, held: Held, rows: list[Row]) -> list[LogBroken]:
    """Tell of records that do not go on where those of the last batch ended."""
    expected = held.next_offset
    if expected is None or not rows or rows[0][0] == expected:
        return []
    return [
        LogBroken(
            group_id=None,
            version=None,
            at_ms=rows[0][1],
            generation_id=None,
            partition=shard,
            expected=expected,
            found=rows[0][0],
        )
    ]


def _log(rows: Iterable[Row], signing: Signing | None) -> list[Received]:
    """Read the requests; a record may ask nothing."""
    if signing is not None:
        return [signing.received(*row) for row in rows if row[2] != WAKE]
    return [Received(offset, at_ms, decode_request(value)) for offset, at_ms, value in rows if value != WAKE]
