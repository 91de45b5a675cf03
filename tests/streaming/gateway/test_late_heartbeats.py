"""A heartbeat that says nothing new gets the answer to the one before it, if that is late."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from streaming.gateway.members import member_state as module
from streaming.gateway.members.heartbeat_protocols import PendingHeartbeat
from streaming.gateway.members.heartbeat_states import State
from tests.streaming.gateway import held_bench
from tests.streaming.gateway.held_bench import OWNED, answer, request

WAIT_S = 5.0
FULL: dict[str, Any] = {"rebalance_timeout_ms": 9_000, "subscribed_topic_names": ("t",), "topic_partitions": OWNED}
AWAY = 15


class Bench(held_bench.Bench):
    """The heartbeats of a member that has said all before. No response is held."""

    def give_up(self, asked: ConsumerGroupHeartbeat) -> PendingHeartbeat:
        """Send a heartbeat, whose client gets an error before the coordinator's answer comes."""
        heartbeat = self.send(asked)
        self.heartbeats._expire(heartbeat)
        assert (heartbeat.state, self.codes()) == (State.LATE, [AWAY])
        return heartbeat

    def codes(self) -> list[int]:
        """Return the codes of the new responses."""
        codes = [each.error_code for each in self.given]
        self.given.clear()
        return codes

    def is_sent(self, asked: ConsumerGroupHeartbeat) -> bool:
        """Send a heartbeat. Return whether it was sent to the coordinator."""
        sent = len(self.asking.sent)
        self.send(asked)
        return len(self.asking.sent) > sent


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main(bench: Bench) -> None:
        assert bench.is_sent(request(**FULL))
        bench.asking.reply(answer())
        assert bench.codes() == [0]
        await scenario(bench)

    held_bench.run(
        main, Bench, gateway_consumer_heartbeat_hold_ms=0, group_consumer_heartbeat_interval_ms=int(WAIT_S * 1_000)
    )


@pytest.mark.parametrize("repeated", [request(), request(**FULL), request(rebalance_timeout_ms=9_000)])
def test_an_answer_that_comes_late_is_for_the_repeated_heartbeat(repeated: ConsumerGroupHeartbeat):
    """After an error, a client repeats all that it has said."""

    async def scenario(bench: Bench) -> None:
        late = bench.give_up(request())
        assert not bench.is_sent(repeated)
        assert (bench.codes(), late.request) == ([], request())
        bench.asking.reply(answer())
        assert bench.codes() == [0]
        assert bench.is_sent(request())

    run(scenario)


def test_an_answer_may_be_late_for_several_heartbeats():
    async def scenario(bench: Bench) -> None:
        late = bench.give_up(request())
        assert not bench.is_sent(request())
        bench.heartbeats._expire(late)
        assert (late.state, bench.codes()) == (State.LATE, [AWAY])
        assert not bench.is_sent(request())
        bench.asking.reply(answer())
        assert bench.codes() == [0]

    run(scenario)


def test_an_answer_that_came_between_two_heartbeats_is_for_the_second():
    async def scenario(bench: Bench) -> None:
        late = bench.give_up(request())
        bench.asking.reply(answer())
        assert bench.codes() == []
        assert not bench.is_sent(request(**FULL))
        assert (bench.codes(), late.request) == ([0], request(**FULL))
        assert bench.is_sent(request()), "it is given once"

    run(scenario)


@pytest.mark.parametrize(
    "changed",
    [
        request(6),
        request(-1),
        request(0, **FULL),
        request(topic_partitions=()),
        request(subscribed_topic_names=("u",)),
        request(subscribed_topic_regex="u.*"),
        request(server_assignor="range"),
        request(rebalance_timeout_ms=8_000),
        request(member_id="other"),
    ],
)
def test_a_heartbeat_that_says_something_new_is_sent(changed: ConsumerGroupHeartbeat):
    async def scenario(bench: Bench) -> None:
        late = bench.give_up(request())
        newer = bench.send(changed)
        assert newer.state is State.SENT
        bench.heartbeats._answered(late, [answer()])
        assert bench.codes() == []
        bench.heartbeats._answered(newer, [answer()])
        assert bench.codes() == [0]

    run(scenario)


def test_a_heartbeat_is_sent_when_the_answer_before_it_counts_as_lost():
    async def scenario(bench: Bench) -> None:
        bench.give_up(request())
        bench.late_s = WAIT_S
        assert bench.is_sent(request())

    run(scenario)


def test_a_heartbeat_whose_client_has_an_error_already_is_sent():
    """The facts about its topics took too long. The answer is for the member's next heartbeat."""

    async def scenario(bench: Bench) -> None:
        bench.give_up(request())
        bench.asking.reply(answer())
        overdue = bench.heartbeats.came(slot := bench.slot(68, 1), request())
        assert overdue is not None
        bench.heartbeats._expire(overdue)
        assert (overdue.state, bench.codes()) == (State.OVERDUE, [AWAY])
        bench.heartbeats.schedule(overdue, request())
        assert (overdue.state, overdue.in_flight) == (State.LATE, slot)
        bench.asking.reply(answer())
        assert not bench.is_sent(request())
        assert bench.codes() == [0]

    run(scenario)


def test_a_heartbeat_behind_one_without_a_response_is_sent():
    async def scenario(bench: Bench) -> None:
        assert bench.is_sent(request())
        assert bench.is_sent(request())

    run(scenario)


def test_the_stored_members_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MEMBERS_MAX", 2)

    async def scenario(bench: Bench) -> None:
        for member_id in "abc":
            bench.send(request(member_id=member_id))
        assert [member_id for _, member_id in bench.heartbeats._last] == ["b", "c"]

    run(scenario)
