"""Responses are sent in order and in pieces, and reading pauses exactly as long as a reason for the pause lasts."""

import pytest

from streaming.gateway.connection.flow_control import Pause
from streaming.gateway.protocol.limits import ANSWER_BYTES_PAUSE, IN_FLIGHT_MAX, LARGE_IN_FLIGHT_MAX, PIECE_BYTES
from tests.streaming.gateway.parts import FlowBench

HEARTBEAT, DESCRIBE = 12, 15


@pytest.fixture
def bench() -> FlowBench:
    return FlowBench()


def test_responses_are_sent_in_the_order_of_the_requests(bench: FlowBench):
    first, second = bench.slot(HEARTBEAT), bench.slot(HEARTBEAT)
    bench.flow.answer(second, b"two")
    bench.run_soon()
    assert bench.transport.written == b""
    bench.flow.answer(first, b"one")
    bench.run_soon()
    assert bench.transport.written == b"onetwo"
    assert len(bench.flow.queue) == 0


def test_responses_that_arrive_together_are_sent_together(bench: FlowBench):
    for answer in (b"one", b"two"):
        bench.flow.answer(bench.slot(HEARTBEAT), answer)
    assert (len(bench.soon), bench.transport.written) == (1, b"")
    bench.run_soon()
    assert bench.owner.calls == ["flushed"]
    bench.flow.answer(bench.slot(HEARTBEAT), b"three")
    assert len(bench.soon) == 1


def test_an_answered_request_is_counted_once(bench: FlowBench):
    slot = bench.slot(HEARTBEAT)
    bench.flow.count(slot)
    bench.flow.give(slot, b"held before")
    bench.flow.answer(bench.slot(HEARTBEAT), b"at once")
    assert bench.count("request_seconds_count", api="Heartbeat") == 2


def test_a_large_response_is_sent_in_pieces_while_the_client_reads(bench: FlowBench):
    bench.transport.on_write = bench.flow.client_full  # as asyncio does when its buffer is over the limit
    bench.flow.answer(bench.slot(HEARTBEAT), bytes(2 * PIECE_BYTES + 1))
    sent = []
    bench.run_soon()
    while bench.flow.stuck_since_s is not None:
        sent.append(len(bench.transport.written))
        bench.now_s += 1
        is_ready = bench.flow.client_ready()
        assert is_ready == (bench.flow.stuck_since_s is None)
    assert sent == [PIECE_BYTES, 2 * PIECE_BYTES, 2 * PIECE_BYTES + 1]


def test_requests_are_not_read_while_the_client_does_not_read_responses(bench: FlowBench):
    bench.flow.client_full()
    assert (bench.flow.stuck_since_s, bench.transport.is_reading, bench.flow.is_paused) == (100.0, False, True)
    bench.now_s = 107.0
    assert bench.flow.client_ready()
    assert (bench.flow.stuck_since_s, bench.transport.is_reading, bench.flow.active_s) == (None, True, 107.0)
    assert bench.owner.calls == ["flushed", "take"]


def test_reading_resumes_after_the_last_reason_to_pause(bench: FlowBench):
    bench.flow.pause(Pause.BROKER)
    bench.flow.stop_requests()
    bench.flow.resume(Pause.BROKER)
    assert (bench.transport.is_reading, bench.owner.calls) == (False, ["stop"])
    bench.flow.resume(Pause.WORK)
    assert (bench.transport.is_reading, bench.owner.calls) == (True, ["stop", "take"])
    bench.flow.resume(Pause.WORK)
    assert bench.owner.calls == ["stop", "take"], "reading was not paused"


def test_a_closing_connection_neither_sends_nor_reads(bench: FlowBench):
    bench.flow.answer(bench.slot(HEARTBEAT), b"too late")
    bench.flow.pause(Pause.WORK)
    bench.transport.close()
    bench.run_soon()
    bench.flow.resume(Pause.WORK)
    assert (bench.transport.written, bench.transport.is_reading, bench.owner.calls) == (b"", False, [])


def test_the_last_response_is_sent_before_the_connection_closes(bench: FlowBench):
    bench.flow.answer(bench.slot(HEARTBEAT), b"one")
    bench.flow.answer_last(bench.slot(HEARTBEAT), b"last")
    assert (bench.transport.written, bench.transport.ended) == (b"onelast", "closed")


@pytest.mark.parametrize(("api_key", "most"), [(HEARTBEAT, IN_FLIGHT_MAX), (DESCRIBE, LARGE_IN_FLIGHT_MAX)])
def test_requests_in_flight_are_bounded(bench: FlowBench, api_key: int, most: int):
    slots = [bench.slot(api_key) for _ in range(most - 1)]
    bench.flow.bound()
    assert not bench.flow.is_paused
    slots.append(bench.slot(api_key))
    bench.flow.bound()
    assert (bench.flow.is_paused, bench.transport.is_reading) == (True, False)
    bench.flow.answer(slots[0], b"one")
    bench.run_soon()
    assert (bench.flow.is_paused, bench.transport.is_reading) == (False, True)


def test_coordinator_requests_of_one_request_are_bounded(bench: FlowBench):
    bench.flow.questions.update(map(str, range(IN_FLIGHT_MAX)))
    bench.flow.bound()
    assert bench.flow.is_paused
    bench.flow.questions.discard("0")
    bench.flow.bound()
    assert not bench.flow.is_paused


def test_bytes_of_responses_are_bounded(bench: FlowBench):
    """The bound includes responses that wait for their turn and bytes that the client has not read."""
    bench.slot(HEARTBEAT)
    bench.flow.give(bench.slot(HEARTBEAT), bytes(ANSWER_BYTES_PAUSE - 10))
    bench.transport.untaken_bytes = 9
    bench.run_soon()
    assert not bench.flow.is_paused
    bench.transport.untaken_bytes = 10
    bench.flow.flush()
    assert (bench.flow.is_paused, bench.flow.send_buffer.held_bytes) == (True, ANSWER_BYTES_PAUSE)


def test_a_brokers_response_is_sent_in_its_turn(bench: FlowBench):
    relayed, served = bench.slot(HEARTBEAT), bench.slot(HEARTBEAT)
    bench.flow.answer(served, b"served")
    bench.run_soon()
    bench.transport.untaken_bytes = 3
    bench.flow.write(b"rel")
    assert bench.flow.send_buffer.held_bytes == len(b"served") + 3
    bench.flow.write(b"ayed")
    bench.now_s = 105.0
    bench.flow.passed_on(relayed)
    assert (bench.transport.written, bench.flow.active_s) == (b"relayedserved", 105.0)
    assert bench.count("request_seconds_count", api="Heartbeat") == 2


def test_a_client_that_sends_is_active(bench: FlowBench):
    bench.now_s = 130.0
    bench.flow.touch()
    assert bench.flow.active_s == 130.0
