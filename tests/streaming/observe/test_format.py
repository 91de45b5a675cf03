"""Tests of the decoder: recorded bytes field by field, and arbitrary bytes."""

import struct
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.base.binary import TAGS_MAX, Malformed
from coordinator.base.consumer_protocol import assigned_partitions, subscribed_topics
from streaming.observe.format import Commit, Entry, Foreign, Forgotten, _quick_commit, decode
from streaming.observe.schemas import KEYS, SHARE, STREAMS, VALUES, ZERO_ID, Kind
from tests.streaming.observe import vectors as v
from tests.streaming.observe.vectors import Recorded

ORDERS = UUID("49b2b9b4-7e1a-4196-af7e-cbc87d413f19").bytes
ANA = "ana-7193f604-d405-49e8-94a4-45c4e92b5add"
FIRST_OF_MODERN, SECOND_OF_MODERN = "B00WiDjmTFKJurcyAuofRg", "Hl9+mkQjRcOjI7fN22G3xQ"
CREATED, REPLACING = "i-684788ba-73ee-49be-9b21-1cb62d4a49da", "i-98a05a01-d6f9-4bb9-86ef-d2acab913e30"


def entry(recorded: Recorded) -> tuple[Kind, str, str, dict[str, Any]]:
    found = decode(*recorded)
    assert isinstance(found, Entry)
    assert found.value is not None
    return found.kind, found.group, found.name, found.value


def group(recorded: Recorded) -> dict[str, Any]:
    kind, _, name, value = entry(recorded)
    assert (kind, name) == (Kind.CLASSIC_GROUP, "")
    return value


def test_founded_group() -> None:
    assert entry(v.FOUNDED)[1] == "clicks"
    assert group(v.FOUNDED) == {
        "protocol_type": "",
        "generation": 0,
        "protocol": None,
        "leader": None,
        "current_state_timestamp": 1795378903929,
        "members": [],
    }


def test_stable_group() -> None:
    value = group(v.STABLE)
    (member,) = value["members"]
    assert (value["protocol_type"], value["generation"], value["protocol"]) == ("consumer", 1, "range")
    assert (value["leader"], value["current_state_timestamp"]) == (ANA, 1795378906942)
    assert subscribed_topics(member.pop("subscription")) == ["orders"]
    assert assigned_partitions(member.pop("assignment")) == {"orders": [0, 1, 2, 3]}
    assert member == {
        "member_id": ANA,
        "group_instance_id": None,
        "client_id": "ana",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 300_000,
        "session_timeout": 6_000,
    }


def test_empty_group() -> None:
    value = group(v.EMPTY)
    assert (value["generation"], value["protocol_type"], value["protocol"]) == (7, "consumer", None)
    assert (value["leader"], value["current_state_timestamp"], value["members"]) == (None, 1795378957781, [])


@pytest.mark.parametrize(
    ("recorded", "member_id", "since_ms"),
    [(v.STATIC, CREATED, 1795381412408), (v.REPLACED, REPLACING, 1795381412441)],
)
def test_static_member_before_and_after_its_restart(recorded: Recorded, member_id: str, since_ms: int) -> None:
    value = group(recorded)
    (member,) = value["members"]
    assert entry(recorded)[1] == "t"
    assert (value["generation"], value["current_state_timestamp"], value["leader"]) == (1, since_ms, member_id)
    assert (member["member_id"], member["group_instance_id"], member["client_id"]) == (member_id, "i", "s")
    assert assigned_partitions(member["assignment"]) == {"refunds": [0, 1]}


@pytest.mark.parametrize(
    ("recorded", "commit"),
    [
        (v.COMMIT_4, Commit("by-hand", "orders", 0, 17, -1, "noted\0", 1795378966155, None, ORDERS)),
        (v.COMMIT_1, Commit("by-hand", "orders", 3, 12, -1, "v2", 1795379070447, 1795382670447)),
        (v.COMMIT_IN_TRANSACTION, Commit("tx", "orders", 0, 41, -1, "", 1795379069853)),
        (v.OFFSET_0, Commit("g", "t", 3, 71, -1, "m", 1000)),
        (v.OFFSET_1, Commit("g", "t", 3, 71, -1, "m", 1000, 2000)),
        (v.OFFSET_2, Commit("g", "t", 3, 71, -1, "m", 1000)),
        (v.OFFSET_3, Commit("g", "t", 3, 71, 5, "m", 1000)),
        (v.LEGACY, Commit("g", "t", 3, 71, -1, "m", 1000)),
    ],
    ids=["v4", "v1", "in-transaction", "old-v0", "old-v1", "old-v2", "old-v3", "legacy"],
)
def test_commits_of_each_version(recorded: Recorded, commit: Commit) -> None:
    assert decode(*recorded) == commit


