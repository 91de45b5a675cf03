"""The parts of a Produce request that a relay needs: whether it has a response, and the topics that it writes to.

A Produce may have 100 MiB, and most of it is records, which a gateway does not read. So it is read piece by piece:
each piece goes to `Produce.feed` before it is relayed. `feed` skips the records and does not copy them.

From version 10 on, a response has the addresses of new leaders if the broker no longer leads a partition (KIP-951).
Nearly all responses have none, so they are told apart without decoding them.

Source: ProduceRequest.json, ProduceResponse.json.
"""

from collections.abc import Generator
from struct import Struct
from typing import ClassVar

from kafka.protocol.producer import ProduceRequest

from coordinator.base.binary import INT16, INT32, TOO_SHORT, VARINT_BYTES_MAX, Malformed
from streaming.gateway.protocol.messages import ELEMENTS_MAX

FIRST_WITH_ADDRESSES = 10

_CORRELATION_ID_BYTES = _THROTTLE_BYTES = 4
_FINE = Struct(">ihqqqBBB")
"""A partition without an error: its index, the error, offsets and time, record errors, message and tagged fields."""

_NO_MORE = (1, 0, 0)
"""No record errors, no message and no tagged fields."""

ONE_BYTE_MAX = 0x7F
"""The largest number that is written as one byte; it stands for one element or character less."""


def may_have_addresses(frame: bytes) -> bool:
    """Return whether a response, without its length, may contain addresses. False only if it certainly does not."""
    try:
        return not _is_plain(frame)
    except (IndexError, ValueError):
        return True


def _is_plain(frame: bytes) -> bool:
    """Return whether all partitions are without an error, and nothing is tagged.

    Raises:
        IndexError, ValueError: The response ends too early, or is a long one.
    """
    place = _CORRELATION_ID_BYTES
    if frame[place]:
        return False
    topics, place = _count(frame, place + 1)
    for _ in range(topics):
        name, place = _count(frame, place)
        partitions, place = _count(frame, place + name)
        for _ in range(partitions):
            if place + _FINE.size > len(frame):
                return False
            _, error, _, _, _, *rest = _FINE.unpack_from(frame, place)
            if error or tuple(rest) != _NO_MORE:
                return False
            place += _FINE.size
        if frame[place]:
            return False
        place += 1
    place += _THROTTLE_BYTES
    return len(frame) == place + 1 and not frame[place]


def _count(frame: bytes, place: int) -> tuple[int, int]:
    """Return the length at a place, and the place after it."""
    number = frame[place]
    if not 0 < number <= ONE_BYTE_MAX:
        raise ValueError("a length of several bytes")
    return number - 1, place + 1


FIRST_TRANSACTIONAL = 3

_BEFORE_CLIENT_ID = 8
_TIMEOUT_BYTES = _INDEX_BYTES = INT32.size

TEXT_BYTES_MAX = 2**15 - 1
"""Kafka's own limit for a string in versions that are not flexible."""

HELD_BYTES_MAX = 2**20 + 2**16
"""A request up to this size is held until it is complete, so a refused one gets a response. By default, Java's clients
send 1 MiB at most, and librdkafka's about as much. If a larger one is refused, the connection is closed."""

Step = tuple[bool, int]
"""Whether to skip the next bytes, and their number."""

Steps = Generator[Step, bytes, None]


def acks_of(head: memoryview, version: int) -> int | None:
    """Return the number of acknowledgements that a Produce request requires. With 0 it has no response.

    Args:
        head: The part of the frame that has arrived, without the length.

    Returns:
        None if more of the frame is needed.

    Raises:
        Malformed: The request cannot be read, or a part of `HELD_BYTES_MAX` does not contain the number.
    """
    produce = Produce(version)
    produce.feed(head)
    if produce.acks is None and len(head) >= HELD_BYTES_MAX:
        raise Malformed("a Produce request does not contain its acknowledgements at its beginning")
    return produce.acks


