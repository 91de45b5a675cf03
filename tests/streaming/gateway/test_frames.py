"""A byte stream is split into the same frames for any sizes of its pieces."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.gateway.protocol.frames import BadFrame, Frames, FrameTreatment, Piece, with_length

COPIED, WHOLE, LATER = b"c", b"w", b"l"


@dataclass
class FakeReceiver:
    """Receives frames as a whole, or copied, by their first byte. LATER frames wait until `patience` is 0."""

    patience: int = 0
    received: list[bytes] = field(default_factory=list)
    copied: bytearray = field(default_factory=bytearray)
    frames: Frames = field(init=False)

    def __post_init__(self) -> None:
        self.frames = Frames(self)

    def begin(self, size: int, head: memoryview) -> FrameTreatment | Callable[[Piece], object]:
        if not head:
            return FrameTreatment.MORE
        kind = bytes(head[:1])
        if kind == LATER and self.patience:
            self.patience -= 1
            return FrameTreatment.LATER
        return self.copied.extend if kind == COPIED else FrameTreatment.WHOLE

    def handle(self, frame: bytes) -> None:
        self.received.append(frame)

    def end(self) -> None:
        self.received.append(bytes(self.copied[4:]))
        assert bytes(self.copied) == with_length(self.received[-1])
        self.copied.clear()


frames = st.lists(
    st.builds(bytes.__add__, st.sampled_from([COPIED, WHOLE, LATER]), st.binary(max_size=300)), max_size=8
)


@given(frames, st.lists(st.integers(1, 200)), st.integers(0, 3))
def test_received_frames_equal_sent_frames(sent: list[bytes], cuts: list[int], patience: int):
    receiver, stream = FakeReceiver(patience), b"".join(map(with_length, sent))
    for cut in [*cuts, len(stream)]:
        receiver.frames.feed(stream[:cut])
        stream = stream[cut:]
        receiver.frames.resume()
    for _ in range(patience):
        receiver.frames.resume()
    assert receiver.received == sent
    assert (receiver.frames.held_bytes, receiver.frames.is_copying, receiver.frames.waits_for_more) == (0, False, False)


def test_copied_bytes_are_not_buffered():
    receiver = FakeReceiver()
    receiver.frames.feed(with_length(COPIED + b"x" * 1_000)[:600])
    assert (receiver.frames.held_bytes, len(receiver.copied)) == (0, 600)
    assert receiver.frames.is_copying


def test_no_frame_is_delivered_while_held():
    receiver = FakeReceiver()
    receiver.frames.hold()
    receiver.frames.feed(with_length(WHOLE))
    assert (receiver.received, receiver.frames.waits_for_more) == ([], False)
    receiver.frames.resume()
    assert receiver.received == [WHOLE]


def test_a_hold_during_delivery_delays_the_next_frame():
    receiver = FakeReceiver()
    receiver.handle = lambda frame: (receiver.received.append(frame), receiver.frames.hold())  # type: ignore[method-assign,assignment]
    receiver.frames.feed(with_length(b"w1") + with_length(b"w2"))
    assert receiver.received == [b"w1"]
    receiver.frames.resume()
    assert receiver.received == [b"w1", b"w2"]


@pytest.mark.parametrize("stream", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_impossible_lengths_are_refused(stream: bytes):
    """A negative length is refused, and a length that is too short for a frame."""
    with pytest.raises(BadFrame):
        FakeReceiver().frames.feed(stream)


def test_an_incomplete_frame_is_reported():
    receiver = FakeReceiver()
    receiver.frames.feed(with_length(WHOLE + b"rest")[:-1])
    assert (receiver.frames.waits_for_more, receiver.frames.held_bytes) == (True, 8)