def test_member_of_the_consumer_protocol() -> None:
    kind, group_id, member_id, value = entry(v.MEMBER)
    assert (kind, group_id, member_id) == (Kind.MEMBER, "modern", FIRST_OF_MODERN)
    assert value == {
        "instance_id": None,
        "rack_id": None,
        "client_id": "ana",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": ["orders"],
        "subscribed_topic_regex": "",
        "rebalance_timeout_ms": 300_000,
        "server_assignor": None,
        "classic_member_metadata": None,
    }


def test_classic_member_of_a_group_of_the_consumer_protocol() -> None:
    _, group_id, member_id, value = entry(v.CLASSIC_MEMBER)
    assert (group_id, member_id) == ("moving", "c2-c09fabc2-9af6-41a1-98e5-777e2dbccb94")
    assert (value["client_id"], value["classic_member_metadata"]["session_timeout_ms"]) == ("c2", 6_000)
    (protocol,) = value["classic_member_metadata"]["supported_protocols"]
    assert (protocol["name"], subscribed_topics(protocol["metadata"])) == ("range", ["orders"])


def test_epochs() -> None:
    assert entry(v.EPOCH) == (Kind.EPOCH, "modern", "", {"epoch": 2, "metadata_hash": -8536380803862401469})
    assert entry(v.EPOCH_OF_EMPTY)[3] == {"epoch": 9, "metadata_hash": 0}
    assert entry(v.TARGET_EPOCH) == (
        Kind.TARGET_EPOCH,
        "modern",
        "",
        {
            "assignment_epoch": 2,
            "assignment_timestamp": 1795379037620,
        },
    )
    assert entry(v.TARGET_EPOCH_OF_UPGRADE)[3] == {"assignment_epoch": 1, "assignment_timestamp": 0}


def test_target_of_a_member() -> None:
    kind, group_id, member_id, value = entry(v.TARGET)
    assert (kind, group_id, member_id) == (Kind.TARGET, "modern", SECOND_OF_MODERN)
    assert value == {"topic_partitions": [{"topic_id": ORDERS, "partitions": [2, 3]}]}


def assigned(partitions: list[int], epochs: list[int]) -> dict[str, Any]:
    return {"topic_id": ORDERS, "partitions": partitions, "assignment_epochs": epochs}


def test_current_assignments() -> None:
    waiting, revoking, revoked = (entry(each)[3] for each in (v.NEWCOMER, v.HAS_TO_REVOKE, v.HAS_REVOKED))
    assert waiting == {
        "member_epoch": 3,
        "previous_member_epoch": 0,
        "state": 2,
        "assigned_partitions": [],
        "partitions_pending_revocation": [],
    }
    assert (revoking["member_epoch"], revoking["previous_member_epoch"], revoking["state"]) == (2, 2, 1)
    assert revoking["assigned_partitions"] == [assigned([0, 1], [2, 2])]
    assert revoking["partitions_pending_revocation"] == [assigned([2, 3], [2, 2])]
    assert (revoked["member_epoch"], revoked["previous_member_epoch"], revoked["state"]) == (3, 2, 0)
    assert revoked["partitions_pending_revocation"] == []
    assert revoked["assigned_partitions"] == [assigned([0, 1], [2, 2])]


def test_static_member_that_will_be_back() -> None:
    _, group_id, _, value = entry(v.AWAY)
    epochs = value["member_epoch"], value["previous_member_epoch"]
    assert (group_id, epochs, value["state"]) == ("modern-static", (-2, 0), 0)
    assert value["assigned_partitions"] == [assigned([0, 1, 2, 3], [0, 0, 0, 0])]


def test_resolved_pattern() -> None:
    kind, group_id, pattern, value = entry(v.PATTERN)
    assert (kind, group_id, pattern) == (Kind.PATTERN, "regex", "(^ord.*)")
    assert value == {"topics": ["orders"], "version": 506, "timestamp": 1795379037703}


