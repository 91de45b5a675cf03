"""Transactions of clients: their rights, and what is written before the coordinator is asked."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafka.errors import (
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaConnectionError,
    KafkaError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
)
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.messages.requests import CheckAccess, TxnOffsetCommit
from coordinator.messages.responses import CheckAccessAnswer, CommittedPartition, TxnOffsetCommitAnswer
from streaming.config.settings import Settings
from streaming.gateway.coordinator import transaction_writer
from streaming.gateway.coordinator.routing import ShardAddress
from streaming.gateway.coordinator.transaction_writer import WRITE_WAIT_S, Transactions, Written
from streaming.gateway.relay.authorizer import Authorizer
from streaming.gateway.security.acls import NOTHING_IS_ALLOWED
from streaming.gateway.server import serving
from streaming.gateway.server.connection import Connection
from streaming.kafka.transactional import Transaction, TransactionWriter, WrittenRecord
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.parts import OWN_TOPIC, FakeShared, turn
from tests.streaming.gateway.serving_bench import ServingBench
from tests.streaming.gateway.wiring import frame_of
from tests.system.waiting import HANG_S

OF_THE_CLIENT = Transaction("x", 7, 3)
HOME = ShardAddress("coordinator", 0)


def add(group_id: str = "g") -> Any:
    return AddOffsetsToTxnRequest(version=3, transactional_id="x", producer_id=7, producer_epoch=3, group_id=group_id)


def commit(group_id: str = "g", topic: str = "t") -> Any:
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = kind.TxnOffsetCommitRequestPartition(
        partition_index=2, committed_offset=7, committed_leader_epoch=-1, committed_metadata=None
    )
    return TxnOffsetCommitRequest(
        version=3,
        transactional_id="x",
        producer_id=7,
        producer_epoch=3,
        group_id=group_id,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[kind(name=topic, partitions=[one])],
    )


def run(scenario: Callable[[ServingBench], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(ServingBench())

    asyncio.run(main())


def code_of(bench: ServingBench) -> int:
    return int(bench.read_response(AddOffsetsToTxnResponse, 3).error_code)


def test_a_partition_joins_the_transaction_before_the_client_hears_of_it():
    async def scenario(bench: ServingBench) -> None:
        bench.ask(add())
        assert bench.flow.is_paused, "later requests wait, so that they keep their order"
        await turn()
        shard = shard_of("g", bench.asking.shards)
        assert bench.shared.transactions.calls == [("join", OF_THE_CLIENT, shard)]
        assert (code_of(bench), bench.asking.sent, bench.flow.is_paused) == (0, [], False)

    run(scenario)


def test_a_commit_is_written_before_the_coordinator_is_asked():
    async def scenario(bench: ServingBench) -> None:
        bench.ask(commit())
        await turn()
        ((request, _),) = bench.asking.sent
        assert isinstance(request, TxnOffsetCommit)
        assert (bench.shared.transactions.calls[0][0], request.place) == ("write g", 41)
        done = (CommittedPartition("t", 2, **ended(ErrorCode.NONE)),)
        bench.asking.answer(TxnOffsetCommitAnswer, partitions=done)
        response = bench.read_response(TxnOffsetCommitResponse, 3)
        assert [p.error_code for t in response.topics for p in t.partitions] == [0]

    run(scenario)


def test_the_partition_of_a_group_that_has_moved_joins_again_before_a_commit():
    async def scenario(bench: ServingBench) -> None:
        bench.asking.moved.add("g")
        bench.ask(commit())
        await turn()
        assert bench.shared.transactions.calls[0][0] == "join and write g"

    run(scenario)


def test_a_commit_whose_client_has_left_is_not_sent():
    """The client may have ended the transaction by another gateway: the record may belong to the next one."""

    async def scenario(bench: ServingBench) -> None:
        bench.shared.transactions.while_writing = lambda: setattr(bench, "has_left", True)
        bench.ask(commit())
        await turn()
        assert (len(bench.shared.transactions.calls), bench.asking.sent) == (1, [])

    run(scenario)


def test_a_commit_whose_client_closes_a_real_connection_is_not_sent():
    """Reading is paused meanwhile, so asyncio does not report the end of the connection."""

    async def main() -> None:
        shared, is_written = FakeShared(), asyncio.Event()
        shared.transactions.written = Written(0, 41)
        write = shared.transactions.write

        async def slowly(*arguments: Any, **options: Any) -> Written:
            written: Written = await write(*arguments, **options)
            await is_written.wait()
            return written

        shared.transactions.write = slowly
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(shared, None), "127.0.0.1", 0)
        _, client = await asyncio.open_connection(*server.sockets[0].getsockname())
        frame = frame_of(commit(), 3)
        client.write(len(frame).to_bytes(4) + frame)
        while not shared.transactions.calls:
            await asyncio.sleep(0.001)
        client.close()
        await client.wait_closed()
        is_written.set()
        while shared.connections:
            await asyncio.sleep(0.001)
        assert shared.coordinators.sent == []
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize("message", [add, commit])
def test_nothing_is_written_for_a_client_that_has_left(message: Callable[[], Any]):
    async def scenario(bench: ServingBench) -> None:
        bench.has_left = True
        bench.ask(message())
        await turn()
        assert (bench.shared.transactions.calls, bench.asking.sent) == ([], [])

    run(scenario)


@pytest.mark.parametrize("message", [add, commit])
def test_the_time_for_a_record_begins_when_its_request_arrives(message: Callable[[], Any]):
    async def scenario(bench: ServingBench) -> None:
        slot = bench.ask(message())
        await turn()
        assert bench.shared.transactions.until_s == slot.since_s + WRITE_WAIT_S

    run(scenario)


def test_the_right_to_the_group_is_waited_for_until_the_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "WRITE_WAIT_S", 0.02)

    async def scenario(bench: ServingBench) -> None:
        bench.shared.settings.access = "rules"
        bench.ask(add())
        while bench.work._tasks:
            await asyncio.sleep(0.001)
        assert (code_of(bench), bench.shared.transactions.calls) == (15, [])
        bench.asking.answer(CheckAccessAnswer, allowed=(True,))
        await turn()
        assert bench.shared.transactions.calls == []

    run(scenario)


def test_a_request_behind_a_commit_waits_for_its_record_and_its_topics():
    """The metadata are requested first, so that nothing comes between the record and the coordinator's request."""

    async def scenario(bench: ServingBench) -> None:
        bench.shared.cluster.topics["new"] = 3
        bench.shared.may_describe.clear()
        bench.ask(commit(topic="new"))
        await turn()
        assert (bench.shared.transactions.calls, bench.flow.is_paused) == ([], True)
        bench.shared.may_describe.set()
        while bench.flow.is_paused:
            await asyncio.sleep(0)
        assert (len(bench.shared.transactions.calls), len(bench.asking.sent), bench.flow.is_paused) == (1, 1, False)
        assert bench.owner.calls == ["stop", "take"]

    run(scenario)


