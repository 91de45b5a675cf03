"""How an event comes about: under the group's next version, at its time, in its generation."""

from typing import Any, TypeVar

from coordinator.group import Group, Member
from coordinator.outputs import Event, MemberEvent

E = TypeVar("E", bound=Event)
M = TypeVar("M", bound=MemberEvent)


def event(kind: type[E], group: Group, now_ms: int, **fields: Any) -> E:
    """Say what happened to a group."""
    return kind(
        group_id=group.group_id,
        version=group.next_version(),
        at_ms=now_ms,
        generation_id=group.generation_id,
        **fields,
    )


def member_event(kind: type[M], group: Group, member: Member, now_ms: int, **fields: Any) -> M:
    """Say what happened to one of its members."""
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
