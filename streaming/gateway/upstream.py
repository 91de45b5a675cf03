"""A client's own connection to the broker that it takes the gateway for; made when there is something to relay."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from streaming.gateway.frames import Frames, Piece, Wish
from streaming.gateway.slots import Slot


class Downstream(Protocol):
    """The client's side, which gets the answers."""

    def write(self, piece: Piece) -> None:
        """Send something to the client at once."""

    def is_next(self, slot: Slot) -> bool:
        """Tell whether all that was asked before has been answered."""

    def has_room(self, slot: Slot) -> bool:
        """Return whether an answer that is wanted whole may be read now."""

    def answered(self, slot: Slot, frame: bytes) -> None:
        """Take an answer that is wanted whole."""

    def passed_on(self, slot: Slot) -> None:
        """Know that an answer has been written, all of it."""

    def upstream_full(self, is_full: bool) -> None:
        """Send less for a while, or go on."""

    def upstream_lost(self) -> None:
        """Know that the broker has hung up."""

    def fail(self, error: Exception) -> None:
        """End the client's connection, because of a bug of ours or a broker that breaks the protocol."""


class Upstream(asyncio.Protocol):
    """Sends requests on and brings the answers back, in order and without holding more than a piece of any."""

    def __init__(self, downstream: Downstream) -> None:
        self._downstream = downstream
        self._expected: deque[Slot] = deque()
        self._frames = Frames(self)
        self._transport: asyncio.Transport | None = None
        self._is_client_slow = False

    @property
    def expects_answers(self) -> bool:
        return bool(self._expected)

    def expect(self, slot: Slot) -> None:
        """Know that the next request has an answer, and where it goes."""
        self._expected.append(slot)

    def write(self, piece: Piece) -> None:
        """Send something to the broker."""
        assert self._transport is not None, "connected"
        self._transport.write(piece)

    def client_slow(self, is_slow: bool) -> None:
        """Read less for a while, or go on: the client does not keep up."""
        self._is_client_slow = is_slow
        self._read_or_not()

    def go_on(self) -> None:
        """Look again at an answer whose turn had not come."""
        self._frames.go_on()
        self._read_or_not()

    def close(self) -> None:
        if self._transport:
            self._transport.abort()

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

    def begin(self, size: int, head: memoryview) -> Wish | Callable[[Piece], object]:
        slot = self._expected[0]
        if slot.is_wanted_whole:
            return Wish.WHOLE if self._downstream.has_room(slot) else Wish.LATER
        if not self._downstream.is_next(slot):
            return Wish.LATER
        if slot.reads and not slot.reads(head) and len(head) < size:
            return Wish.MORE
        return self._downstream.write

    def take(self, frame: bytes) -> None:
        self._downstream.answered(self._expected.popleft(), frame)

    def end(self) -> None:
        self._downstream.passed_on(self._expected.popleft())
