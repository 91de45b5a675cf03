"""A byte stream, cut into Kafka's frames: four bytes of length, and as many of content."""

from collections.abc import Callable
from enum import Enum, auto
from struct import unpack_from
from typing import Protocol

LENGTH_BYTES = 4

Piece = bytes | bytearray | memoryview


class BadFrame(ValueError):
    """What came is no frame that a peer may send; the sentence says why."""


class Wish(Enum):
    """What the taker wants done with a frame that begins."""

    MORE = auto()
    """More of it before it can say."""

    LATER = auto()
    """Nothing, until `Frames.go_on` is called."""

    WHOLE = auto()
    """To have it when all of it is there."""


class Taker(Protocol):
    """Who is told of frames."""

    def begin(self, size: int, head: memoryview) -> "Wish | Callable[[Piece], object]":
        """Say what to do with a frame of `size` bytes of content, of which `head` is here; or where to copy it to.

        Raises:
            BadFrame: nobody wants it.
        """

    def take(self, frame: bytes) -> None:
        """Take a whole frame, without its length."""

    def end(self) -> None:
        """Know that all of a frame has been copied, length and content."""


class Frames:
    """Cuts a stream; holds no more than one frame that is wanted whole, or what came while nothing was wanted.

    Args:
        taker: Told of each frame in turn. It may call `hold` in the midst of it.
    """

    def __init__(self, taker: Taker) -> None:
        self._taker = taker
        self._buffer = bytearray()
        self._copy: Callable[[Piece], object] | None = None
        self._left = 0
        self._is_held = False
        self._is_at_work = False

    @property
    def held_bytes(self) -> int:
        """How much is here and not taken."""
        return len(self._buffer)

    @property
    def is_held(self) -> bool:
        return self._is_held

    @property
    def is_copying(self) -> bool:
        """Has a frame been copied in part?"""
        return self._left > 0

    @property
    def waits_for_more(self) -> bool:
        """Has a frame begun that is kept here until it is whole?"""
        return bool(self._buffer) and not self._is_held and not self._left

    def hold(self) -> None:
        """Hand nothing more out."""
        self._is_held = True

    def go_on(self) -> None:
        """Hand out what has come meanwhile."""
        if self._is_held:
            self._is_held = False
            self._cut()

    def feed(self, data: bytes) -> None:
        """Take what the stream brings.

        Raises:
            BadFrame: from the taker, or because a length is negative.
        """
        if self._left >= len(data) and not self._buffer:  # the midst of a large frame, where speed matters
            self._pass_on(data)
            return
        self._buffer += data
        self._cut()

    def _cut(self) -> None:
        if self._is_at_work:  # called from within a taker
            return
        self._is_at_work = True
        try:
            while not self._is_held and self._cut_one():
                pass
        finally:
            self._is_at_work = False

    def _cut_one(self) -> bool:
        """Deal with one frame, or the rest of one; tell whether there may be more to do."""
        buffer = self._buffer
        if self._left:
            here = min(self._left, len(buffer))
            self._pass_on(bytes(buffer[:here]))
            del buffer[:here]
            return bool(buffer)
        if len(buffer) < LENGTH_BYTES:
            return False
        (size,) = unpack_from(">i", buffer)
        if size < 0:
            raise BadFrame(f"a frame cannot have {size} bytes")
        with memoryview(buffer) as all_of_it, all_of_it[LENGTH_BYTES : LENGTH_BYTES + size] as head:
            wish = self._taker.begin(size, head)
        if wish is Wish.LATER:
            self._is_held = True
        elif wish is Wish.MORE:
            if len(buffer) >= LENGTH_BYTES + size:
                raise BadFrame(f"a frame of {size} bytes is too short for what it should say")
        elif wish is Wish.WHOLE:
            if len(buffer) >= LENGTH_BYTES + size:
                frame = bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + size])
                del buffer[: LENGTH_BYTES + size]
                self._taker.take(frame)
                return bool(buffer)
        else:
            self._copy, self._left = wish, LENGTH_BYTES + size
            return True
        return False

    def _pass_on(self, piece: bytes) -> None:
        if not piece:
            return
        assert self._copy is not None, "a frame is being copied"
        self._left -= len(piece)
        self._copy(piece)
        if not self._left:
            self._copy = None
            self._taker.end()


def with_length(frame: bytes) -> bytes:
    """Put its length before a frame."""
    return len(frame).to_bytes(LENGTH_BYTES) + frame
