"""Records of `__consumer_offsets` as Kafka writes them, from the values of their fields."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from coordinator.base.consumer_protocol import Subscription, write_assignment, write_subscription
from streaming.kafka.structures import Field, Structure
from streaming.observe.schemas import KEYS, VALUES, Kind

Written = tuple[bytes, bytes | None]
"""A key and a value."""

ORDERS = UUID("49b2b9b4-7e1a-4196-af7e-cbc87d413f19").bytes
ORDERS_TEXT = "SbK5tH4aQZavfsvIfUE_GQ"

WRITTEN_VERSIONS = {Kind.OFFSET: 4, Kind.CLASSIC_GROUP: 3}


def write(kind: Kind, names: Sequence[str | int], value: Mapping[str, Any] | None) -> Written:
    """Return a record of a kind; a tombstone without a value."""
    key = struct.pack(">h", kind.value)
    for each, name in zip(KEYS[kind].fields, names, strict=True):
        key += _field(each, name, is_flexible=False)
    if value is None:
        return key, None
    version = WRITTEN_VERSIONS.get(kind, 0)
    return key, struct.pack(">h", version) + _structure(VALUES[kind][version], value)


def _structure(structure: Structure, value: Mapping[str, Any]) -> bytes:
    data, tags = b"", []
    for each in structure.fields:
        if each.tag is None:
            data += _field(each, value[each.name], is_flexible=structure.is_flexible)
        elif value.get(each.name) is not None:
            tags.append((each.tag, _field(each, value[each.name], is_flexible=structure.is_flexible)))
    if structure.is_flexible:
        data += _varint(len(tags)) + b"".join(_varint(tag) + _varint(len(told)) + told for tag, told in tags)
    return data


def _field(field: Field | Structure, value: Any, *, is_flexible: bool) -> bytes:
    if isinstance(field, Structure):
        return _structure(field, value)
    match field.type:
        case "array":
            assert field.elements
            items = b"".join(_field(field.elements, each, is_flexible=is_flexible) for each in value)
            return (_varint(len(value) + 1) if is_flexible else struct.pack(">i", len(value))) + items
        case "struct":
            assert isinstance(field.elements, Structure)
            if value is None:
                return b"\xff"
            return (b"\1" if field.is_nullable else b"") + _structure(field.elements, value)
        case "uuid":
            return bytes(value)
        case "string" | "bytes":
            data = value.encode() if isinstance(value, str) else value
            size = -1 if data is None else len(data)
            if is_flexible:
                return _varint(size + 1) + (data or b"")
            return struct.pack(">i" if field.type == "bytes" else ">h", size) + (data or b"")
        case _:
            return struct.pack(
                {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q"}[field.type], value
            )


def _varint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


# -- classic groups and offsets ----------------------------------------------------------------------------------------


def member(
    name: str,
    partitions: Mapping[str, Sequence[int]] | None,
    *,
    instance: str | None = None,
    topics: Sequence[str] = ("orders",),
    client_id: str | None = None,
    session_ms: int = 6_000,
) -> dict[str, Any]:
    """Return a member of a classic group. Its client id is the name up to the first hyphen."""
    return {
        "member_id": name,
        "group_instance_id": instance,
        "client_id": client_id or name.partition("-")[0],
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 300_000,
        "session_timeout": session_ms,
        "subscription": write_subscription(Subscription(tuple(topics))),
        "assignment": b"" if partitions is None else write_assignment(partitions),
    }


def classic(
    group: str,
    generation: int,
    since_ms: int,
    *members: dict[str, Any],
    protocol: str = "range",
    kind: str = "consumer",
) -> Written:
    """Return the record of a classic group, whose joins ended at `since_ms`."""
    value = {
        "protocol_type": kind,
        "generation": generation,
        "protocol": protocol if members else None,
        "leader": members[0]["member_id"] if members else None,
        "current_state_timestamp": since_ms,
        "members": members,
    }
    return write(Kind.CLASSIC_GROUP, [group], value)


def founded(group: str, since_ms: int) -> Written:
    return classic(group, 0, since_ms, kind="")


def commit(group: str, partition: int, offset: int, at_ms: int, *, topic_id: bytes | None = ORDERS) -> Written:
    """Return a commit of a partition of the topic orders."""
    value = {
        "offset": offset,
        "leader_epoch": -1,
        "metadata": "",
        "commit_timestamp": at_ms,
        "topic_id": topic_id,
    }
    return write(Kind.OFFSET, [group, "orders", partition], value)


def forgotten(group: str, partition: int) -> Written:
    return write(Kind.OFFSET, [group, "orders", partition], None)


def gone(kind: Kind, *names: str) -> Written:
    """Return a tombstone."""
    return write(kind, names, None)


# -- groups of the consumer protocol -----------------------------------------------------------------------------------


def epoch(group: str, number: int, *, metadata_hash: int | None = 7) -> Written:
    return write(Kind.EPOCH, [group], {"epoch": number, "metadata_hash": metadata_hash})


def consumer(
    group: str,
    name: str,
    *,
    instance: str | None = None,
    topics: Sequence[str] = ("orders",),
    regex: str = "",
    client_id: str = "ana",
    classic_session_ms: int | None = None,
    assignor: str | None = None,
    rebalance_ms: int = 300_000,
) -> Written:
    """Return the record of a member; a classic one, if it has a session timeout."""
    classic_member = None
    if classic_session_ms is not None:
        protocol = {"name": "range", "metadata": write_subscription(Subscription(tuple(topics)))}
        classic_member = {"session_timeout_ms": classic_session_ms, "supported_protocols": [protocol]}
    value = {
        "instance_id": instance,
        "rack_id": None,
        "client_id": client_id,
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": topics,
        "subscribed_topic_regex": regex,
        "rebalance_timeout_ms": rebalance_ms,
        "server_assignor": assignor,
        "classic_member_metadata": classic_member,
    }
    return write(Kind.MEMBER, [group, name], value)


def target_epoch(group: str, number: int, made_ms: int | None = None) -> Written:
    return write(Kind.TARGET_EPOCH, [group], {"assignment_epoch": number, "assignment_timestamp": made_ms})


def target(group: str, name: str, partitions: Sequence[int]) -> Written:
    return write(Kind.TARGET, [group, name], {"topic_partitions": _ids(partitions)})


def current(
    group: str,
    name: str,
    number: int,
    assigned: Sequence[int] = (),
    revoking: Sequence[int] = (),
    *,
    state: int = 0,
    previous: int = 0,
) -> Written:
    """Return a member's current assignment of partitions of the topic orders."""
    value = {
        "member_epoch": number,
        "previous_member_epoch": previous,
        "state": state,
        "assigned_partitions": _ids(assigned),
        "partitions_pending_revocation": _ids(revoking),
    }
    return write(Kind.CURRENT, [group, name], value)


