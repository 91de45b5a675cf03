"""Figures of the ended transactions that no shard has settled."""

import threading
from collections.abc import Mapping
from typing import NamedTuple


class _Wait(NamedTuple):
    """The place that a shard has to settle next, the records from there on, and since when it is that place."""

    place: int
    records: int
    since_ms: int


class Unsettled:
    """The records of the transactions topic that are not settled, by shard. Any thread may read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[int, _Wait] = {}

    def record(self, ends: Mapping[int, int], settled: Mapping[int, int], now_ms: int) -> None:
        """Note the ends of the topic's partitions, and the places before which the shards have settled all.

        Args:
            now_ms: The time of this machine's monotonic clock.
        """
        with self._lock:
            for shard, end in ends.items():
                place = settled.get(shard)
                if place is None or place >= end:
                    self._waits.pop(shard, None)
                    continue
                before = self._waits.get(shard)
                since_ms = before.since_ms if before is not None and before.place == place else now_ms
                self._waits[shard] = _Wait(place, end - place, since_ms)

    def records(self) -> dict[int, int]:
        """Return the number of unsettled records of each shard that has any, with the marks of the brokers."""
        with self._lock:
            return {shard: wait.records for shard, wait in self._waits.items()}

    def waited_ms(self, now_ms: int) -> dict[int, int]:
        """Return for how long each of these shards has settled nothing.

        Args:
            now_ms: As for `record`.
        """
        with self._lock:
            return {shard: max(0, now_ms - wait.since_ms) for shard, wait in self._waits.items()}
