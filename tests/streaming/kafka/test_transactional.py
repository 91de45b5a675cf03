"""The writer of records in clients' transactions: its deadline, its limits, and its end. Brokers are doubles."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.errors import CoordinatorLoadInProgressError, KafkaConnectionError, KafkaError, KafkaTimeoutError
from kafka.future import Future

from streaming.config.settings import Settings
from streaming.kafka import transactional as module
from streaming.kafka.transactional import RESPONSE_BYTES_MAX, Transaction, TransactionWriter, WrittenRecord
from tests.system.waiting import HANG_S

OPEN = Transaction("x", 7, 3)
RECORD = (b"g", b"{}")
OLD, NEW = UUID(int=1), UUID(int=2)


class Cluster:
    """The metadata of one broker."""

    def leader_for_partition(self, place: object) -> int:
        return 1

    def broker_metadata(self, node_id: int) -> bool:
        return True

    async def refresh_metadata(self) -> None:
        pass

    def set_topics(self, topics: object) -> None:
        pass

    def bootstrap_brokers(self) -> list[Any]:
        return [SimpleNamespace(host="127.0.0.1", port=1)]


class Brokers:
    """A double of kafka-python's connections. Responses come from `respond`, which may take a while.

    Attributes:
        topic_ids: The ids that the leader names one after another; the last one again and again.
        coordinators: The brokers that coordinate transactions, by the ids of these; others are at broker 1.
    """

    def __init__(self, respond: Callable[[str], float] = lambda name: 0.0) -> None:
        self.sent: list[str] = []
        self._respond = respond
        self.cluster = Cluster()
        self.topic_ids = [OLD]
        self.coordinators: dict[str, int] = {}
        self.producers: list[Any] = []

        self.tasks = list[asyncio.Task[None]]()

    def call_soon(self, send: Callable[..., Awaitable[Any]], *arguments: Any) -> Future:
        """Begin the work, which goes on also if nobody waits for it any more."""
        future = Future()

        async def run() -> None:
            try:
                future.success(await send(*arguments))
            except Exception as error:
                future.failure(error)

        self.tasks.append(asyncio.ensure_future(run()))
        return future

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        self.sent.append(request.name)
        await asyncio.sleep(self._respond(request.name))
        fine = {"error_code": 0, "error_message": None}
        match request.name:
            case "FindCoordinatorRequest":
                (key,) = request.coordinator_keys
                return SimpleNamespace(coordinators=[SimpleNamespace(node_id=self.coordinators.get(key, 1), **fine)])
            case "DescribeProducersRequest":
                place = SimpleNamespace(active_producers=self.producers, **fine)
                return SimpleNamespace(topics=[SimpleNamespace(partitions=[place])])
            case "ProduceRequest":
                place = SimpleNamespace(base_offset=41, **fine)
                return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[place])])
            case "MetadataRequest":
                topic_id = self.topic_ids.pop(0) if len(self.topic_ids) > 1 else self.topic_ids[0]
                return SimpleNamespace(topics=[SimpleNamespace(topic_id=topic_id, **fine)])
        return SimpleNamespace(results_by_topic_v3_and_below=[])


def writer_at(monkeypatch: pytest.MonkeyPatch, brokers: Any) -> TransactionWriter:
    writer = TransactionWriter(Settings(), "transactions")
    monkeypatch.setattr(writer, "_manager", brokers)
    return writer


def later() -> float:
    return time.monotonic() + HANG_S


def soon() -> float:
    return time.monotonic() + 0.05


def test_a_record_is_written_within_its_time(monkeypatch: pytest.MonkeyPatch):
    brokers = Brokers()
    writer = writer_at(monkeypatch, brokers)
    asyncio.run(writer.join(OPEN, 1, time.monotonic() + 60))
    assert asyncio.run(writer.write(OPEN, 1, *RECORD, time.monotonic() + 60)) == WrittenRecord(41, str(OLD))
    assert brokers.sent == [
        "FindCoordinatorRequest", "AddPartitionsToTxnRequest",
        "MetadataRequest", "DescribeProducersRequest", "ProduceRequest", "MetadataRequest",
    ]  # fmt: skip


def test_a_record_is_written_again_if_the_topic_was_made_anew(monkeypatch: pytest.MonkeyPatch):
    """Its offset may be one of the topic that is gone."""
    brokers = Brokers()
    brokers.topic_ids = [OLD, NEW]
    writer = writer_at(monkeypatch, brokers)
    assert asyncio.run(writer.write(OPEN, 1, *RECORD, time.monotonic() + 60)) == WrittenRecord(41, str(NEW))
    once = ["MetadataRequest", "DescribeProducersRequest", "ProduceRequest", "MetadataRequest"]
    assert brokers.sent == once * 2


@pytest.mark.parametrize(
    ("slow", "send", "last"),
    [
        ("DescribeProducersRequest", lambda writer: writer.write(OPEN, 1, *RECORD, soon()), 1),
        ("FindCoordinatorRequest", lambda writer: writer.join(OPEN, 1, soon()), 0),
    ],
)
def test_nothing_is_written_after_the_deadline(
    monkeypatch: pytest.MonkeyPatch, slow: str, send: Callable[[TransactionWriter], Any], last: int
):
    """The sequence number would be right in the producer's next transaction, if that has begun meanwhile."""
    brokers = Brokers(lambda name: 0.1 if name == slow else 0.0)
    writer = writer_at(monkeypatch, brokers)

    async def main() -> None:
        with pytest.raises(KafkaTimeoutError):
            await send(writer)
        await asyncio.gather(*brokers.tasks)

    asyncio.run(main())
    assert brokers.sent[last:] == [slow]


