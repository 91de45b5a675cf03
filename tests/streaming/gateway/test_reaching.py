"""The brokers that a gateway reaches: which are avoided, which shards are lost, and when a mailbox moves."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import pytest

from streaming.gateway.coordinator import reach as module
from streaming.gateway.coordinator.reach import AVOIDED_S, LEADERS_AGE_S, LOST_S, NO_LEADER, Leaders, Reaching


class Mail:
    """A sender to one coordinator, and what it was told."""

    def __init__(self) -> None:
        self.leaders = Leaders([1, 2, 3, 1, 2, 3], [3, 1, 2])
        self.mailbox_partition = 0
        self.lost: set[int] = set()
        self.asked = 0
        self.answering = {0, 1, 2}
        self.next_leaders: Leaders | None = None

    def learn_leaders(self) -> None:
        self.asked += 1
        self.leaders = self.next_leaders or self.leaders

    def lose(self, shards: Iterable[int]) -> None:
        self.lost = set(shards)

    async def move_mailbox(self, partitions: Sequence[int]) -> bool:
        for partition in partitions:
            if partition in self.answering:
                self.mailbox_partition = partition
                return True
        return False


class Bench:
    """A gateway whose brokers and clock a test controls."""

    def __init__(self) -> None:
        self.mail, self.now_s = Mail(), 100.0
        self.silent: set[int] = set()
        self.avoided: list[frozenset[int]] = []
        self.moved: list[str] = []
        self.reaching = Reaching(
            lambda: {"A": self.mail}, self._ask, self.avoided.append, self.moved.append, lambda: self.now_s
        )

    async def _ask(self, broker: int) -> None:
        if broker in self.silent:
            raise ConnectionRefusedError

    async def look_after(self, seconds: float) -> None:
        self.now_s += seconds
        await self.reaching.check_brokers()


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.reaching.check_brokers()
        await scenario(bench)

    asyncio.run(main())


def test_a_silent_broker_is_avoided_and_later_its_shards_are_lost():
    async def scenario(bench: Bench) -> None:
        bench.silent = {2}
        await bench.look_after(AVOIDED_S - 0.1)
        assert (bench.avoided, bench.mail.lost) == ([], set())
        await bench.look_after(0.1)
        assert (bench.avoided, bench.mail.lost) == ([{2}], set())
        await bench.look_after(LOST_S - AVOIDED_S - 0.1)
        assert (bench.mail.lost, bench.reaching.not_ready_reasons()) == (set(), [])
        await bench.look_after(0.1)
        assert bench.mail.lost == {1, 4}
        (reason,) = bench.reaching.not_ready_reasons()
        assert reason == "2 of 6 shards cannot be written: broker 2 has not answered this gateway for 15 s"
        bench.silent = set()
        await bench.look_after(1)
        assert (bench.avoided[1:], bench.mail.lost, bench.reaching.not_ready_reasons()) == ([set()], set(), [])

    run(scenario)


def test_shards_whose_leaders_have_moved_are_not_lost():
    """As when a broker fails for all gateways: none of them sends its clients away."""

    async def scenario(bench: Bench) -> None:
        bench.silent = {2}
        await bench.look_after(AVOIDED_S)
        bench.mail.next_leaders = Leaders([1, 3, 3, 1, 1, 3], [3, 1, 1])
        await bench.look_after(LOST_S - AVOIDED_S)
        assert (bench.mail.lost, bench.reaching.not_ready_reasons()) == (set(), [])
        assert bench.avoided == [{2}, set()], "nobody asks it any more"

    run(scenario)


def test_shards_without_a_leader_are_not_lost():
    """Another gateway could not write to them either."""

    async def scenario(bench: Bench) -> None:
        bench.mail.leaders = Leaders([NO_LEADER] * 6, [NO_LEADER, 1, 2])
        await bench.look_after(2 * LOST_S)
        await bench.look_after(2 * LOST_S)
        assert (bench.mail.lost, bench.mail.mailbox_partition, bench.reaching.not_ready_reasons()) == (set(), 0, [])

    run(scenario)


def test_few_lost_shards_leave_a_gateway_ready():
    """All other groups would have to move for them."""

    async def scenario(bench: Bench) -> None:
        bench.mail.leaders = Leaders([1, 1, 1, 1, 1, 2], [1, 1, 1])
        await bench.look_after(1)
        bench.silent = {2}
        await bench.look_after(LOST_S)
        assert (bench.mail.lost, bench.reaching.not_ready_reasons()) == ({5}, [])

    run(scenario)


def test_the_mailbox_moves_to_a_broker_that_answers():
    async def scenario(bench: Bench) -> None:
        bench.silent, bench.mail.answering = {3}, {2}
        await bench.look_after(AVOIDED_S)
        assert (bench.mail.mailbox_partition, bench.moved) == (2, ["A"])
        await bench.look_after(1)
        assert bench.moved == ["A"], "it stays there"
        bench.silent = set()
        await bench.look_after(1)
        assert bench.moved == ["A"], "also when the earlier one is back"

    run(scenario)


def test_a_mailbox_that_cannot_move_is_a_reason_not_to_be_ready():
    async def scenario(bench: Bench) -> None:
        bench.silent, bench.mail.answering = {3}, set()
        await bench.look_after(LOST_S)
        assert bench.moved == []
        first, _ = bench.reaching.not_ready_reasons()
        assert first == "no responses can be read: broker 3 has not answered this gateway for 15 s"

    run(scenario)


def test_leaders_are_requested_again_while_a_broker_is_silent(monkeypatch: pytest.MonkeyPatch):
    async def scenario(bench: Bench) -> None:
        asked = bench.mail.asked
        await bench.look_after(1)
        assert bench.mail.asked == asked
        await bench.look_after(LEADERS_AGE_S)
        assert bench.mail.asked == asked + 1
        bench.silent = {1}
        await bench.look_after(AVOIDED_S)
        await bench.look_after(1)
        assert bench.mail.asked == asked + 2

    run(scenario)


def test_a_broker_that_hangs_is_silent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ASK_WAIT_S", 0.01)

    async def main() -> None:
        mail = Mail()
        reaching = Reaching(lambda: {"A": mail}, lambda broker: asyncio.Event().wait(), lambda _: None, lambda _: None)
        await reaching.check_brokers()
        assert reaching.silent_s(1) > 0

    asyncio.run(main())
