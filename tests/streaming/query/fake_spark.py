"""A stand-in for Spark that calls the operator: the keys of a batch, the arguments of each call, and the stored state.

It follows `FlatMapGroupsInPandasWithStateExec`: it calls keys with rows first, then keys whose timeout is strictly
before the batch's time. A call that neither updates, removes nor sets a timeout leaves the stored row as it was.
"""

import json
from dataclasses import dataclass, field

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import BinaryType, StructField, StructType

from streaming.query.operator.operator import INPUT_COLUMNS, ShardOperator

SCHEMA = StructType([StructField("shard", BinaryType())])
NO_TIMEOUT = -1
FRAME_ROWS = 3  # a group's rows come in several frames; Spark's own have 10,000

COLUMNS = ["topic", "partition", "key", "value", "version", "at_ms", "tally"]

Record = tuple[int, int, int, bytes | None]
"""shard, offset, at_ms, value"""


@dataclass
class FakeSpark:
    """One stateful operator with its state store."""

    operator: ShardOperator
    frame_rows: int = FRAME_ROWS
    store: dict[int, tuple[str | None, int]] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)

    def batch(self, now_ms: int, records: list[Record]) -> pd.DataFrame:
        """Run one batch and return the rows that reach the sink."""
        self.calls = []
        by_shard: dict[int, list[Record]] = {}
        for record in records:
            by_shard.setdefault(record[0], []).append(record)
        frames = [self._call(shard, rows, now_ms) for shard, rows in by_shard.items()]
        due = [shard for shard, (_, at) in self.store.items() if at != NO_TIMEOUT and at < now_ms]
        frames += [self._call(shard, [], now_ms) for shard in due]
        return _unpacked(pd.concat(frames)) if frames else pd.DataFrame(columns=COLUMNS)

    def _call(self, shard: int, rows: list[Record], now_ms: int) -> pd.DataFrame:
        self.calls.append(shard)
        value, timeout = self.store.get(shard, (None, NO_TIMEOUT))
        state = GroupState(
            Row(value), now_ms, NO_TIMEOUT, GroupStateTimeout.ProcessingTimeTimeout, not rows, False,
            value is not None, False, False, NO_TIMEOUT, b"", SCHEMA,
        )  # fmt: skip
        cuts = range(0, max(len(rows), 1), self.frame_rows)
        frames = (pd.DataFrame(rows[i : i + self.frame_rows], columns=list(INPUT_COLUMNS)) for i in cuts)
        out = pd.concat(list(self.operator((shard,), frames, state)))
        if state._removed:
            self.store.pop(shard, None)
        elif state._updated or state._timeout_timestamp != NO_TIMEOUT:
            self.store[shard] = (state.get[0] if state.exists else value, state._timeout_timestamp)
        else:
            assert timeout is None, "the call kept an old timeout, and would be repeated in every batch"
        return out


def _unpacked(packs: pd.DataFrame) -> pd.DataFrame:
    """Convert packs to rows as the query does, and leave tallies unchanged."""
    rows: list[tuple[object, ...]] = []
    for pack in packs.itertuples():
        if pack.topic is None:
            rows.append((None, None, None, None, None, None, json.loads(pack.tally)))
            continue
        none = [None] * len(pack.keys)
        records = zip(pack.keys, pack.values, pack.versions or none, pack.times or none, strict=True)
        rows += [(pack.topic, pack.partition, *record, None) for record in records]
    return pd.DataFrame(rows, columns=COLUMNS, dtype=object)