def test_an_acknowledgement_after_the_deadline_is_an_error(monkeypatch: pytest.MonkeyPatch):
    brokers = Brokers(lambda name: 0.1 if name == "ProduceRequest" else 0.0)
    with pytest.raises(KafkaTimeoutError):
        asyncio.run(writer_at(monkeypatch, brokers).write(OPEN, 1, *RECORD, soon()))


def producer(producer_id: int, *, is_open: bool) -> Any:
    place = 5 if is_open else -1
    return SimpleNamespace(producer_id=producer_id, producer_epoch=3, last_sequence=0, current_txn_start_offset=place)


@pytest.mark.parametrize(("others", "is_refused"), [(2, False), (3, True)])
def test_the_open_transactions_of_a_partition_are_bounded(
    monkeypatch: pytest.MonkeyPatch, others: int, is_refused: bool
):
    """With more of them, no report of ended transactions would be within its bounds."""
    monkeypatch.setattr(module, "OPEN_TRANSACTIONS_WRITTEN_MAX", 3)
    brokers = Brokers()
    brokers.producers = [producer(n, is_open=n < others) for n in range(6)] + [producer(OPEN.producer_id, is_open=True)]
    writing = writer_at(monkeypatch, brokers).write(OPEN, 1, *RECORD, time.monotonic() + 0.01)
    if is_refused:
        with pytest.raises(CoordinatorLoadInProgressError):
            asyncio.run(writing)
    else:
        assert asyncio.run(writing) == WrittenRecord(41, str(OLD))


def test_requests_for_a_partition_wait_for_their_turns(monkeypatch: pytest.MonkeyPatch):
    """kafka-python refuses more requests than its bound. Other partitions have turns of their own."""
    monkeypatch.setattr(module, "AT_ONCE", 2)

    async def main() -> None:
        may_answer = asyncio.Event()
        brokers = Brokers()
        send = brokers.send

        async def slow(request: Any, node_id: int | None = None) -> Any:
            brokers.sent.append("begun")
            await may_answer.wait()
            return await send(request, node_id)

        brokers.send = slow  # type: ignore[method-assign]
        writer = writer_at(monkeypatch, brokers)
        writes = [asyncio.ensure_future(writer.write(OPEN, each, *RECORD, later())) for each in (1, 1, 1, 2)]
        while len(brokers.sent) < 3:
            await asyncio.sleep(0)
        with pytest.raises(KafkaTimeoutError):
            await writer.write(OPEN, 1, *RECORD, soon())
        assert brokers.sent == ["begun"] * 3
        may_answer.set()
        await asyncio.gather(*writes)

    asyncio.run(main())


