"""Structures of messages, as kafka-python's schemas define them, and the only module that uses its private names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.consumer.group import JoinGroupRequest

from streaming.gateway.protocol.schemas import Message, structure_of
from streaming.kafka.structures import Field, Structure

STREAMING = Path(__file__).parents[3] / "streaming"
OF_EVERY_NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}


def attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the private attributes that code reads or writes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            yield node


def uses_of_others(tree: ast.AST) -> Iterator[str]:
    """Yield the private attributes of objects other than `self`, and private names imported from kafka-python."""
    for node in attributes(tree):
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            yield node.attr
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "kafka":
            yield from (each.name for each in node.names if each.name.startswith("_"))


def library_names() -> set[str]:
    """Return the private attributes that kafka-python sets or reads."""
    files = Path(kafka.__file__).parent.rglob("*.py")
    return {node.attr for file in files for node in attributes(ast.parse(file.read_text()))} - OF_EVERY_NAMED_TUPLE


def test_only_these_modules_use_private_names_of_kafka_python() -> None:
    names = library_names()
    assert {"_struct", "_version"} <= names
    found = {
        str(file.relative_to(STREAMING)): used
        for file in STREAMING.rglob("*.py")
        if (used := names.intersection(uses_of_others(ast.parse(file.read_text()))))
    }
    assert found == {
        "gateway/protocol/schemas.py": {"_struct", "_version"},
        "kafka/pausing.py": {"_next_partition_records"},
        "kafka/transaction_log.py": {"_cluster", "_fetcher"},
    }


def test_a_structure_lists_the_fields_of_a_version() -> None:
    assert structure_of(JoinGroupRequest, 0) == Structure(
        (
            Field("group_id", "string", False),
            Field("session_timeout_ms", "int32", False),
            Field("member_id", "string", False),
            Field("protocol_type", "string", False),
            Field("protocols", "array", False, protocols(0, is_flexible=False)),
        ),
        False,
        Message(JoinGroupRequest, 0),
        setattr,
    )
    newest = structure_of(JoinGroupRequest, 9)
    assert newest.is_flexible
    oldest = structure_of(JoinGroupRequest, 0).fields
    added = [(field.name, field.is_nullable) for field in newest.fields if field not in oldest]
    assert added == [
        ("rebalance_timeout_ms", False),
        ("group_instance_id", True),
        ("protocols", False),
        ("reason", True),
    ]


def protocols(version: int, is_flexible: bool) -> Structure:
    fields = (Field("name", "string", False), Field("metadata", "bytes", False))
    return Structure(fields, is_flexible, Message(JoinGroupRequest.JoinGroupRequestProtocol, version), setattr)


def test_an_array_of_values_has_the_type_of_its_elements() -> None:
    (groups,) = structure_of(DescribeGroupsRequest, 0).fields
    assert (groups.type, groups.elements) == ("array", Field("groups", "string", False))


@pytest.mark.parametrize("version", [0, 9])
def test_an_empty_message_equals_one_that_kafka_python_reads(version: int) -> None:
    data = JoinGroupRequest(version=version, group_id="g", protocols=[]).encode()
    made, read = structure_of(JoinGroupRequest, version).new(), JoinGroupRequest.decode(data, version=version)
    for field in structure_of(JoinGroupRequest, version).fields:
        setattr(made, field.name, getattr(read, field.name))
    assert made == read
    assert made.encode() == data
    assert (made.version, made.tags, made.unknown_tags) == (version, read.tags or None, read.unknown_tags or None)
