"""Tests of the wake-up: when the query looks for records. The test holds the listener and the clock."""

import queue
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from py4j.protocol import Py4JError

from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import DescribeGroup, Request
from streaming import watcher
from streaming.config.settings import Settings
from streaming.query.watchers import trigger_wakeup
from streaming.query.watchers.progress import Tallies
from streaming.query.watchers.trigger_wakeup import TRIGGER_MS, BurstDetector, TriggerWakeup
from streaming.wire.records import encode_request
from tests.system.waiting import HANG_S

NEVER_S = 3_600.0

_SENDER = {"request_id": "r", "reply_to": 0, "group_id": "g"}
HEARTBEAT = Heartbeat(**_SENDER, generation_id=1, member_id="m")
DESCRIBE = DescribeGroup(**_SENDER)


def ended(batch_id: int, read_to: int) -> dict[str, Any]:
    """Return the progress of a batch that has read partition 0 up to an offset."""
    return {
        "batchId": batch_id,
        "durationMs": {"triggerExecution": 5},
        "observedMetrics": {},
        "sources": [{"endOffset": {"coordinator.requests": {"0": read_to}}}],
    }


class Stage:
    """A wake-up with a listener and a clock that write down what the wake-up does with them.

    `seen` has the words `listen OFFSET`, `heard`, `nothing` and `look` in the order of the calls.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._looks: queue.Queue[list[str]] = queue.Queue()
        self._arriving: queue.Queue[Any] = queue.Queue()
        self.tallies = Tallies()
        self.tallies.handle(ended(1, read_to=5))
        self.bell = TriggerWakeup(Settings(), self.tallies)

    def arrive(self, *requests: Request, at_ms: int = 0) -> None:
        """Add records that arrive, with the broker's time."""
        for request in requests:
            value = encode_request(request)
            fields = {
                "value": lambda value=value: value,
                "error": lambda: None,
                "partition": lambda: 0,
                "timestamp": lambda: (1, at_ms),
            }
            self._arriving.put(SimpleNamespace(**fields))

    def fail(self) -> None:
        """Add a refusal of the listener by the broker."""
        self._arriving.put(SimpleNamespace(error=lambda: KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))

    def await_looks(self, count: int) -> list[str]:
        """Wait until the query has looked so often again; return what was seen until then."""
        return [self._looks.get(timeout=HANG_S) for _ in range(count)][-1]

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.seen += [f"listen {place.offset}" for place in places]

    def unassign(self) -> None:
        pass

    def close(self) -> None:
        pass

    def poll(self, wait_s: float) -> Any:
        try:
            message = self._arriving.get(timeout=wait_s)
        except queue.Empty:
            return None
        self.seen.append("heard")
        return message

    def advance(self, ms: int) -> None:
        assert ms == TRIGGER_MS
        self.seen.append("look")
        self._looks.put(list(self.seen))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage on which nothing happens by the passing of time, unless the test changes that."""
    stage = Stage()
    monkeypatch.setattr(trigger_wakeup, "consumer", lambda *_: stage)
    monkeypatch.setattr(trigger_wakeup, "install_manual_clock", lambda *_: stage)
    for name in ("LOOK_EVERY_S", "GATHER_S", "BATCH_WAIT_S"):
        monkeypatch.setattr(trigger_wakeup, name, NEVER_S)
    monkeypatch.setattr(trigger_wakeup, "PAUSE_S", dict.fromkeys(trigger_wakeup.PAUSE_S, NEVER_S))
    yield stage
    stage.bell.close()


def start(stage: Stage) -> None:
    stage.bell.follow(None, None)  # type: ignore[arg-type]


def test_the_query_looks_when_a_record_arrives_and_when_its_batch_has_ended(stage):
    start(stage)
    stage.arrive(DESCRIBE)
    assert stage.await_looks(1) == ["listen 5", "heard", "look"]
    stage.tallies.handle(ended(2, read_to=6))
    stage.arrive(DESCRIBE)
    assert stage.await_looks(2) == ["listen 5", "heard", "look", "look", "listen 6", "heard", "look"]


def test_a_bell_that_fails_makes_the_query_look_and_begins_again(stage, monkeypatch):
    """The clock of the query stands still, so nothing else would make it look."""
    failures = [KafkaException("no consumer")]

    def listener(*_: object) -> Stage:
        if failures:
            raise failures.pop()
        return stage

    monkeypatch.setattr(trigger_wakeup, "consumer", listener)
    monkeypatch.setattr(watcher, "RETRY_WAIT_S", 0.0)
    start(stage)
    stage.arrive(DESCRIBE)
    assert stage.await_looks(2) == ["look", "listen 5", "heard", "look"]


def test_a_heartbeat_waits_for_those_of_other_clients_but_no_other_request_waits(stage):
    start(stage)
    stage.arrive(HEARTBEAT, Heartbeats.of([HEARTBEAT], request_id="h", reply_to=0), DESCRIBE)
    assert stage.await_looks(1) == ["listen 5", "heard", "heard", "heard", "look"]


PAUSES = [("PAUSE_S", dict.fromkeys(trigger_wakeup.PAUSE_S, 0.01)), ("GATHER_S", 0.01), ("HEARD_MAX", 1)]


@pytest.mark.parametrize(("bound", "value"), PAUSES)
def test_heartbeats_alone_wait_for_a_pause_but_not_for_long_and_not_for_many(stage, monkeypatch, bound, value):
    monkeypatch.setattr(trigger_wakeup, bound, value)
    start(stage)
    stage.arrive(HEARTBEAT)
    assert stage.await_looks(1) == ["listen 5", "heard", "look"]


def test_after_a_batch_of_heartbeats_the_query_does_not_look_at_once(stage, monkeypatch):
    """Those that come a little later wait for one another again."""
    monkeypatch.setattr(trigger_wakeup, "HEARD_MAX", 1)
    start(stage)
    stage.arrive(HEARTBEAT)
    stage.await_looks(1)
    stage.tallies.handle(ended(2, read_to=6))
    stage.arrive(DESCRIBE)
    assert stage.await_looks(1)[3:] == ["listen 6", "heard", "look"]


def test_the_query_looks_now_and_then_although_no_record_is_heard(stage, monkeypatch):
    """A record that the wake-up has missed is found then. The wake-up waits for the end of no batch."""
    monkeypatch.setattr(trigger_wakeup, "LOOK_EVERY_S", 0.01)
    start(stage)
    assert stage.await_looks(2)[:4] == ["listen 5", "look", "listen 5", "look"]


def test_the_query_looks_often_while_the_broker_refuses_the_listener(stage):
    start(stage)
    for _ in range(3):
        stage.fail()
    assert stage.await_looks(3) == ["listen 5", "heard", "look"] * 3


def test_the_bell_listens_again_if_a_batch_takes_long(stage, monkeypatch):
    monkeypatch.setattr(trigger_wakeup, "BATCH_WAIT_S", 0.01)
    start(stage)
    stage.arrive(DESCRIBE, DESCRIBE)
    assert stage.await_looks(4) == ["listen 5", "heard", "look", "look"] * 2


def test_a_spark_without_such_a_clock_keeps_its_own(stage, monkeypatch, caplog):
    def no_clock(*_: object) -> None:
        raise Py4JError("no such method")

    monkeypatch.setattr(trigger_wakeup, "install_manual_clock", no_clock)
    start(stage)
    assert "looks every 50 ms: no such method" in caplog.text
    assert stage.seen == []


def test_a_heartbeat_after_one_that_was_alone_does_not_wait(stage):
    start(stage)
    stage.arrive(HEARTBEAT, DESCRIBE, at_ms=10_000)
    stage.await_looks(1)
    stage.tallies.handle(ended(2, read_to=7))
    stage.arrive(HEARTBEAT, at_ms=13_000)
    assert stage.await_looks(2)[4:] == ["look", "listen 7", "heard", "look"]


@pytest.mark.parametrize(
    ("times_ms", "wait"),
    [
        ([0, 3_000, 6_000], [True, False, False]),  # one member
        ([0, 3_000, 3_099, 6_000], [True, False, True, True]),  # a second one has come
        ([0, 99, 3_000, 3_099, 6_000, 9_000], [True, True, True, True, True, False]),  # it has left
        ([0, 3_000, 2_000], [True, False, True]),  # the clock of another broker
    ],
)
def test_heartbeats_wait_if_others_came_with_the_last_ones(times_ms: list[int], wait: list[bool]):
    company = BurstDetector()
    assert [company.joins(1_790_000_000_000 + at_ms) for at_ms in times_ms] == wait
