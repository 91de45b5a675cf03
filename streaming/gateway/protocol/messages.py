"""Messages of Kafka's protocol: requests are read from frames, and responses are written to frames.

The messages are kafka-python's classes, and its schemas list the fields of each version. It also writes the responses.
This module reads the requests itself, by those schemas, because any client may send any bytes. kafka-python accepts a
string that ends too early, and null in each field; it reads a varint of any length, copies the rest of the frame for
each unknown tag, and reads a million empty elements one by one. This module raises an error at the first wrong byte.
Its time is bounded for any frame: it reads each byte once, and `ELEMENTS_MAX` elements at most.

Source: Kafka's protocol guide (request header versions 1 and 2, response header versions 0 and 1), KIP-482.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct, error
from typing import Any, NamedTuple, cast

from kafka.protocol.api_message import ApiMessage

from coordinator.base.limits import PARTITIONS_PER_REQUEST_MAX
from streaming.gateway.protocol.schemas import Field, Structure, structure_of

ELEMENTS_MAX = 2 * PARTITIONS_PER_REQUEST_MAX
"""The maximum number of elements and unknown tags of one message: all possible partitions, each in its own topic."""

VARINT_BYTES_MAX = 5

TOO_SHORT = "it ends too early"

API_VERSIONS = 18
"""Its response has the oldest header in every version, because clients read it before they know the versions."""

INT16, INT32 = Struct(">h"), Struct(">i")

CLIENT_ID_AT = 2 * INT16.size + INT32.size
"""The position of the client id in a request's header. Only tags may follow it."""

_RESPONSE_HEADER, _FLEXIBLE_RESPONSE_HEADER = Struct(">ii"), Struct(">iix")


class Malformed(ValueError):
    """A frame is not a valid message; the text has the reason."""


