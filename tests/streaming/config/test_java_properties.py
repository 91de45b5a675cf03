"""Tests of Java properties files."""

import pytest

from streaming.config.spellings import read_properties

LINES: list[tuple[str, dict[str, str]]] = [
    ("a=1", {"a": "1"}),
    ("a = 1 ", {"a": "1 "}),
    ("a: 1", {"a": "1"}),
    ("a 1", {"a": "1"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("# a=1\n! b=2\n\n  c=3", {"c": "3"}),
    ("a=1\\\n   2\\\n3", {"a": "123"}),
    ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("a\\=b=c\\:d", {"a=b": "c:d"}),
    ("a=\\u00e9\\t\\n", {"a": "é\t\n"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=b=c", {"a": "b=c"}),
    ("a=# no comment", {"a": "# no comment"}),
    ("a=1\\", {"a": "1"}),
]


@pytest.mark.parametrize(("text", "properties"), LINES)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert read_properties(text) == properties
