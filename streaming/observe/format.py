"""The decoder of the records of `__consumer_offsets`.

`decode` reads a record by the structures of `schemas`. Nearly all records are commits of version 3 or 4, for which
`_quick_commit` is written by hand. No bytes raise anything but `Malformed`.

Source: Kafka's CoordinatorRecordSerde; KIP-482 (flexible versions and tagged fields).
"""

import struct
from typing import Any, NamedTuple

from coordinator.base.binary import Malformed, Reader
from streaming.kafka.structures import reader_of
from streaming.observe.schemas import KEYS, OFFSETS, VALUES, ZERO_ID, Kind

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_KEY_START = struct.Struct(">hh")
_COMMIT_START = struct.Struct(">hqi")

_NEVER_MS = -1
"""The time at which an offset expires, if its record has none."""

_KEYS = {number: reader_of(structure) for number, structure in KEYS.items()}
_VALUES = {kind: [reader_of(structure) for structure in versions] for kind, versions in VALUES.items()}


class Commit(NamedTuple):
    """A committed offset.

    Args:
        expires_ms: Only in a record of version 1; else None.
        topic_id: `ZERO_ID` if the record has none.
    """

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None = None
    topic_id: bytes = ZERO_ID


class Entry(NamedTuple):
    """A record that is not a commit.

    Args:
        name: The member id or the pattern in the key; "" for a record of the whole group.
        value: The fields of the value, as `schemas` names them; None for a tombstone.
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
        Malformed: The key or the value does not have its form, or has a version that is not known.
    """
    if key is None:
        raise Malformed("the record has no key")
    if value is not None and (commit := _quick_commit(key, value)) is not None:
        return commit
    number, names = _names(key)
    if not names:
        return Foreign(number)
    kind = Kind(number)
    group, *rest = names.values()
    fields = None if value is None else _value(kind, value)
    if kind not in OFFSETS:
        return Entry(kind, group, rest[0] if rest else "", fields)
    return Forgotten(group, *rest) if fields is None else _commit(names, fields)


def group_of(key: bytes | None) -> str | None:
    """Return the group that a record's key names; None if the key cannot be read."""
    try:
        _, names = _names(key or b"")
    except Malformed:
        return None
    return next(iter(names.values()), None)


def _names(key: bytes) -> tuple[int, dict[str, Any]]:
    """Return the type of a key, and its fields; no fields for a type that is not known."""
    reader = Reader(key)
    number = reader.int16()
    if number not in _KEYS:
        return number, {}
    names = _KEYS[number](reader)
    _end(reader, "key")
    return number, names


def _value(kind: Kind, data: bytes) -> dict[str, Any]:
    reader, versions = Reader(data), _VALUES[kind]
    version = reader.int16()
    if not 0 <= version < len(versions):
        raise Malformed(f"a value of type {kind.value} has version {version}, which is not known")
    fields: dict[str, Any] = versions[version](reader)
    _end(reader, "value")
    return fields


def _end(reader: Reader, what: str) -> None:
    if not reader.is_at_end:
        raise Malformed(f"its {what} has {len(reader.data) - reader.position} bytes too many")


def _commit(names: dict[str, Any], fields: dict[str, Any]) -> Commit:
    """Return a commit. The oldest values have neither a leader epoch nor a topic id."""
    expires_ms = fields.get("expire_timestamp", _NEVER_MS)
    return Commit(
        **names,
        offset=fields["offset"],
        leader_epoch=fields.get("leader_epoch", -1),
        metadata=fields["metadata"],
        committed_ms=fields["commit_timestamp"],
        expires_ms=None if expires_ms == _NEVER_MS else expires_ms,
        topic_id=fields.get("topic_id", ZERO_ID),
    )


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
        topic_id = ZERO_ID
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
