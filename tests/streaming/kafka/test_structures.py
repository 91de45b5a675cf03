"""The reading of structures: versions, nullable and tagged fields, and bounds."""

import operator
from struct import pack
from typing import Any

import pytest

from coordinator.base.binary import TAGS_MAX, Malformed, Reader
from streaming.kafka.structures import Field, Structure, reader_of


def structure(*fields: Field, is_flexible: bool = True, **defaults: Any) -> Structure:
    return Structure(fields, is_flexible, defaults.copy, operator.setitem)


def read(wanted: Structure, data: bytes, elements_max: int = 99) -> Any:
    reader = Reader(data, elements_max=elements_max)
    found = reader_of(wanted)(reader)
    assert reader.is_at_end
    return found


TEXT, NUMBER = Field("text", "string"), Field("number", "int16")
INNER = structure(NUMBER)
CASES: dict[str, tuple[Field, bool, bytes, Any]] = {
    # what                     field                                       flexible    bytes                 value
    "a number":                (NUMBER,                                    False, b"\0\3",              3),
    "a string":                (TEXT,                                      False, b"\0\1a",             "a"),
    "a compact string":        (TEXT,                                      True,  b"\2a",               "a"),
    "a null string":           (Field("f", "string", True),                False, b"\xff\xff",          None),
    "a compact null string":   (Field("f", "string", True),                True,  b"\0",                None),
    "bytes":                   (Field("f", "bytes"),                       False, b"\0\0\0\1\xff",      b"\xff"),
    "compact null bytes":      (Field("f", "bytes", True),                 True,  b"\0",                None),
    "an array of strings":     (Field("f", "array", False, TEXT),          False, b"\0\0\0\1\0\1a",     ["a"]),
    "a compact array":         (Field("f", "array", False, TEXT),          True,  b"\3\2a\1",           ["a", ""]),
    "an array of numbers":     (Field("f", "array", False, NUMBER),        True,  b"\3\0\1\xff\xff",    [1, -1]),
    "an array of ids":         (Field("f", "array", False, Field("", "uuid")), True, b"\2" + bytes(16), [bytes(16)]),
    "a null array":            (Field("f", "array", True, NUMBER),         True,  b"\0",                None),
    "an array of structures":  (Field("f", "array", False, INNER),         True,  b"\2\0\5\0",         [{"number": 5}]),
    "a structure":             (Field("f", "struct", False, INNER),        True,  b"\0\5\0",            {"number": 5}),
    "a nullable structure":    (Field("f", "struct", True, INNER),         True,  b"\1\0\5\0",          {"number": 5}),
    "one marked with zero":    (Field("f", "struct", True, INNER),         True,  b"\0\0\5\0",          {"number": 5}),
    "a null structure":        (Field("f", "struct", True, INNER),         True,  b"\xff",              None),
}  # fmt: skip


@pytest.mark.parametrize(("field", "is_flexible", "data", "value"), CASES.values(), ids=CASES)
def test_each_type_is_read_whole_or_is_malformed(field: Field, is_flexible: bool, data: bytes, value: Any) -> None:
    wanted = structure(field, is_flexible=is_flexible)
    whole = data + b"\0" * is_flexible
    assert read(wanted, whole) == {field.name: value}
    for end in range(len(whole)):
        with pytest.raises(Malformed, match="ends too early"):
            read(wanted, whole[:end])


@pytest.mark.parametrize("field", [TEXT, Field("f", "bytes"), Field("f", "array", False, NUMBER)])
def test_null_is_malformed_where_a_value_is_required(field: Field) -> None:
    with pytest.raises(Malformed, match="a required value in it is null"):
        read(structure(field), b"\0\0")
    with pytest.raises(Malformed, match="a required value in it is null"):
        read(structure(field, is_flexible=False), b"\xff\xff\xff\xff")


@pytest.mark.parametrize("field", [Field("f", "string", True), Field("f", "array", True, TEXT)])
def test_a_length_below_minus_one_is_malformed(field: Field) -> None:
    data = b"\xff\xfe" if field.type == "string" else b"\xff\xff\xff\xfe"
    with pytest.raises(Malformed, match="a length in it is below zero"):
        read(structure(field, is_flexible=False), data)


TAGGED = structure(
    NUMBER,
    Field("some", "array", True, NUMBER, tag=0),
    Field("inner", "struct", True, INNER, tag=3),
    some=(),
    inner=None,
    absent=-1,
)


@pytest.mark.parametrize(("tags", "values"), [
    (b"\0", {}),
    (b"\1\0\3\2\0\7", {"some": [7]}),
    (b"\1\0\1\0", {"some": None}),
    (b"\1\3\4\1\0\5\0", {"inner": {"number": 5}}),
    (b"\1\3\1\0", {"inner": None}),
    (b"\3\0\1\1\2\2xy\3\4\1\0\5\0", {"some": [], "inner": {"number": 5}}),
])  # fmt: skip
def test_tagged_fields_have_defaults_and_unknown_ones_are_skipped(tags: bytes, values: dict[str, Any]) -> None:
    expected = {"number": 1, "some": (), "inner": None, "absent": -1, **values}
    assert read(TAGGED, b"\0\1" + tags) == expected
    assert read(TAGGED, b"\0\1\0")["some"] == (), "defaults are not changed by what is read"


@pytest.mark.parametrize("size", [2, 4])
def test_a_tagged_field_has_the_length_of_its_size(size: int) -> None:
    with pytest.raises(Malformed, match="the tagged field some has another length than its size"):
        read(TAGGED, b"\0\1\1\0" + bytes([size]) + b"\2\0\7\0")


def test_a_size_of_a_tagged_field_is_bounded_by_the_bytes() -> None:
    with pytest.raises(Malformed, match="ends too early"):
        read(TAGGED, b"\0\1\1\7\4abc")


def test_tagged_fields_are_bounded() -> None:
    def tags(count: int) -> bytes:
        return b"\0\1" + bytes([count & 0x7F | 0x80, count >> 7]) + b"\7\0" * count

    assert read(TAGGED, tags(TAGS_MAX), TAGS_MAX)["number"] == 1
    with pytest.raises(Malformed, match=f"more than {TAGS_MAX} tagged fields"):
        read(TAGGED, tags(TAGS_MAX + 1), 2 * TAGS_MAX)
    with pytest.raises(Malformed, match=f"more than {TAGS_MAX - 1} elements"):
        read(TAGGED, tags(TAGS_MAX), TAGS_MAX - 1)


@pytest.mark.parametrize("elements", [NUMBER, TEXT, structure(TEXT, is_flexible=False)])
def test_elements_are_bounded(elements: Field | Structure) -> None:
    """Of all arrays of a message together, and by the bytes that are left."""
    arrays = structure(Field("a", "array", False, elements), Field("b", "array", False, elements), is_flexible=False)
    some = pack(">i", 2) + bytes(4)
    assert len(read(arrays, 2 * some, 4)["b"]) == 2
    with pytest.raises(Malformed, match="more than 3 elements"):
        read(arrays, 2 * some, 3)
    with pytest.raises(Malformed, match="a count is beyond the data"):
        read(arrays, pack(">i", 5) + bytes(4))
