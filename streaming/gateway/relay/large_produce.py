"""A Produce that is too large for the gateway's memory, on its way to a broker."""

from collections.abc import Callable

from streaming.gateway.protocol.frames import LENGTH_BYTES, BadFrame, Piece
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
