"""The decoder of the records of `__consumer_offsets`.

`decode` reads a record by the tables of `schemas`. Nearly all records are commits of version 3 or 4, for which
`_quick_commit` is written by hand. No bytes raise anything but `UnreadableRecord`.

Source: Kafka's CoordinatorRecordSerde; KIP-482 (flexible versions and tagged fields).
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from streaming.observe.schemas import KEYS, OFFSETS, VALUES, Field, FieldType, Kind, Many, Parts, Value

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "bhiq")
_KEY_START = struct.Struct(">hh")
_COMMIT_START = struct.Struct(">hqi")

VARINT_BYTES_MAX = 5
"""The longest variable-length number: 32 bits, 7 in each byte."""

TAGS_MAX = 1_000
"""Tagged fields of one struct; Kafka's own have four at most. A tag takes two bytes or more."""

ZERO_ID = bytes(16)
"""The topic id that stands for no id."""


class UnreadableRecord(ValueError):
    """A record that cannot be read; the text says why."""


class Commit(NamedTuple):
    """A committed offset.

    Args:
        expires_ms: Only in a record of version 1; else None.
        topic_id: None if the record has none.
    """

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None = None
    topic_id: bytes | None = None


class Entry(NamedTuple):
    """A record that is not a commit.

    Args:
        name: The member id or the pattern in the key; "" for a record of the whole group.
        value: The fields of the value; empty if the value is not read, None for a tombstone.
    """

    kind: Kind
    group: str
    name: str
    value: dict[str, Any] | None


class Forgotten(NamedTuple):
    """The tombstone of a committed offset."""

    group: str
    topic: str
    partition: int


class Foreign(NamedTuple):
    """A record of a type that is not known, such as of a later Kafka."""

    type: int


Decoded = Commit | Entry | Forgotten | Foreign


def decode(key: bytes | None, value: bytes | None) -> Decoded:
    """Return what a record says.

    Raises:
        UnreadableRecord: The key or the value does not have its form, or has a version that is not known.
    """
    if key is None:
        raise UnreadableRecord("the record has no key")
    if value is not None and (commit := _quick_commit(key, value)) is not None:
        return commit
    try:
        return _decode(key, value)
    except (struct.error, UnicodeDecodeError) as error:
        raise UnreadableRecord(f"its bytes end too early or are no text: {error}") from error


def group_of(key: bytes | None) -> str | None:
    """Return the group that a record's key names; None if the key cannot be read."""
    try:
        _, names = _names(Reader(key or b"", is_flexible=False))
    except (struct.error, ValueError):
        return None
    return names.get("group")


def _decode(key: bytes, value: bytes | None) -> Decoded:
    number, names = _names(Reader(key, is_flexible=False))
    if not names:
        return Foreign(number)
    kind = Kind(number)
    if kind in OFFSETS:
        if value is None:
            return Forgotten(names["group"], names["topic"], names["partition"])
        fields = _value(kind, VALUES[kind], value)
        return Commit(**names, **{"leader_epoch": -1, **fields})
    name = names.get("member") or names.get("pattern") or ""
    return Entry(kind, names["group"], name, None if value is None else _value_of(kind, value))


def _names(reader: "Reader") -> tuple[int, dict[str, Any]]:
    """Return the type of a key, and its fields; no fields for a type that is not known."""
    number = reader.int16()
    if number not in KEYS:
        return number, {}
    names = reader.parts(KEYS[Kind(number)], 0)
    reader.end("key")
    return number, names


def _value_of(kind: Kind, data: bytes) -> dict[str, Any]:
    return _value(kind, VALUES[kind], data) if kind in VALUES else {}


def _value(kind: Kind, table: Value, data: bytes) -> dict[str, Any]:
    reader = Reader(data, is_flexible=False)
    version = reader.int16()
    if not 0 <= version <= table.version_max:
        raise UnreadableRecord(f"a value of type {kind.value} has version {version}, which is not known")
    reader.is_flexible = version >= table.flexible_from
    fields = reader.parts(table.fields, version, is_whole=table.is_whole)
    if table.is_whole:
        reader.end("value")
    return fields


def _quick_commit(key: bytes, value: bytes) -> Commit | None:
    """Return a commit of version 3 or 4; None for any other record and for one that is unusual in any way."""
    try:
        kind, length = _KEY_START.unpack_from(key)
        version, offset, leader_epoch = _COMMIT_START.unpack_from(value)
        if kind != 1 or length < 0:
            return None
        end = 4 + length
        group, (length,) = key[4:end], _INT16.unpack_from(key, end)
        start, end = end + 2, end + 2 + length
        if length < 0 or len(key) != end + 4:
            return None
        topic, (partition,) = key[start:end], _INT32.unpack_from(key, end)
        topic_id = None
        if version == 4:
            end = 14 + value[14]  # the length of the metadata plus one, which is the length of one byte before it
            if not 0 < value[14] < 128 or len(value) not in (end + 9, end + 27):
                return None
            metadata, (committed_ms,) = value[15:end], _INT64.unpack_from(value, end)
            tags = value[end + 8 : end + 11]
            if tags == b"\x01\x00\x10":
                topic_id = value[end + 11 :]
            elif tags != b"\x00":
                return None
        elif version == 3:
            (length,) = _INT16.unpack_from(value, 14)
            end = 16 + length
            if length < 0 or len(value) != end + 8:
                return None
            metadata, (committed_ms,) = value[16:end], _INT64.unpack_from(value, end)
        else:
            return None
        texts = group.decode(), topic.decode(), metadata.decode()
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    return Commit(*texts[:2], partition, offset, leader_epoch, texts[2], committed_ms, None, topic_id)


