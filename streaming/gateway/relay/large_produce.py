"""A Produce that is too large for the gateway's memory, on its way to a broker.

The large requests that a gateway is relaying have one bound for all connections together. The gateway holds no part of
a large request, but the broker does: it allocates the announced size as soon as it has read the length. So such a
request counts with the size that it announces, until all of it has been relayed. Requests beyond the bound wait in
their sockets, in the order of their arrival.
"""

from collections.abc import Callable

from streaming.gateway.protocol.frames import LENGTH_BYTES, BadFrame, Piece
from streaming.gateway.protocol.limits import STREAMED_BYTES_MAX
from streaming.gateway.protocol.produce import Produce


class LargeProduce:
    """A copy of a large Produce. Each piece is checked before it is sent: a broker never gets all of a refused one.

    Args:
        size: The size of its content, without the length in front.
        judge: Called with the parts that have been read; raises an error to refuse them.
        write: Sends a piece to the broker.
    """

    def __init__(
        self, version: int, size: int, judge: Callable[[Produce], None], write: Callable[[Piece], object]
    ) -> None:
        self._produce, self._judge, self._write = Produce(version), judge, write
        self._length_left, self._left = LENGTH_BYTES, size

    def __call__(self, piece: Piece) -> None:
        """Copy the next piece.

        Raises:
            BadFrame: The request ends too early, or a topic in it is refused.
            Malformed: The request cannot be read.
        """
        content = memoryview(piece)[self._length_left :]
        self._length_left -= len(piece) - len(content)
        self._left -= len(content)
        self._produce.feed(content)
        self._judge(self._produce)
        if not self._left and not self._produce.is_whole:
            raise BadFrame("a large Produce ends too early")
        self._write(piece)


# -- the bound of all connections --------------------------------------------------------------------------------------


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
