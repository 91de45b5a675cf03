"""The stateful operator: one shard through one batch. Rows in, rows out; all thinking is in `coordinator`.

Spark calls it with the rows of one request partition, in no promised order, and with that shard's state; also without
rows, when the processing-time timeout says that a deadline has passed.
"""

import binascii
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import pandas as pd
import pybase64
from pyspark.sql.streaming.state import GroupState

from coordinator.config import Config
from coordinator.errors import CorruptState
from coordinator.outputs import Reply
from coordinator.requests import Received
from coordinator.shard import Shard
from streaming import failpoints
from streaming.records import WAKE, OutputTopics, Tally, decode_request, pack
from streaming.signing import Signing

INPUT_COLUMNS = ("key", "offset", "at_ms", "value")

OUTPUT_SCHEMA = (
    "topic string, partition int, keys array<binary>, values array<binary>, versions array<binary>, tally string"
)
"""`Pack`s of records to write; and in each shard's last row no record but its `Tally` for the progress report."""

OUTPUT_COLUMNS = ["topic", "partition", "keys", "values", "versions", "tally"]

STATE_SCHEMA = "shard string"
"""A shard's bytes in base 64. To hand it to Python Spark pickles it: a slow walk over `binary`, a copy of text."""


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
        shard = Shard(number, self.partitions, self.secret, self.config, _stored(state))
        log = _log(frames, self.signing)
        outputs = shard.step(log, now_ms)
        _reach("stepped", number)
        due_ms = self._keep(shard, state, now_ms)
        rows: list[tuple[Any, ...]] = [(*packed, None) for packed in pack(outputs, self.topics, number)]
        tally = Tally(
            shard=number,
            groups=len(shard.group_ids),
            members=shard.members,
            requests=len(log),
            answered=sum(isinstance(output, Reply) for output in outputs),
            oldest_ms=now_ms - log[0].at_ms if log else 0,
            due_ms=due_ms,
        )
        rows.append((None, None, None, None, None, tally.to_json()))
        yield pd.DataFrame(rows, columns=OUTPUT_COLUMNS, dtype=object)
        _reach("yielded", number)

    def _keep(self, shard: Shard, state: GroupState, now_ms: int) -> int | None:
        """Write the shard down and set its timeout; say for when."""
        if shard.is_blank:
            state.remove()
            return None
        state.update((pybase64.b64encode_as_string(shard.to_bytes()),))
        if (deadline_ms := shard.next_deadline_ms) is None:
            return None
        due_ms = max(now_ms + 1, deadline_ms + self.config.clock_slack_ms)
        state.setTimeoutDuration(due_ms - now_ms)
        return due_ms


def _reach(point: str, shard: int) -> None:
    if failpoints.reach is not None:
        failpoints.reach(point, shard)


def _stored(state: GroupState) -> bytes | None:
    stored = state.getOption
    return None if stored is None else unpacked(stored[0])


def unpacked(stored: str) -> bytes:
    """Turn what the state holds into a shard's bytes."""
    try:
        return pybase64.b64decode(stored, validate=True)
    except binascii.Error as error:
        raise CorruptState(f"a shard's state is not in base 64: {error}") from error


@cache
def _spare_the_collector() -> None:
    """Once for each worker: no collection in the middle of a task, and none of what was imported.

    Spark's worker collects after every task. All of pandas would be looked through each time, 40 ms; and within a task
    all requests so far, again and again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


def _log(frames: Iterable[pd.DataFrame], signing: Signing | None) -> list[Received]:
    """Collect a shard's requests in the order of the log, which Spark does not keep. A record may ask nothing."""
    rows = [
        row
        for frame in frames
        for row in zip(frame["offset"].tolist(), frame["at_ms"].tolist(), frame["value"].tolist(), strict=True)
    ]
    rows.sort(key=itemgetter(0))
    if signing is not None:
        return [signing.received(*row) for row in rows if row[2] != WAKE]
    return [Received(offset, at_ms, decode_request(value)) for offset, at_ms, value in rows if value != WAKE]
