"""The fields that events have in common."""

from msgspec import Struct


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