def test_a_silent_coordinator_of_transactions_holds_up_only_its_own(monkeypatch: pytest.MonkeyPatch):
    """KIP-890: the coordinator of a transaction is another broker than the leader of the partition."""
    monkeypatch.setattr(module, "AT_ONCE", 2)

    async def main() -> None:
        brokers, may_answer = Brokers(), asyncio.Event()
        brokers.coordinators = {"silent": 2}
        send, at_silent = brokers.send, list[str]()

        async def silent(request: Any, node_id: int | None = None) -> Any:
            if node_id == 2:
                at_silent.append(request.name)
                await may_answer.wait()
            return await send(request, node_id)

        brokers.send = silent  # type: ignore[method-assign]
        writer = writer_at(monkeypatch, brokers)
        held = [asyncio.ensure_future(writer.join(Transaction("silent", 9, 0), 1, later())) for _ in range(5)]
        while len(at_silent) < 2:
            await asyncio.sleep(0)
        await writer.join(OPEN, 1, later())
        assert await writer.write(OPEN, 1, *RECORD, later()) == WrittenRecord(41, str(OLD))
        assert at_silent == ["AddPartitionsToTxnRequest"] * 2
        may_answer.set()
        await asyncio.gather(*held)

    asyncio.run(main())


def test_a_producer_that_is_refused_takes_no_turn_while_it_pauses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "AT_ONCE", 1)

    async def main() -> None:
        brokers = Brokers()
        writer = writer_at(monkeypatch, brokers)
        brokers.producers = [producer(n, is_open=True) for n in range(module.OPEN_TRANSACTIONS_WRITTEN_MAX)]
        refused = asyncio.ensure_future(writer.write(OPEN, 1, *RECORD, later()))
        while not brokers.sent:
            await asyncio.sleep(0)
        brokers.producers = []
        assert await writer.write(Transaction("y", 8, 0), 1, *RECORD, later()) == WrittenRecord(41, str(OLD))
        assert await refused == WrittenRecord(41, str(OLD))

    asyncio.run(main())


def test_retries_end_at_the_deadline(monkeypatch: pytest.MonkeyPatch):
    def unreachable(name: str) -> float:
        raise KafkaConnectionError(name)

    brokers = Brokers(unreachable)
    since_s = time.monotonic()
    with pytest.raises(KafkaConnectionError):
        asyncio.run(writer_at(monkeypatch, brokers).write(OPEN, 1, *RECORD, since_s + 0.2))
    assert len(brokers.sent) > 1
    assert time.monotonic() - since_s < 5


def test_a_writer_waits_for_the_connection_of_another_thread_until_the_deadline():
    writer = TransactionWriter(Settings(), "transactions")
    with writer._opening, pytest.raises(KafkaTimeoutError):
        asyncio.run(writer.write(OPEN, 1, *RECORD, soon()))


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
    with pytest.raises(KafkaError):
        asyncio.run(TransactionWriter(Settings(), "transactions").write(OPEN, 1, *RECORD, time.monotonic() + 1))
    assert opened[0]["receive_message_max_bytes"] == RESPONSE_BYTES_MAX > 1_000_000


def test_a_closed_writer_connects_no_more(opened: list[dict[str, Any]]):
    """A thread that is about to try again ends; it would leave a connection behind."""
    writer, errors = TransactionWriter(Settings(), "transactions"), list[BaseException]()

    def write() -> None:
        try:
            asyncio.run(writer.write(OPEN, 1, *RECORD, time.monotonic() + 60))
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
