"""Transactions of clients: their rights, and what is written before the coordinator is asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafka.errors import (
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

from coordinator.errors import ErrorCode
from coordinator.hashing import shard_of
from coordinator.outputs import CheckAccessAnswer, CommittedPartition, TxnOffsetCommitAnswer
from coordinator.requests import CheckAccess, TxnOffsetCommit
from streaming.config.settings import Settings
from streaming.gateway.authorizer import Authorizer
from streaming.gateway.broker_acls import NOTHING_IS_ALLOWED
from streaming.gateway.writing import Transactions, Written
from streaming.kafka.transactional import Transaction
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.parts import OWN_TOPIC, turn
from tests.streaming.gateway.serving_bench import ServingBench

OF_THE_CLIENT = Transaction("x", 7, 3)


def add(group_id: str = "g") -> Any:
    return AddOffsetsToTxnRequest(version=3, transactional_id="x", producer_id=7, producer_epoch=3, group_id=group_id)


def commit(group_id: str = "g") -> Any:
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
        topics=[kind(name="t", partitions=[one])],
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


def test_a_commit_that_is_not_written_is_not_sent():
    async def scenario(bench: ServingBench) -> None:
        bench.shared.transactions.written = Written(47)
        bench.ask(commit())
        await turn()
        response = bench.read_response(TxnOffsetCommitResponse, 3)
        assert [p.error_code for t in response.topics for p in t.partitions] == [47]
        assert bench.asking.sent == []

    run(scenario)


@pytest.mark.parametrize("message", [add, commit])
def test_a_group_without_an_id_is_refused(message: Callable[[str], Any]):
    async def scenario(bench: ServingBench) -> None:
        bench.ask(message(""))
        await turn()
        assert bench.shared.transactions.calls == []

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
        (TopicAuthorizationFailedError, 15),
        (KafkaConnectionError, 15),
    ],
)
def test_errors_of_the_clients_transaction_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, error: type[KafkaError], code: int
):
    """All other errors are the gateway's own: the client finds its coordinator again, and retries."""

    def fails(*_: object) -> int:
        raise error("no")

    transactions = Transactions(Settings())
    monkeypatch.setattr(transactions._writer, "write", fails)
    assert asyncio.run(transactions.write(OF_THE_CLIENT, 0, "g")) == Written(code)
    transactions.close()
