"""The reader of binary fields: each bound at it and beyond it, and arbitrary bytes."""

from collections.abc import Callable
from contextlib import suppress
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.base.binary import TAGS_MAX, VARINT_BYTES_MAX, Malformed, Reader

READS: dict[str, tuple[Callable[[Reader], Any], bytes, Any]] = {
    "bool": (Reader.bool, b"\1", True),
    "int8": (Reader.int8, b"\xff", -1),
    "int16": (Reader.int16, b"\xff\xfe", -2),
    "uint16": (Reader.uint16, b"\xff\xfe", 65_534),
    "int32": (Reader.int32, b"\xff\xff\xff\xfd", -3),
    "int64": (Reader.int64, pack(">q", -(2**63)), -(2**63)),
    "float64": (Reader.float64, pack(">d", 1.5), 1.5),
    "uuid": (Reader.uuid, bytes(range(16)), bytes(range(16))),
    "varint": (Reader.varint, b"\xac\x02", 300),
    "compact length": (Reader.compact_length, b"\x02", 1),
    "text": (Reader.text, b"\0\3a\xc3\xb1", "añ"),
    "nullable text": (Reader.nullable_text, b"\0\1a", "a"),
    "nullable data": (Reader.nullable_data, b"\0\0\0\2\xff\0", b"\xff\0"),
    "texts": (Reader.texts, b"\0\0\0\2\0\1a\0\0", ["a", ""]),
    "int32s": (Reader.int32s, b"\0\0\0\2\0\0\0\1\xff\xff\xff\xff", [1, -1]),
    "tags": (Reader.skip_tags, b"\2\0\1x\5\0", None),
}


@pytest.mark.parametrize(("read", "data", "value"), READS.values(), ids=READS)
def test_each_value_is_read_whole_or_is_malformed(read: Callable[[Reader], Any], data: bytes, value: Any):
    reader = Reader(b"-" + data + b"-", 1)
    assert (read(reader), reader.position, reader.is_at_end) == (value, 1 + len(data), False)
    reader = Reader(data)
    assert (read(reader), reader.is_at_end) == (value, True)
    for end in range(len(data)):
        with pytest.raises(Malformed, match=r"^it ends too early"):
            read(Reader(data[:end]))


@given(st.binary(max_size=40), st.lists(st.sampled_from([read for read, _, _ in READS.values()]), max_size=6))
def test_arbitrary_bytes_raise_nothing_else(data: bytes, reads: list[Callable[[Reader], Any]]):
    reader = Reader(data)
    with suppress(Malformed):
        for read in reads:
            read(reader)
    assert reader.position <= len(data)


@pytest.mark.parametrize(("value", "data"), [
    (0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (2**14 - 1, b"\xff\x7f"), (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    (2**35 - 1, b"\xff\xff\xff\xff\x7f"),
])  # fmt: skip
def test_varints_have_seven_bits_in_each_byte(value: int, data: bytes):
    assert Reader(data).varint() == value


def test_length_of_varints_is_bounded():
    assert Reader(b"\xff" * (VARINT_BYTES_MAX - 1) + b"\x01").varint() == 2**29 - 1
    with pytest.raises(Malformed, match=f"does not end: it has more than {VARINT_BYTES_MAX} bytes"):
        Reader(b"\x80" * VARINT_BYTES_MAX + b"\x01").varint()


def test_null_is_minus_one_where_a_value_may_be_null():
    assert Reader(b"\xff\xff").nullable_text() is None
    assert Reader(b"\xff\xff\xff\xff").nullable_data() is None
    for read, data in ((Reader.text, b"\xff\xff"), (Reader.texts, b"\xff" * 4), (Reader.int32s, b"\xff" * 4)):
        with pytest.raises(Malformed, match="a required value in it is null"):
            read(Reader(data))


@pytest.mark.parametrize("read", [Reader.nullable_text, Reader.nullable_data, Reader.texts, Reader.int32s])
def test_lengths_below_minus_one_are_malformed(read: Callable[[Reader], Any]):
    data = b"\xff\xfe" if read == Reader.nullable_text else b"\xff\xff\xff\xfe"
    with pytest.raises(Malformed, match="a length in it is below zero"):
        read(Reader(data + bytes(9)))


def test_text_is_utf_8():
    with pytest.raises(Malformed, match="a string in it is not UTF-8"):
        Reader(b"\0\1\xff").text()


@pytest.mark.parametrize("size_min", [1, 6])
def test_counts_are_bounded_by_the_bytes_that_are_left(size_min: int):
    assert Reader(bytes(12), 12 - 2 * size_min).elements(2, size_min) == range(2)
    with pytest.raises(Malformed, match="a count is beyond the data"):
        Reader(bytes(12), 12 - 2 * size_min).elements(3, size_min)


def test_numbers_are_bounded_by_the_bytes_that_are_left():
    assert Reader(b"\0\1\xff\xff").numbers(2, "h", 2) == [1, -1]
    with pytest.raises(Malformed, match="a count is beyond the data"):
        Reader(b"\0\1\xff").numbers(2, "h", 2)


def test_elements_and_tags_are_bounded_altogether():
    reader = Reader(bytes(99), elements_max=5)
    assert (reader.elements(3), reader.tags(2)) == (range(3), range(2))
    with pytest.raises(Malformed, match="it has more than 5 elements"):
        reader.elements(1)
    with pytest.raises(Malformed, match="it has more than 5 elements"):
        Reader(bytes(99), elements_max=5).tags(6)


def test_tags_of_a_structure_are_bounded():
    assert Reader(bytes(2 * TAGS_MAX)).tags(TAGS_MAX) == range(TAGS_MAX)
    with pytest.raises(Malformed, match="beyond the data"):
        Reader(bytes(2 * TAGS_MAX - 1)).tags(TAGS_MAX)
    with pytest.raises(Malformed, match=f"more than {TAGS_MAX} tagged fields"):
        Reader(bytes(9 * TAGS_MAX)).tags(TAGS_MAX + 1)
