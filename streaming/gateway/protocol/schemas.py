"""Structures of Kafka's messages, as kafka-python's schemas define them.

kafka-python has no public name for the schema of a message. It has none for a message without values either, and its
constructor takes longer than reading the frame. So this module uses private names of that library. A test checks that
no other module does.
"""

from dataclasses import dataclass
from typing import Any

from streaming.kafka.structures import Field, Structure


@dataclass(frozen=True, slots=True)
class Message:
    """A message without values, as kafka-python makes it when it reads a message.

    Args:
        kind: kafka-python's class.
    """

    kind: Any
    version: int

    def __call__(self) -> Any:
        message: Any = object.__new__(self.kind)
        message.tags = message.unknown_tags = None
        message._version = self.version
        return message


def structure_of(kind: Any, version: int) -> Structure:
    """Return the structure of a message. Tagged fields are not listed: the gateway uses none.

    Args:
        kind: kafka-python's class (`HeartbeatRequest`).
        version: A version of the class.
    """
    return _structure(kind, kind._struct, version, kind.flexible_version_q(version))


def _structure(kind: Any, schema: Any, version: int, is_flexible: bool) -> Structure:
    fields = tuple(_field(each, version, is_flexible) for each in schema.untagged_fields(version))
    return Structure(fields, is_flexible, Message(kind, version), setattr)


def _field(field: Any, version: int, is_flexible: bool) -> Field:
    is_nullable = field.nullable_for_version_q(version)
    if field.is_struct_array():
        return Field(field.name, "array", is_nullable, _structure(field.data_class, field, version, is_flexible))
    if field.is_array():
        return Field(field.name, "array", is_nullable, _field(field.array_of, version, is_flexible))
    return Field(field.name, field.type_str, is_nullable)