def pattern(group: str, regex: str, topics: Sequence[str]) -> Written:
    return write(Kind.PATTERN, [group, regex], {"topics": topics, "version": 1, "timestamp": 1})


def old_topics(group: str, *topics: tuple[str, bytes, int], rack: str = "a") -> Written:
    """Return the record in which brokers before 4.1 name a group's topics: each by its name, id and partition count."""
    parts = [
        {
            "topic_id": topic_id,
            "topic_name": name,
            "num_partitions": count,
            "partition_metadata": [{"partition": number, "racks": [rack]} for number in range(count)],
        }
        for name, topic_id, count in topics
    ]
    return write(Kind.OLD_TOPICS, [group], {"topics": parts})


# -- streams groups ----------------------------------------------------------------------------------------------------

Tasks = Mapping[str, Sequence[int]]


def streams_group(
    group: str, number: int, metadata_hash: int = 0, *, validated: int = 0, configs: Mapping[str, str] | None = None
) -> Written:
    pairs = [{"key": key, "value": value} for key, value in (configs or {}).items()]
    value = {
        "epoch": number,
        "metadata_hash": metadata_hash,
        "validated_topology_epoch": validated,
        "last_assignment_configs": pairs,
    }
    return write(Kind.STREAMS_GROUP, [group], value)


