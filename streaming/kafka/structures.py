"""Structures of Kafka's messages and records: their fields in one version, and the function that reads them.

`reader_of` turns the fields of a structure into a function once. The function then reads the structure from any bytes,
so a message costs no look-up of versions and types. Whatever the bytes are, it raises nothing but `Malformed`.

Source: Kafka's message definitions (clients/src/main/resources/common/message/README.md); KIP-482.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Union

from coordinator.base.binary import NULL, Malformed, Reader


class Field(NamedTuple):
    """A field of a structure, or an element of an array.

    Args:
        type: Kafka's name (`string`, `int32`), `array`, or `struct`.
        elements: The type of an array's elements, or the structure of a struct.
        tag: The number of a tagged field.
    """

    name: str
    type: str
    is_nullable: bool = False
    elements: Union["Field", "Structure", None] = None
    tag: int | None = None


class Structure(NamedTuple):
    """A message, a record, or an element that has fields itself, in one version.

    Args:
        fields: Without those that the version does not have. Tagged fields that are not listed are skipped.
        new: Returns a structure with defaults: of tagged fields, and of fields that the version does not have.
        store: Sets the value of a field of a structure.
    """

    fields: tuple[Field, ...]
    is_flexible: bool
    new: Callable[[], Any]
    store: Callable[[Any, str, Any], None]


Read = Callable[[Reader], Any]

NUMBERS: dict[str, Read] = {
    "bool": Reader.bool,
    "int8": Reader.int8,
    "int16": Reader.int16,
    "uint16": Reader.uint16,
    "int32": Reader.int32,
    "int64": Reader.int64,
    "float64": Reader.float64,
    "uuid": Reader.uuid,
}

ARRAYS = {"int16": ("h", 2), "int32": ("i", 4), "int64": ("q", 8)}
"""The numbers whose arrays are read at once: the code of `struct`, and the size of each."""

LENGTHS: dict[str, Callable[[Reader], int]] = {"string": Reader.int16, "bytes": Reader.int32, "array": Reader.int32}
"""How the length of a value is read, `NULL` for null. In flexible versions, it is a `compact_length`."""

CONTENTS: dict[str, Callable[[Reader, int], Any]] = {"string": Reader.string, "bytes": Reader.read}
"""How a value of a length is read."""


def reader_of(structure: Structure) -> Read:
    """Return the function that reads a structure."""
    _, is_flexible, new, store = structure
    fields = [(each.name, _field(each, is_flexible)) for each in structure.fields if each.tag is None]
    tagged = {each.tag: (each.name, _field(each, is_flexible)) for each in structure.fields if each.tag is not None}

    def read(reader: Reader) -> Any:
        found = new()
        for name, field in fields:
            store(found, name, field(reader))
        if is_flexible and (count := reader.varint()):
            for _ in reader.tags(count):
                read_tag(reader, found)
        return found

    def read_tag(reader: Reader, found: Any) -> None:
        tag, size = reader.varint(), reader.varint()
        start = reader.position
        reader.read(size)
        if tag in tagged:
            end, reader.position = reader.position, start
            name, field = tagged[tag]
            store(found, name, field(reader))
            if reader.position != end:
                raise Malformed(f"the tagged field {name} has another length than its size")

    return read


def _field(field: Field, is_flexible: bool) -> Read:
    if field.type in NUMBERS:
        return NUMBERS[field.type]
    if field.type == "struct":
        assert isinstance(field.elements, Structure)
        structure = reader_of(field.elements)
        if not field.is_nullable:
            return structure
        if field.tag is None:
            return lambda reader: None if reader.int8() < 0 else structure(reader)
        return lambda reader: structure(reader) if reader.varint() else None
    length = Reader.compact_length if is_flexible else LENGTHS[field.type]
    content = _array(field.elements, is_flexible) if field.elements else CONTENTS[field.type]

    def read_nullable(reader: Reader) -> Any:
        size = length(reader)
        return None if size == NULL else content(reader, size)

    return read_nullable if field.is_nullable else lambda reader: content(reader, length(reader))


def _array(elements: Field | Structure, is_flexible: bool) -> Callable[[Reader, int], Any]:
    if isinstance(elements, Field) and elements.type in ARRAYS:
        code, size = ARRAYS[elements.type]
        return lambda reader, count: reader.numbers(count, code, size)
    element = reader_of(elements) if isinstance(elements, Structure) else _field(elements, is_flexible)
    return lambda reader, count: [element(reader) for _ in reader.elements(count)]
