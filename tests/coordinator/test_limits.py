"""Every bound, at the bound and one beyond it (I22; design.md 3): requests beyond it are refused with a message."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from coordinator.base import limits
from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.requests import JoinGroup, Received, Request
from coordinator.messages.responses import Reply
from coordinator.shard.shard import Shard
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
RULE = {"principal": "User:ana", "operation": "READ", "resource": "GROUP", "name": "g"}
SET = {**ASKED, "kind": "set_access", "made_ms": 1, "rules": [RULE]}
POLICIES = {**ASKED, "kind": "set_policies", "made_ms": 1, "policies": []}
ACTION = {"operation": "READ", "resource": "GROUP", "name": "g"}
CHECK = {**ASKED, "kind": "check_access", "actions": [ACTION]}
EXPEL = {**ASKED, "kind": "expel_member", "member_id": "m"}


def protocols(**fields: Any) -> dict[str, Any]:
    return {**JOIN, "protocols": [{"name": "range", **fields}]}


def rule(**fields: Any) -> dict[str, Any]:
    return {**SET, "rules": [{**RULE, **fields}]}


def offset(**fields: Any) -> dict[str, Any]:
    return {**COMMIT, "offsets": [{**OFFSET, **fields}]}


BOUNDS = {
    # a bound                   a request with a field of that length
    "request id":              (limits.ID_CHARS_MAX,          lambda n: {**DESCRIBE, "request_id": "x" * n}),
    "inbox":                   (limits.ID_CHARS_MAX,          lambda n: {**DESCRIBE, "reply_to": "x" * n}),
    "client id":               (limits.NAME_CHARS_MAX,        lambda n: {**DESCRIBE, "client_id": "x" * n}),
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
    "name of a type":          (limits.NAME_CHARS_MAX,        lambda n: {**LIST, "types": ["x" * n]}),
    "rules":                   (limits.RULES_MAX,             lambda n: {**SET, "rules": [RULE] * n}),
    "principal of a rule":     (limits.ID_CHARS_MAX,          lambda n: rule(principal="User:" + "x" * (n - 5))),
    "resource of a rule":      (limits.NAME_CHARS_MAX,        lambda n: rule(name="x" * n)),
    "host of a rule":          (limits.HOST_CHARS_MAX,        lambda n: rule(host="x" * n)),
    "time of rules, int64":    (2**63 - 1,                    lambda n: {**SET, "made_ms": n}),
    "policies":                (limits.POLICIES_MAX,          lambda n: {**POLICIES, "policies": [{"name": "g"}] * n}),
    "name of a policy":        (limits.NAME_CHARS_MAX,        lambda n: {**POLICIES, "policies": [{"name": "x" * n}]}),
    "time of policies, int64": (2**63 - 1,                    lambda n: {**POLICIES, "made_ms": n}),
    "actions to check":        (limits.ACTIONS_MAX,           lambda n: {**CHECK, "actions": [ACTION] * n}),
    "resource to check":       (limits.NAME_CHARS_MAX,
                                lambda n: {**CHECK, "actions": [{**ACTION, "name": "x" * n}]}),
    "topic to fetch":          (limits.NAME_CHARS_MAX,
                                lambda n: {**FETCH, "topics": [{"topic": "x" * n, "partitions": [0]}]}),
    "topic to delete offsets of": (limits.NAME_CHARS_MAX,
                                lambda n: {**FORGET, "topics": [{"topic": "x" * n, "partitions": [0]}]}),
    "member id in a plan":     (limits.ID_CHARS_MAX,
                                lambda n: {**SYNC, "assignments": [{"member_id": "x" * n}]}),
    "member id in a leave":    (limits.ID_CHARS_MAX,          lambda n: {**LEAVE, "members": [{"member_id": "x" * n}]}),
    "member id in a commit":   (limits.ID_CHARS_MAX,          lambda n: {**COMMIT, "member_id": "x" * n}),
    "member id in a fetch":    (limits.ID_CHARS_MAX,          lambda n: {**FETCH, "member_id": "x" * n}),
    "protocol type in a sync": (limits.NAME_CHARS_MAX,        lambda n: {**SYNC, "protocol_type": "x" * n}),
    "protocol name in a sync": (limits.NAME_CHARS_MAX,        lambda n: {**SYNC, "protocol_name": "x" * n}),
    "rebalance timeout, int32": (2**31 - 1,                   lambda n: {**JOIN, "rebalance_timeout_ms": n}),
    "generation, int32":       (2**31 - 1,                    lambda n: {**HEARTBEAT, "generation_id": n}),
    "session timeout, int32":  (2**31 - 1,                    lambda n: {**JOIN, "session_timeout_ms": n}),
}  # fmt: skip


def parse(request: dict[str, Any]) -> Request:
    return msgspec.json.decode(json.dumps(request).encode(), type=Request)


@pytest.mark.parametrize("bound", BOUNDS)
def test_at_the_bound_and_one_beyond(bound: str):
    """S25, I22: a length at the bound is accepted, one beyond is refused."""
    most, request = BOUNDS[bound]
    parse(request(most))
    with pytest.raises(msgspec.ValidationError):
        parse(request(most + 1))


GOOD = (JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH, DESCRIBE, LIST, FORGET, DELETE, REBALANCE, EXPEL)


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good["kind"])
def test_unknown_fields_and_kinds_are_refused(good: dict[str, Any]):
    """S25: unknown fields and kinds are refused."""
    parse(good)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        parse({**good, "topic": "elsewhere"})
    with pytest.raises(msgspec.ValidationError, match="kind"):
        parse({**good, "kind": "delete_everything"})


def test_half_a_surrogate_pair_is_refused():
    """I22: a text that cannot be encoded is never accepted."""
    half = rb'{"kind":"describe_group","request_id":"1","reply_to":"i","group_id":"\ud800"}'
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(half, type=Request)


ASKS = ["join", "heartbeat", "sync", "leave", "commit", "fetch", "describe"]
ASKS += ["delete_offsets", "delete", "rebalance", "expel"]
ARGUMENTS: dict[str, list[Any]] = {
    "leave": ["c"],
    "commit": ["c", {("t", 0): 1}],
    "delete_offsets": ["c", {"t": [0]}],
}


@pytest.mark.parametrize("ask", ASKS)
def test_a_group_id_has_a_bounded_length(ask: str):
    """S26, I22: 249 characters are accepted, one more is INVALID_GROUP_ID in every kind of request."""
    arguments = ARGUMENTS.get(ask, ["c"])
    s = Scenario()
    s.group_id = "x" * (limits.GROUP_ID_CHARS_MAX + 1)
    getattr(s, ask)(*arguments).hears(ErrorCode.INVALID_GROUP_ID)
    assert s.shard.group_ids == ()
    s.group_id = "x" * limits.GROUP_ID_CHARS_MAX
    getattr(s, ask)(*arguments)
    assert s.said.error != "INVALID_GROUP_ID"


@pytest.mark.parametrize("ask", ["join", "heartbeat", "sync", "leave", "delete_offsets", "rebalance", "expel"])
def test_a_group_must_have_a_name(ask: str):
    """S26; protocol.md 3.0 row 5: an empty group id is refused."""
    s = Scenario()
    s.group_id = ""
    getattr(s, ask)(*ARGUMENTS.get(ask, ["c"])).hears(ErrorCode.INVALID_GROUP_ID)
    assert s.shard.group_ids == ()


def test_the_group_without_a_name_may_have_offsets():
    """protocol.md 3.0 row 5: an empty id is accepted by the offset APIs, and described."""
    s = Scenario()
    s.group_id = ""
    s.commit_from_outside("tool", {("t", 0): 5}).hears(ErrorCode.NONE).fetch("tool")
    assert [f.offset for f in s.said.partitions] == [5]
    s.describe().hears(ErrorCode.NONE, group_id="")


def test_the_longest_client_id_gets_a_usable_member_id():
    """I22, S61: every assigned member id is within the bounds."""
    longest = max(n for n in range(1, limits.ID_CHARS_MAX + 1) if accepts({**JOIN, "client_id": "x" * n}))
    s = Scenario().join("x" * longest, require_known_member_id=True)
    assert accepts({**JOIN, "member_id": s.said.member_id})


def accepts(request: dict[str, Any]) -> bool:
    try:
        parse(request)
    except msgspec.ValidationError:
        return False
    return True


def test_a_flood_of_new_members_is_bounded():
    """I22: the oldest unused pending id is dropped; a later join with that id starts again."""
    joins = [
        parse({**JOIN, "client_id": f"c{n}", "session_timeout_ms": 1_800_000}) for n in range(limits.PENDING_MAX + 1)
    ]
    shard = Shard(0, 1, bytes(16), Config())
    said = shard.step([Received(n, 1_000, join) for n, join in enumerate(joins)], now_ms=1_000)
    ids = [output.answer.member_id for output in said if isinstance(output, Reply)]
    assert len(ids) == limits.PENDING_MAX + 1
    group = shard.group("g")
    assert group is not None
    assert list(group.hot_state.pending) == ids[1:]
    for member_id, error in ((ids[0], ErrorCode.UNKNOWN_MEMBER_ID), (ids[1], None)):
        again = shard.step([Received(limits.PENDING_MAX + 1, 1_001, parse({**JOIN, "member_id": member_id}))], 1_001)
        assert [o.answer.code for o in again if isinstance(o, Reply)] == ([error.number] if error else [])


def test_the_bounds_of_sessions():
    """S38: the bounds of session timeouts are Kafka's defaults, both ends included."""
    config = Config()
    for timeout_ms, error in {
        config.group_min_session_timeout_ms - 1: ErrorCode.INVALID_SESSION_TIMEOUT,
        config.group_min_session_timeout_ms: ErrorCode.NONE,
        config.group_max_session_timeout_ms: ErrorCode.NONE,
        config.group_max_session_timeout_ms + 1: ErrorCode.INVALID_SESSION_TIMEOUT,
    }.items():
        Scenario().join("c", session_timeout_ms=timeout_ms).hears(error)


