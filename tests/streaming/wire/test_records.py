"""Tests of records as bytes: a record is read back as it was written, and the schemas describe it."""

import json
import re

import pytest
from msgspec import json as msgspec_json

from coordinator.base.states import Phase
from coordinator.messages.events import GroupDeleted, OffsetsExpired, Oversized
from coordinator.messages.group_records import GroupMember, GroupRecord, OffsetRecord, Published
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import JoinGroup, Protocol, Unreadable
from coordinator.messages.responses import ErrorAnswer, HeartbeatAnswer, JoinedMember, JoinGroupAnswer, Reply
from streaming.wire.records import (
    PACK_RECORDS,
    PACK_VALUE_BYTES_MAX,
    OutputTopics,
    decode_answer,
    decode_event,
    decode_group_key,
    decode_group_record,
    decode_request,
    encode_request,
    json_schema,
    pack,
    to_row,
)

TOPICS = OutputTopics("replies", "groups", "events", "requests")


def test_a_request_is_read_back_from_its_bytes() -> None:
    request = JoinGroup(
        request_id="1", reply_to="in", group_id="gruppe-ü-😀", session_timeout_ms=1, rebalance_timeout_ms=2,
        protocol_type="consumer", protocols=(Protocol("range", bytes(range(256))),), reason="why not",
    )  # fmt: skip
    assert decode_request(encode_request(request)) == request


def test_an_unreadable_request_keeps_its_readable_sender() -> None:
    with_id = decode_request(b'{"request_id": "1", "reply_to": "in", "kind": "heartbeat"}')
    assert isinstance(with_id, Unreadable)
    assert (with_id.request_id, with_id.reply_to) == ("1", "in")
    without_id = decode_request(b'{"request_id": 1, "reply_to": "in"}')
    assert isinstance(without_id, Unreadable)
    assert without_id.request_id is None


def test_the_last_of_repeated_fields_counts() -> None:
    value = encode_request(Heartbeat(request_id="1", reply_to="in", group_id="g", generation_id=1, member_id="m"))
    again = decode_request(value[:-1] + b',"generation_id":2}')
    assert isinstance(again, Heartbeat)
    assert again.generation_id == 2


def test_a_reply_has_its_mailbox_as_key_and_an_event_its_group() -> None:
    """S20: the row of a reply has no partition; the row of an event has its shard's partition."""
    reply = to_row(Reply("inbox", HeartbeatAnswer(request_id="1")), TOPICS, 3)
    assert (reply.topic, reply.partition, reply.key) == ("replies", None, b"inbox")
    assert decode_answer(reply.value or b"") == HeartbeatAnswer(request_id="1")
    deleted = GroupDeleted(group_id="g", version=3, at_ms=5, generation_id=1, why="over")
    event = to_row(deleted, TOPICS, 3)
    assert (event.topic, event.partition, event.key) == ("events", 3, b"g")
    assert decode_event(event.value or b"") == deleted


def test_a_tombstone_has_its_version_and_time_in_headers() -> None:
    """I8: a tombstone has a version; a new group of the same name begins at 1, and only the time tells them apart."""
    row = to_row(Published("g", ("offset", "g", "t", 3), None, 17, 5_000), TOPICS, 3)
    assert (row.topic, row.partition, row.key, row.value) == ("groups", 3, b'["offset","g","t",3]', None)
    assert row.headers == [("version", b"17"), ("at_ms", b"5000")]
    assert to_row(Published("g", ("group", "g"), None, None, 5_000), TOPICS, 3).headers == [("at_ms", b"5000")]


@pytest.mark.parametrize("group_id", ["g", 'a"]', "a\nb", "\u202e", "消费者组"])
def test_a_groups_name_cannot_forge_a_key(group_id: str) -> None:
    """The key is encoded as JSON, never formatted as text."""
    record = OffsetRecord(
        group_id=group_id, topic="t", partition=0, offset=1, leader_epoch=-1, metadata="", commit_timestamp_ms=0,
        expire_timestamp_ms=None, generation_id=1, member_id="m", version=1,
    )  # fmt: skip
    row = to_row(Published(group_id, ("offset", group_id, "t", 0), record, 1), TOPICS, 3)
    assert decode_group_record(row.key, row.value) == (("offset", group_id, "t", 0), record)


@pytest.mark.parametrize("key", [b"[]", b'["group"]', b'["other","g"]', b'["offset","g","t","0"]', b"{", b'"group"'])
def test_other_keys_are_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a key|malformed|Expected|truncated|unpack"):
        decode_group_key(key)


@pytest.mark.parametrize("topic", ["requests", "replies", "groups", "events"])
def test_every_topic_has_a_schema(topic: str) -> None:
    """S35: every object of a schema has a description."""
    schema = json.loads(msgspec_json.encode(json_schema(topic)))
    assert schema["anyOf"]
    assert all("description" in kind for kind in schema["$defs"].values() if kind.get("type") == "object")


