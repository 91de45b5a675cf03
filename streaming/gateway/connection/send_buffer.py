"""What a connection owes its client, and the totals of all connections of a gateway: bytes of responses that are held,
and requests without a response.

Bytes count from the arrival of the coordinator's answer, or of a broker's response that the gateway reads, until the
system has accepted the response made from it. A broker's response that is passed on unread stays in the broker's socket
instead.
"""

from collections.abc import Callable, Collection
from typing import Protocol

from streaming.gateway.protocol.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_BYTES_PAUSE,
    ANSWERS_BYTES_MAX,
    IN_FLIGHT_ALL_MAX,
    IN_FLIGHT_FEW,
    IN_FLIGHT_MAX,
)


class Holder(Protocol):
    """A connection."""

    @property
    def send_buffer(self) -> "SendBuffer":
        """The bytes that the connection holds."""

    def refuse(self, why: str) -> None:
        """Close the connection."""


class MemoryBudget:
    """The bytes that all connections hold, and their requests in flight.

    Args:
        holders: All connections.
        shrink: Called for each connection before it is closed.

    Attributes:
        in_flight: The requests of all connections without a response.
    """

    def __init__(self, holders: Collection[Holder], shrink: Callable[[], object]) -> None:
        self.held_bytes = self.in_flight = 0
        self._holders, self._drop = holders, shrink

    @property
    def in_flight_max(self) -> int:
        """How many requests without a response one connection may have."""
        return IN_FLIGHT_MAX if self.in_flight < IN_FLIGHT_ALL_MAX else IN_FLIGHT_FEW

    def add(self, holder: Holder, more_bytes: int) -> None:
        """Update the bytes of a connection. Beyond a limit, close this connection, or the one that holds most."""
        self.held_bytes += more_bytes
        if more_bytes <= 0:
            return
        if holder.send_buffer.held_bytes > ANSWER_BYTES_MAX:
            self._hang_up(holder, f"it does not read {holder.send_buffer.held_bytes} bytes of responses")
        while self.held_bytes > ANSWERS_BYTES_MAX:  # each turn closes one
            most = max(self._holders, key=lambda each: each.send_buffer.held_bytes)
            self._hang_up(most, f"it holds most of the unread responses, {most.send_buffer.held_bytes} bytes")

    def _hang_up(self, holder: Holder, why: str) -> None:
        self._drop()
        holder.refuse(why)
        holder.send_buffer.close()


class SendBuffer:
    """The bytes that one connection holds, and its requests in flight.

    Args:
        holder: The connection.
        memory_budget: The memory budget of all connections.
    """

    def __init__(self, holder: Holder, memory_budget: MemoryBudget) -> None:
        self.held_bytes = self._in_flight = 0
        self._holder, self._memory_budget = holder, memory_budget
        self._written = 0
        self._is_closed = False

    @property
    def is_much(self) -> bool:
        """Whether the connection owes so much that no more of its requests are read."""
        return self.held_bytes >= ANSWER_BYTES_PAUSE or self._in_flight >= self._memory_budget.in_flight_max

    def owe(self, in_flight: int) -> None:
        """Update the number of requests without a response."""
        if not self._is_closed:
            self._memory_budget.in_flight += in_flight - self._in_flight
            self._in_flight = in_flight

    def hold(self, more_bytes: int) -> None:
        """Add held bytes; below 0 for released ones."""
        if more_bytes and not self._is_closed:
            self.held_bytes += more_bytes
            self._memory_budget.add(self._holder, more_bytes)

    def written(self, waiting_bytes: int) -> None:
        """Update the number of written bytes that the system has not accepted yet."""
        self._written, before = waiting_bytes, self._written
        self.hold(waiting_bytes - before)

    def close(self) -> None:
        """Release all bytes and requests, because the connection is closed."""
        self.hold(-self.held_bytes)
        self.owe(0)
        self._is_closed = True