def test_tombstones() -> None:
    assert decode(*v.OFFSET_TOMBSTONE) == Forgotten("coop", "orders", 2)
    assert decode(*v.GROUP_TOMBSTONE) == Entry(Kind.CLASSIC_GROUP, "billing", "", None)
    assert decode(*v.MEMBER_TOMBSTONE) == Entry(Kind.MEMBER, "modern", SECOND_OF_MODERN, None)
    assert decode(*v.EPOCH_TOMBSTONE) == Entry(Kind.EPOCH, "modern", "", None)


@pytest.mark.parametrize(
    ("recorded", "rebalance_timeout_ms", "since_ms", "instance"),
    [(v.GROUP_0, -1, -1, None), (v.GROUP_2, 9_000, 1_000, None), (v.GROUP_4, 9_000, 1_000, "i")],
    ids=["v0", "v2", "v4"],
)
def test_classic_group_of_each_version(
    recorded: Recorded, rebalance_timeout_ms: int, since_ms: int, instance: str | None
) -> None:
    assert group(recorded) == {
        "protocol_type": "consumer",
        "generation": 4,
        "protocol": "range",
        "leader": "a-1",
        "current_state_timestamp": since_ms,
        "members": [
            {
                "member_id": "a-1",
                "group_instance_id": instance,
                "client_id": "a",
                "client_host": "/h",
                "rebalance_timeout": rebalance_timeout_ms,
                "session_timeout": 6_000,
                "subscription": b"\x01",
                "assignment": b"\x02\x03",
            }
        ],
    }


RECORDED = [each for each in vars(v).values() if isinstance(each, Recorded)]
WITH_VALUE = [each for each in RECORDED if each.value is not None]


@pytest.mark.parametrize("recorded", WITH_VALUE)
def test_values_that_are_cut_short_or_continue_are_unreadable(recorded: Recorded) -> None:
    assert recorded.value is not None
    for end in range(len(recorded.value)):
        with pytest.raises(Malformed):
            decode(recorded.key, recorded.value[:end])
    with pytest.raises(Malformed, match="1 bytes too many"):
        decode(recorded.key, recorded.value + b"\0")


@pytest.mark.parametrize("kind", VALUES)
def test_later_version_is_unreadable_and_named(kind: Kind) -> None:
    recorded = next((each for each in WITH_VALUE if each.key[1] == kind.value), None)
    if recorded is None:
        key = struct.pack(">h", kind.value) + b"\0\1g" * len(KEYS[kind].fields)
        recorded = Recorded(key, b"")
    later = len(VALUES[kind])
    with pytest.raises(Malformed, match=f"type {kind.value} has version {later}, which is not known"):
        decode(recorded.key, struct.pack(">h", later) + (recorded.value or b"")[2:])


@pytest.mark.parametrize("number", [9, 18, 24, 99, -1])
def test_unknown_type_is_foreign(number: int) -> None:
    assert decode(struct.pack(">h", number) + b"whatever", b"whatever") == Foreign(number)


def test_topics_of_older_groups() -> None:
    """Only brokers before 4.1 write them."""
    (topic,) = entry(v.OLD_TOPICS)[3]["topics"]
    assert (topic["topic_id"], topic["topic_name"], topic["num_partitions"]) == (ORDERS, "orders", 4)
    assert topic["partition_metadata"] == [{"partition": 0, "racks": ["a"]}]


OF_ORDERS = {"topic_id": ORDERS, "partitions": [0, 3]}


def tasks(subtopology_id: str, *partitions: int, **epochs: Any) -> dict[str, Any]:
    return {"subtopology_id": subtopology_id, "partitions": [*partitions], **epochs}


def key_value(key: str, value: str) -> dict[str, str]:
    return {"key": key, "value": value}


