"""Requests are checked by their first bytes, and each request goes to the handler of its API."""

import struct
from collections.abc import Callable

import pytest
from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

from coordinator.base.binary import Malformed
from streaming.gateway.connection.flow_control import InFlightRequest, Pause
from streaming.gateway.protocol.api import Api, Handling
from streaming.gateway.protocol.frames import BadFrame, Frames, FrameTreatment, Piece, with_length
from streaming.gateway.protocol.limits import IN_FLIGHT_MAX, RELAYED_BYTES_MAX, SASL_BYTES_MAX, SERVED_BYTES_MAX
from streaming.gateway.protocol.messages import Header
from streaming.gateway.protocol.produce import HELD_BYTES_MAX
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.server.apis import APIS
from streaming.gateway.server.dispatcher import TOKEN_HEADER, Dispatcher
from tests.streaming.gateway.parts import FlowBench
from tests.streaming.gateway.test_authenticating import known
from tests.streaming.gateway.wiring import frame_of

PRODUCE, FETCH, METADATA, FIND, HEARTBEAT, HANDSHAKE, API_VERSIONS = 0, 1, 3, 10, 12, 17, 18
TXN_OFFSET_COMMIT, SHARE_GROUP_HEARTBEAT = 28, 76


class Bench(FlowBench):
    """A dispatcher whose handlers store their requests."""

    def __init__(self, *mechanisms: str, identity: Identity | None = None) -> None:
        super().__init__()
        self.identity = identity or Identity(mechanisms)
        self.handled: list[tuple[Handling, InFlightRequest, bytes]] = []
        self.calls: list[str] = []
        self.copied = bytearray()
        self.wish: FrameTreatment | None = None
        self.dispatcher = Dispatcher(
            self.flow, self.identity, {each: self._handler(each) for each in Handling}, self, self, lambda: self.now_s
        )
        self.frames = Frames(self.dispatcher)

    def _handler(self, handling: Handling) -> Callable[[InFlightRequest, bytes], None]:
        return lambda slot, frame: self.handled.append((handling, slot, frame))

    # the methods that the dispatcher calls on its connection and on the relay of large requests

    def stream(
        self, api: Api, header: Header, size: int, head: memoryview
    ) -> FrameTreatment | Callable[[Piece], object]:
        self.calls.append(f"stream {api.name} {header.version} {header.correlation_id} {size}")
        return self.wish or self.copied.extend

    def streamed(self) -> None:
        self.calls.append("streamed")

    def request_begins(self) -> None:
        self.calls.append("begins")

    def request_came(self, api: Api) -> None:
        self.calls.append(f"came {api.name}")


def head(api_key: int, version: int, size: int = 10) -> bytes:
    return struct.pack(">ihhih", size, api_key, version, 77, -1)


def last(api_key: int) -> bytes:
    return head(api_key, APIS[api_key].last)


@pytest.mark.parametrize(
    ("api_key", "handling"),
    [
        (HEARTBEAT, Handling.SERVED),
        (METADATA, Handling.REWRITTEN),
        (PRODUCE, Handling.REWRITTEN),
        (FETCH, Handling.RELAYED),
        (FIND, Handling.LOCATED),
        (API_VERSIONS, Handling.NEGOTIATED),
        (HANDSHAKE, Handling.AUTHENTICATED),
        (TXN_OFFSET_COMMIT, Handling.SERVED),
    ],
)
def test_each_request_goes_to_the_handler_of_its_api(api_key: int, handling: Handling):
    bench = Bench()
    bench.frames.feed(last(api_key))
    ((handled, slot, frame),) = bench.handled
    assert (handled, frame, slot.api) == (handling, last(api_key)[4:], APIS[api_key])
    assert slot.header == Header(api_key, APIS[api_key].last, 77, None)
    assert bench.flow.queue.is_only(slot)
    assert bench.calls == ["begins", f"came {APIS[api_key].name}"]


def test_complete_requests_are_dispatched_in_order():
    bench = Bench()
    stream = last(HEARTBEAT) + last(METADATA)
    for position in range(len(stream)):
        bench.frames.feed(stream[position : position + 1])
    assert [handling for handling, _, _ in bench.handled] == [Handling.SERVED, Handling.REWRITTEN]


def test_the_client_id_is_taken_from_the_last_request():
    bench = Bench()
    bench.frames.feed(with_length(frame_of(SaslHandshakeRequest(version=1, mechanism="PLAIN"), 1)))
    assert bench.identity.client_id == "ana"
    bench.frames.feed(last(HEARTBEAT))
    assert bench.identity.client_id == ""


def test_requests_wait_while_the_flow_is_paused():
    bench = Bench()
    bench.flow.pause(Pause.CLIENT)
    bench.frames.feed(last(HEARTBEAT))
    assert (bench.handled, bench.calls) == ([], [])
    bench.flow.resume(Pause.CLIENT)
    bench.frames.resume()
    assert len(bench.handled) == 1


