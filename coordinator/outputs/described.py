"""The effect of policies in the description of a group."""

from msgspec import Struct

from coordinator.access import Pattern


class PolicyName(Struct, frozen=True):
    """The name of the policy entry that is in force for a group."""

    name: str
    pattern: Pattern


class VacantSeat(Struct, frozen=True, kw_only=True):
    """The assignment of a member that is gone.

    Args:
        member_id: "" for partitions that were added.
        offered_to: The member that may take it now, until it has done so or has let the time pass.
        led: The member was the leader.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    policy: str
    cause: str
    partitions: dict[str, list[int]]
    since_ms: int
    until_ms: int
    offered_to: str | None
    led: bool


class StandingBy(Struct, frozen=True):
    """A newcomer that has no partitions yet; it gets some by a rebalance at `until_ms` at the latest."""

    member_id: str
    policy: str
    since_ms: int
    until_ms: int


class Quarantined(Struct, frozen=True):
    """A member in quarantine, with the fields of its `member_quarantined` event."""

    member_id: str
    identity: str
    flaps: int
    times: int
    until_ms: int


class DescribedHold(Struct, frozen=True, kw_only=True):
    """The effect of policies on a group, as `Hold` has it, with each seat and member."""

    since_ms: int | None
    until_ms: int | None
    frozen_until_ms: int | None
    vacant: tuple[VacantSeat, ...]
    standing_by: tuple[StandingBy, ...]
    quarantined: tuple[Quarantined, ...]
