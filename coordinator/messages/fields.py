"""The fields that all requests have in common, those of all events, and the bounded types of fields.

Bounds come from `limits`.
"""

from typing import Annotated

from msgspec import Meta, Struct

from coordinator.base import limits

Id = Annotated[str, Meta(max_length=limits.ID_CHARS_MAX)]
Name = Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)]
Host = Annotated[str, Meta(max_length=limits.HOST_CHARS_MAX)]
Reason = Annotated[str, Meta(max_length=limits.REASON_CHARS_MAX)]
TopicId = Annotated[str, Meta(max_length=22, pattern=r"^[A-Za-z0-9_-]{21}[AQgw]$")]
"""The 16 bytes of a topic id in URL-safe base64 without padding, as Kafka prints them."""

NO_TOPIC = "A" * 22
"""The id that no topic has: 16 zero bytes (Kafka's `Uuid.ZERO_UUID`). In a fetch it stands for a topic that does not
exist. An offset has it if no topic had its topic's name."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class BaseRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The fields of every request.

    Args:
        request_id: Chosen by the client and unique to it; the response repeats it.
        reply_to: The client's mailbox: the key of its responses, hashed to a partition of the reply topic.
        client_host: As Kafka prints it, `/127.0.0.1`. If access rules are in use, the host of an unsigned record is
            ignored.
        principal: The principal of the client; trusted only if the record has a valid signature.
    """

    request_id: Id
    reply_to: Id
    group_id: str
    client_id: Name = ""
    client_host: Host = ""
    principal: Id | None = None


class Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    """The fields of every event.

    `version` counts all records and events that the group publishes, without a gap; null for an event without a group.
    """

    group_id: str | None
    version: int | None
    at_ms: int
    generation_id: int | None


class MemberEvent(Event, frozen=True, kw_only=True):
    """An event of one member."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