def test_requests_in_flight_are_bounded():
    """The bound does not depend on the handlers."""
    bench = Bench()
    for _ in range(IN_FLIGHT_MAX):
        assert not bench.flow.is_paused
        bench.frames.feed(last(PRODUCE))
    assert bench.flow.is_paused


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (head(SHARE_GROUP_HEARTBEAT, 0), "API 76 is not offered"),
        (head(-1, 0), "API -1 is not offered"),
        (head(HEARTBEAT, APIS[HEARTBEAT].last + 1), "version 5 of Heartbeat is not offered"),
        (head(METADATA, -1), "version -1 of Metadata is not offered"),
        (head(HEARTBEAT, 0, SERVED_BYTES_MAX + 1), "too large"),
        (head(PRODUCE, 9, RELAYED_BYTES_MAX + 1), "too large"),
        (head(HANDSHAKE, 1, SASL_BYTES_MAX + 1), "too large"),
    ],
)
def test_a_request_of_an_unoffered_api_is_refused_by_its_first_bytes(frame: bytes, why: str):
    with pytest.raises(BadFrame, match=why):
        Bench().frames.feed(frame[:12])


@pytest.mark.parametrize("mechanisms", [(), ("PLAIN",)])
def test_length_beyond_the_largest_limit_is_refused_before_any_content(mechanisms: tuple[str, ...]):
    """A client that sends nothing after such a length would keep its connection for `FRAME_WAIT_S`."""
    with pytest.raises(BadFrame, match="too large"):
        Bench(*mechanisms).frames.feed(struct.pack(">i", RELAYED_BYTES_MAX + 1))
    Bench(*mechanisms).frames.feed(struct.pack(">i", RELAYED_BYTES_MAX))


def test_any_version_of_api_versions_is_handled():
    """KIP-35: the response lists the known versions."""
    bench = Bench()
    bench.frames.feed(head(API_VERSIONS, 99))
    assert len(bench.handled) == 1


def test_a_client_must_authenticate_before_other_requests():
    with pytest.raises(BadFrame, match="before authentication"):
        Bench("PLAIN").frames.feed(last(HEARTBEAT))


def test_no_request_is_handled_after_the_session_of_its_authentication():
    """KIP-368: a client must authenticate again before the end of its session."""
    bench = Bench(identity=known(session_lifetime_ms=5_000, now_s=100.0))
    bench.now_s = 105.0
    bench.frames.feed(last(HEARTBEAT))
    bench.now_s = 105.1
    with pytest.raises(BadFrame, match="KIP-368"):
        bench.frames.feed(last(HEARTBEAT))


def test_tokens_without_header_go_to_the_handler_of_authentication():
    """They follow a SaslHandshake of version 0. The shortest token has no bytes."""
    bench = Bench("PLAIN")
    bench.identity.handle_request(frame_of(SaslHandshakeRequest(version=0, mechanism="PLAIN"), 0))
    chosen = SaslHandshakeResponse(version=0, error_code=0, mechanisms=["PLAIN"])
    chosen.with_header(correlation_id=77)
    bench.identity.answered(bytes(chosen.encode(header=True)), 0)
    bench.frames.feed(with_length(b"\0a\0b") + with_length(b""))
    assert [(handling, slot.header, frame) for handling, slot, frame in bench.handled] == [
        (Handling.AUTHENTICATED, TOKEN_HEADER, b"\0a\0b"),
        (Handling.AUTHENTICATED, TOKEN_HEADER, b""),
    ]


def test_an_unreadable_header_is_malformed():
    with pytest.raises(Malformed):
        Bench().frames.feed(struct.pack(">ihhih", 10, HEARTBEAT, 0, 77, 30))


# -- large requests ----------------------------------------------------------------------------------------------------


def test_a_small_produce_is_handled_as_a_whole():
    bench = Bench()
    bench.frames.feed(head(PRODUCE, 9, HELD_BYTES_MAX) + bytes(HELD_BYTES_MAX - 10))
    assert (len(bench.handled), bench.copied) == (1, b"")


def test_a_large_produce_is_relayed_as_it_arrives():
    bench = Bench()
    size = HELD_BYTES_MAX + 1
    bench.frames.feed(head(PRODUCE, 9, size))
    assert bench.calls == ["begins", f"stream Produce 9 77 {size}", "came Produce"]
    assert bench.copied == head(PRODUCE, 9, size)
    bench.frames.feed(bytes(size - 10))
    assert (len(bench.copied), bench.calls[-1], bench.handled) == (size + 4, "streamed", [])


def test_a_large_produce_is_counted_when_it_is_relayed():
    bench = Bench()
    bench.wish = FrameTreatment.LATER
    bench.frames.feed(head(PRODUCE, 9, HELD_BYTES_MAX + 1))
    assert "came Produce" not in bench.calls
    bench.wish = None
    bench.frames.resume()
    assert bench.calls[-1] == "came Produce"