def test_a_commit_that_is_not_written_is_not_sent():
    async def scenario(bench: ServingBench) -> None:
        bench.shared.transactions.written = Written(47)
        bench.ask(commit())
        await turn()
        response = bench.read_response(TxnOffsetCommitResponse, 3)
        assert [p.error_code for t in response.topics for p in t.partitions] == [47]
        assert bench.asking.sent == []

    run(scenario)


@pytest.mark.parametrize(("message", "calls"), [(add, 1), (commit, 0)])
def test_a_group_without_an_id_is_refused_by_its_commit(message: Callable[[str], Any], calls: int):
    """Kafka accepts it in AddOffsetsToTxn."""

    async def scenario(bench: ServingBench) -> None:
        bench.ask(message(""))
        await turn()
        assert len(bench.shared.transactions.calls) == calls

    run(scenario)


@pytest.mark.parametrize(("allowed", "code"), [(True, 0), (False, 30)])
def test_the_right_to_the_group_is_asked_for_first(allowed: bool, code: int):
    """Nothing is written into the topic for a client that may not use the group."""

    async def scenario(bench: ServingBench) -> None:
        bench.shared.settings.access = "rules"
        bench.ask(add())
        await turn()
        ((request, _),) = bench.asking.sent
        assert isinstance(request, CheckAccess)
        assert bench.shared.transactions.calls == []
        bench.asking.answer(CheckAccessAnswer, allowed=(allowed,))
        await turn()
        assert (code_of(bench), len(bench.shared.transactions.calls)) == (code, int(allowed))

    run(scenario)


def test_the_right_to_the_transactional_id_is_checked_where_the_brokers_do_not_see_the_client():
    async def scenario(bench: ServingBench) -> None:
        bench.shared.authorizer = Authorizer([OWN_TOPIC], lambda: NOTHING_IS_ALLOWED)
        bench.ask(add())
        await turn()
        assert (code_of(bench), bench.shared.transactions.calls) == (53, [])

    run(scenario)


