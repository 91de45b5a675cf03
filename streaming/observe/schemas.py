"""The records of `__consumer_offsets`: the fields of each key and of each value.

The files in `definitions` have them in the form of Kafka's message files. The names of fields are Kafka's in the style
of Python. A field that the version of a value does not have, and a tagged field that is left out, has its default.

Source: the message files of Kafka's group-coordinator, such as GroupMetadataValue.json, in 4.4.0.
"""

import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from importlib.resources import files
from typing import Any

from streaming.kafka.structures import Field, Structure

ZERO_ID = bytes(16)
"""The topic id that stands for no id."""


class Kind(IntEnum):
    """The types of records, by their number in the key."""

    LEGACY_OFFSET = 0
    OFFSET = 1
    CLASSIC_GROUP = 2
    EPOCH = 3
    OLD_TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    SHARE_MEMBER = 10
    SHARE_GROUP = 11
    SHARE_TARGET_EPOCH = 12
    SHARE_TARGET = 13
    SHARE_CURRENT = 14
    SHARE_PARTITIONS = 15
    PATTERN = 16
    STREAMS_GROUP = 17
    STREAMS_MEMBER = 19
    STREAMS_TARGET_EPOCH = 20
    STREAMS_TARGET = 21
    STREAMS_CURRENT = 22
    STREAMS_TOPOLOGY = 23


Definition = Mapping[str, Any]

_VERSION_MAX = 99

_DEFAULTS: Mapping[str, Any] = {"string": "", "bytes": b"", "uuid": ZERO_ID}
"""The defaults of types other than numbers and arrays."""


def structures_of(definition: Definition) -> tuple[Structure, ...]:
    """Return the structure of each version, from 0 on, of what a message file defines."""
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    flexible = _versions(definition["flexibleVersions"])
    return tuple(
        _structure(definition["fields"], version, version in flexible, structs)
        for version in _versions(definition["validVersions"])
    )


def _structure(fields: Iterable[Definition], version: int, is_flexible: bool, structs: Mapping[str, Any]) -> Structure:
    found, defaults = [], {}
    for each in fields:
        name = re.sub("(?<!^)(?=[A-Z])", "_", each["name"]).lower()
        tag = each.get("tag")
        is_there = version in _versions(each["versions"])
        if not is_there or tag is not None:
            defaults[name] = _default(each)
        if is_there:
            wanted = each["type"].removeprefix("[]")
            structure = each.get("fields") or structs.get(wanted)
            elements = _structure(structure, version, is_flexible, structs) if structure else Field(name, wanted)
            is_array = wanted != each["type"]
            kind = "array" if is_array else "struct" if structure else wanted
            is_nullable = version in _versions(each.get("nullableVersions", "none"))
            found.append(Field(name, kind, is_nullable, elements if is_array or structure else None, tag))
    return Structure(tuple(found), is_flexible, defaults.copy, operator.setitem)


def _versions(text: str) -> range:
    """Return the versions of a text of a message file, such as 2+, 0-4, 1 or none."""
    first, _, last = text.replace("none", "1-0").replace("+", f"-{_VERSION_MAX}").partition("-")
    return range(int(first), int(last or first) + 1)


def _default(field: Definition) -> Any:
    if field.get("default") == "null":
        return None
    return field.get("default", () if field["type"].startswith("[]") else _DEFAULTS.get(field["type"], 0))


def _definitions(kind: str) -> Iterator[tuple[Kind, tuple[Structure, ...]]]:
    for file in files(__package__).joinpath("definitions").iterdir():
        definition = json.loads(file.read_text())
        if definition["type"] == kind:
            yield Kind(definition["apiKey"]), structures_of(definition)


KEYS: Mapping[Kind, Structure] = {kind: structure for kind, (structure,) in _definitions("coordinator-key")}
"""The fields of each key after the type."""

VALUES: Mapping[Kind, tuple[Structure, ...]] = dict(_definitions("coordinator-value"))
"""The fields of each value after the version, by the version."""

SHARE = frozenset(kind for kind in Kind if kind.name.startswith("SHARE"))
STREAMS = frozenset(kind for kind in Kind if kind.name.startswith("STREAMS"))
OFFSETS = frozenset({Kind.LEGACY_OFFSET, Kind.OFFSET})
