"""The conversion between Kafka records and the types of `coordinator.messages`, as JSON."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import RECORD_BYTES_MAX
from coordinator.messages.events import AnyEvent, Oversized
from coordinator.messages.fields import Id
from coordinator.messages.group_records import GroupKey, GroupRecord, OffsetKey, OffsetRecord, Published
from coordinator.messages.move_requests import PEER_RECORDS, PeerRecord
from coordinator.messages.outputs import Output, ToPeer
from coordinator.messages.requests import Request, Unreadable, Wake
from coordinator.messages.responses import AnyAnswer, ErrorAnswer, Reply

T = TypeVar("T")

PACK_RECORDS = 32
PACK_VALUE_BYTES_MAX = 2**16

VERSION, AT_MS = "version", "at_ms"
"""Headers of a tombstone."""

SIGNATURE_CHARS, SIGNATURE_END = 56, b"="
"""The signature that `signing` adds after a request, on a separate line. No JSON object ends with this byte."""

WAKE_BEGIN = b'{"kind":"wake"'
"""The beginning of a wake record."""

HEARTBEAT_BEGIN, HEARTBEATS_BEGIN = b'{"kind":"heartbeat"', b'{"kind":"heartbeats"'
"""The beginnings of a record of one heartbeat and of a record of many."""

PEER_BEGINS = tuple(f'{{"kind":"{kind.__struct_config__.tag}"'.encode() for kind in PEER_RECORDS)
"""The beginnings of the records of other coordinators."""

_encode = msgspec.json.Encoder().encode
_request_decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_peer_decoder: msgspec.json.Decoder[PeerRecord] = msgspec.json.Decoder(PeerRecord)
_wake_decoder = msgspec.json.Decoder(Wake)
_answer_decoder: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)
_event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_group_key_decoder = msgspec.json.Decoder(list[str | int])
_group_decoder = msgspec.json.Decoder(GroupRecord)
_offset_decoder = msgspec.json.Decoder(OffsetRecord)


class _Sender(msgspec.Struct):
    """The fields of a request that are needed to send its sender an error about the rest."""

    request_id: Id
    reply_to: Id


_sender_decoder = msgspec.json.Decoder(_Sender)


class Tombstone(msgspec.Struct, frozen=True):
    """A record that deletes a key of `groups`: a group, or one of its offsets.

    Args:
        version: None if the group no longer existed, so that no version was counted.
        at_ms: The group's time.
    """

    group_id: str
    topic: str | None
    partition: int | None
    version: int | None
    at_ms: int

    @classmethod
    def of(cls, key: GroupKey | OffsetKey, version: int | None, at_ms: int | None) -> Self:
        """Return the tombstone of a key. Version and time are from the record's headers.

        Raises:
            ValueError: It has no time, so a coordinator has not written it.
        """
        if at_ms is None:
            raise ValueError(f"a tombstone has no header {AT_MS}")
        _, group_id, *which = key
        topic, partition = which or (None, None)
        return cls(str(group_id), topic, partition, version, at_ms)  # type: ignore[arg-type]


class Row(NamedTuple):
    """A record to write.

    Args:
        partition: None if the hash of the key decides.
        value: None for a tombstone.
    """

    topic: str
    partition: int | None
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None


class Pack(NamedTuple):
    """Records of one topic and partition in order, as one row, since a row costs Spark far more than its records.

    Args:
        partition: As in `Row`.
        versions, times: The version and the time of each tombstone, for its headers; None for other records, or for
            all.
    """

    topic: str
    partition: int | None
    keys: list[bytes]
    values: list[bytes | None]
    versions: list[bytes | None] | None = None
    times: list[bytes | None] | None = None


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one shard in one batch.

    Args:
        groups, members: The number of groups and members of the shard.
        requests: Requests in this batch; `heartbeats` counts the heartbeats among them, `answered` the responses.
        oldest_ms: The wait of the oldest request when the batch was planned; 0 without requests.
        deferred: Requests that the shard has left to the next batch.
        due_in_ms: The time from the batch to the shard's next deadline; None without a deadline.
        settled: The id of the transactions topic, and the place in it before which all transactions are settled.
        last: The offset and the time of the last record that the shard has read; None if they are unknown.
        stop: Of the last permitted request to stop the coordinator, the end of the log that it names, its offset, and
            its principal; None without one.
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
    settled: tuple[str, int] = ("", 0)
    last: tuple[int, int] | None = None
    stop: tuple[int, int, str] | None = None

    def to_json(self) -> str:
        return _encode(self).decode()


class OutputTopics(NamedTuple):
    """The topics of replies, group records and events; and the request topic, for the wake records of a shard.

    Args:
        sign_for_peer: Returns the request topic of a peer, and the signed value of a record for it; None without peers.
    """

    replies: str
    groups: str
    events: str
    requests: str
    sign_for_peer: Callable[[PeerRecord], tuple[str, bytes]] | None = None


WHY_CHARS_MAX = 300
"""The longest text about an unreadable request, since the reason may quote a field's name of any length."""

