"""Every bound, at it and one beyond (I22; design.md 3): what is beyond is refused in words."""

import json
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from coordinator import limits
from coordinator.config import Config
from coordinator.errors import ErrorCode
from coordinator.requests import JoinGroup, Request
from tests.coordinator.scenario import Scenario


def b64(length: int) -> str:
    return b64encode(bytes(length)).decode()


ASKED = {"request_id": "1", "reply_to": "inbox", "group_id": "g"}
JOIN = {
    **ASKED,
    "kind": "join_group",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": ""}],
}
SYNC = {**ASKED, "kind": "sync_group", "generation_id": 1, "member_id": "m"}
HEARTBEAT = {**ASKED, "kind": "heartbeat", "generation_id": 1, "member_id": "m"}
LEAVE = {**ASKED, "kind": "leave_group", "members": [{"member_id": "m"}]}
OFFSET = {"topic": "t", "partition": 0, "offset": 0}
COMMIT = {**ASKED, "kind": "offset_commit", "offsets": [OFFSET]}
FETCH = {**ASKED, "kind": "offset_fetch", "topics": [{"topic": "t", "partitions": [0]}]}
DESCRIBE = {**ASKED, "kind": "describe_group"}
LIST = {**ASKED, "kind": "list_groups"}
FORGET = {**ASKED, "kind": "offset_delete", "topics": [{"topic": "t", "partitions": [0]}]}
DELETE = {**ASKED, "kind": "delete_group"}
REBALANCE = {**ASKED, "kind": "rebalance_group"}
EXPEL = {**ASKED, "kind": "expel_member", "member_id": "m"}


def protocols(**fields: Any) -> dict[str, Any]:
    return {**JOIN, "protocols": [{"name": "range", **fields}]}


def offset(**fields: Any) -> dict[str, Any]:
    return {**COMMIT, "offsets": [{**OFFSET, **fields}]}


