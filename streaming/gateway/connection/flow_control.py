"""The flow control of one connection: the order of responses, and the pauses in reading requests.

This module uses no socket, clock or event loop: the transport, the clock and the function that schedules a call are
parameters. A test uses a transport that stores the written bytes.

Reading stops for each reason in `Pause`, and continues when no reason remains. Responses are sent in pieces of
`PIECE_BYTES`, in the order of the requests, for as long as the transport accepts them.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from kafka.protocol.api_message import ApiMessage

from streaming.gateway.connection.metrics import Metrics
from streaming.gateway.connection.send_buffer import SendBuffer
from streaming.gateway.protocol.api import Api
from streaming.gateway.protocol.frames import Piece
from streaming.gateway.protocol.limits import LARGE_IN_FLIGHT_MAX, PIECE_BYTES
from streaming.gateway.protocol.messages import Header, encode

# -- requests in flight ------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """One request's place in the queue.

    Args:
        answer: The complete response, with its length; None until it has arrived. It remains None if a broker's
            response is passed on piece by piece.
        handle_whole: Called with the request and a broker's complete response, without its length; None if the response
            is passed on piece by piece.
        reads: Called with the beginning of a broker's response that is passed on; returns whether it was sufficient.
        alters: Called with a broker's response that is rewritten, before it is sent.
        waited_ms: The time for which a heartbeat waits for a tick before it is sent to the coordinator.
    """

    api: Api
    header: Header
    answer: bytes | None = None
    handle_whole: Callable[["InFlightRequest", bytes], None] | None = None
    reads: Callable[[memoryview], bool] | None = None
    alters: Callable[[Any], None] | None = None
    since_s: float = field(default_factory=time.monotonic)
    waited_ms: float = 0.0


class RequestQueue:
    """The queue of requests.

    Args:
        hold: Called with the number of newly held bytes of responses; below 0 for released ones.
    """

    def __init__(self, hold: Callable[[int], None] = lambda _: None) -> None:
        self._row: deque[InFlightRequest] = deque()
        self._hold, self._sent, self._large = hold, 0, 0

    def __len__(self) -> int:
        return len(self._row)

    @property
    def large(self) -> int:
        """The number of unanswered requests whose response may be far larger than the request."""
        return self._large

    def add(self, in_flight: InFlightRequest) -> InFlightRequest:
        self._row.append(in_flight)
        self._large += in_flight.api.has_large_response
        return in_flight

    def withdraw(self, in_flight: InFlightRequest) -> None:
        """Remove the last request, which has no response."""
        assert self._row[-1] is in_flight
        self._row.pop()
        self._large -= in_flight.api.has_large_response

    def give(self, in_flight: InFlightRequest, answer: bytes) -> None:
        """Store a response until its turn."""
        in_flight.answer = answer
        self._large -= in_flight.api.has_large_response
        self._hold(len(answer))

    def is_first(self, in_flight: InFlightRequest) -> bool:
        return bool(self._row) and self._row[0] is in_flight

    def is_only(self, in_flight: InFlightRequest) -> bool:
        return len(self._row) == 1 and self._row[0] is in_flight

    def pass_first(self) -> None:
        """Remove the first request, whose response was passed on piece by piece."""
        self._row.popleft()

    def piece(self, bytes_max: int) -> bytes:
        """Remove and return the next bytes to send: responses in order, or a part of a large one; empty if none is
        ready."""
        pieces: list[bytes] = []
        room = bytes_max
        while room and self._row and (answer := self._row[0].answer) is not None:
            piece = answer if not self._sent and len(answer) <= room else answer[self._sent : self._sent + room]
            pieces.append(piece)
            room -= len(piece)
            self._sent += len(piece)
            if self._sent == len(answer):
                self._row.popleft()
                self._sent = 0
        self._hold(room - bytes_max)
        return b"".join(pieces)


class Transport(Protocol):
    """The part of `asyncio.Transport` that a flow uses."""

    def write(self, data: Piece, /) -> None:
        """Send a piece, or hold it until the system accepts it."""

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the system has not accepted."""

    def pause_reading(self) -> None:
        """Stop reading."""

    def resume_reading(self) -> None:
        """Read again."""

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or will be when all bytes are sent."""

    def close(self) -> None:
        """Close the connection when all bytes are sent."""


class Owner(Protocol):
    """The connection that a flow belongs to."""

    def stop_requests(self) -> None:
        """Dispatch no more requests until `resume_requests` is called."""

    def resume_requests(self) -> None:
        """Dispatch the requests that have arrived."""

    def flushed(self) -> None:
        """Continue the work that waits until responses are sent."""

    def fail(self, error: BaseException) -> None:
        """Close the connection because of a bug of the gateway, or of a broker that violates the protocol."""

    def close(self) -> None:
        """Close the connection at once."""


class Pause(Enum):
    """The reasons for which no requests are read."""

    CLIENT = auto()
    """The client does not read its responses."""

    BROKER = auto()
    """The broker does not read the requests."""

    IN_FLIGHT = auto()
    """Too many requests have no response, or too many bytes of responses are held."""

    ROOM = auto()
    """The next request is large, and waits for room."""

    WORK = auto()
    """The last request waits for a task, and requests keep their order."""

    END = auto()
    """The connection ends when the requests that have arrived are answered."""


class Flow:
    """The flow control of one connection.

    Args:
        transport: The connection to the client.
        send_buffer: Counts the bytes of held responses.
        soon: Schedules a call of a function, as `loop.call_soon`.
        clock: Returns monotonic seconds.

    Attributes:
        questions: The ids of the questions to the coordinator that have no answer yet.
        active_s: The time at which the client last sent or read something.
        stuck_since_s: The time since which the client has read no responses; None while it reads them.
    """

    def __init__(
        self,
        transport: Transport,
        owner: Owner,
        send_buffer: SendBuffer,
        metrics: Metrics,
        soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport, self._owner, self.send_buffer, self._metrics = transport, owner, send_buffer, metrics
        self._soon, self._clock = soon, clock
        self.queue = RequestQueue(send_buffer.hold)
        self.questions: set[str] = set()
        self.active_s = clock()
        self.stuck_since_s: float | None = None
        self._pauses: set[Pause] = set()
        self._is_flush_due = False

    # -- reading -------------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether no requests are read."""
        return bool(self._pauses)

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closed, or will be when all bytes are sent."""
        return self._transport.is_closing()

    def touch(self) -> None:
        """Record that the client has sent or read something."""
        self.active_s = self._clock()

    def pause(self, why: Pause) -> None:
        """Stop reading requests until `resume` is called for the same reason."""
        self._pauses.add(why)
        self._transport.pause_reading()

    def resume(self, why: Pause) -> None:
        """Remove a reason to pause. Read requests again if no other reason remains."""
        if why not in self._pauses:
            return
        self._pauses.discard(why)
        if not self._pauses and not self._transport.is_closing():
            self._transport.resume_reading()
            self._owner.resume_requests()

    def bound(self) -> None:
        """Pause while too many requests, questions or bytes are in flight. One request may have many questions."""
        self.send_buffer.owe(max(len(self.queue), len(self.questions)))
        is_too_much = self.send_buffer.is_much or self.queue.large >= LARGE_IN_FLIGHT_MAX
        (self.pause if is_too_much else self.resume)(Pause.IN_FLIGHT)

    # -- writing -------------------------------------------------------------------------------------------------------

    def respond(self, in_flight: InFlightRequest, response: ApiMessage) -> None:
        """Send the response to a request when its turn comes."""
        self.answer(in_flight, encode(response, in_flight.header))

    def answer(self, in_flight: InFlightRequest, answer: bytes) -> None:
        """Send a response, with its length and header, when its turn comes."""
        self.count(in_flight)
        self.give(in_flight, answer)

    def count(self, in_flight: InFlightRequest) -> None:
        """Count a request as answered."""
        self._metrics.answered(in_flight.api.name, in_flight.since_s)

    def give(self, in_flight: InFlightRequest, answer: bytes) -> None:
        """Send the response to a request that is counted already."""
        self.queue.give(in_flight, answer)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._soon(self.flush)

    def answer_last(self, in_flight: InFlightRequest, answer: bytes) -> None:
        """Send a response, and then close the connection."""
        self.answer(in_flight, answer)
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send all responses whose turn has come, together."""
        self._is_flush_due = False
        if self._transport.is_closing():
            return
        while self.stuck_since_s is None and (piece := self.queue.piece(PIECE_BYTES)):
            self.touch()
            self._transport.write(piece)
        self.count_written()
        self._owner.flushed()
        self.bound()

    def write(self, piece: Piece) -> None:
        """Send a piece of the broker's response whose turn it is."""
        self._transport.write(piece)
        self.count_written()

    def passed_on(self, in_flight: InFlightRequest) -> None:
        """Remove the first request, because `write` has sent its response."""
        self.touch()
        self.count(in_flight)
        self.queue.pass_first()
        self.flush()

    def count_written(self) -> None:
        """Update the count of the bytes that the client has not read."""
        self.send_buffer.written(self._transport.get_write_buffer_size())

    def client_full(self) -> None:
        """Stop sending, because the client does not read its responses."""
        self.stuck_since_s = self._clock()
        self.pause(Pause.CLIENT)

    def client_ready(self) -> bool:
        """Send further responses. If the transport accepts them, read requests again and return True."""
        self.touch()
        self.stuck_since_s = None
        self.flush()
        is_ready = self.stuck_since_s is None
        if is_ready:
            self.resume(Pause.CLIENT)
        return is_ready

    # -- ending --------------------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Close the connection because of a bug of the gateway, or of a broker that violates the protocol."""
        self._owner.fail(error)

    def close(self) -> None:
        """Close the connection at once."""
        self._owner.close()

    def stop_requests(self) -> None:
        """Stop reading requests, and stop dispatching those that have arrived."""
        self._owner.stop_requests()
        self.pause(Pause.WORK)
