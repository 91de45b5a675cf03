"""The requests of a connection that have no response yet: responses go out in the order of the requests."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streaming.gateway.protocol.api import Api
from streaming.gateway.protocol.messages import Header


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