class Header(NamedTuple):
    """The header of a request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


def read_header(frame: bytes) -> Header:
    """Read the header of a request.

    Args:
        frame: A complete frame without its length.

    Raises:
        Malformed: The frame ends within the header, or the client id is not UTF-8.
    """
    reader = FrameReader(frame)
    return Header(reader.fixed(INT16), reader.fixed(INT16), reader.fixed(INT32), reader.text())


def decode(kind: Any, frame: bytes, header: Header) -> Any:
    """Read the message of a request. Bytes after the message are ignored, as in Kafka.

    Args:
        kind: The class of the message (`HeartbeatRequest`).
        frame: A complete frame without its length.
        header: The header of this frame.

    Raises:
        Malformed: The version does not exist, the frame ends too early, a required value is null, a string is not
            UTF-8, or the message has more than `ELEMENTS_MAX` elements.
    """
    try:
        read = _message(kind, header.version)
        reader = FrameReader(frame, CLIENT_ID_AT)
        reader.text()
        if kind.flexible_version_q(header.version):
            reader.skip_tags()
        return read(reader)
    except Malformed as malformed:
        raise Malformed(f"{kind.name}, version {header.version}, cannot be read: {malformed}") from None


def encode(response: ApiMessage, header: Header) -> bytes:
    """Return the frame of a response, with its length and its header.

    Args:
        response: A response in the version of the request (`HeartbeatResponse(version=4, ...)`).
        header: The header of the request.
    """
    body = cast(bytes, response.encode())
    is_flexible = response.flexible_version_q(response.version) and response.API_KEY != API_VERSIONS
    head = _FLEXIBLE_RESPONSE_HEADER if is_flexible else _RESPONSE_HEADER
    return head.pack(head.size - INT32.size + len(body), header.correlation_id) + body


# -- reading -----------------------------------------------------------------------------------------------------------


class FrameReader:
    """A reader of a frame from front to back. Each method reads the next value, or raises `Malformed`.

    Args:
        position: The index of the first byte to read.
    """

    __slots__ = ("_frame", "_left", "_position")

    def __init__(self, frame: bytes, position: int = 0) -> None:
        self._frame, self._position, self._left = frame, position, ELEMENTS_MAX

    @property
    def position(self) -> int:
        """The index of the next byte to read."""
        return self._position

    def fixed(self, form: Struct) -> Any:
        """Read a value of fixed size."""
        try:
            (value,) = form.unpack_from(self._frame, self._position)
        except error:
            raise Malformed(TOO_SHORT) from None
        self._position += form.size
        return value

    def varint(self) -> int:
        """Read an unsigned number of up to five bytes."""
        position = self._position
        piece = self._frame[position : position + VARINT_BYTES_MAX]
        value = shift = 0
        for byte in piece:
            position += 1
            if byte < 0x80:
                self._position = position
                return value | byte << shift
            value |= (byte & 0x7F) << shift
            shift += 7
        raise Malformed(TOO_SHORT if len(piece) < VARINT_BYTES_MAX else "a number in it does not end")

    def text(self) -> str | None:
        """Read a string; return None for null."""
        return self._text(self.fixed(INT16))

    def compact_text(self) -> str | None:
        """Read a string in the form of flexible versions."""
        return self._text(self.varint() - 1)

    def data(self) -> bytes | None:
        """Read bytes; return None for null."""
        return self._data(self.fixed(INT32))

    def compact_data(self) -> bytes | None:
        """Read bytes in the form of flexible versions."""
        return self._data(self.varint() - 1)

    def elements(self) -> range | None:
        """Read the number of elements of an array; return None for null."""
        return self._elements(self.fixed(INT32))

    def compact_elements(self) -> range | None:
        """Read the number of elements of an array in the form of flexible versions."""
        return self._elements(self.varint() - 1)

    def skip_tags(self) -> None:
        """Skip the tagged fields at the end of a structure. The gateway uses no tagged field."""
        if tags := self.varint():
            for _ in self._elements(tags) or ():
                self.varint()
                self._data(self.varint())

    def _data(self, length: int) -> bytes | None:
        if length < 0:
            return None
        start, end = self._position, self._position + length
        if end > len(self._frame):
            raise Malformed(TOO_SHORT)
        self._position = end
        return self._frame[start:end]

    def _text(self, length: int) -> str | None:
        data = self._data(length)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            raise Malformed("a string in it is not UTF-8") from None

    def _elements(self, count: int) -> range | None:
        if count < 0:
            return None
        self._left -= count
        if self._left < 0:
            raise Malformed(f"it has more than {ELEMENTS_MAX} elements")
        return range(count)


# -- reading by a schema -----------------------------------------------------------------------------------------------

Reader = Callable[[FrameReader], Any]

NUMBERS = {
    "bool": Struct("?"),
    "int8": Struct(">b"),
    "int16": INT16,
    "int32": INT32,
    "int64": Struct(">q"),
    "float64": Struct(">d"),
    "uuid": Struct("16s"),
}

READERS: dict[str, tuple[Reader, Reader]] = {
    # type                    form              form in flexible versions
    "string":                   (FrameReader.text,     FrameReader.compact_text),
    "bytes":                    (FrameReader.data,     FrameReader.compact_data),
    "array":                    (FrameReader.elements, FrameReader.compact_elements),
}  # fmt: skip


@cache
def _message(kind: Any, version: int) -> Reader:
    if not 0 <= version <= kind.max_version:
        raise Malformed("the version does not exist")
    return _structure(structure_of(kind, version))


def _structure(structure: Structure) -> Reader:
    fields = [(field.name, _field(field, structure.is_flexible)) for field in structure.fields]
    new, is_flexible = structure.new, structure.is_flexible

    def read(reader: FrameReader) -> Any:
        message = new()
        for name, field in fields:
            setattr(message, name, field(reader))
        if is_flexible:
            reader.skip_tags()
        return message

    return read


def _field(field: Field, is_flexible: bool) -> Reader:
    if form := NUMBERS.get(field.type):
        return lambda reader: reader.fixed(form)
    read = READERS[field.type][is_flexible]
    if not field.is_nullable:
        read = _something(read)
    if field.elements is None:
        return read
    if isinstance(field.elements, Structure):
        return _array(read, _structure(field.elements))
    return _array(read, _field(field.elements, is_flexible))


def _something(read: Reader) -> Reader:
    def read_something(reader: FrameReader) -> Any:
        value = read(reader)
        if value is None:
            raise Malformed("a required value in it is null")
        return value

    return read_something


def _array(elements: Reader, element: Reader) -> Reader:
    def read(reader: FrameReader) -> list[Any] | None:
        count = elements(reader)
        return None if count is None else [element(reader) for _ in count]

    return read
