"""Kafka records and the core's types: JSON objects as `coordinator.requests` and `coordinator.outputs` define them."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from coordinator.errors import ErrorCode
from coordinator.limits import RECORD_BYTES_MAX
from coordinator.outputs import (
    AnyAnswer,
    AnyEvent,
    ErrorAnswer,
    GroupKey,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    Output,
    Oversized,
    Published,
    Reply,
)
from coordinator.requests import Id, Request, Unreadable, Wake

T = TypeVar("T")

PACK_RECORDS = 32
PACK_VALUE_BYTES_MAX = 2**16

VERSION, AT_MS = "version", "at_ms"
"""Headers of a tombstone."""

SIGNATURE_CHARS, SIGNATURE_END = 56, b"="
"""What `signing` puts behind a request, on a line of its own: no JSON object ends as it does."""

WAKE_BEGIN = b'{"kind":"wake"'
"""How a record begins that asks nothing."""

_encode = msgspec.json.Encoder().encode
_request_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_wake_decoder = msgspec.json.Decoder(Wake)
_answer_decoder: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)
_event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_group_key_decoder = msgspec.json.Decoder(list[str | int])
_group_decoder = msgspec.json.Decoder(GroupRecord)
_offset_decoder = msgspec.json.Decoder(OffsetRecord)


class _Sender(msgspec.Struct):
    """As much of a request as it takes to tell its sender that the rest is wrong."""

    request_id: Id
    reply_to: Id


_sender_decoder = msgspec.json.Decoder(_Sender)


class Tombstone(msgspec.Struct, frozen=True):
    """A record that ends a key of `groups`: a group, or one of its offsets.

    Args:
        version: None where there was no group any more, and nothing was counted.
        at_ms: The group's time; None where an older coordinator wrote it.
    """

    group_id: str
    topic: str | None
    partition: int | None
    version: int | None
    at_ms: int | None = None

    @classmethod
    def of(cls, key: GroupKey | OffsetKey, version: int | None, at_ms: int | None = None) -> Self:
        """Return the tombstone of a key; version and time are from the record's headers."""
        _, group_id, *which = key
        topic, partition = which or (None, None)
        return cls(str(group_id), topic, partition, version, at_ms)  # type: ignore[arg-type]


class Row(NamedTuple):
    """A record to be written.

    Args:
        partition: None where the key's hash decides.
        value: None for a tombstone.
    """

    topic: str
    partition: int | None
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None


class Pack(NamedTuple):
    """Records of one topic and partition in order, as one row: a row costs Spark far more than what is in it.

    Args:
        partition: As in `Row`.
        versions, times: Each tombstone's version and time, for its headers; None for other records, or for all of them.
    """

    topic: str
    partition: int | None
    keys: list[bytes]
    values: list[bytes | None]
    versions: list[bytes | None] | None = None
    times: list[bytes | None] | None = None


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """A shard's part in a batch.

    Args:
        groups, members: What it holds.
        requests: What it was asked in this batch, of that `heartbeats`; `answered` is what it replied.
        oldest_ms: How long the first of these had waited when the batch was planned; 0 without requests.
        deferred: Requests that it has left to the next batch.
        due_in_ms: How long after the batch time alone is to change it next; None where it waits for nothing.
    """

    shard: int
    groups: int
    members: int
    requests: int
    heartbeats: int
    answered: int
    oldest_ms: int
    deferred: int
    due_in_ms: int | None

    def to_json(self) -> str:
        return _encode(self).decode()


class OutputTopics(NamedTuple):
    """Where replies, group records and events go; and the requests, where a shard has to wake itself."""

    replies: str
    groups: str
    events: str
    requests: str


WHY_CHARS_MAX = 300
"""How much is said about a request that cannot be read: the reason may quote a field's name, however long it is."""

# -- what comes in -----------------------------------------------------------------------------------------------------


def decode_request(value: bytes | None) -> Request | Unreadable | Wake:
    """Read the value of a request record, whoever signed it. Never raises: what is no request says why."""
    if value is None:
        return Unreadable("the record has no value")
    if value[-1:] == SIGNATURE_END and value[-SIGNATURE_CHARS - 1 : -SIGNATURE_CHARS] == b"\n":
        value = value[: -SIGNATURE_CHARS - 1]
    try:
        return _request_decoder.decode(value)
    except (ValueError, RecursionError) as error:
        why = _plainly(error)
    if value.startswith(WAKE_BEGIN):
        with suppress(ValueError):
            return _wake_decoder.decode(value)
    try:
        sender = _sender_decoder.decode(value)
    except (ValueError, RecursionError):
        return Unreadable(why)
    return Unreadable(why, sender.request_id, sender.reply_to)


