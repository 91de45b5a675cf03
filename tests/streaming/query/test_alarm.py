"""Tests of the alarm: which shards are woken, and when. The test takes the place of the producer."""

import queue

import pytest
from confluent_kafka import KafkaException

from streaming import watcher
from streaming.config.settings import Settings
from streaming.query.watchers import alarm
from streaming.query.watchers.alarm import AGAIN_MS, WAIT_MS_MAX, Alarm, overdue
from streaming.query.watchers.progress import Tallies
from tests.system.waiting import HANG_S


def test_no_shard_is_woken_before_its_deadline():
    """S05: a shard is woken one millisecond after its deadline."""
    assert overdue({0: 5_000, 1: None}, {}, now_ms=5_000) == ({}, 1)
    assert overdue({0: 5_000, 1: None}, {}, now_ms=5_001) == ({0: 5_001}, AGAIN_MS)


def test_the_next_check_is_at_the_first_deadline_of_all_shards():
    assert overdue({0: 9_000, 1: 7_000, 2: None}, {}, now_ms=5_000) == ({}, 2_001)
    assert overdue({0: None}, {}, now_ms=5_000) == ({}, WAIT_MS_MAX)
    assert overdue({}, {}, now_ms=5_000) == ({}, WAIT_MS_MAX)


def test_an_overdue_shard_is_woken_again_after_a_second():
    """The wake record may be lost, and a batch may take long."""
    assert overdue({0: 5_000}, {0: 5_001}, now_ms=5_600) == ({}, 401)
    assert overdue({0: 5_000}, {0: 5_001}, now_ms=6_001) == ({0: 6_001}, AGAIN_MS)


def test_a_shard_is_woken_again_at_its_next_deadline():
    assert overdue({0: 5_200}, {0: 5_001}, now_ms=5_201) == ({0: 5_201}, AGAIN_MS)


class Failing:
    """A producer whose first calls fail. It writes down the shards that are woken by the others."""

    def __init__(self, *failures: Exception) -> None:
        self._failures, self.woken = list(failures), queue.Queue[int]()

    def produce(self, topic: str, value: bytes, partition: int) -> None:
        if self._failures:
            raise self._failures.pop(0)
        self.woken.put(partition)

    def flush(self, wait_s: float) -> None:
        pass


def test_an_alarm_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """Without it no session would expire."""
    failing = Failing(BufferError("Local: Queue full"), KafkaException("any other error"))
    monkeypatch.setattr(alarm, "producer", lambda *_: failing)
    monkeypatch.setattr(watcher, "RETRY_WAIT_S", 0.0)
    woken = Alarm(Settings(request_partitions=2), Tallies())
    woken.start()
    assert [failing.woken.get(timeout=HANG_S) for _ in range(2)] == [0, 1]
    woken.close()
    assert caplog.messages == [
        f"the alarm failed, and begins again: {text}" for text in ("Local: Queue full", "any other error")
    ]