# -- the writer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidProducerEpochError, 47),
        (InvalidTxnStateError, 48),
        (ProducerFencedError, 90),
        (CoordinatorLoadInProgressError, 14),
        (TopicAuthorizationFailedError, 15),
        (KafkaConnectionError, 15),
    ],
)
def test_errors_of_the_clients_transaction_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, error: type[KafkaError], code: int
):
    """All other errors are the gateway's own: the client finds its coordinator again, and retries."""

    async def fails(*_: object) -> WrittenRecord:
        raise error("no")

    monkeypatch.setattr(TransactionWriter, "write", fails)
    transactions = Transactions(Settings())
    assert asyncio.run(transactions.write(OF_THE_CLIENT, HOME, "g", until_s=float("inf"))) == Written(code)
    transactions.close()


class StoringWriter:
    """A writer that stores its requests with the names of their topics."""

    def __init__(self, topic: str, requests: list[tuple[str, str, int]], refuses: bool) -> None:
        self._topic, self._requests, self._refuses = topic, requests, refuses

    async def join(self, transaction: Transaction, partition: int, until_s: float) -> None:
        self._requests.append((self._topic, "join", partition))
        if self._refuses:
            raise InvalidTxnStateError("no")

    async def write(
        self, transaction: Transaction, partition: int, key: bytes, value: bytes, until_s: float
    ) -> WrittenRecord:
        self._requests.append((self._topic, "write", partition))
        return WrittenRecord(41, "an id")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("to", ["B", "coordinator"])
@pytest.mark.parametrize("refuses", [False, True])
def test_the_record_of_a_group_that_has_moved_is_in_the_topic_of_its_coordinator(
    monkeypatch: pytest.MonkeyPatch, refuses: bool, to: str
):
    """Its partition is not in the transaction if the group has moved since the transaction began.

    The coordinator of the gateway itself may get the group back: then the client has added the partition of the other
    one, and the brokers would refuse the record (INVALID_TXN_STATE), which ends a producer for good.
    """
    requests: list[tuple[str, str, int]] = []
    monkeypatch.setattr(
        transaction_writer, "TransactionWriter", lambda _, topic: StoringWriter(topic, requests, refuses)
    )

    async def main() -> None:
        transactions = Transactions(Settings())
        assert await transactions.write(OF_THE_CLIENT, HOME, "g", float("inf")) == Written(0, 41, "an id", HOME.prefix)
        moved = await transactions.write(OF_THE_CLIENT, ShardAddress(to, 3), "g", float("inf"), joins=True)
        assert moved == (Written(InvalidTxnStateError.errno) if refuses else Written(0, 41, "an id", to))

    asyncio.run(main())
    there = [(f"{to}.transactions", "join", 3), (f"{to}.transactions", "write", 3)]
    assert requests == [("coordinator.transactions", "write", 0), *(there[:1] if refuses else there)]


class SlowWriter:
    """A writer whose requests end when a test allows it."""

    def __init__(self) -> None:
        self.running: list[Transaction] = []
        self.may_end = asyncio.Event()

    async def join(self, transaction: Transaction, partition: int, until_s: float) -> None:
        self.running.append(transaction)
        await asyncio.wait_for(self.may_end.wait(), HANG_S)

    def close(self) -> None:
        self.may_end.set()


def test_slow_producers_do_not_delay_the_others(monkeypatch: pytest.MonkeyPatch):
    """A producer has one request at the brokers, whatever it sends, and the others go on meanwhile."""

    async def main() -> None:
        transactions, writer = Transactions(Settings()), SlowWriter()
        monkeypatch.setattr(transaction_writer, "TransactionWriter", lambda settings, topic: writer)
        slow, others = [OF_THE_CLIENT] * 100, [Transaction("y", 8, 0), Transaction("z", 9, 0)]
        tasks = [asyncio.create_task(transactions.join(one, HOME, time.monotonic() + 60)) for one in slow + others]
        for _ in range(10):
            await asyncio.sleep(0)
        assert writer.running == [OF_THE_CLIENT, *others]
        assert await transactions.join(OF_THE_CLIENT, HOME, time.monotonic() + 0.01) == Written(15)
        writer.may_end.set()
        assert set(await asyncio.gather(*tasks)) == {Written(0)}
        assert (len(writer.running), dict(transactions._turns)) == (len(tasks), {})
        transactions.close()

    asyncio.run(main())