def test_a_sync_may_have_an_assignment_for_each_member():
    """limits.py: the two bounds are equal."""
    assert Config().group_max_size <= limits.ASSIGNMENTS_MAX


def test_defaults_are_kafkas():
    """protocol.md 1.4: the defaults are Kafka's."""
    config = Config()
    assert config.group_initial_rebalance_delay_ms == 3_000
    assert (config.group_min_session_timeout_ms, config.group_max_session_timeout_ms) == (6_000, 1_800_000)
    assert config.group_new_member_join_timeout_ms == 300_000
    assert config.offsets_retention_ms == 7 * 24 * 3_600_000
    assert config.offset_metadata_max_bytes == 4_096
    classic = JoinGroup.__struct_fields__[:-1]
    assert classic[-2:] == ("require_known_member_id", "supports_skipping_assignment")


# -- no field without a bound ------------------------------------------------------------------------------------------


def unbounded(kind: Any, path: str) -> Iterator[str]:
    """Yield the parts of a request that have no upper bound."""
    match kind:
        case inspect.StructType():
            for field in kind.fields:
                yield from unbounded(field.type, f"{path}.{field.name}")
        case inspect.UnionType():
            for one in kind.types:
                yield from unbounded(one, path)
        case inspect.VarTupleType() | inspect.ListType():
            if kind.max_length is None:
                yield path
            yield from unbounded(kind.item_type, path)
        case inspect.StrType() | inspect.BytesType():
            if kind.max_length is None:
                yield path
        case inspect.IntType():
            if kind.ge is None or kind.le is None:
                yield path
        case inspect.BoolType() | inspect.NoneType() | inspect.EnumType():
            pass
        case _:
            yield f"{path} is of an unknown kind"