def test_the_schema_of_groups_has_every_field_of_a_group() -> None:
    """S27 to S35: the schema has every field of a group's record, and every state."""
    described = json_schema("groups")["$defs"]["GroupRecord"]["properties"]
    assert set(described) == set(GroupRecord.__struct_fields__)
    assert set(json_schema("groups")["$defs"]["Phase"]["enum"]) == {p.value for p in Phase}


def test_an_oversized_reply_is_replaced_by_an_error() -> None:
    """I22: an output above a record's size limit must not stop the query."""
    members = tuple(JoinedMember(f"member-{i}", None, bytes(100_000)) for i in range(70))
    row = to_row(Reply("inbox", JoinGroupAnswer(request_id="1", members=members)), TOPICS, 3)
    answer = decode_answer(row.value or b"")
    assert isinstance(answer, ErrorAnswer)
    assert (answer.request_id, answer.error) == ("1", "UNKNOWN_SERVER_ERROR")
    assert re.search(r"take 9\d{6} bytes", str(answer.error_message)), "the size of the whole response"


def test_an_oversized_record_or_event_is_replaced_by_an_event_with_its_version() -> None:
    """I8, I22: versions have no gap after an oversized record."""
    members = tuple(
        GroupMember(
            member_id=f"m{i}",
            group_instance_id=None,
            client_id="c",
            client_host="h",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            assignment=bytes(100_000),
            assigned=None,
        )
        for i in range(70)
    )
    group = GroupRecord(
        group_id="g", state=Phase.STABLE, since_ms=5, generation_id=2, protocol_type=None, protocol_name=None,
        leader=None, subscribed_topics=None, members=members, version=9,
    )  # fmt: skip
    row = to_row(Published("g", ("group", "g"), group, 9), TOPICS, 3)
    event = decode_event(row.value or b"")
    assert row.topic == "events"
    assert isinstance(event, Oversized)
    assert (event.group_id, event.version, event.at_ms, event.what) == ("g", 9, 5, "group record")
    expired = OffsetsExpired(
        group_id="g", version=10, at_ms=6, generation_id=2, partitions=tuple(("t" * 200, i) for i in range(50_000))
    )
    event = decode_event(to_row(expired, TOPICS, 3).value or b"")
    assert isinstance(event, Oversized)
    assert (event.version, event.what) == (10, "OffsetsExpired")


# -- packs: many records in one row of Spark ---------------------------------------------------------------------------


def test_packed_records_equal_single_records() -> None:
    """S20: packs are sorted by topic, keep the order within a topic, and have the version of a tombstone."""
    tombstone = Published("g", ("offset", "g", "t", 0), None, 17, 5_000)
    deleted = GroupDeleted(group_id="g", version=18, at_ms=5, generation_id=1, why="over")
    replies = [Reply(f"inbox-{i}", HeartbeatAnswer(request_id=str(i))) for i in range(2 * PACK_RECORDS + 1)]
    outputs = [*replies[:40], tombstone, deleted, *replies[40:]]
    packs = list(pack(outputs, TOPICS, 3))
    rows = [
        (p.topic, p.partition, *record)
        for p in packs
        for none in [[None] * len(p.keys)]
        for record in zip(p.keys, p.values, p.versions or none, p.times or none, strict=True)
    ]
    singly = [to_row(output, TOPICS, 3) for output in (*replies, tombstone, deleted)]
    headers = [dict(row.headers or ()) for row in singly]
    assert rows == [
        (r.topic, r.partition, r.key, r.value, header.get("version"), header.get("at_ms"))
        for r, header in zip(singly, headers, strict=True)
    ]
    assert [len(p.keys) for p in packs] == [PACK_RECORDS, PACK_RECORDS, 1, 1, 1]


def test_large_records_are_not_packed_together() -> None:
    """I22: a row with many large records would be too large for the writer that unpacks it."""
    large = JoinGroupAnswer(request_id="1", members=(JoinedMember("m", None, bytes(PACK_VALUE_BYTES_MAX)),))
    outputs = [Reply("a", HeartbeatAnswer(request_id="0")), Reply("a", large), Reply("a", large)]
    assert [len(p.keys) for p in pack(outputs, TOPICS, 3)] == [2, 1]


def test_an_oversized_reply_in_a_pack_is_replaced_by_an_error() -> None:
    """I22: a pack has an error response in place of an oversized one."""
    members = tuple(JoinedMember(f"member-{i}", None, bytes(100_000)) for i in range(70))
    (packed,) = pack([Reply("inbox", JoinGroupAnswer(request_id="1", members=members))], TOPICS, 3)
    assert isinstance(decode_answer(packed.values[0] or b""), ErrorAnswer)
