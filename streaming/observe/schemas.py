"""The records of `__consumer_offsets` as tables: the fields of each key and of each value, with their versions.

`format` reads records by these tables. A field is there from version `since` to version `until`. A field with a `tag`
stands at the end of a struct of a flexible version, and has its default where it is left out.

Source: the message files of Kafka's group-coordinator, such as GroupMetadataValue.json, in 4.3.1 and 4.4.0.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

NEVER = 2**15
"""A version that no value has."""


class Kind(IntEnum):
    """The types of records, by their number in the key. Types that are only listed are in `LISTED`."""

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


class Many(NamedTuple):
    """An array; a null array is an empty one, unless `is_nullable`."""

    of: "FieldType"
    is_nullable: bool = False


class Parts(NamedTuple):
    """A struct. A nullable one occurs only in a tagged field."""

    fields: "tuple[Field, ...]"
    is_nullable: bool = False


FieldType = str | Many | Parts


class Field(NamedTuple):
    """A field of a struct. `type` is the name of a method of `format.Reader`, an array or a struct."""

    name: str
    type: FieldType
    since: int = 0
    until: int = NEVER
    tag: int | None = None
    default: Any = None


class Value(NamedTuple):
    """The value of a record type.

    Args:
        version_max: The last version that can be read.
        flexible_from: The first flexible version.
        is_whole: Whether the fields are all of them. Otherwise the rest of the value is not read.
    """

    fields: tuple[Field, ...]
    version_max: int = 0
    flexible_from: int = 0
    is_whole: bool = True


_GROUP = Field("group", "text")
_OF_A_GROUP = (_GROUP,)
_OF_A_MEMBER = (_GROUP, Field("member", "text"))
_OF_AN_OFFSET = (_GROUP, Field("topic", "text"), Field("partition", "int32"))

KEYS: Mapping[Kind, tuple[Field, ...]] = {
    Kind.LEGACY_OFFSET: _OF_AN_OFFSET,
    Kind.OFFSET: _OF_AN_OFFSET,
    Kind.PATTERN: (_GROUP, Field("pattern", "text")),
    **dict.fromkeys(
        (Kind.CLASSIC_GROUP, Kind.EPOCH, Kind.OLD_TOPICS, Kind.TARGET_EPOCH, Kind.SHARE_GROUP, Kind.SHARE_TARGET_EPOCH,
         Kind.SHARE_PARTITIONS, Kind.STREAMS_GROUP, Kind.STREAMS_TARGET_EPOCH, Kind.STREAMS_TOPOLOGY), _OF_A_GROUP),
    **dict.fromkeys(
        (Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.SHARE_MEMBER, Kind.SHARE_TARGET, Kind.SHARE_CURRENT,
         Kind.STREAMS_MEMBER, Kind.STREAMS_TARGET, Kind.STREAMS_CURRENT), _OF_A_MEMBER),
}  # fmt: skip
"""The fields of each key after the type. Keys are never flexible."""

_PARTITIONS = Many(Parts((Field("topic_id", "uuid"), Field("partitions", Many("int32")))))

_OWNED = Many(
    Parts((
        Field("topic_id", "uuid"),
        Field("partitions", Many("int32")),
        Field("epochs", Many("int32", is_nullable=True), tag=0),
    ))
)  # fmt: skip

_CLASSIC_MEMBER = Parts((
    Field("member_id", "text"),
    Field("instance", "nullable_text", since=3),
    Field("client_id", "text"),
    Field("client_host", "text"),
    Field("rebalance_timeout_ms", "int32", since=1),
    Field("session_timeout_ms", "int32"),
    Field("subscription", "data"),
    Field("assignment", "data"),
))  # fmt: skip

VALUES: Mapping[Kind, Value] = {
    Kind.LEGACY_OFFSET: Value(
        (Field("offset", "int64"), Field("metadata", "text"), Field("committed_ms", "int64")), flexible_from=NEVER
    ),
    Kind.OFFSET: Value(
        (
            Field("offset", "int64"),
            Field("leader_epoch", "int32", since=3, default=-1),
            Field("metadata", "text"),
            Field("committed_ms", "int64"),
            Field("expires_ms", "int64", since=1, until=1),
            Field("topic_id", "uuid", since=4, tag=0),
        ),
        version_max=4,
        flexible_from=4,
    ),
    Kind.CLASSIC_GROUP: Value(
        (
            Field("protocol_type", "text"),
            Field("generation", "int32"),
            Field("protocol", "nullable_text"),
            Field("leader", "nullable_text"),
            Field("since_ms", "int64", since=2, default=-1),
            Field("members", Many(_CLASSIC_MEMBER)),
        ),
        version_max=4,
        flexible_from=4,
    ),
    Kind.EPOCH: Value((Field("epoch", "int32"), Field("metadata_hash", "int64", tag=0, default=0))),
    Kind.OLD_TOPICS: Value((
        Field("topics", Many(Parts((
            Field("topic_id", "uuid"),
            Field("name", "text"),
            Field("partitions", "int32"),
            Field("racks", Many(Parts((Field("partition", "int32"), Field("racks", Many("text")))))),
        )))),
    )),
    Kind.MEMBER: Value((
        Field("instance", "nullable_text"),
        Field("rack", "nullable_text"),
        Field("client_id", "text"),
        Field("client_host", "text"),
        Field("topics", Many("text")),
        Field("regex", "nullable_text"),
        Field("rebalance_timeout_ms", "int32"),
        Field("assignor", "nullable_text"),
        Field("classic", Parts((
            Field("session_timeout_ms", "int32"),
            Field("protocols", Many(Parts((Field("name", "text"), Field("metadata", "data"))))),
        ), is_nullable=True), tag=0),
    )),
    Kind.TARGET_EPOCH: Value((Field("epoch", "int32"), Field("made_ms", "int64", tag=0))),
    Kind.TARGET: Value((Field("partitions", _PARTITIONS),)),
    Kind.CURRENT: Value((
        Field("epoch", "int32"),
        Field("previous_epoch", "int32"),
        Field("state", "int8"),
        Field("assigned", _OWNED),
        Field("revoking", _OWNED),
    )),
    Kind.PATTERN: Value((Field("topics", Many("text")), Field("version", "int64"), Field("resolved_ms", "int64"))),
    Kind.SHARE_GROUP: Value((Field("epoch", "int32"),), is_whole=False),
    Kind.STREAMS_GROUP: Value((Field("epoch", "int32"),), is_whole=False),
}  # fmt: skip
"""The values that are read. A record of another type of a share or streams group is known by its key alone."""

SHARE = frozenset(kind for kind in Kind if kind.name.startswith("SHARE"))
STREAMS = frozenset(kind for kind in Kind if kind.name.startswith("STREAMS"))
OFFSETS = frozenset({Kind.LEGACY_OFFSET, Kind.OFFSET})
