"""Fields of group records that groups of the other protocol do not have."""

from collections.abc import Iterator
from typing import TypeVar

from msgspec import UNSET, UnsetType

from coordinator.base.states import GroupType
from coordinator.messages.group_records import GroupMember
from coordinator.state.consumer_group import AWAY_EPOCH

PartitionKey = tuple[str, int]
"""A topic and a partition."""

AWAY = "away"
"""The state of a static member that went away for a while. The record has only its epoch."""

T = TypeVar("T")


def known(value: T | UnsetType) -> T | None:
    """Return a field of a record; None if the record does not have the field."""
    return None if value is UNSET else value


def protocol_of(member: GroupMember, of_group: GroupType) -> str | None:
    """Return the protocol of a member, which in a mixed group may be the classic one; None if it is unknown."""
    return of_group.value if of_group is GroupType.CLASSIC else known(member.protocol)


def state_of(member: GroupMember) -> str | None:
    """Return the state of a member of a group of the consumer protocol; None in a classic group."""
    return AWAY if member.member_epoch == AWAY_EPOCH else known(member.state)


def held(member: GroupMember) -> Iterator[tuple[str, list[int]]]:
    """Yield the partitions that a member owns: those that it may use, and those that it has not given up yet."""
    for partitions in (member.assigned, known(member.revoking)):
        yield from (partitions or {}).items()
