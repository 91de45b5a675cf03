"""Transactions that clients have ended: a fetch waits until their offsets are settled, for a bounded time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kafka.protocol.consumer.group import OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.producer.transaction import EndTxnRequest

from coordinator.messages.requests import OffsetFetch
from coordinator.messages.responses import FetchedOffset, OffsetFetchAnswer
from streaming.gateway.coordinator import transaction_ends as module
from streaming.gateway.coordinator.transaction_ends import SETTLE_WAIT_S, Commit, Ends
from streaming.gateway.server import client_transactions
from tests.streaming.gateway.parts import turn
from tests.streaming.gateway.serving_bench import ServingBench
from tests.streaming.gateway.test_relaying import Bench, run

COMMIT = Commit("g", "t", 2)
UNSTABLE = FetchedOffset("t", 2, code=client_transactions.UNSTABLE)
STABLE = FetchedOffset("t", 2, offset=7)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ends(clock: Clock) -> Ends:
    return Ends(clock)


def test_a_group_is_unsettled_from_the_end_of_its_transaction_on(ends: Ends, clock: Clock) -> None:
    ends.committed(7, COMMIT)
    assert ends.unsettled("g") == [], "an open transaction delays no fetch"
    ends.ended(7)
    assert ends.unsettled("g") == [COMMIT._replace(until_s=SETTLE_WAIT_S)]
    assert ends.unsettled("another") == []
    clock.now_s = SETTLE_WAIT_S
    assert ends.unsettled("g") == []
    ends.ended(7)
    assert ends.unsettled("g") == [], "a transaction ends once"


def test_a_later_end_is_not_settled_with_an_earlier_one(ends: Ends, clock: Clock) -> None:
    ends.committed(7, COMMIT)
    ends.ended(7)
    (earlier,) = ends.unsettled("g")
    clock.now_s = 1.0
    ends.committed(8, COMMIT)
    ends.ended(8)
    assert len(ends.unsettled("g")) == 2
    ends.settled(earlier)
    (later,) = ends.unsettled("g")
    ends.settled(later)
    assert ends.unsettled("g") == []


def test_each_group_of_a_transaction_is_unsettled(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the group of the last commit was, so a fetch of another one gave the offset from before."""
    monkeypatch.setattr(module, "GROUPS_MAX", 2)
    for group_id in ("g0", "g1", "g2", "g0"):
        ends.committed(7, COMMIT._replace(group_id=group_id))
    ends.ended(7)
    assert [len(ends.unsettled(group_id)) for group_id in ("g0", "g1", "g2")] == [1, 1, 0]


def test_the_oldest_transactions_are_forgotten_beyond_the_bound(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRANSACTIONS_MAX", 2)
    for producer_id in range(3):
        ends.committed(producer_id, COMMIT._replace(group_id=f"g{producer_id}"))
    for producer_id in range(3):
        ends.ended(producer_id)
    assert [len(ends.unsettled(f"g{each}")) for each in range(3)] == [0, 1, 1]
    ends.committed(3, COMMIT._replace(group_id="g3"))
    ends.ended(3)
    assert [len(ends.unsettled(f"g{each}")) for each in range(4)] == [0, 0, 1, 1]


# -- what a client sees ------------------------------------------------------------------------------------------------


def fetch(group_id: str = "g") -> Any:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[2])
    return OffsetFetchRequest(version=5, group_id=group_id, topics=[topic])


def serving(scenario: Callable[[ServingBench], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_transactions, "SETTLED_PAUSE_S", 0.001)

    async def main() -> None:
        bench = ServingBench()
        bench.shared.transactions.ends.committed(7, COMMIT)
        bench.shared.transactions.ends.ended(7)
        await scenario(bench)

    asyncio.run(main())


async def asked(bench: ServingBench, number: int) -> Any:
    """Wait for the question with this number, and return it."""
    while len(bench.asking.sent) < number:
        await asyncio.sleep(0.001)
    return bench.asking.sent[number - 1][0]


def offset_in(bench: ServingBench) -> int:
    response = bench.read_response(OffsetFetchResponse, 5)
    return int(response.topics[0].partitions[0].committed_offset)


def test_a_fetch_waits_until_the_offsets_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client requires no stable offsets, so without the wait it would get the offset from before."""

    async def scenario(bench: ServingBench) -> None:
        bench.ask(fetch())
        for number, found in ((1, UNSTABLE), (2, STABLE)):
            look = await asked(bench, number)
            assert (look.group_id, look.topics[0].topic, look.require_stable) == ("g", "t", True)
            bench.asking.answer(OffsetFetchAnswer, partitions=(found,))
        request = await asked(bench, 3)
        assert isinstance(request, OffsetFetch)
        assert not request.require_stable
        bench.asking.answer(OffsetFetchAnswer, partitions=(STABLE,))
        assert offset_in(bench) == 7
        assert bench.shared.transactions.ends.unsettled("g") == [], "the next fetch does not wait"

    serving(scenario, monkeypatch)


def test_a_fetch_of_another_group_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: ServingBench) -> None:
        bench.ask(fetch("another"))
        await turn()
        ((request, _),) = bench.asking.sent
        assert (request.group_id, request.require_stable) == ("another", False)

    serving(scenario, monkeypatch)


def test_a_fetch_does_not_wait_for_transactions_that_end_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that end a transaction every 100 ms kept a fetch of another one waiting without an end."""

    async def scenario(bench: ServingBench) -> None:
        bench.ask(fetch())
        await asked(bench, 1)
        ends = bench.shared.transactions.ends
        ends.committed(8, COMMIT._replace(partition=3))
        ends.ended(8)
        bench.asking.answer(OffsetFetchAnswer, partitions=(STABLE,))
        assert not (await asked(bench, 2)).require_stable
        assert len(ends.unsettled("g")) == 1

    serving(scenario, monkeypatch)


def test_a_fetch_waits_no_longer_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another transaction may hold the partition, or the coordinator may be away."""
    monkeypatch.setattr(module, "SETTLE_WAIT_S", 0.05)

    async def scenario(bench: ServingBench) -> None:
        bench.ask(fetch())
        await asked(bench, 2)
        assert not bench.asking.sent[-1][0].require_stable

    serving(scenario, monkeypatch)


def test_the_end_is_noted_when_it_is_relayed() -> None:
    async def scenario(bench: Bench) -> None:
        ends = bench.shared.transactions.ends
        ends.committed(7, COMMIT)
        bench.relay(EndTxnRequest(version=1, transactional_id="x", producer_id=7, producer_epoch=0, committed=True))
        assert ends.unsettled("g")

    run(scenario)
