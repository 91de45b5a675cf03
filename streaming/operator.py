"""The stateful operator: one shard through one batch. Rows in, rows out; all thinking is in `coordinator`.

Spark calls it with the rows of one request partition, in no promised order, and with that shard's state; also without
rows, when the processing-time timeout says that a deadline has passed.
"""

import binascii
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd
from pyspark.sql.streaming.state import GroupState

from coordinator.config import Config
from coordinator.errors import CorruptState
from coordinator.requests import Received
from coordinator.shard import Shard
from streaming.records import OutputTopics, decode_request, to_row

INPUT_COLUMNS = ("shard", "offset", "at_ms", "value")

OUTPUT_SCHEMA = (
    "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>, "
    "tally struct<shard: int, groups: int, members: int, requests: int, oldest_ms: bigint>"
)
"""Records to write; and in each shard's last row no record but a tally for the progress report.

`groups` and `members` are what the shard holds, `requests` what it was asked in this batch, and `oldest_ms` how long
the first of these had waited when the batch was planned.
"""

OUTPUT_COLUMNS = ["topic", "partition", "key", "value", "headers", "tally"]

STATE_SCHEMA = "shard string"
"""A shard's bytes in base 64. To hand it to Python Spark pickles it: a slow walk over `binary`, a copy of text."""


@dataclass(frozen=True)
class ShardOperator:
    """What `applyInPandasWithState` calls. Small and importable: Spark pickles it for each task."""

    partitions: int
    secret: bytes
    config: Config
    topics: OutputTopics

    def __call__(
        self, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Take the shard `key[0]` through a batch.

        Raises:
            CorruptState: its state is not to be trusted. A client's bad record never raises.
        """
        _spare_the_collector()
        now_ms = state.getCurrentProcessingTimeMs()
        number = int(key[0])
        shard = Shard(number, self.partitions, self.secret, self.config, _stored(state))
        log = _log(frames)
        outputs = shard.step(log, now_ms)
        self._keep(shard, state, now_ms)
        rows: list[tuple[Any, ...]] = [(*to_row(output, self.topics, number), None) for output in outputs]
        oldest_ms = now_ms - log[0].at_ms if log else None
        tally = number, len(shard.group_ids), shard.members, len(log), oldest_ms
        rows.append((None, None, None, None, None, tally))
        yield pd.DataFrame(rows, columns=OUTPUT_COLUMNS, dtype=object)

    def _keep(self, shard: Shard, state: GroupState, now_ms: int) -> None:
        if shard.is_blank:
            state.remove()
            return
        state.update((binascii.b2a_base64(shard.to_bytes(), newline=False).decode("ascii"),))
        if (deadline_ms := shard.next_deadline_ms) is not None:
            state.setTimeoutDuration(max(1, deadline_ms + self.config.clock_slack_ms - now_ms))


def _stored(state: GroupState) -> bytes | None:
    stored = state.getOption
    if stored is None:
        return None
    try:
        return binascii.a2b_base64(stored[0])
    except binascii.Error as error:
        raise CorruptState(f"a shard's state is not in base 64: {error}") from error


@cache
def _spare_the_collector() -> None:
    """Once for each worker: have the garbage collector pass over what was imported.

    Spark's worker collects after every task, and all of pandas would be looked through each time: 40 ms.
    """
    gc.collect()
    gc.freeze()


def _log(frames: Iterable[pd.DataFrame]) -> list[Received]:
    """Collect a shard's requests in the order of the log, which Spark does not keep."""
    rows = [
        row
        for frame in frames
        for row in zip(frame["offset"].tolist(), frame["at_ms"].tolist(), frame["value"].tolist(), strict=True)
    ]
    rows.sort(key=lambda row: row[0])
    return [Received(offset, at_ms, decode_request(value)) for offset, at_ms, value in rows]
