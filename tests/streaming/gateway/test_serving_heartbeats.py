"""Heartbeats of the classic protocol over one connection: sent together, held for a notice, or waiting for a tick."""

from kafka.protocol.consumer.group import HeartbeatRequest, HeartbeatResponse

from coordinator.base.errors import ErrorCode
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import OffsetCommit
from coordinator.messages.responses import ErrorAnswer, HeartbeatAnswer, RebalanceNotice
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.protocol.api import Handling
from streaming.gateway.protocol.messages import Header
from streaming.gateway.server.apis import APIS
from tests.streaming.gateway.test_serving import SESSION_MS, Bench, commit, heartbeat, run


def test_a_members_heartbeat_is_held_until_a_rebalance_begins():
    async def scenario(bench: Bench) -> None:
        bench.join()
        bench.ask(heartbeat())
        bench.asking.answer(HeartbeatAnswer)
        bench.run_soon()
        assert (bench.transport.written, bench.count("request_seconds_count", api="Heartbeat")) == (b"", 1)
        (notify,) = bench.asking.inboxes.values()
        notify(RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="m"))
        assert bench.read_response(HeartbeatResponse, 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS.number
        assert bench.count("request_seconds_count", api="Heartbeat") == 1

    run(scenario)


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
        (notify,) = (tell for name, tell in bench.asking.inboxes.items() if name != "inbox-gathered")
        notify(RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="m"))
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
        (notify,) = bench.asking.inboxes.values()
        notify(RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="m"))
        sent = len(bench.asking.sent)
        bench.ask(heartbeat())
        assert len(bench.asking.sent) == sent + 1

    run(scenario)


def test_a_heartbeat_does_not_wait_shortly_before_the_end_of_its_session():
    async def scenario(bench: Bench) -> None:
        settled(bench)
        slot = InFlightRequest(APIS[HeartbeatRequest.API_KEY], Header(HeartbeatRequest.API_KEY, 3, 1, "c"))
        slot.since_s += SESSION_MS / 1_000 - 1.9
        beat = Heartbeat(request_id="r", reply_to="in", group_id="g", generation_id=1, member_id="m")
        assert not bench.heartbeats.ticks_to_wait(slot, beat, is_only=True)

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


def test_a_heartbeat_with_an_error_or_before_a_join_is_not_held():
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
