"""The division of a byte stream into Kafka's frames: a length of four bytes, and content of this length."""

from collections.abc import Callable
from enum import Enum, auto
from struct import unpack_from
from typing import Protocol

LENGTH_BYTES = 4

Piece = bytes | bytearray | memoryview


class BadFrame(ValueError):
    """The peer sent an invalid frame; the sentence says why."""


class FrameTreatment(Enum):
    """The treatment of a frame that begins."""

    MORE = auto()
    """More of its bytes are needed for a decision."""

    LATER = auto()
    """It stays in the buffer until `Frames.resume` is called."""

    WHOLE = auto()
    """It is delivered when it is complete."""


class FrameReceiver(Protocol):
    """The receiver of frames."""

    def begin(self, size: int, head: memoryview) -> "FrameTreatment | Callable[[Piece], object]":
        """Return the treatment of a frame of `size` content bytes that begins with `head`, or a function to copy it to.

        Raises:
            BadFrame: The frame is refused.
        """

    def handle(self, frame: bytes) -> None:
        """Handle a complete frame, without its length."""

    def end(self) -> None:
        """Handle the end of a copied frame: its length and content have been copied."""


class Frames:
    """A divider of a stream. It holds at most one incomplete frame, or the bytes that came while it was on hold.

    Args:
        receiver: The receiver of the frames, in order. It may call `hold` during a call.
    """

    def __init__(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver
        self._buffer = bytearray()
        self._copy: Callable[[Piece], object] | None = None
        self._left = 0
        self._is_held = False
        self._is_at_work = False

    @property
    def held_bytes(self) -> int:
        """The number of bytes in the buffer."""
        return len(self._buffer)

    @property
    def is_held(self) -> bool:
        return self._is_held

    @property
    def is_copying(self) -> bool:
        """Whether a frame has been partly copied."""
        return self._left > 0

    @property
    def waits_for_more(self) -> bool:
        """Whether the buffer contains an incomplete frame."""
        return bool(self._buffer) and not self._is_held and not self._left

    def hold(self) -> None:
        """Stop the delivery of frames."""
        self._is_held = True

    def resume(self) -> None:
        """Resume the delivery of frames, with those that came meanwhile."""
        if self._is_held:
            self._is_held = False
            self._cut()

    def feed(self, data: bytes) -> None:
        """Add bytes of the stream.

        Raises:
            BadFrame: The receiver refuses a frame, or a length is negative.
        """
        if self._left >= len(data) and not self._buffer:  # the middle of a large frame, where speed matters
            self._pass_on(data)
            return
        self._buffer += data
        self._cut()

    def _cut(self) -> None:
        if self._is_at_work:  # called by a receiver
            return
        self._is_at_work = True
        try:
            while not self._is_held and self._cut_one():
                pass
        finally:
            self._is_at_work = False

    def _cut_one(self) -> bool:
        """Handle one frame, or the rest of one. Return whether there may be another."""
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
            treatment = self._receiver.begin(size, head)
        if treatment is FrameTreatment.LATER:
            self._is_held = True
        elif treatment is FrameTreatment.MORE:
            if len(buffer) >= LENGTH_BYTES + size:
                raise BadFrame(f"a frame of {size} bytes is too short for its request")
        elif treatment is FrameTreatment.WHOLE:
            if len(buffer) >= LENGTH_BYTES + size:
                frame = bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + size])
                del buffer[: LENGTH_BYTES + size]
                self._receiver.handle(frame)
                return bool(buffer)
        else:
            self._copy, self._left = treatment, LENGTH_BYTES + size
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
            self._receiver.end()


def with_length(frame: bytes) -> bytes:
    """Return a frame with its length before it."""
    return len(frame).to_bytes(LENGTH_BYTES) + frame