BOUNDS = {
    # a bound                   what it is for, given a length
    "request id":              (limits.ID_CHARS_MAX,          lambda n: {**DESCRIBE, "request_id": "x" * n}),
    "inbox":                   (limits.ID_CHARS_MAX,          lambda n: {**DESCRIBE, "reply_to": "x" * n}),
    "principal":               (limits.ID_CHARS_MAX,          lambda n: {**DESCRIBE, "principal": "x" * n}),
    "host":                    (limits.HOST_CHARS_MAX,        lambda n: {**DESCRIBE, "client_host": "x" * n}),
    "member id in a join":     (limits.ID_CHARS_MAX,          lambda n: {**JOIN, "member_id": "x" * n}),
    "instance id in a join":   (limits.ID_CHARS_MAX,          lambda n: {**JOIN, "group_instance_id": "x" * n}),
    "reason of a join":        (limits.REASON_CHARS_MAX,      lambda n: {**JOIN, "reason": "x" * n}),
    "protocol type":           (limits.NAME_CHARS_MAX,        lambda n: {**JOIN, "protocol_type": "x" * n}),
    "protocols":               (limits.PROTOCOLS_MAX,         lambda n: {**JOIN, "protocols": [{"name": "range"}] * n}),
    "protocol name":           (limits.NAME_CHARS_MAX,        lambda n: protocols(name="x" * n)),
    "metadata of a protocol":  (limits.PROTOCOL_METADATA_BYTES_MAX, lambda n: protocols(metadata=b64(n))),
    "member id in a sync":     (limits.ID_CHARS_MAX,          lambda n: {**SYNC, "member_id": "x" * n}),
    "parts of a plan":         (limits.ASSIGNMENTS_MAX,
                                lambda n: {**SYNC, "assignments": [{"member_id": "m"}] * n}),
    "bytes of a part":         (limits.ASSIGNMENT_BYTES_MAX,
                                lambda n: {**SYNC, "assignments": [{"member_id": "m", "assignment": b64(n)}]}),
    "member id in a heartbeat": (limits.ID_CHARS_MAX,         lambda n: {**HEARTBEAT, "member_id": "x" * n}),
    "members that leave":      (limits.LEAVING_MEMBERS_MAX,   lambda n: {**LEAVE, "members": [{"member_id": "m"}] * n}),
    "reason of a leave":       (limits.REASON_CHARS_MAX,
                                lambda n: {**LEAVE, "members": [{"member_id": "m", "reason": "x" * n}]}),
    "offsets to commit":       (limits.PARTITIONS_PER_REQUEST_MAX, lambda n: {**COMMIT, "offsets": [OFFSET] * n}),
    "topic to commit":         (limits.NAME_CHARS_MAX,        lambda n: offset(topic="x" * n)),
    "metadata of an offset":   (limits.COMMIT_METADATA_CHARS_MAX, lambda n: offset(metadata="x" * n)),
    "partition, int32":        (2**31 - 1,                    lambda n: offset(partition=n)),
    "offset, int64":           (2**63 - 1,                    lambda n: offset(offset=n)),
    "leader epoch, int32":     (2**31 - 1,                    lambda n: offset(leader_epoch=n)),
    "retention, int64":        (2**63 - 1,                    lambda n: offset(retention_ms=n)),
    "topics to fetch":         (limits.PARTITIONS_PER_REQUEST_MAX,
                                lambda n: {**FETCH, "topics": [{"topic": "t", "partitions": []}] * n}),
    "partitions to fetch":     (limits.PARTITIONS_PER_REQUEST_MAX,
                                lambda n: {**FETCH, "topics": [{"topic": "t", "partitions": [0] * n}]}),
    "instance id in a sync":   (limits.ID_CHARS_MAX,          lambda n: {**SYNC, "group_instance_id": "x" * n}),
    "instance id in a heartbeat": (limits.ID_CHARS_MAX,       lambda n: {**HEARTBEAT, "group_instance_id": "x" * n}),
    "instance id in a commit": (limits.ID_CHARS_MAX,          lambda n: {**COMMIT, "group_instance_id": "x" * n}),
    "instance id in a leave":  (limits.ID_CHARS_MAX,
                                lambda n: {**LEAVE, "members": [{"member_id": "", "group_instance_id": "x" * n}]}),
    "states to list":          (limits.FILTERS_MAX,           lambda n: {**LIST, "states": ["Stable"] * n}),
    "types to list":           (limits.FILTERS_MAX,           lambda n: {**LIST, "types": ["classic"] * n}),
    "name of a state":         (limits.NAME_CHARS_MAX,        lambda n: {**LIST, "states": ["x" * n]}),
    "topics to delete offsets of": (limits.PARTITIONS_PER_REQUEST_MAX,
                                lambda n: {**FORGET, "topics": [{"topic": "t", "partitions": []}] * n}),
    "partitions to delete offsets of": (limits.PARTITIONS_PER_REQUEST_MAX,
                                lambda n: {**FORGET, "topics": [{"topic": "t", "partitions": [0] * n}]}),
    "reason of a rebalance":   (limits.REASON_CHARS_MAX,      lambda n: {**REBALANCE, "reason": "x" * n}),
    "member id to expel":      (limits.ID_CHARS_MAX,          lambda n: {**EXPEL, "member_id": "x" * n}),
    "instance id to expel":    (limits.ID_CHARS_MAX,          lambda n: {**EXPEL, "group_instance_id": "x" * n}),
    "reason to expel":         (limits.REASON_CHARS_MAX,      lambda n: {**EXPEL, "reason": "x" * n}),
    "generation, int32":       (2**31 - 1,                    lambda n: {**HEARTBEAT, "generation_id": n}),
    "session timeout, int32":  (2**31 - 1,                    lambda n: {**JOIN, "session_timeout_ms": n}),
}  # fmt: skip


def parse(request: dict[str, Any]) -> Request:
    return msgspec.json.decode(json.dumps(request).encode(), type=Request)


@pytest.mark.parametrize("bound", BOUNDS)
def test_at_the_bound_and_one_beyond(bound: str):
    """S25, I22."""
    most, request = BOUNDS[bound]
    parse(request(most))
    with pytest.raises(msgspec.ValidationError):
        parse(request(most + 1))


