"""Heartbeats of the classic protocol over one connection: sent together, held for a notice, or waiting for a tick."""

import asyncio

import pytest
from kafka.protocol.consumer.group import HeartbeatResponse

from coordinator.base.errors import ErrorCode
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import OffsetCommit
from coordinator.messages.responses import ErrorAnswer, HeartbeatAnswer, RebalanceNotice
from streaming.gateway.coordinator.batching import SPARE_MS
from streaming.gateway.members.heartbeat_protocols import SESSIONS_PART
from streaming.gateway.members.member_state import MEMBERS_MAX
from streaming.gateway.protocol.api import Handling
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.test_serving import SESSION_MS, Bench, commit, heartbeat, run


def notify(bench: Bench, member_id: str = "m") -> None:
    [inbox] = (handle for name, handle in bench.asking.inboxes.items() if name != "inbox-gathered")
    inbox(RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id=member_id))


def held(bench: Bench) -> None:
    """Join, and send a heartbeat whose response is held."""
    bench.join()
    bench.ask(heartbeat())
    bench.asking.answer(HeartbeatAnswer)
    bench.run_soon()
    assert (bench.transport.written, bench.count("request_seconds_count", api="Heartbeat")) == (b"", 1)


def test_a_members_heartbeat_is_held_until_a_rebalance_begins():
    async def scenario(bench: Bench) -> None:
        held(bench)
        notify(bench, "another")
        bench.run_soon()
        assert bench.transport.written == b""
        notify(bench)
        response = bench.read_response(HeartbeatResponse, 3)
        assert (response.error_code, response.header.correlation_id) == (27, 77)
        notify(bench)
        bench.run_soon()
        assert bench.transport.written == b""
        assert bench.count("request_seconds_count", api="Heartbeat") == 1

    run(scenario)


def test_a_held_response_is_sent_once_when_it_is_released():
    async def scenario(bench: Bench) -> None:
        held(bench)
        bench.heartbeats.release()
        bench.heartbeats.release()
        assert bench.read_response(HeartbeatResponse, 3).error_code == 0

    run(scenario)


@pytest.mark.parametrize("bound", ["session", "setting"])
def test_a_held_response_is_sent_in_time(bound: str):
    async def scenario(bench: Bench) -> None:
        bench.heartbeats.classic.joined("m", 600 if bound == "session" else SESSION_MS)
        bench.ask(heartbeat())
        bench.asking.answer(HeartbeatAnswer)
        [held] = bench.heartbeats._timed
        assert (bench.soon, 0 < held.left_ms <= 600 / SESSIONS_PART) == ([], True)
        while not bench.soon:
            await asyncio.sleep(0)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 0

    run(scenario, gateway_heartbeat_hold_ms=200 if bound == "setting" else 600_000)


def test_no_other_request_overtakes_a_heartbeat_that_waits_for_the_event_loops_next_turn():
    async def scenario(bench: Bench) -> None:
        turns = bench.asking.await_turns()
        bench.ask(heartbeat())
        bench.ask(heartbeat("n"))
        assert (bench.asking.sent, len(turns)) == ([], 1)
        bench.ask(commit("t"))
        assert [type(request) for request in bench.asking.requests] == [Heartbeats, OffsetCommit]
        turns.pop()()
        assert len(bench.asking.sent) == 2

    run(scenario)


def settled(bench: Bench) -> None:
    """Make the client a member whose last heartbeat was answered without an error."""
    bench.join()
    bench.ask(heartbeat())
    bench.asking.answer(HeartbeatAnswer)
    bench.heartbeats.release()
    assert bench.read_response(HeartbeatResponse, 3).error_code == 0


def test_a_settled_members_heartbeat_waits_for_the_tick():
    async def scenario(bench: Bench) -> None:
        settled(bench)
        sent = len(bench.asking.sent)
        bench.ask(heartbeat())
        assert len(bench.asking.sent) == sent
        assert bench.asking.batchers.outstanding == 1
        bench.asking.tick()
        assert len(bench.asking.sent) == sent + 1
        bench.asking.answer(HeartbeatAnswer, error="ILLEGAL_GENERATION", code=22)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 22
        bench.ask(heartbeat())
        assert len(bench.asking.sent) == sent + 2, "after an error the next one does not wait"

    run(scenario)


def test_the_next_request_ends_the_wait_for_the_tick():
    async def scenario(bench: Bench) -> None:
        settled(bench)
        bench.ask(heartbeat())
        bench.heartbeats.release()
        assert isinstance(bench.asking.requests[-1], Heartbeat)
        bench.asking.answer(HeartbeatAnswer)
        sent = len(bench.asking.sent)
        bench.asking.tick()
        assert len(bench.asking.sent) == sent, "it is not sent again at the tick"

    run(scenario)


