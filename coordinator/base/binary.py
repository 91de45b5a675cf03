"""A reader of the fields of Kafka's binary format.

Any client may send any bytes. Every length and every count is checked against the bytes that are left, so a reader
reads each byte once, and reserves no memory for elements that are not there. All that it raises is `Malformed`.

Source: Kafka's protocol guide (primitive types), ByteBufferAccessor; KIP-482 (flexible versions).
"""

import sys
from collections.abc import Callable
from struct import Struct, error, unpack_from
from typing import Any, NoReturn

VARINT_BYTES_MAX = 5
"""The longest varint: 32 bits, 7 in each byte."""

TAGS_MAX = 1_000
"""Tagged fields of one structure; Kafka's own have four at most. A tagged field takes two bytes or more."""

INT16, INT32 = Struct(">h"), Struct(">i")

NULL = -1
"""The length or the count of a value that is null."""

TOO_SHORT = "it ends too early"


class Malformed(ValueError):
    """Bytes do not have the form that they should have; the text has the reason."""


def _number(form: Struct) -> Callable[["Reader"], Any]:
    """Return the method that reads a value of fixed size."""
    unpack, size = form.unpack_from, form.size

    def read(reader: "Reader") -> Any:
        try:
            (value,) = unpack(reader.data, reader.position)
        except error:
            raise Malformed(TOO_SHORT) from None
        reader.position += size
        return value

    return read


class Reader:
    """A reader of bytes from front to back. Each method reads the next value, or raises `Malformed`.

    Args:
        data: Big-endian fields.
        position: The index of the first byte to read.
        elements_max: The maximum number of elements and tagged fields altogether.
    """

    __slots__ = ("_elements_left", "_elements_max", "data", "position")

    def __init__(self, data: bytes, position: int = 0, elements_max: int = sys.maxsize) -> None:
        self.data, self.position = data, position
        self._elements_left = self._elements_max = elements_max

    @property
    def is_at_end(self) -> bool:
        """Whether all bytes are read."""
        return self.position >= len(self.data)

    # -- numbers -------------------------------------------------------------------------------------------------------

    bool = _number(Struct("?"))
    int8 = _number(Struct(">b"))
    int16 = _number(INT16)
    uint16 = _number(Struct(">H"))
    int32 = _number(INT32)
    int64 = _number(Struct(">q"))
    float64 = _number(Struct(">d"))
    uuid = _number(Struct("16s"))

    def varint(self) -> int:
        """Read an unsigned number of up to `VARINT_BYTES_MAX` bytes."""
        shift = 0
        try:
            byte = value = self.data[self.position]
            self.position += 1
            while byte >= 0x80:
                shift += 7
                if shift == 7 * VARINT_BYTES_MAX:
                    raise Malformed(f"a number in it does not end: it has more than {VARINT_BYTES_MAX} bytes")
                byte = self.data[self.position]
                self.position += 1
                value += (byte - 1) << shift  # without the highest bit of the byte before
        except IndexError:
            raise Malformed(TOO_SHORT) from None
        return value

    def compact_length(self) -> int:
        """Read a length or a count in the form of flexible versions: as a varint, plus one."""
        return self.varint() - 1

    # -- bytes and strings ---------------------------------------------------------------------------------------------

    def read(self, length: int) -> bytes:
        """Read some bytes."""
        start, end = self.position, self.position + length
        if not start <= end <= len(self.data):
            _refuse(length, TOO_SHORT)
        self.position = end
        return self.data[start:end]

    def string(self, length: int) -> str:
        """Read a string of some bytes."""
        start, end = self.position, self.position + length
        if not start <= end <= len(self.data):
            _refuse(length, TOO_SHORT)
        self.position = end
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise Malformed("a string in it is not UTF-8") from None

    def text(self) -> str:
        """Read a string."""
        return self.string(self.int16())

    def nullable_text(self) -> str | None:
        """Read a string; return None for null."""
        length = self.int16()
        return None if length == NULL else self.string(length)

    def nullable_data(self) -> bytes | None:
        """Read bytes; return None for null."""
        length = self.int32()
        return None if length == NULL else self.read(length)

    # -- arrays --------------------------------------------------------------------------------------------------------

    def elements(self, count: int, size_min: int = 1) -> range:
        """Check a count of elements. Return the range of the elements.

        Args:
            size_min: The least number of bytes that an element takes.
        """
        self._elements_left -= count
        if self._elements_left < 0:
            raise Malformed(f"it has more than {self._elements_max} elements")
        if not 0 <= count * size_min <= len(self.data) - self.position:
            _refuse(count, f"{TOO_SHORT}: a count is beyond the data")
        return range(count)

    def texts(self) -> list[str]:
        """Read an array of strings."""
        return [self.text() for _ in self.elements(self.int32(), 2)]

    def int32s(self) -> list[int]:
        """Read an array of numbers."""
        return self.numbers(self.int32(), "i", 4)

    def numbers(self, count: int, code: str, size: int) -> list[Any]:
        """Read some numbers of one type.

        Args:
            code: Their type, as `struct` names it.
            size: The bytes of each.
        """
        self.elements(count, size)
        values = unpack_from(f">{count}{code}", self.data, self.position)
        self.position += size * count
        return list(values)

    # -- tagged fields -------------------------------------------------------------------------------------------------

    def tags(self, count: int) -> range:
        """Check a count of tagged fields at the end of a structure. Return the range of the fields."""
        fields = self.elements(count, 2)
        if count > TAGS_MAX:
            raise Malformed(f"a structure in it has more than {TAGS_MAX} tagged fields")
        return fields

    def skip_tags(self) -> None:
        """Skip the tagged fields at the end of a structure."""
        if count := self.varint():
            for _ in self.tags(count):
                self.varint()
                self.read(self.varint())


def _refuse(length: int, why: str) -> NoReturn:
    """Raise the error of a length or a count that is not possible."""
    if length == NULL:
        raise Malformed("a required value in it is null")
    raise Malformed("a length in it is below zero" if length < 0 else why)