def streams_member(
    group: str,
    name: str,
    *,
    instance: str | None = None,
    client_id: str = "ana",
    process_id: str = "p",
    rack: str | None = None,
    endpoint: tuple[str, int] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Written:
    value = {
        "instance_id": instance,
        "rack_id": rack,
        "client_id": client_id,
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": 300_000,
        "topology_epoch": 0,
        "process_id": process_id,
        "user_endpoint": endpoint and dict(zip(("host", "port"), endpoint, strict=True)),
        "client_tags": [{"key": key, "value": each} for key, each in (tags or {}).items()],
    }
    return write(Kind.STREAMS_MEMBER, [group, name], value)


def topology(group: str, **sources: Sequence[str]) -> Written:
    """Return a topology: the topics that each subtopology reads. Its state is in `GROUP-SUBTOPOLOGY-changelog`."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("source_topic_regex", "repartition_sink_topics", "repartition_source_topics", "copartition_groups"), ()
    )
    parts = [
        {
            "subtopology_id": name.lstrip("_"),
            "source_topics": topics,
            "state_changelog_topics": [
                {"name": f"{group}-{name.lstrip('_')}-changelog", "partitions": 0, "replication_factor": -1,
                 "topic_configs": ()}
            ],
            **nothing,
        }
        for name, topics in sources.items()
    ]  # fmt: skip
    return write(Kind.STREAMS_TOPOLOGY, [group], {"epoch": 0, "subtopologies": parts})


def streams_target(group: str, name: str, active: Tasks, standby: Tasks | None = None) -> Written:
    value = {"active_tasks": _tasks(active), "standby_tasks": _tasks(standby), "warmup_tasks": ()}
    return write(Kind.STREAMS_TARGET, [group, name], value)


def streams_target_epoch(group: str, number: int, made_ms: int | None = None) -> Written:
    value = {"assignment_epoch": number, "assignment_timestamp": made_ms}
    return write(Kind.STREAMS_TARGET_EPOCH, [group], value)


def streams_current(
    group: str,
    name: str,
    number: int,
    active: Tasks | None = None,
    standby: Tasks | None = None,
    revoking: Tasks | None = None,
    *,
    state: int = 1,
) -> Written:
    """Return what a member has. The states are 1 stable, 2 unrevoked, 3 unreleased."""
    value = {
        "member_epoch": number,
        "previous_member_epoch": number - 1,
        "state": state,
        "active_tasks": _tasks(active),
        "standby_tasks": _tasks(standby),
        "warmup_tasks": (),
        "active_tasks_pending_revocation": _tasks(revoking),
        "standby_tasks_pending_revocation": (),
        "warmup_tasks_pending_revocation": (),
    }
    return write(Kind.STREAMS_CURRENT, [group, name], value)


def _tasks(tasks: Tasks | None) -> list[dict[str, Any]]:
    return [{"subtopology_id": name, "partitions": numbers} for name, numbers in (tasks or {}).items()]


# -- share groups ------------------------------------------------------------------------------------------------------


def share_group(group: str, number: int, metadata_hash: int = 0) -> Written:
    return write(Kind.SHARE_GROUP, [group], {"epoch": number, "metadata_hash": metadata_hash})


def share_member(group: str, name: str, *, topics: Sequence[str] = ("orders",), client_id: str = "ana") -> Written:
    value = {"rack_id": None, "client_id": client_id, "client_host": "/127.0.0.1", "subscribed_topic_names": topics}
    return write(Kind.SHARE_MEMBER, [group, name], value)


def share_current(group: str, name: str, number: int, partitions: Sequence[int] = ()) -> Written:
    value = {"member_epoch": number, "previous_member_epoch": number - 1, "state": 0}
    return write(Kind.SHARE_CURRENT, [group, name], {**value, "assigned_partitions": _ids(partitions)})


def share_target_epoch(group: str, number: int) -> Written:
    return write(Kind.SHARE_TARGET_EPOCH, [group], {"assignment_epoch": number, "assignment_timestamp": None})


def share_partitions(group: str, initializing: Sequence[int], initialized: Sequence[int]) -> Written:
    """Return the partitions of the topic orders whose share state is being made, and those whose state is there."""
    parts = [[{**each, "topic_name": "orders"} for each in _ids(numbers)] for numbers in (initializing, initialized)]
    value = {"initializing_topics": parts[0], "initialized_topics": parts[1], "deleting_topics": ()}
    return write(Kind.SHARE_PARTITIONS, [group], value)


def _ids(partitions: Sequence[int]) -> list[dict[str, Any]]:
    return [{"topic_id": ORDERS, "partitions": partitions}] if partitions else []