# -- reading -----------------------------------------------------------------------------------------------------------


def decode_request(value: bytes | None) -> Request | Unreadable | Wake:
    """Return the request in a record's value, without checking a signature. Never raises: other values are
    `Unreadable`.
    """
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


def decode_peer_record(value: bytes | None) -> PeerRecord | None:
    """Return the record of another coordinator in a record's value, without checking its MAC; None for every other
    value. Never raises.
    """
    if value is None or not value.startswith(PEER_BEGINS) or value[-SIGNATURE_CHARS - 1 : -SIGNATURE_CHARS] != b"\n":
        return None
    try:
        return _peer_decoder.decode(value[: -SIGNATURE_CHARS - 1])
    except (ValueError, RecursionError):
        return None


def _plainly(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "the record is not UTF-8"
    if isinstance(error, RecursionError):
        return "the record is nested too deeply"
    return str(error)[:WHY_CHARS_MAX].replace("`$.", "`").replace("Object", "The request")


def encode_request(request: Request | PeerRecord | Wake) -> bytes:
    """Return the value of a request's record. The key is the group id."""
    return _encode(request)


# -- writing -----------------------------------------------------------------------------------------------------------


def to_row(output: Output, topics: OutputTopics, shard: int) -> Row:
    """Return the record that holds an output, or a record that reports it if the output is too large.

    A shard publishes to the partition of its own number, so all records of a group are in one partition.
    """
    row = _row(output, topics, shard)
    if row.value is not None and len(row.value) > RECORD_BYTES_MAX:
        return _row(_instead_of(output, len(row.value)), topics, shard)
    return row


def pack(outputs: Iterable[Output], topics: OutputTopics, shard: int) -> Iterator[Pack]:
    """Yield the records of outputs as packs by topic, each topic's in the order of the outputs. See `to_row`."""
    inboxes: list[bytes] = []
    answers: list[bytes | None] = []
    others: dict[tuple[str, int | None], list[Row]] = {}
    for output in outputs:
        if type(output) is Reply:  # nearly all are
            value = _encode(output.answer)
            inboxes.append(output.to.encode())
            answers.append(value if len(value) <= RECORD_BYTES_MAX else to_row(output, topics, shard).value)
        else:
            row = to_row(output, topics, shard)
            others.setdefault((row.topic, row.partition), []).append(row)
    for begin, end in _portions(answers):
        yield Pack(topics.replies, None, inboxes[begin:end], answers[begin:end])
    for (topic, partition), rows in others.items():
        keys, values = [row.key for row in rows], [row.value for row in rows]
        headers = [dict(row.headers or ()) for row in rows]
        versions, times = ([each.get(name) for each in headers] for name in (VERSION, AT_MS))
        for begin, end in _portions(values):
            yield Pack(topic, partition, keys[begin:end], values[begin:end], versions[begin:end], times[begin:end])


def _portions(values: list[bytes | None]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the packs. A large value ends a pack."""
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
            values = ((VERSION, output.version), (AT_MS, output.ended_ms))
            headers = [(name, str(number).encode()) for name, number in values if number is not None]
            return Row(topics.groups, shard, _encode(output.key), None, headers)
        return Row(topics.groups, shard, _encode(output.key), _encode(output.record))
    if isinstance(output, ToPeer):
        assert topics.sign_for_peer is not None, "a coordinator without peers writes to none"
        topic, value = topics.sign_for_peer(output.record)
        return Row(topic, output.partition, output.name.encode(), value)
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
    assert not isinstance(output, ToPeer), "a part of a group fits into a record"
    return Oversized(
        group_id=output.group_id,
        version=output.version,
        at_ms=output.at_ms,
        generation_id=output.generation_id,
        what=type(output).__name__,
        bytes=size,
    )


def _decode(decoder: msgspec.json.Decoder[T], value: bytes) -> T:
    """Return a decoded value. Only the coordinator should write such records, so any other value raises ValueError."""
    try:
        return decoder.decode(value)
    except RecursionError as error:
        raise ValueError("the record is nested too deeply") from error


def decode_answer(value: bytes) -> AnyAnswer:
    """Return the response in the value of a reply record."""
    return _decode(_answer_decoder, value)


def decode_event(value: bytes) -> AnyEvent:
    """Return the event in the value of an event record."""
    return _decode(_event_decoder, value)


def decode_group_key(key: bytes) -> GroupKey | OffsetKey:
    """Return the key of a record of the groups topic."""
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
    """Return the key and the record of the groups topic. A tombstone has no record."""
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
    """Return the JSON Schema 2020-12 of a topic's values. Topics: `requests`, `replies`, `groups`, `events`."""
    if topic == "groups":  # the key distinguishes the two, the schema cannot
        schemas, components = msgspec.json.schema_components([GroupRecord, OffsetRecord], ref_template="#/$defs/{name}")
        return {"anyOf": list(schemas), "$defs": components}
    return msgspec.json.schema(SCHEMAS[topic])