SHARE_AND_STREAMS: dict[str, dict[str, Any]] = {
    "SHARE_MEMBER": {"rack_id": "r", "client_id": "c", "client_host": "/h", "subscribed_topic_names": ["orders"]},
    "SHARE_GROUP": {"epoch": 3, "metadata_hash": -7},
    "SHARE_TARGET_EPOCH": {"assignment_epoch": 3, "assignment_timestamp": 1_000},
    "SHARE_TARGET": {"topic_partitions": [OF_ORDERS]},
    "SHARE_CURRENT": {"member_epoch": 3, "previous_member_epoch": 2, "state": 0, "assigned_partitions": [OF_ORDERS]},
    "SHARE_PARTITIONS": {
        "initializing_topics": [{"topic_id": ORDERS, "topic_name": "orders", "partitions": [1]}],
        "initialized_topics": [{"topic_id": ORDERS, "topic_name": "orders", "partitions": [0, 3]}],
        "deleting_topics": [{"topic_id": ORDERS, "topic_name": "old"}],
    },
    "STREAMS_GROUP": {
        "epoch": 4,
        "metadata_hash": 9,
        "validated_topology_epoch": 1,
        "last_assignment_configs": [key_value("num.standby.replicas", "1")],
        "stored_description_topology_epoch": 1,
        "failed_description_topology_epoch": 0,
    },
    "STREAMS_GROUP_OF_DEFAULTS": {
        "epoch": 4,
        "metadata_hash": 9,
        "validated_topology_epoch": -1,
        "last_assignment_configs": (),
        "stored_description_topology_epoch": -1,
        "failed_description_topology_epoch": -1,
    },
    "STREAMS_MEMBER": {
        "instance_id": "i",
        "rack_id": None,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout_ms": 300_000,
        "topology_epoch": 1,
        "process_id": "p",
        "user_endpoint": {"host": "host", "port": 65_000},
        "client_tags": [key_value("zone", "a")],
    },
    "STREAMS_MEMBER_OF_DEFAULTS": {
        "instance_id": None,
        "rack_id": "r",
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout_ms": -1,
        "topology_epoch": 0,
        "process_id": "p",
        "user_endpoint": None,
        "client_tags": [],
    },
    "STREAMS_TARGET_EPOCH": {"assignment_epoch": 4, "assignment_timestamp": 1_000},
    "STREAMS_TARGET": {
        "active_tasks": [tasks("0", 0, 3)],
        "standby_tasks": [tasks("1", 1)],
        "warmup_tasks": [tasks("1", 2)],
    },
    "STREAMS_CURRENT": {
        "member_epoch": 4,
        "previous_member_epoch": 3,
        "state": 1,
        "active_tasks": [tasks("0", 0, 3, assignment_epochs=[3, 4])],
        "standby_tasks": [tasks("1", 1, assignment_epochs=None)],
        "warmup_tasks": [tasks("1", 2, assignment_epochs=())],
        "active_tasks_pending_revocation": [tasks("0", 5, assignment_epochs=[2])],
        "standby_tasks_pending_revocation": [],
        "warmup_tasks_pending_revocation": [],
    },
    "STREAMS_TOPOLOGY": {
        "epoch": 1,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": ["orders"],
                "source_topic_regex": ["o.*"],
                "state_changelog_topics": [
                    {
                        "name": "log",
                        "partitions": 0,
                        "replication_factor": 3,
                        "topic_configs": [key_value("cleanup.policy", "compact")],
                    }
                ],
                "repartition_sink_topics": ["sink"],
                "repartition_source_topics": [
                    {"name": "source", "partitions": 4, "replication_factor": 1, "topic_configs": []}
                ],
                "copartition_groups": [
                    {"source_topics": [0], "source_topic_regex": [0], "repartition_source_topics": [0]}
                ],
            }
        ],
    },
}
"""The values of share and streams groups, by the names of their vectors, which begin with their kinds."""


@pytest.mark.parametrize(("name", "value"), SHARE_AND_STREAMS.items(), ids=SHARE_AND_STREAMS)
def test_records_of_share_and_streams_groups(name: str, value: dict[str, Any]) -> None:
    kind = Kind[name.partition("_OF_")[0]]
    group_id = "s" if kind in SHARE else "k"
    assert entry(getattr(v, name)) == (kind, group_id, "m" if len(KEYS[kind].fields) == 2 else "", value)


def test_every_kind_of_share_and_streams_groups_is_tested() -> None:
    assert {Kind[name] for name in SHARE_AND_STREAMS if "_OF_" not in name} == SHARE | STREAMS


def test_every_kind_has_a_key_and_a_value() -> None:
    assert KEYS.keys() == VALUES.keys() == set(Kind)
    assert {kind: len(versions) for kind, versions in VALUES.items() if len(versions) > 1} == {
        Kind.OFFSET: 5,
        Kind.CLASSIC_GROUP: 5,
    }


def test_unknown_tags_are_skipped_by_their_size() -> None:
    known = v.EPOCH.value
    assert known is not None
    tags = b"\x02" + known[7:] + b"\x05\x03abc"
    assert entry(Recorded(v.EPOCH.key, known[:6] + tags))[3] == {"epoch": 2, "metadata_hash": -8536380803862401469}