def _plainly(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "the record is not UTF-8"
    if isinstance(error, RecursionError):
        return "the record is nested too deeply"
    return str(error)[:WHY_CHARS_MAX].replace("`$.", "`").replace("Object", "The request")


def encode_request(request: Request | Wake) -> bytes:
    """Write a request as the value of its record; the key is the group id."""
    return _encode(request)


# -- what goes out -----------------------------------------------------------------------------------------------------


def to_row(output: Output, topics: OutputTopics, shard: int) -> Row:
    """Turn an output into the record that holds it, or where that is too large, into one that says so.

    All that a shard publishes is in the partition of its own number, so a group's records stand in one partition.
    """
    row = _row(output, topics, shard)
    if row.value is not None and len(row.value) > RECORD_BYTES_MAX:
        return _row(_instead_of(output, len(row.value)), topics, shard)
    return row


def pack(outputs: Iterable[Output], topics: OutputTopics, shard: int) -> Iterator[Pack]:
    """Turn outputs into records as `to_row` does, packed topic by topic, each topic's in the order of the outputs."""
    inboxes: list[bytes] = []
    answers: list[bytes | None] = []
    others: dict[str, list[Row]] = {}
    for output in outputs:
        if type(output) is Reply:  # nearly all are
            value = _encode(output.answer)
            inboxes.append(output.to.encode())
            answers.append(value if len(value) <= RECORD_BYTES_MAX else to_row(output, topics, shard).value)
        else:
            row = to_row(output, topics, shard)
            others.setdefault(row.topic, []).append(row)
    for begin, end in _portions(answers):
        yield Pack(topics.replies, None, inboxes[begin:end], answers[begin:end])
    for topic, rows in others.items():
        keys, values = [row.key for row in rows], [row.value for row in rows]
        headers = [dict(row.headers or ()) for row in rows]
        versions, times = ([each.get(name) for each in headers] for name in (VERSION, AT_MS))
        for begin, end in _portions(values):
            yield Pack(topic, shard, keys[begin:end], values[begin:end], versions[begin:end], times[begin:end])


def _portions(values: list[bytes | None]) -> Iterator[tuple[int, int]]:
    """Say from where to where a pack goes; a large value ends one."""
    begin = 0
    for end, value in enumerate(values, 1):
        if end - begin == PACK_RECORDS or (value and len(value) > PACK_VALUE_BYTES_MAX) or end == len(values):
            yield begin, end
            begin = end


def _row(output: Output, topics: OutputTopics, shard: int) -> Row:
    if isinstance(output, Reply):
        return Row(topics.replies, None, output.to.encode(), _encode(output.answer))
    if isinstance(output, Published):
        if output.record is None:
            told = ((VERSION, output.version), (AT_MS, output.ended_ms))
            headers = [(name, str(number).encode()) for name, number in told if number is not None]
            return Row(topics.groups, shard, _encode(output.key), None, headers)
        return Row(topics.groups, shard, _encode(output.key), _encode(output.record))
    return Row(topics.events, shard, (output.group_id or "").encode(), _encode(output))


def _instead_of(output: Output, size: int) -> Output:
    if isinstance(output, Reply):
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        why = f"the answer would take {size} bytes; a record takes {RECORD_BYTES_MAX} at most"
        request_id = output.answer.request_id
        answer = ErrorAnswer(request_id=request_id, error=error.name, code=error.number, error_message=why)
        return Reply(output.to, answer)
    if isinstance(output, Published):
        group = output.record
        assert isinstance(group, GroupRecord), "only groups grow"
        return Oversized(
            group_id=group.group_id,
            version=group.version,
            at_ms=group.since_ms,
            generation_id=group.generation_id,
            what="group record",
            bytes=size,
        )
    return Oversized(
        group_id=output.group_id,
        version=output.version,
        at_ms=output.at_ms,
        generation_id=output.generation_id,
        what=type(output).__name__,
        bytes=size,
    )


def _decode(decoder: msgspec.json.Decoder[T], value: bytes) -> T:
    """Read what the coordinator alone should have written; whatever else it may be raises ValueError."""
    try:
        return decoder.decode(value)
    except RecursionError as error:
        raise ValueError("the record is nested too deeply") from error


def decode_answer(value: bytes) -> AnyAnswer:
    """Read the value of a reply record."""
    return _decode(_answer_decoder, value)


def decode_event(value: bytes) -> AnyEvent:
    """Read the value of an event record."""
    return _decode(_event_decoder, value)


def decode_group_key(key: bytes) -> GroupKey | OffsetKey:
    """Read the key of a record of the groups topic."""
    kind, *rest = _decode(_group_key_decoder, key)
    match kind, rest:
        case "group", [str(group_id)]:
            return "group", group_id
        case "offset", [str(group_id), str(topic), int(partition)]:
            return "offset", group_id, topic, partition
    raise ValueError(f"{key!r} is not a key of the groups topic")


def decode_group_record(
    key: bytes, value: bytes | None
) -> tuple[GroupKey | OffsetKey, GroupRecord | OffsetRecord | None]:
    """Read a record of the groups topic; a tombstone has no record."""
    decoded = decode_group_key(key)
    if value is None:
        return decoded, None
    return decoded, _decode(_group_decoder, value) if decoded[0] == "group" else _decode(_offset_decoder, value)


# -- schemas -----------------------------------------------------------------------------------------------------------


SCHEMAS: dict[str, Any] = {
    "requests": Request,
    "replies": AnyAnswer,
    "groups": GroupRecord | OffsetRecord,
    "events": AnyEvent,
}


def json_schema(topic: str) -> dict[str, Any]:
    """Describe the values of one of the topics `requests`, `replies`, `groups`, `events` as JSON Schema 2020-12."""
    if topic == "groups":  # the key tells the two apart, the schema cannot
        schemas, components = msgspec.json.schema_components([GroupRecord, OffsetRecord], ref_template="#/$defs/{name}")
        return {"anyOf": list(schemas), "$defs": components}
    return msgspec.json.schema(SCHEMAS[topic])
