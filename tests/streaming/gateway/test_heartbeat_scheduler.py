"""The rows of the table in which two things meet: a heartbeat that is overdue and blocked, or late and held."""

import asyncio

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.responses import Ask, RebalanceNotice
from streaming.gateway.members.heartbeat_protocols import PendingHeartbeat
from streaming.gateway.members.heartbeat_states import State
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.held_bench import Bench, answer, failed, notice, request, run
from tests.streaming.gateway.parts import turn

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE.number
LACKS_FACTS = answer(ask=Ask(("t",)), **ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


def codes(bench: Bench) -> list[int]:
    """Return the codes of the responses that the client has."""
    return [each.error_code for each in bench.given]


def came(bench: Bench, asked: ConsumerGroupHeartbeat) -> PendingHeartbeat:
    """Send a heartbeat for whose topics the gateway needs facts. They take longer than the client waits."""
    heartbeat = bench.heartbeats.came(bench.slot(68, 1), asked)
    assert heartbeat is not None
    bench.heartbeats._expire(heartbeat)
    assert (heartbeat.state, codes(bench)) == (State.OVERDUE, [AWAY])
    return heartbeat


def block(bench: Bench) -> None:
    """Send a heartbeat of the member over another connection."""
    bench.asking.outstanding.sent(("g", "m", request().principal), "elsewhere")


# -- before the answer -------------------------------------------------------------------------------------------------


def test_an_overdue_heartbeat_that_is_blocked_is_not_sent():
    async def scenario(bench: Bench) -> None:
        block(bench)
        bench.heartbeats.schedule(came(bench, request()), request())
        bench.asking.outstanding.answered("elsewhere")
        assert (codes(bench), bench.asking.requests) == ([AWAY], [])

    run(scenario)


def test_an_overdue_heartbeat_that_must_be_full_has_one_response():
    async def scenario(bench: Bench) -> None:
        bench.hold(request(0), answer(assignment=(), pending="waiting"))
        bench.heartbeats.handle_notice(notice())
        bench.asking.reply(failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        bench.given.clear()
        bench.heartbeats.schedule(came(bench, request()), request())
        assert (codes(bench), bench.flow.send_buffer.held_bytes) == ([AWAY], 0)

    run(scenario)


def test_a_blocked_heartbeat_is_not_sent_after_its_client_has_had_an_error():
    async def scenario(bench: Bench) -> None:
        block(bench)
        blocked = bench.send()
        assert (blocked.state, bench.asking.requests) == (State.BLOCKED, [])
        bench.heartbeats._expire(blocked)
        bench.asking.outstanding.answered("elsewhere")
        assert (codes(bench), bench.asking.requests) == ([AWAY], [])

    run(scenario)


@pytest.mark.parametrize("end", ["request", "notice"])
def test_a_heartbeat_that_still_waits_for_a_tick_after_an_error_is_sent_with_the_next_event(end: str):
    async def scenario(bench: Bench) -> None:
        bench.asking.batchers.tick_ms = 1_000
        bench.heartbeats.consumer.record_rest(request(), answer(), asyncio.get_running_loop().time())
        waiting = bench.send()
        assert (waiting.state, bench.asking.requests) == (State.GATHERED, [])
        bench.heartbeats._expire(waiting)
        assert (waiting.state, codes(bench)) == (State.LATE, [AWAY])
        if end == "request":
            bench.heartbeats.release()
        else:
            bench.heartbeats.handle_notice(notice())
        bench.heartbeats.release()
        assert bench.asking.requests == [request()]

    run(scenario)


@pytest.mark.parametrize("is_in_time", [True, False])
def test_a_heartbeat_that_was_repeated_with_facts_is_held_or_dropped(is_in_time: bool):
    """A late answer to it is not for the next heartbeat."""

    async def scenario(bench: Bench) -> None:
        repeated = bench.send()
        bench.asking.reply(LACKS_FACTS)
        while len(bench.asking.requests) == 1:
            await turn()
        assert repeated.state is State.REPEATED
        if not is_in_time:
            bench.heartbeats._expire(repeated)
        bench.asking.reply(answer())
        assert (repeated.state, codes(bench)) == ((State.HELD, []) if is_in_time else (State.DONE, [AWAY]))
        bench.heartbeats.release()
        assert bench.send().state is State.SENT

    run(scenario)


# -- the held response -------------------------------------------------------------------------------------------------


async def last_wait(bench: Bench) -> PendingHeartbeat:
    """End the time of a hold while a heartbeat on the member's behalf has no answer."""
    heartbeat = bench.send()
    bench.asking.reply(answer())
    bench.heartbeats.handle_notice(notice())
    while heartbeat.state is State.ASKING:
        await asyncio.sleep(0)
    assert (heartbeat.state, bench.given) == (State.LAST_WAIT, [])
    return heartbeat


@pytest.mark.parametrize(
    ("newer", "code"), [(answer(6), 0), (failed(ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode.UNKNOWN_MEMBER_ID.number)]
)
def test_a_response_whose_time_is_over_waits_for_the_answer_under_way(newer: ConsumerGroupHeartbeat, code: int):
    async def scenario(bench: Bench) -> None:
        await last_wait(bench)
        bench.heartbeats.handle_notice(notice())
        assert len(bench.asked) == 1, "the answer under way has the change"
        bench.asking.reply(newer)
        assert codes(bench) == [code]

    run(scenario, gateway_consumer_heartbeat_hold_ms=20)


def test_a_notice_of_the_other_protocol_ends_no_hold():
    async def scenario(bench: Bench) -> None:
        assert bench.hold()
        bench.heartbeats.handle_notice(RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="m"))
        assert (bench.given, bench.asked) == ([], [])

    run(scenario)
