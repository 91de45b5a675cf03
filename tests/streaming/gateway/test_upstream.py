"""The connection to a broker: responses belong to requests in order, and reading stops when they cannot be sent on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.protocol.frames import BadFrame, Piece, with_length
from streaming.gateway.relay import broker_connection as module
from streaming.gateway.relay.broker_connection import Upstream
from tests.streaming.gateway.parts import FakeTransport, slot_of, turn

FETCH = 1


@dataclass
class Client:
    """A double of the client's side. `turn` is the request whose response may be sent, or None for every request."""

    passed: bytearray = field(default_factory=bytearray)
    whole: list[tuple[InFlightRequest, bytes]] = field(default_factory=list)
    calls: list[object] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    turn: InFlightRequest | None = None
    room: bool = True

    def write(self, piece: Piece) -> None:
        self.passed += piece

    def is_next(self, slot: InFlightRequest) -> bool:
        return self.turn in (None, slot)

    def has_room(self, slot: InFlightRequest) -> bool:
        return self.room

    def answered(self, slot: InFlightRequest, frame: bytes) -> None:
        self.whole.append((slot, frame))

    def passed_on(self, slot: InFlightRequest) -> None:
        self.calls.append(slot)

    def upstream_full(self, is_full: bool) -> None:
        self.calls.append("full" if is_full else "not full")

    def upstream_lost(self) -> None:
        self.calls.append("lost")

    def fail(self, error: Exception) -> None:
        self.errors.append(error)


class Bench:
    """A connection to a broker without a socket, and its outstanding requests."""

    def __init__(self) -> None:
        self.client, self.transport = Client(), FakeTransport()
        self.upstream = Upstream(self.client)
        self.upstream.connection_made(self.transport)

    def expect(self, *, whole: bool = False, reads: Callable[[memoryview], bool] | None = None) -> InFlightRequest:
        slot = slot_of(FETCH)
        slot.handle_whole = (lambda slot, frame: None) if whole else None
        slot.reads = reads
        self.upstream.expect(slot)
        return slot


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_requests_are_sent_unchanged(bench: Bench):
    bench.upstream.write(b"one")
    bench.upstream.write(memoryview(b"two"))
    assert bench.transport.written == b"onetwo"


def test_a_response_is_passed_on_as_it_arrives(bench: Bench):
    slot, answer = bench.expect(), with_length(b"0123456789")
    bench.upstream.data_received(answer[:9])
    assert (bench.client.passed, bench.client.calls) == (answer[:9], [])
    bench.upstream.data_received(answer[9:])
    assert (bench.client.passed, bench.client.calls) == (answer, [slot])
    assert not bench.upstream.expects_answers


def test_responses_belong_to_the_requests_in_order(bench: Bench):
    first, second, third = bench.expect(), bench.expect(whole=True), bench.expect()
    bench.upstream.data_received(with_length(b"one") + with_length(b"two") + with_length(b"three"))
    assert bench.client.whole == [(second, b"two")]
    assert bench.client.calls == [first, third]
    assert bench.client.passed == with_length(b"one") + with_length(b"three")


def test_an_early_response_is_not_read_before_its_turn(bench: Bench):
    slot = bench.expect()
    bench.client.turn = slot_of(FETCH)
    bench.upstream.data_received(with_length(b"early"))
    assert (bench.client.passed, bench.transport.is_reading) == (b"", False)
    bench.upstream.resume()
    assert (bench.client.passed, bench.transport.is_reading) == (b"", False)
    bench.client.turn = slot
    bench.upstream.resume()
    assert (bench.client.passed, bench.transport.is_reading) == (with_length(b"early"), True)


def test_a_response_that_is_read_as_a_whole_waits_only_for_room(bench: Bench):
    slot = bench.expect(whole=True)
    bench.client.turn, bench.client.room = slot_of(FETCH), False
    bench.upstream.data_received(with_length(b"whole"))
    assert (bench.client.whole, bench.transport.is_reading) == ([], False)
    bench.client.room = True
    bench.upstream.resume()
    assert (bench.client.whole, bench.transport.is_reading) == ([(slot, b"whole")], True)


def test_the_beginning_of_a_response_is_read_before_it_is_passed_on(bench: Bench):
    seen: list[bytes] = []

    def reads(head: memoryview) -> bool:
        seen.append(bytes(head))
        return len(head) >= 6

    bench.expect(reads=reads)
    answer = with_length(b"0123456789")
    bench.upstream.data_received(answer[:8])
    assert (seen, bench.client.passed) == ([b"0123"], b"")
    bench.upstream.data_received(answer[8:10])
    assert (seen[-1], bench.client.passed) == (b"012345", answer[:10])


def test_a_too_short_response_is_passed_on_unread(bench: Bench):
    bench.expect(reads=lambda head: False)
    bench.upstream.data_received(with_length(b"short"))
    assert bench.client.passed == with_length(b"short")


def test_reading_pauses_while_the_client_is_slow(bench: Bench):
    bench.expect()
    bench.upstream.client_slow(True)
    assert not bench.transport.is_reading
    bench.upstream.resume()
    assert not bench.transport.is_reading
    bench.upstream.client_slow(False)
    assert bench.transport.is_reading


def test_reading_stays_paused_for_an_early_response_when_the_client_is_fast_again(bench: Bench):
    bench.expect()
    bench.client.turn = slot_of(FETCH)
    bench.upstream.data_received(with_length(b"early"))
    bench.upstream.client_slow(True)
    bench.upstream.client_slow(False)
    assert not bench.transport.is_reading


@pytest.mark.parametrize(("data", "kind"), [(with_length(b"unasked"), IndexError), (b"\xff\xff\xff\xff", BadFrame)])
def test_a_broker_that_breaks_the_protocol_fails_the_client(bench: Bench, data: bytes, kind: type[Exception]):
    bench.upstream.data_received(data)
    assert [type(error) for error in bench.client.errors] == [kind]


def test_a_full_buffer_and_a_lost_connection_are_reported(bench: Bench):
    bench.upstream.pause_writing()
    bench.upstream.resume_writing()
    bench.upstream.connection_lost(None)
    assert bench.client.calls == ["full", "not full", "lost"]
    bench.upstream.close()
    assert bench.transport.ended is None, "the connection has ended already"


def test_what_was_written_is_sent_before_the_connection_closes(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """A broker that takes nothing is not waited for without a limit."""
    monkeypatch.setattr(module, "LAST_BYTES_S", 0.0)
    Upstream(bench.client).close()
    bench.upstream.close()
    assert bench.transport.calls == ["closed"]

    async def scenario() -> None:
        slow = Bench()
        slow.transport.untaken_bytes = 1
        slow.upstream.close()
        assert slow.transport.calls == ["closed"]
        await turn()
        assert slow.transport.calls == ["closed", "aborted"]

    asyncio.run(scenario())
