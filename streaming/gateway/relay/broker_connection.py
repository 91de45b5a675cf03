"""The connection to a broker for one client. The client's port of the gateway stands for this broker.

Responses come in the order of the requests. Each is passed on in pieces when its turn comes, or read completely. Until
then it stays in the broker's socket.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.protocol.frames import Frames, FrameTreatment, Piece
from streaming.gateway.protocol.limits import LAST_BYTES_S


class Downstream(Protocol):
    """The client's side, which gets the responses."""

    def write(self, piece: Piece) -> None:
        """Send a piece to the client at once."""

    def is_next(self, in_flight: InFlightRequest) -> bool:
        """Return whether all requests before this one have their responses."""

    def has_room(self, in_flight: InFlightRequest) -> bool:
        """Return whether a response may be read completely now."""

    def answered(self, in_flight: InFlightRequest, frame: bytes) -> None:
        """Handle a response that was read completely, without its length."""

    def passed_on(self, in_flight: InFlightRequest) -> None:
        """Record that all of a response has been written."""

    def upstream_full(self, is_full: bool) -> None:
        """Stop or resume sending to the broker."""

    def upstream_lost(self) -> None:
        """Handle the end of the connection to the broker."""

    def fail(self, error: Exception) -> None:
        """Close the client's connection because of a bug of the gateway, or of a broker that violates the protocol."""


class Upstream(asyncio.Protocol):
    """The connection to the broker. It holds at most a piece of a response that is passed on."""

    def __init__(self, downstream: Downstream) -> None:
        self._downstream = downstream
        self._expected: deque[InFlightRequest] = deque()
        self._frames = Frames(self)
        self._transport: asyncio.Transport | None = None
        self._is_client_slow = False

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._transport is not None

    @property
    def expects_answers(self) -> bool:
        """Whether a request has no response yet."""
        return bool(self._expected)

    def expect(self, in_flight: InFlightRequest) -> None:
        """Record that the next request, `in_flight`, has a response."""
        self._expected.append(in_flight)

    def write(self, piece: Piece) -> None:
        """Send a piece to the broker."""
        assert self._transport is not None, "connected"
        self._transport.write(piece)

    def client_slow(self, is_slow: bool) -> None:
        """Stop reading while the client is slow, or resume."""
        self._is_client_slow = is_slow
        self._read_or_not()

    def resume(self) -> None:
        """Resume reading if a response has waited for its turn."""
        self._frames.resume()
        self._read_or_not()

    def close(self) -> None:
        """Close the connection. The broker gets all that was written: a request without a response may be among it."""
        if self._transport:
            self._transport.close()
            if self._transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LAST_BYTES_S, self._transport.abort)

    def _read_or_not(self) -> None:
        assert self._transport is not None, "connected"
        if self._is_client_slow or self._frames.is_held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.feed(data)
        except Exception as error:
            self._downstream.fail(error)
        else:
            if self._frames.is_held:
                self._read_or_not()

    def pause_writing(self) -> None:
        self._downstream.upstream_full(True)

    def resume_writing(self) -> None:
        self._downstream.upstream_full(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._downstream.upstream_lost()

    # -- frames --------------------------------------------------------------------------------------------------------

    def begin(self, size: int, head: memoryview) -> FrameTreatment | Callable[[Piece], object]:
        in_flight = self._expected[0]
        if in_flight.handle_whole:
            return FrameTreatment.WHOLE if self._downstream.has_room(in_flight) else FrameTreatment.LATER
        if not self._downstream.is_next(in_flight):
            return FrameTreatment.LATER
        if in_flight.reads and not in_flight.reads(head) and len(head) < size:
            return FrameTreatment.MORE
        return self._downstream.write

    def handle(self, frame: bytes) -> None:
        self._downstream.answered(self._expected.popleft(), frame)

    def end(self) -> None:
        self._downstream.passed_on(self._expected.popleft())
