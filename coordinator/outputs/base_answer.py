"""The fields that responses have in common."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from coordinator.errors import ErrorCode


class Moved(Struct, frozen=True):
    """The coordinator that serves a name, in a response with NOT_COORDINATOR.

    Args:
        to: Its prefix.
        number: The number of the move there; the higher one of two numbers is right.
        of: Whether the name has moved, or its slot.
    """

    to: str
    number: int
    of: Literal["name", "slot"] = "name"


class Answer(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The fields of every response: the request that it answers, and Kafka's error name and number.

    `moved` is there if another coordinator serves the group.
    """

    request_id: str | None
    error: str = ErrorCode.NONE.name
    code: int = ErrorCode.NONE.number
    error_message: str | UnsetType = UNSET
    moved: Moved | UnsetType = UNSET
