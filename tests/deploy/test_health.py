"""The health port: its responses in each state, and its protection against hostile clients."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry, Counter

from streaming import health
from streaming.config.settings import Settings
from streaming.errors import PortTaken
from streaming.health import Listener
from streaming.kafka.broker_monitor import BrokerMonitor
from streaming.kafka.offsets import Offsets, Why
from streaming.kafka.reach import SILENT_S
from streaming.moments import monotonic_ms
from streaming.query.coordinator import Coordinator
from streaming.query.health import QUERY_SILENT_S, SLOW_S, STALLED_S, QueryHealth
from streaming.query.watchers.progress import Tallies
from streaming.wire.records import Tally
from tests.system.waiting import HANG_S


class Patient:
    """A subject whose state is set by a test."""

    process = "patient"

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        Counter("groupcoord_seen", "A figure.", registry=self.registry).inc(3)
        self.wrong: list[str] = []
        self.missing: list[str] = []

    def unhealthy_reasons(self) -> Sequence[str]:
        return self.wrong

    def not_ready_reasons(self) -> Sequence[str]:
        return self.missing

    def figures(self) -> dict[str, object]:
        return {"batch": 7}


@pytest.fixture
def patient() -> Patient:
    return Patient()


@pytest.fixture
def port(patient: Patient) -> Iterator[int]:
    with Listener("127.0.0.1", 0, patient) as listener:
        yield listener.server_port


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def raw(port: int, sent: bytes) -> bytes:
    """Send bytes; return all bytes until the other side closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        connection.sendall(sent)
        found = b""
        while more := connection.recv(65_536):
            found += more
        return found


# -- responses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "missing", "alive", "ready"),
    [([], [], 200, 200), ([], ["no broker"], 200, 503), (["it hangs"], [], 503, 503)],
)
def test_liveness_and_readiness_are_independent(
    patient: Patient, port: int, wrong: list[str], missing: list[str], alive: int, ready: int
) -> None:
    """With unavailable brokers a process is alive, but not ready. A hanging process is neither. The body says why."""
    patient.wrong, patient.missing = wrong, missing
    found = {path: get(port, path) for path in ("/healthz", "/readyz")}
    assert {path: status for path, (status, _) in found.items()} == {"/healthz": alive, "/readyz": ready}
    assert json.loads(found["/readyz"][1]) == {"well": ready == 200, "why": [*wrong, *missing], "batch": 7}


def test_metrics_are_in_the_format_of_prometheus(port: int) -> None:
    status, text = get(port, "/metrics")
    assert status == 200
    assert "groupcoord_seen_total 3.0" in text.splitlines()


@pytest.mark.parametrize(("wrong", "missing", "value"), [([], [], 1), ([], ["no broker"], 0), (["it hangs"], [], 0)])
def test_a_metric_repeats_whether_the_process_is_ready(
    patient: Patient, port: int, wrong: list[str], missing: list[str], value: int
) -> None:
    patient.wrong, patient.missing = wrong, missing
    _, text = get(port, "/metrics")
    assert f'groupcoord_ready{{process="patient"}} {value:.1f}' in text.splitlines()
    assert get(port, "/readyz")[0] == (200 if value else 503)


@pytest.mark.parametrize(
    ("host", "name"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", socket.gethostname()), ("::1", "[::1]")]
)
def test_the_url_names_the_machine_and_the_port_that_was_free(patient: Patient, host: str, name: str) -> None:
    """An application master runs on a node that YARN chooses."""
    listener = Listener(host, 0, patient)
    assert listener.url == f"http://{name}:{listener.server_port}"
    assert listener.server_port > 0
    listener.server_close()


def test_a_taken_port_is_an_error_with_its_address(patient: Patient, port: int) -> None:
    with pytest.raises(PortTaken, match=f"127.0.0.1:{port}"):
        Listener("127.0.0.1", port, patient)


# -- hostile clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz/../../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /%0d%0aX:1 HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n", b"501"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n", b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
    ],
)
def test_malformed_requests_are_refused(port: int, sent: bytes, status: bytes) -> None:
    """No file is served, no body is read, all input is bounded, and the next request is answered."""
    response = raw(port, sent)
    assert status in response, response
    assert b"root:" not in response
    assert b"Python" not in response
    assert get(port, "/healthz")[0] == 200


