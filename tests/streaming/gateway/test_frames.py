"""A byte stream is cut into the same frames, however it arrives."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.gateway.frames import BadFrame, Frames, Piece, Wish, with_length

COPIED, WHOLE, LATER = b"c", b"w", b"l"


@dataclass
class Taker:
    """Has frames whole or copied as their first byte says; and later, those that wait, until `patience` is over."""

    patience: int = 0
    taken: list[bytes] = field(default_factory=list)
    copied: bytearray = field(default_factory=bytearray)
    frames: Frames = field(init=False)

    def __post_init__(self) -> None:
        self.frames = Frames(self)

    def begin(self, size: int, head: memoryview) -> Wish | Callable[[Piece], object]:
        if not head:
            return Wish.MORE
        kind = bytes(head[:1])
        if kind == LATER and self.patience:
            self.patience -= 1
            return Wish.LATER
        return self.copied.extend if kind == COPIED else Wish.WHOLE

    def take(self, frame: bytes) -> None:
        self.taken.append(frame)

    def end(self) -> None:
        self.taken.append(bytes(self.copied[4:]))
        assert bytes(self.copied) == with_length(self.taken[-1])
        self.copied.clear()


frames = st.lists(
    st.builds(bytes.__add__, st.sampled_from([COPIED, WHOLE, LATER]), st.binary(max_size=300)), max_size=8
)


@given(frames, st.lists(st.integers(1, 200)), st.integers(0, 3))
def test_frames_come_out_as_they_went_in(sent: list[bytes], cuts: list[int], patience: int):
    taker, stream = Taker(patience), b"".join(map(with_length, sent))
    for cut in [*cuts, len(stream)]:
        taker.frames.feed(stream[:cut])
        stream = stream[cut:]
        taker.frames.go_on()
    for _ in range(patience):
        taker.frames.go_on()
    assert taker.taken == sent
    assert (taker.frames.held_bytes, taker.frames.is_copying, taker.frames.waits_for_more) == (0, False, False)


def test_what_is_copied_is_not_kept():
    taker = Taker()
    taker.frames.feed(with_length(COPIED + b"x" * 1_000)[:600])
    assert (taker.frames.held_bytes, len(taker.copied)) == (0, 600)
    assert taker.frames.is_copying


def test_nothing_comes_out_while_it_is_held():
    taker = Taker()
    taker.frames.hold()
    taker.frames.feed(with_length(WHOLE))
    assert (taker.taken, taker.frames.waits_for_more) == ([], False)
    taker.frames.go_on()
    assert taker.taken == [WHOLE]


def test_who_holds_in_the_midst_gets_the_next_one_later():
    taker = Taker()
    taker.take = lambda frame: (taker.taken.append(frame), taker.frames.hold())  # type: ignore[method-assign,assignment]
    taker.frames.feed(with_length(b"w1") + with_length(b"w2"))
    assert taker.taken == [b"w1"]
    taker.frames.go_on()
    assert taker.taken == [b"w1", b"w2"]


@pytest.mark.parametrize("stream", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_lengths_that_cannot_be_are_refused(stream: bytes):
    """Negative, and too short for what must stand in a frame."""
    with pytest.raises(BadFrame):
        Taker().frames.feed(stream)


def test_an_unfinished_frame_is_known_as_such():
    taker = Taker()
    taker.frames.feed(with_length(WHOLE + b"rest")[:-1])
    assert (taker.frames.waits_for_more, taker.frames.held_bytes) == (True, 8)
