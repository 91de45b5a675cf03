"""The bound on the large requests that a gateway is relaying, of all connections together.

The gateway holds no part of a large request, but the broker does: it allocates the announced size as soon as it has
read the length. So such a request counts with the size that it announces, until all of it has been relayed. Requests
beyond the bound wait in their sockets, in the order of their arrival.
"""

from collections.abc import Callable

from streaming.gateway.protocol.limits import STREAMED_BYTES_MAX

Admit = Callable[[], object]
"""Called when a request that waited has room. It stands for the connection: one large request at a time."""


class Room:
    """The room for large requests. It always has room for one, whatever its size."""

    def __init__(self, bytes_max: int = STREAMED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._taken: dict[Admit, int] = {}
        self._waiting: dict[Admit, int] = {}

    @property
    def is_short(self) -> bool:
        """Whether a request waits for room."""
        return bool(self._waiting)

    def acquire(self, admit: Admit, size: int) -> bool:
        """Return whether a request has room. Otherwise `admit` is called as soon as it has."""
        if admit not in self._taken:
            self._waiting[admit] = size
            self._admit()
        return admit in self._taken

    def release(self, admit: Admit) -> None:
        """Release the room of a request that was relayed, or whose connection is closed."""
        self._taken.pop(admit, None)
        self._waiting.pop(admit, None)
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            admit, size = next(iter(self._waiting.items()))
            if self._taken and sum(self._taken.values()) + size > self._bytes_max:
                return
            self._taken[admit] = self._waiting.pop(admit)
            admit()