def test_a_notice_answers_a_heartbeat_that_waits_and_the_tick_sends_it():
    async def scenario(bench: Bench) -> None:
        settled(bench)
        bench.ask(heartbeat())
        notify(bench)
        assert bench.read_response(HeartbeatResponse, 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS.number
        sent = len(bench.asking.sent)
        bench.asking.tick()
        assert len(bench.asking.sent) == sent + 1
        bench.asking.answer(HeartbeatAnswer)
        bench.run_soon()
        assert bench.transport.written == b""

    run(scenario)


def test_after_a_notice_the_next_heartbeat_does_not_wait():
    async def scenario(bench: Bench) -> None:
        settled(bench)
        notify(bench)
        sent = len(bench.asking.sent)
        bench.ask(heartbeat())
        assert len(bench.asking.sent) == sent + 1

    run(scenario)


@pytest.mark.parametrize("error", ["before", "after"])
def test_a_heartbeat_that_waits_gets_one_response_although_the_brokers_do_not_accept_its_record(error: str):
    async def scenario(bench: Bench) -> None:
        settled(bench)
        bench.ask(heartbeat())
        if error == "after":
            notify(bench)
        bench.asking.tick()
        bench.asking.answer(ErrorAnswer, **ended(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if error == "before":
            notify(bench)
        assert bench.read_response(HeartbeatResponse, 3).error_code == (27 if error == "after" else 15)
        assert bench.flow.send_buffer.held_bytes == 0

    run(scenario)


@pytest.mark.parametrize(("left_ms", "ticks"), [(900, 0), (SPARE_MS + 1_100, 1)])
def test_a_heartbeat_does_not_wait_shortly_before_the_end_of_its_session(left_ms: int, ticks: int):
    async def scenario(bench: Bench) -> None:
        settled(bench)
        bench.heartbeats.classic.at_rest_s["m"] -= (SESSION_MS - left_ms) / 1_000
        sent = len(bench.asking.sent)
        bench.ask(heartbeat())
        assert len(bench.asking.sent) == sent + (not ticks)

    run(scenario)


def test_the_members_about_which_something_is_stored_are_bounded():
    """A heartbeat of the oldest one is not held."""

    async def scenario(bench: Bench) -> None:
        for number in range(MEMBERS_MAX + 1):
            bench.heartbeats.classic.joined(f"m{number}", SESSION_MS)
        for number, codes in ((0, [0]), (1, [])):
            bench.ask(heartbeat(f"m{number}"))
            bench.asking.answer(HeartbeatAnswer)
            bench.run_soon()
            frames = bench.transport.frames()
            assert [HeartbeatResponse.decode(each, version=3, header=True).error_code for each in frames] == codes

    run(scenario)


def test_a_heartbeat_is_not_held_while_another_request_waits():
    async def scenario(bench: Bench) -> None:
        bench.join()
        bench.ask(heartbeat())
        bench.ask(heartbeat())
        bench.asking.answer(HeartbeatAnswer, index=-2)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 0

    run(scenario)


def test_a_heartbeat_is_not_held_on_a_connection_with_other_requests():
    async def scenario(bench: Bench) -> None:
        bench.join()
        bench.heartbeats.record_request(Handling.RELAYED)
        bench.ask(heartbeat())
        bench.asking.answer(HeartbeatAnswer)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 0

    run(scenario)


def test_no_heartbeat_is_held_with_a_limit_of_zero():
    async def scenario(bench: Bench) -> None:
        bench.join()
        bench.ask(heartbeat())
        bench.asking.answer(HeartbeatAnswer)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 0

    run(scenario, gateway_heartbeat_hold_ms=0)


def test_a_heartbeat_with_an_error_or_before_a_join_is_not_held():
    """Notices to a member that has joined elsewhere go to another connection."""

    async def scenario(bench: Bench) -> None:
        bench.ask(heartbeat())
        bench.asking.answer(HeartbeatAnswer)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 0
        bench.join()
        bench.ask(heartbeat())
        bench.asking.answer(ErrorAnswer, error="COORDINATOR_NOT_AVAILABLE", code=15)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 15
        bench.ask(heartbeat())
        bench.asking.answer(HeartbeatAnswer, error="ILLEGAL_GENERATION", code=22)
        assert bench.read_response(HeartbeatResponse, 3).error_code == 22

    run(scenario)