GOOD = (JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH, DESCRIBE, LIST, FORGET, DELETE, REBALANCE, EXPEL)


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good["kind"])
def test_unknown_fields_and_kinds_are_refused(good: dict[str, Any]):
    """S25."""
    parse(good)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        parse({**good, "topic": "elsewhere"})
    with pytest.raises(msgspec.ValidationError, match="kind"):
        parse({**good, "kind": "delete_everything"})


def test_half_a_surrogate_pair_is_no_text():
    """I22: what cannot be written to bytes is never let in."""
    half = rb'{"kind":"describe_group","request_id":"1","reply_to":"i","group_id":"\ud800"}'
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(half, type=Request)


@pytest.mark.parametrize("ask", ["join", "heartbeat", "sync", "leave", "commit", "fetch", "describe"])
def test_a_group_id_has_a_length(ask: str):
    """S26, I22: 249 characters are served, one more is INVALID_GROUP_ID in every kind of request."""
    arguments = {"leave": ["c"], "commit": ["c", {("t", 0): 1}]}.get(ask, ["c"])
    s = Scenario()
    s.group_id = "x" * (limits.GROUP_ID_CHARS_MAX + 1)
    getattr(s, ask)(*arguments).hears(ErrorCode.INVALID_GROUP_ID)
    assert s.shard.group_ids == ()
    s.group_id = "x" * limits.GROUP_ID_CHARS_MAX
    getattr(s, ask)(*arguments)
    assert s.said.error != "INVALID_GROUP_ID"


@pytest.mark.parametrize("ask", ["join", "heartbeat", "sync", "leave"])
def test_a_group_must_have_a_name(ask: str):
    """S26; protocol.md 3.0 row 5."""
    s = Scenario()
    s.group_id = ""
    getattr(s, ask)("c").hears(ErrorCode.INVALID_GROUP_ID)
    assert s.shard.group_ids == ()


def test_offsets_may_be_kept_for_the_group_without_a_name():
    """protocol.md 3.0 row 5: an empty id is accepted by the offset APIs, and described."""
    s = Scenario()
    s.group_id = ""
    s.commit_from_outside("tool", {("t", 0): 5}).hears(ErrorCode.NONE).fetch("tool")
    assert [f.offset for f in s.said.partitions] == [5]
    s.describe().hears(ErrorCode.NONE, group_id="")


def test_the_longest_client_id_can_use_the_member_id_that_it_is_given():
    """I22, S61: no bound may make an id that we hand out unusable."""
    longest = max(n for n in range(1, limits.ID_CHARS_MAX + 1) if accepts({**JOIN, "client_id": "x" * n}))
    s = Scenario().join("x" * longest, require_known_member_id=True)
    assert accepts({**JOIN, "member_id": s.said.member_id})


def accepts(request: dict[str, Any]) -> bool:
    try:
        parse(request)
    except msgspec.ValidationError:
        return False
    return True


def test_the_bounds_of_sessions():
    """S38: Kafka's defaults, both ends included."""
    config = Config()
    for timeout_ms, error in {
        config.group_min_session_timeout_ms - 1: ErrorCode.INVALID_SESSION_TIMEOUT,
        config.group_min_session_timeout_ms: ErrorCode.NONE,
        config.group_max_session_timeout_ms: ErrorCode.NONE,
        config.group_max_session_timeout_ms + 1: ErrorCode.INVALID_SESSION_TIMEOUT,
    }.items():
        Scenario().join("c", session_timeout_ms=timeout_ms).hears(error)


def test_a_plan_may_be_for_as_many_members_as_a_group_may_have():
    """limits.py: the bounds fit each other."""
    assert Config().group_max_size <= limits.ASSIGNMENTS_MAX


def test_defaults_are_kafkas():
    """protocol.md 1.4."""
    config = Config()
    assert config.group_initial_rebalance_delay_ms == 3_000
    assert (config.group_min_session_timeout_ms, config.group_max_session_timeout_ms) == (6_000, 1_800_000)
    assert config.group_new_member_join_timeout_ms == 300_000
    assert config.offsets_retention_ms == 7 * 24 * 3_600_000
    assert config.offset_metadata_max_bytes == 4_096
    assert JoinGroup.__struct_fields__[-2:] == ("require_known_member_id", "supports_skipping_assignment")