@pytest.mark.parametrize("kind", get_args(Request), ids=lambda kind: kind.__struct_config__.tag)
def test_every_field_of_every_request_has_a_bound(kind: type):
    """I22: all but group ids, whose length gets INVALID_GROUP_ID instead of INVALID_REQUEST."""
    of_groups = {".group_id", ".groups"} if kind is Heartbeats else {".group_id"}
    assert set(unbounded(inspect.type_info(kind), "")) == of_groups


@pytest.mark.parametrize(("name", "most"), [("session_timeout_ms", 2**31), ("rebalance_timeout_ms", 2**31)])
def test_numbers_have_a_lower_bound_too(name: str, most: int):
    """I22: numbers have a lower bound as well."""
    parse({**JOIN, name: -most})
    with pytest.raises(msgspec.ValidationError):
        parse({**JOIN, name: -most - 1})


# -- settings of an operator -------------------------------------------------------------------------------------------


def test_a_new_members_join_has_a_time_limit():
    """protocol.md 4.5: 300000 ms by default, while the others do not rejoin."""
    s = Scenario.stable("c1", session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000).join("c2")
    s.until(299_999).is_("PreparingRebalance", members="c1 c2").is_parked()
    s.until(300_000).is_("PreparingRebalance", members="c1").hears(ErrorCode.UNKNOWN_MEMBER_ID, member_id="")


def test_offsets_are_kept_for_kafkas_seven_days():
    """protocol.md 1.4, 4.6: the default retention of offsets is seven days."""
    week_ms = 7 * 24 * 3_600_000
    s = Scenario().commit_from_outside("tool", {("t", 0): 1}).until(week_ms - 1).is_("Empty")
    s.until(week_ms).is_gone()


def test_an_empty_group_is_kept_for_ten_minutes():
    """protocol.md 4.6: an Empty group without offsets stays for ten minutes."""
    s = Scenario().join("c", require_known_member_id=True).until(599_999).is_("Empty")
    s.until(600_000).is_gone()


@pytest.mark.parametrize("phase", ["PreparingRebalance", "CompletingRebalance", "Stable"])
@pytest.mark.parametrize("instance", [None, "i"], ids=["dynamic", "static"])
def test_a_group_has_at_most_its_largest_size(phase: str, instance: str | None):
    """protocol.md 3.2.3, S60: the last member that fits is accepted, one more is refused, static or not."""
    s = Scenario(delay_ms=3_000, group_max_size=2)
    for name in ("c1", "c2"):
        s.join(name, group_instance_id=instance and f"{instance}-{name}").is_parked()
    if phase != "PreparingRebalance":
        s.until(6_000)
    if phase == "Stable":
        s.sync("c1")
    s.is_(phase, members="c1 c2")
    s.join("c3", group_instance_id=instance and f"{instance}-c3").hears(ErrorCode.GROUP_MAX_SIZE_REACHED)


# -- tombstones of forgotten groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at_ms", "generation"), [(limits.REMOVED_GROUP_MS - 1, 3), (limits.REMOVED_GROUP_MS, 1)])
def test_how_long_a_tombstone_is_kept(at_ms: int, generation: int):
    """I2, I22: a tombstone is kept for REMOVED_GROUP_MS."""
    s = Scenario.stable("c1").leave("c1").delete().is_gone()
    shard = s.new_shard(s.shard.to_bytes())
    join = s.last_request("c1", JoinGroup)
    shard.step([Received(99, at_ms, join)], at_ms)
    founded = shard.group("g")
    assert founded is not None
    assert founded.generation_id == generation