class Reader:
    """A reader of one key or value. Lengths and counts are checked against the bytes that are left.

    Each method with the name of a field type reads a field of that type. They raise `UnreadableRecord`,
    `struct.error` or UnicodeDecodeError if the data do not have that form.
    """

    def __init__(self, data: bytes, *, is_flexible: bool) -> None:
        self.data, self.at, self.is_flexible = data, 0, is_flexible

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uuid(self) -> bytes:
        return self._bytes(16)

    def text(self) -> str:
        found = self.nullable_text()
        if found is None:
            raise UnreadableRecord("a text is null")
        return found

    def nullable_text(self) -> str | None:
        length = self.varint() - 1 if self.is_flexible else self.int16()
        return None if length == -1 else self._bytes(length).decode()

    def data_or_null(self) -> bytes | None:
        length = self.varint() - 1 if self.is_flexible else self.int32()
        return None if length == -1 else self._bytes(length)

    def varint(self) -> int:
        """Read an unsigned number of variable length."""
        value = 0
        for place in range(VARINT_BYTES_MAX):
            if self.at >= len(self.data):
                raise UnreadableRecord("a number ends too early")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise UnreadableRecord(f"a number has more than {VARINT_BYTES_MAX} bytes")

    def field(self, wanted: FieldType, version: int) -> Any:
        """Read a field of any type."""
        match wanted:
            case Many(of, is_nullable):
                return self._array(of, version, is_nullable=is_nullable)
            case Parts(fields, is_nullable):
                return self._nullable_struct(fields, version) if is_nullable else self.parts(fields, version)
            case name:
                return _READS[name](self)

    def parts(self, fields: tuple[Field, ...], version: int, *, is_whole: bool = True) -> dict[str, Any]:
        """Read the fields of a struct, and its tagged fields if it ends here."""
        found: dict[str, Any] = {}
        tagged: dict[int, Field] = {}
        for each in fields:
            if each.tag is not None:
                found[each.name] = each.default
                if each.since <= version <= each.until:
                    tagged[each.tag] = each
            elif each.since <= version <= each.until:
                found[each.name] = self.field(each.type, version)
            else:
                found[each.name] = each.default
        if self.is_flexible and is_whole:
            self._tags(tagged, version, found)
        return found

    def end(self, what: str) -> None:
        """Check that all bytes are read.

        Raises:
            UnreadableRecord: Bytes are left.
        """
        if self.at != len(self.data):
            raise UnreadableRecord(f"its {what} has {len(self.data) - self.at} bytes too many")

    def _tags(self, tagged: dict[int, Field], version: int, found: dict[str, Any]) -> None:
        count = self.varint()
        if count > TAGS_MAX:
            raise UnreadableRecord(f"a struct has more than {TAGS_MAX} tagged fields")
        for _ in range(count):
            tag, size = self.varint(), self.varint()
            if size > len(self.data) - self.at:
                raise UnreadableRecord("a length is beyond the data")
            end = self.at + size
            if each := tagged.get(tag):
                found[each.name] = self.field(each.type, version)
                if self.at != end:
                    raise UnreadableRecord(f"the tagged field {each.name} has another length than its size")
            self.at = end

    def _nullable_struct(self, fields: tuple[Field, ...], version: int) -> dict[str, Any] | None:
        return self.parts(fields, version) if self.varint() else None

    def _array(self, of: FieldType, version: int, *, is_nullable: bool) -> list[Any] | None:
        count = self.varint() - 1 if self.is_flexible else self.int32()
        if count == -1:
            return None if is_nullable else []
        if not 0 <= count * _size_min(of) <= len(self.data) - self.at:
            raise UnreadableRecord("a count is beyond the data")
        if of == "int32":
            found = list(struct.unpack_from(f">{count}i", self.data, self.at))
            self.at += 4 * count
            return found
        return [self.field(of, version) for _ in range(count)]

    def _number(self, form: struct.Struct) -> int:
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return int(value)

    def _bytes(self, length: int) -> bytes:
        if not 0 <= length <= len(self.data) - self.at:
            raise UnreadableRecord("a length is beyond the data")
        self.at += length
        return self.data[self.at - length : self.at]


def _data(reader: Reader) -> bytes:
    return reader.data_or_null() or b""


_READS: dict[str, Callable[[Reader], Any]] = {
    "int8": Reader.int8,
    "int16": Reader.int16,
    "int32": Reader.int32,
    "int64": Reader.int64,
    "uuid": Reader.uuid,
    "text": Reader.text,
    "nullable_text": Reader.nullable_text,
    "data": _data,
}


def _size_min(of: FieldType) -> int:
    """Return the least number of bytes that an element of an array takes."""
    return 4 if of == "int32" else 1