def test_tagged_field_of_another_length_than_its_size_is_unreadable() -> None:
    value = struct.pack(">hi", 0, 2) + b"\x01\x00\x09" + bytes(9)
    with pytest.raises(Malformed, match="metadata_hash has another length than its size"):
        decode(v.EPOCH.key, value)


def test_text_that_is_not_utf_8_is_unreadable() -> None:
    with pytest.raises(Malformed, match="a string in it is not UTF-8"):
        decode(struct.pack(">hh", 2, 1) + b"\xff", v.FOUNDED.value)
    with pytest.raises(Malformed, match="a string in it is not UTF-8"):
        decode(v.OFFSET_3.key, (v.OFFSET_3.value or b"").replace(b"m", b"\xff"))


def test_number_of_tags_is_bounded() -> None:
    """At the bound a struct is read; beyond it the record is unreadable."""

    def value(tags: int) -> bytes:
        return struct.pack(">hi", 0, 2) + bytes([tags & 0x7F | 0x80, tags >> 7]) + b"\x05\x00" * tags

    assert entry(Recorded(v.EPOCH.key, value(TAGS_MAX)))[3]["epoch"] == 2
    with pytest.raises(Malformed, match=f"more than {TAGS_MAX} tagged fields"):
        decode(v.EPOCH.key, value(TAGS_MAX + 1))


def test_count_beyond_the_data_reserves_nothing() -> None:
    value = struct.pack(">h", 0) + b"\xff\xff\xff\xff\x07"
    with pytest.raises(Malformed, match="count is beyond the data"):
        decode(v.TARGET.key, value)


@pytest.mark.parametrize("recorded", [v.COMMIT_4, v.OFFSET_3, v.COMMIT_IN_TRANSACTION])
def test_usual_commits_take_the_quick_way(recorded: Recorded) -> None:
    assert recorded.value is not None
    assert _quick_commit(recorded.key, recorded.value) == decode(*recorded)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


@example("ä" * 99, "ü" * 99, "ö" * 63, None, 0)
@example("g", "t", "ö" * 64, ORDERS, 0)
@given(TEXTS, TEXTS, TEXTS, st.binary(min_size=16, max_size=16) | st.none(), st.integers(-(2**63), 2**63 - 1))
def test_both_ways_read_the_same_commit(group: str, topic: str, note: str, topic_id: bytes | None, at_ms: int) -> None:
    """The quick way gives what the tables give, whatever the texts are, or leaves the record to them."""
    key = struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", 7)
    length = len(note.encode()) + 1
    size = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
    tags = b"\0" if topic_id is None else b"\x01\x00\x10" + topic_id
    value = struct.pack(">hqi", 4, 9, 5) + size + note.encode() + struct.pack(">q", at_ms) + tags
    commit = Commit(group, topic, 7, 9, 5, note, at_ms, None, topic_id or ZERO_ID)
    assert decode(key, value) == commit
    assert _quick_commit(key, value) == (commit if length < 128 else None)
    old = struct.pack(">hqi", 3, 9, 5) + text(note) + struct.pack(">q", at_ms)
    assert decode(key, old) == _quick_commit(key, old) == commit._replace(topic_id=ZERO_ID)


@given(st.sampled_from(RECORDED), st.data())
def test_changed_bytes_raise_nothing_else(recorded: Recorded, data: st.DataObject) -> None:
    """Records with one to eight changed bytes are read or unreadable."""
    key, value = bytearray(recorded.key), bytearray(recorded.value or b"\0\0")
    for _ in range(data.draw(st.integers(1, 8))):
        changed = data.draw(st.sampled_from([key, value]))
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    read_or_unreadable(bytes(key), bytes(value))


@given(st.none() | st.binary(max_size=64), st.none() | st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_else(key: bytes | None, value: bytes | None) -> None:
    read_or_unreadable(key, value)


@given(st.sampled_from(sorted(KEYS)), st.binary(max_size=60), st.binary(max_size=300))
def test_arbitrary_bytes_of_a_known_type_raise_nothing_else(kind: Kind, key: bytes, value: bytes) -> None:
    read_or_unreadable(struct.pack(">h", kind.value) + key, value)
    read_or_unreadable(struct.pack(">h", kind.value) + b"\0\1g" * len(KEYS[kind].fields), b"\0\0" + value)


def read_or_unreadable(key: bytes | None, value: bytes | None) -> None:
    with suppress(Malformed):
        assert isinstance(decode(key, value), Commit | Entry | Forgotten | Foreign)
