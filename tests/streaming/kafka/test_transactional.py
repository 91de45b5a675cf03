"""The writer of records in clients' transactions: its deadline, its limits, and its end. Brokers are doubles."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError

from streaming.config.settings import Settings
from streaming.kafka import transactional as module
from streaming.kafka.transactional import RESPONSE_BYTES_MAX, Transaction, TransactionWriter
from tests.system.waiting import HANG_S

OPEN = Transaction("x", 7, 3)
RECORD = (b"g", b"{}")


class Cluster:
    """The metadata of one broker."""

    def leader_for_partition(self, place: object) -> int:
        return 1

    def broker_metadata(self, node_id: int) -> bool:
        return True

    def set_topics(self, topics: object) -> None:
        pass

    def bootstrap_brokers(self) -> list[Any]:
        return [SimpleNamespace(host="127.0.0.1", port=1)]


class Brokers:
    """A double of kafka-python's connections. Responses come from `respond`, which may take a while."""

    def __init__(self, respond: Callable[[str], float] = lambda name: 0.0) -> None:
        self.sent: list[str] = []
        self._respond = respond
        self.cluster = Cluster()

    def run(self, send: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        async def main() -> Any:
            return await send(*arguments)

        return asyncio.run(main())

    def call_soon(self, send: Callable[..., Awaitable[Any]], *arguments: Any) -> Awaitable[Any]:
        return send(*arguments)

    async def wait_for(self, work: Awaitable[Any], timeout_ms: float) -> Any:
        """Wait. As with kafka-python, the work goes on after the timeout."""
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait([task], timeout=timeout_ms / 1_000)
        if not done:
            await asyncio.wait([task])
            raise KafkaTimeoutError
        return task.result()

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        self.sent.append(request.name)
        await asyncio.sleep(self._respond(request.name))
        fine = {"error_code": 0, "error_message": None}
        match request.name:
            case "FindCoordinatorRequest":
                return SimpleNamespace(coordinators=[SimpleNamespace(node_id=1, **fine)])
            case "DescribeProducersRequest":
                place = SimpleNamespace(active_producers=[], **fine)
                return SimpleNamespace(topics=[SimpleNamespace(partitions=[place])])
            case "ProduceRequest":
                place = SimpleNamespace(base_offset=41, **fine)
                return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[place])])
        return SimpleNamespace(results_by_topic_v3_and_below=[])


def writer_at(monkeypatch: pytest.MonkeyPatch, brokers: Any) -> TransactionWriter:
    writer = TransactionWriter(Settings(), "transactions")
    monkeypatch.setattr(writer, "_manager", brokers)
    return writer


def soon() -> float:
    return time.monotonic() + 0.05


def test_a_record_is_written_within_its_time(monkeypatch: pytest.MonkeyPatch):
    brokers = Brokers()
    writer = writer_at(monkeypatch, brokers)
    writer.join(OPEN, 1, time.monotonic() + 60)
    assert writer.write(OPEN, 1, *RECORD, time.monotonic() + 60) == 41
    assert brokers.sent == [
        "FindCoordinatorRequest", "AddPartitionsToTxnRequest", "DescribeProducersRequest", "ProduceRequest",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("slow", "send"),
    [
        ("DescribeProducersRequest", lambda writer: writer.write(OPEN, 1, *RECORD, soon())),
        ("FindCoordinatorRequest", lambda writer: writer.join(OPEN, 1, soon())),
    ],
)
def test_nothing_is_written_after_the_deadline(
    monkeypatch: pytest.MonkeyPatch, slow: str, send: Callable[[TransactionWriter], Any]
):
    """The sequence number would be right in the producer's next transaction, if that has begun meanwhile."""
    brokers = Brokers(lambda name: 0.1 if name == slow else 0.0)
    writer = writer_at(monkeypatch, brokers)
    with pytest.raises(KafkaTimeoutError):
        send(writer)
    assert brokers.sent == [slow]


def test_an_acknowledgement_after_the_deadline_is_an_error(monkeypatch: pytest.MonkeyPatch):
    brokers = Brokers(lambda name: 0.1 if name == "ProduceRequest" else 0.0)
    with pytest.raises(KafkaTimeoutError):
        writer_at(monkeypatch, brokers).write(OPEN, 1, *RECORD, soon())


def test_retries_end_at_the_deadline(monkeypatch: pytest.MonkeyPatch):
    def unreachable(name: str) -> float:
        raise KafkaConnectionError(name)

    brokers = Brokers(unreachable)
    since_s = time.monotonic()
    with pytest.raises(KafkaConnectionError):
        writer_at(monkeypatch, brokers).write(OPEN, 1, *RECORD, since_s + 0.2)
    assert len(brokers.sent) > 1
    assert time.monotonic() - since_s < 5


def test_a_writer_waits_for_the_connection_of_another_thread_until_the_deadline():
    writer = TransactionWriter(Settings(), "transactions")
    with writer._opening, pytest.raises(KafkaTimeoutError):
        writer.write(OPEN, 1, *RECORD, soon())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replace kafka-python's connections; return the options of each that is opened. None reaches a broker."""
    options: list[dict[str, Any]] = []

    def bootstrap(timeout_ms: float) -> None:
        raise KafkaConnectionError("nobody is there")

    def manager(net: Any, **of: Any) -> Any:
        options.append(of)
        return SimpleNamespace(cluster=Brokers().cluster, bootstrap=bootstrap, close=lambda: None)

    monkeypatch.setattr(module, "NetworkSelector", lambda **_: SimpleNamespace(start=lambda: 0, stop=lambda: 0))
    monkeypatch.setattr(module, "KafkaConnectionManager", manager)
    return options


def test_a_partition_with_many_producers_can_be_described(opened: list[dict[str, Any]]):
    """kafka-python closes a connection for a response above 1 MB, which 27,000 producers in a day are."""
    with pytest.raises(KafkaConnectionError):
        TransactionWriter(Settings(), "transactions").write(OPEN, 1, *RECORD, time.monotonic())
    assert opened[0]["receive_message_max_bytes"] == RESPONSE_BYTES_MAX > 1_000_000


def test_a_closed_writer_connects_no_more(opened: list[dict[str, Any]]):
    """A thread that is about to try again ends; it would leave a connection behind."""
    writer, errors = TransactionWriter(Settings(), "transactions"), list[BaseException]()

    def write() -> None:
        try:
            writer.write(OPEN, 1, *RECORD, time.monotonic() + 60)
        except KafkaConnectionError as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    while not opened:
        time.sleep(0.001)
    writer.close()
    thread.join(HANG_S)
    assert (thread.is_alive(), len(errors)) == (False, 1)
    before = len(opened)
    write()
    assert (len(opened), len(errors)) == (before, 2)