class Produce:
    """One request. `feed` reads its content piece by piece, without its length.

    Attributes:
        transactional_id: The id of the request's transaction; None without one.
        acks: The number of required acknowledgements, with 0 for no response; None before it has been read.
        topics: The partitions by topic that have been read so far.
    """

    API_KEY: ClassVar[int] = ProduceRequest.API_KEY
    name: ClassVar[str] = ProduceRequest.name

    def __init__(self, version: int) -> None:
        self.version = version
        self.transactional_id: str | None = None
        self.acks: int | None = None
        self.topics: dict[str, list[int]] = {}
        self._elements_left = ELEMENTS_MAX
        self._is_flexible = ProduceRequest.flexible_version_q(version)
        self._steps = self._read()
        self._is_skipping, self._wanted = next(self._steps)
        self._part = bytearray()
        self.is_whole = False
        """Whether the request has been read completely."""

    @classmethod
    def of(cls, frame: bytes | memoryview, version: int) -> "Produce":
        """Read a complete request.

        Raises:
            Malformed: The request cannot be read, or ends too early.
        """
        produce = cls(version)
        produce.feed(frame)
        if not produce.is_whole:
            raise Malformed(f"Produce, version {version}, cannot be read: {TOO_SHORT}")
        return produce

    def feed(self, piece: bytes | bytearray | memoryview) -> None:
        """Read the next piece.

        Raises:
            Malformed: The piece cannot be read.
        """
        position, end = 0, len(piece)
        while not self.is_whole and (position < end or not self._wanted):
            size = min(self._wanted, end - position)
            if not self._is_skipping:
                self._part += piece[position : position + size]
            position += size
            self._wanted -= size
            if not self._wanted:
                self._resume()

    def _resume(self) -> None:
        part = bytes(self._part)
        self._part.clear()
        try:
            self._is_skipping, self._wanted = self._steps.send(part)
        except StopIteration:
            self.is_whole = True

    def _read(self) -> Steps:
        yield True, _BEFORE_CLIENT_ID
        yield from self._skip((yield from self._number(INT16)))
        if self._is_flexible:
            yield from self._skip_tags()
        if self.version >= FIRST_TRANSACTIONAL:
            self.transactional_id = yield from self._text()
        self.acks = yield from self._number(INT16)
        yield True, _TIMEOUT_BYTES
        for _ in range((yield from self._elements())):
            yield from self._topic()
        if self._is_flexible:
            yield from self._skip_tags()

    def _topic(self) -> Steps:
        name = yield from self._text()
        if name is None:
            raise Malformed("a topic in a Produce has null as its name")
        partitions = self.topics.setdefault(name, [])
        for _ in range((yield from self._elements())):
            partitions.append((yield from self._number(INT32)))
            yield from self._skip((yield from self._length(INT32)))
            if self._is_flexible:
                yield from self._skip_tags()
        if self._is_flexible:
            yield from self._skip_tags()

    # -- pieces of the protocol ----------------------------------------------------------------------------------------

    def _number(self, form: Struct) -> Generator[Step, bytes, int]:
        (number,) = form.unpack((yield False, form.size))
        return int(number)

    def _varint(self) -> Generator[Step, bytes, int]:
        value = 0
        for place in range(VARINT_BYTES_MAX):
            (byte,) = yield False, 1
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise Malformed("a number in a Produce does not end")

    def _length(self, form: Struct) -> Generator[Step, bytes, int]:
        """Read a length or a count. A value below 0 stands for null."""
        return (yield from self._varint()) - 1 if self._is_flexible else (yield from self._number(form))

    def _text(self) -> Generator[Step, bytes, str | None]:
        length = yield from self._length(INT16)
        if length < 0:
            return None
        if length > TEXT_BYTES_MAX:
            raise Malformed("a name in a Produce is too long")
        try:
            return (yield False, length).decode()
        except UnicodeDecodeError:
            raise Malformed("a name in a Produce is not UTF-8") from None

    def _elements(self) -> Generator[Step, bytes, int]:
        count = yield from self._length(INT32)
        self._elements_left -= count
        if count < 0 or self._elements_left < 0:
            raise Malformed(f"a Produce has null for an array, or more than {ELEMENTS_MAX} elements")
        return count

    def _skip(self, length: int) -> Steps:
        if length > 0:
            yield True, length

    def _skip_tags(self) -> Steps:
        tags = yield from self._varint()
        self._elements_left -= tags
        if self._elements_left < 0:
            raise Malformed(f"a Produce has more than {ELEMENTS_MAX} elements")
        for _ in range(tags):
            yield from self._varint()
            yield from self._skip((yield from self._varint()))