def test_silent_connections_do_not_block_others(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more silent connections than the limit, and none over its time limit, the oldest connection is closed."""
    monkeypatch.setattr(health, "EXCHANGE_S", 600.0)
    monkeypatch.setattr(health._Exchange, "timeout", 600.0)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * health.CONNECTIONS_MAX)]
    try:
        assert get(port, "/healthz")[0] == 200
        silent[0].settimeout(30)
        assert silent[0].recv(1) == b""
    finally:
        for connection in silent:
            connection.close()


def test_a_client_that_sends_byte_by_byte_is_disconnected(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte arrives in time, but the whole request does not."""
    monkeypatch.setattr(health, "EXCHANGE_S", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        ended = threading.Event()

        def drip() -> None:
            try:
                while not ended.wait(0.05):
                    connection.sendall(b"G")
            except OSError:
                return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
        finally:
            ended.set()
            dripping.join()


# -- health of the query -----------------------------------------------------------------------------------------------


def progress(batch: int, read_to: int) -> dict[str, object]:
    """Return a batch's progress in Spark's format."""
    shard = Tally(
        shard=0, groups=2, members=5, requests=4, heartbeats=3, answered=3, oldest_ms=1_500, deferred=0, due_in_ms=None
    )
    return {
        "batchId": batch,
        "durationMs": {"triggerExecution": 250, "addBatch": 200} | ({} if batch else {"queryPlanning": 30}),
        "stateOperators": [{"memoryUsedBytes": 7_000}],
        "observedMetrics": {"coordinator": {"shards": [shard.to_json()]}},
        "sources": [{"endOffset": {"coordinator.requests": {"0": read_to, "1": 0}}}],
    }


TOPIC = "coordinator.requests"


class Brokers:
    """Brokers that return the end offsets of the request topic, or that are unavailable. Broker N leads partition N."""

    def __init__(self) -> None:
        self.ends: dict[int, int] | None = None
        self.silent: set[int] = set()

    def __call__(self) -> Offsets:
        if self.ends is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return Offsets(
            known={(TOPIC, n): end for n, end in self.ends.items() if n not in self.silent},
            unknown={(TOPIC, n): Why.SILENT for n in self.silent},
            leaders={(TOPIC, n): n for n in self.ends},
            silent=frozenset(self.silent),
            answering=frozenset(self.ends) - self.silent,
        )


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_query_reports_why_it_is_not_ready_and_why_it_is_unhealthy() -> None:
    """The states follow from the start to a batch that does not end: not ready, ready, not ready, not alive."""
    clock = Clock()
    coordinator, brokers = Coordinator(Settings()), Brokers()
    watched = BrokerMonitor(brokers, coordinator.tallies, now_s=clock)
    subject = QueryHealth(coordinator, watched)

    watched.check()
    assert list(subject.not_ready_reasons()) == [
        "the first batch has not ended yet",
        "no Kafka broker has answered yet",
    ]
    assert list(subject.unhealthy_reasons()) == []

    coordinator.tallies.handle(progress(0, read_to=10))
    brokers.ends = {0: 10, 1: 0}
    watched.check()
    assert (list(subject.unhealthy_reasons()), list(subject.not_ready_reasons())) == ([], [])

    clock.now_s += 10 * STALLED_S
    watched.check()
    assert list(subject.unhealthy_reasons()) == []  # no requests have arrived

    brokers.ends = {0: 14, 1: 1}
    watched.check()
    clock.now_s += SLOW_S + 1
    watched.check()
    assert [*subject.unhealthy_reasons()] == []
    assert [*subject.not_ready_reasons()] == ["no batch has ended for 21 s though 5 requests wait"]
    clock.now_s += STALLED_S - SLOW_S
    watched.check()
    assert [*subject.unhealthy_reasons()] == ["no batch has ended for 901 s though 5 requests wait"]

    coordinator.tallies.handle(progress(1, read_to=12))
    watched.check()
    assert list(subject.unhealthy_reasons()) == []  # the query lags, but it makes progress
    assert subject.figures()["requests_waiting"] == 3

    brokers.ends = None
    clock.now_s += SILENT_S + 1
    watched.check()
    assert [*subject.not_ready_reasons()] == ["no Kafka broker has answered for 21 s"]
    clock.now_s += 10 * STALLED_S
    watched.check()
    brokers.ends = {0: 14, 1: 1}
    watched.check()
    assert [
        *subject.unhealthy_reasons(),
        *subject.not_ready_reasons(),
    ] == []  # the query has had no time for a batch yet


def test_partition_whose_leader_is_silent_counts_what_waited_before_and_a_hung_query_shows() -> None:
    """One silent leader hides neither the requests that waited, nor a query that ends no batch."""
    clock = Clock()
    coordinator, brokers = Coordinator(Settings()), Brokers()
    watched = BrokerMonitor(brokers, coordinator.tallies, now_s=clock)
    subject = QueryHealth(coordinator, watched)
    coordinator.tallies.handle(progress(0, read_to=10))
    brokers.ends = {0: 15, 1: 3}
    watched.check()
    brokers.silent = {1}
    for _ in range(3):
        clock.now_s += STALLED_S / 2
        watched.check()
    assert watched.records_behind == 8
    assert [*subject.unhealthy_reasons()] == ["no batch has ended for 1350 s though 8 requests wait"]
    assert [*subject.not_ready_reasons()] == [
        f"partition 1 of {TOPIC} cannot be reached: its leader, broker 1, does not answer (0 does)"
    ]


def test_time_without_a_batch_begins_while_a_leader_is_silent() -> None:
    """Nobody knows whether requests wait while a leader is frozen; if they do, members have waited since then."""
    clock = Clock()
    coordinator, brokers = Coordinator(Settings()), Brokers()
    watched = BrokerMonitor(brokers, coordinator.tallies, now_s=clock)
    subject = QueryHealth(coordinator, watched)
    coordinator.tallies.handle(progress(0, read_to=10))
    brokers.ends = {0: 10, 1: 0}
    watched.check()
    for silent, waiting in (({1}, 0), (set[int](), 4)):
        brokers.silent, brokers.ends[1] = silent, waiting
        clock.now_s += SLOW_S * 0.6
        watched.check()
    assert [*subject.not_ready_reasons()] == ["no batch has ended for 24 s though 4 requests wait"]


def test_process_may_tolerate_partitions_that_it_cannot_reach() -> None:
    """A gateway is not ready without a third of the partitions."""
    clock, brokers = Clock(), Brokers()
    watched = BrokerMonitor(brokers, tolerated=1 / 3, now_s=clock)
    brokers.ends = dict.fromkeys(range(6), 0)
    for silent, is_ready in (({1}, True), ({1, 2}, False), (set(), True)):
        brokers.silent = silent
        watched.check()
        clock.now_s += SILENT_S + 1
        watched.check()
        assert (not watched.not_ready_reasons()) == is_ready, silent


def test_partition_whose_leader_moves_is_not_out_of_reach() -> None:
    clock, brokers = Clock(), Brokers()
    watched = BrokerMonitor(brokers, now_s=clock)
    brokers.ends = {0: 1, 1: 1}
    for _ in range(10):
        for silent in ({1}, set[int]()):
            brokers.silent = silent
            watched.check()
            clock.now_s += SILENT_S - 1
            assert not watched.not_ready_reasons()


def test_a_query_that_does_not_report_whether_it_is_active_is_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(Settings())
    subject = QueryHealth(coordinator, BrokerMonitor(Brokers(), coordinator.tallies))
    monkeypatch.setattr(coordinator, "silent_s", lambda: QUERY_SILENT_S + 1)
    assert list(subject.unhealthy_reasons()) == ["Spark has not reported for 61 s whether the query is active"]


def test_the_querys_figures() -> None:
    """The metrics have all values of a batch's progress that a dashboard shows. Their labels are Spark's names, and the
    numbers of shards.
    """
    coordinator = Coordinator(Settings())
    brokers = Brokers()
    watched = BrokerMonitor(brokers, coordinator.tallies)
    brokers.ends = {0: 30, 1: 0}
    for number, read_to in enumerate((10, 20)):
        coordinator.tallies.handle(progress(number, read_to))
    watched.check()
    coordinator.transactions.unsettled.record({3: 12}, {3: 10}, monotonic_ms() - 4_000)
    registry = QueryHealth(coordinator, watched).registry
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    figures = {(sample.name, *sample.labels.values()): sample.value for sample in samples}
    assert figures == {
        ("groupcoord_batches_total",): 2,
        ("groupcoord_batch_seconds_total",): 0.5,
        ("groupcoord_requests_total",): 8,
        ("groupcoord_heartbeats_total",): 6,
        ("groupcoord_batch_part_seconds_total", "addBatch"): 0.4,
        ("groupcoord_batch_part_seconds_total", "queryPlanning"): 0.03,
        ("groupcoord_state_bytes",): 7_000,
        ("groupcoord_answers_total",): 6,
        ("groupcoord_groups",): 2,
        ("groupcoord_members",): 5,
        ("groupcoord_oldest_request_seconds",): 1.5,
        ("groupcoord_requests_waiting",): 10,
        ("groupcoord_transactions_unsettled_records", "3"): 2,
        ("groupcoord_transactions_unsettled_seconds", "3"): pytest.approx(4, abs=2),
    }


def test_progress_without_sources_has_no_read_offsets() -> None:
    """Before the first batch, the query's position is unknown."""
    assert Tallies().read_to == {}
