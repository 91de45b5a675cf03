"""Functions that make events, with the group's next version, time and generation, and the cause that they name."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from coordinator.messages.events import ClockAhead
from coordinator.messages.fields import Event, MemberEvent
from coordinator.messages.requests import Received
from coordinator.state.group import AnyGroup

E = TypeVar("E", bound=Event)
M = TypeVar("M", bound=MemberEvent)


class AnyMember(Protocol):
    """A member of either protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class RebalanceCause(Struct, frozen=True):
    """The cause of a rebalance, as the events name it, and the member that caused it with its own reason."""

    name: str
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None


def member_cause(member: AnyMember, cause: str, reason: str | None = None) -> RebalanceCause:
    """Return the cause of a rebalance with the member that caused it."""
    return RebalanceCause(cause, member.member_id, member.client_id, member.client_host, reason)


def event(kind: type[E], group: AnyGroup, now_ms: int, **fields: Any) -> E:
    """Make an event of a group."""
    return kind(
        group_id=group.group_id,
        version=group.next_version(),
        at_ms=now_ms,
        generation_id=group.generation_id,
        **fields,
    )


def member_event(kind: type[M], group: AnyGroup, member: AnyMember, now_ms: int, **fields: Any) -> M:
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


def clock_ahead(partition: int, records: Sequence[Received], latest_ms: int) -> ClockAhead:
    """Make the event of records whose times are later than the latest time of a step."""
    return ClockAhead(
        group_id=None,
        version=None,
        at_ms=latest_ms,
        generation_id=None,
        partition=partition,
        offset=records[0].offset,
        records=len(records),
        ahead_ms=max(received.at_ms for received in records) - latest_ms,
    )
