"""Tests of the lease's thread without brokers: after an error it continues to read where it was."""

import queue
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streaming import watcher
from streaming.config.settings import Settings
from streaming.query import lease
from streaming.query.lease import TAIL_RECORDS, Lease
from tests.system.waiting import HANG_S

HIGH = 3 * TAIL_RECORDS


class Reader:
    """A consumer that notes where it begins. Its topic grows by one record for each question about its end."""

    def __init__(self) -> None:
        self.begins = queue.Queue[int]()
        self._high = HIGH - 1

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        self._high += 1
        return 0, self._high

    def assign(self, places: list[TopicPartition]) -> None:
        self.begins.put(places[0].offset)

    def close(self) -> None:
        pass


def test_lease_that_fails_continues_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is read twice, and a stop of all drivers in between is not one of before the start."""
    reader, polls = Reader(), [0]

    def poll_all(*_: Any) -> list[Any]:
        polls[0] += 1
        if polls[0] == 2:
            raise RuntimeError("any error")
        return (
            [SimpleNamespace(error=lambda: None, offset=lambda: HIGH - 1, value=lambda: b"")] if polls[0] == 1 else []
        )

    monkeypatch.setattr(lease, "consumer", lambda *_: reader)
    monkeypatch.setattr(lease, "producer", lambda *_: None)
    monkeypatch.setattr(lease, "poll_all", poll_all)
    monkeypatch.setattr(watcher, "RETRY_WAIT_S", 0.0)
    held = Lease(Settings(stand_by=True))
    held.start()
    assert [reader.begins.get(timeout=HANG_S) for _ in range(2)] == [HIGH - TAIL_RECORDS, HIGH]
    held.close()
    assert held._begin_offset == HIGH
