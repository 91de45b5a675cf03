"""The structures of records, from definitions in the form of Kafka's message files."""

from typing import Any

import pytest

from coordinator.base.binary import Reader
from streaming.kafka.structures import Field, reader_of
from streaming.observe.schemas import ZERO_ID, structures_of

DEFINITION: dict[str, Any] = {
    "validVersions": "0-3",
    "flexibleVersions": "2+",
    "fields": [
        {"name": "first", "type": "int8", "versions": "0+"},
        {"name": "OnlyOneMs", "type": "int64", "versions": "1", "default": -1},
        {"name": "OneAndTwo", "type": "string", "versions": "1-2", "nullableVersions": "2+", "default": "null"},
        {"name": "Tagged", "type": "[]int32", "versions": "3+", "taggedVersions": "3+", "tag": 0},
        {"name": "Id", "type": "uuid", "versions": "3+", "taggedVersions": "3+", "tag": 1},
        {"name": "Data", "type": "bytes", "versions": "9+"},
        {"name": "Text", "type": "string", "versions": "9+"},
        {"name": "Pairs", "type": "[]Pair", "versions": "0+"},
        {"name": "One", "type": "One", "versions": "3+", "nullableVersions": "3+", "default": None,
         "fields": [{"name": "Value", "type": "int8", "versions": "0+"}]},
    ],
    "commonStructs": [{"name": "Pair", "versions": "0+", "fields": [
        {"name": "Key", "type": "int8", "versions": "0+"},
        {"name": "Since2", "type": "int8", "versions": "2+", "default": 7},
    ]}],
}  # fmt: skip

DEFAULTS = {
    "only_one_ms": -1, "one_and_two": None, "tagged": (), "id": ZERO_ID, "data": b"", "text": "", "one": None,
}  # fmt: skip


@pytest.mark.parametrize(("version", "data", "values"), [
    (0, b"\5\0\0\0\1\6", {"pairs": [{"key": 6, "since2": 7}]}),
    (1, b"\5" + bytes(8) + b"\0\1a\0\0\0\0", {"only_one_ms": 0, "one_and_two": "a", "pairs": []}),
    (2, b"\5\0\2\6\1\0\0", {"one_and_two": None, "pairs": [{"key": 6, "since2": 1}]}),
    (3, b"\5\1\1\2\0\1\0\5\2\0\0\0\1", {"pairs": [], "one": {"value": 2}, "tagged": [1]}),
    (3, b"\5\1\xff\0", {"pairs": []}),
])  # fmt: skip
def test_each_version_has_its_fields_and_the_defaults_of_the_others(
    version: int, data: bytes, values: dict[str, Any]
) -> None:
    reader = Reader(data)
    assert reader_of(structures_of(DEFINITION)[version])(reader) == {"first": 5, **DEFAULTS, **values}
    assert reader.is_at_end


def test_a_structure_lists_the_fields_of_its_version() -> None:
    versions = structures_of(DEFINITION)
    assert [each.is_flexible for each in versions] == [False, False, True, True]
    assert [[field.name for field in each.fields] for each in versions] == [
        ["first", "pairs"],
        ["first", "only_one_ms", "one_and_two", "pairs"],
        ["first", "one_and_two", "pairs"],
        ["first", "tagged", "id", "pairs", "one"],
    ]
    assert versions[1].fields[2] == Field("one_and_two", "string", False)
    assert versions[2].fields[1] == Field("one_and_two", "string", True)
    assert versions[3].fields[1] == Field("tagged", "array", False, Field("tagged", "int32"), 0)
