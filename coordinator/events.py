"""Functions that make events, with the group's next version, time and generation."""

from typing import Any, TypeVar

from coordinator.group import Group, Member
from coordinator.outputs import Event, MemberEvent

E = TypeVar("E", bound=Event)
M = TypeVar("M", bound=MemberEvent)


def event(kind: type[E], group: Group, now_ms: int, **fields: Any) -> E:
    """Make an event of a group."""
    return kind(
        group_id=group.group_id,
        version=group.next_version(),
        at_ms=now_ms,
        generation_id=group.generation_id,
        **fields,
    )


def member_event(kind: type[M], group: Group, member: Member, now_ms: int, **fields: Any) -> M:
    """Make an event of a member of the group."""
    return event(
        kind,
        group,
        now_ms,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        **fields,
    )
