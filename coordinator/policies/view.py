"""The effect of policies in a group's record and in the response to a `describe_group` request."""

from msgspec import UNSET, UnsetType

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import assigned_partitions
from coordinator.base.limits import NEVER_MS
from coordinator.messages.group_records import Hold
from coordinator.messages.responses import DescribedHold, PolicyName, Quarantined, StandingBy, VacantSeat
from coordinator.state.classic_group import Group, Member
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember
from coordinator.state.policy_state import Flapper, Vacancy


def hold_of(group: Group) -> Hold | UnsetType:
    """Return the effect of policies for the record of a group; UNSET if they have none."""
    seats, frozen_ms = group.seats, _frozen_until_ms(group)
    if not (seats.is_held or seats.hidden or frozen_ms):
        return UNSET
    return Hold(
        since_ms=seats.since_ms,
        until_ms=_until_ms(group),
        frozen_until_ms=frozen_ms,
        vacant=len(seats.vacant),
        standing_by=len(seats.standbys),
        quarantined=len(seats.hidden),
    )


def standing_of(group: Group, member: Member) -> str | UnsetType:
    """Return the standing that a policy gives a member; UNSET if it has none."""
    if member.member_id in group.seats.hidden:
        return "quarantined"
    if member.member_id in group.vitals.called:
        return "called"
    return "standing_by" if member.member_id in group.seats.standbys else UNSET


def hold_of_consumers(group: ConsumerGroup) -> Hold | UnsetType:
    """Return the effect of policies for the record of a group of the consumer protocol; UNSET if they have none."""
    held, seats, frozen_ms = group.held, group.seats, _frozen_until_ms(group)
    if held is None and not seats.hidden:
        return UNSET
    return Hold(
        since_ms=None if held is None else held.since_ms,
        until_ms=None if held is None else held.due_ms,
        frozen_until_ms=frozen_ms,
        vacant=0 if held is None else held.vacant,
        standing_by=sum(standing_of_consumer(group, member) == "standing_by" for member in group.members.values()),
        quarantined=len(seats.hidden),
    )


def standing_of_consumer(group: ConsumerGroup, member: ConsumerMember) -> str | UnsetType:
    """Return the standing that a policy gives a member of such a group; UNSET if it has none.

    A newcomer has no target before the target assignment that is held.
    """
    if member.member_id in group.seats.hidden:
        return "quarantined"
    is_waiting = group.held is not None and member.member_id not in group.targets
    return "standing_by" if is_waiting else UNSET


def policy_of(config: Config) -> PolicyName | UnsetType:
    """Return the name of the policy entry in force; UNSET if there is none."""
    return UNSET if config.policy is None else PolicyName(config.policy.name, config.policy.pattern)


def described_hold_of(group: Group) -> DescribedHold | UnsetType:
    """Return the effect of policies for the description of a group; UNSET if they have none."""
    hold, seats = hold_of(group), group.seats
    if hold is UNSET:
        return UNSET
    return DescribedHold(
        since_ms=seats.since_ms,
        until_ms=_until_ms(group),
        frozen_until_ms=_frozen_until_ms(group),
        vacant=tuple(_vacant(group, key, vacancy) for key, vacancy in seats.vacant.items()),
        standing_by=tuple(
            StandingBy(member_id, standby.policy, standby.since_ms, seats.due_ms(standby))
            for member_id, standby in seats.standbys.items()
        ),
        quarantined=tuple(_quarantined(group, member_id, until_ms) for member_id, until_ms in seats.hidden.items()),
    )


def _vacant(group: Group, key: str, vacancy: Vacancy) -> VacantSeat:
    return VacantSeat(
        member_id=vacancy.member_id,
        group_instance_id=vacancy.group_instance_id,
        client_id=vacancy.client_id,
        client_host=vacancy.client_host,
        policy=vacancy.policy,
        cause=vacancy.cause,
        partitions=assigned_partitions(vacancy.assignment) or {},
        since_ms=vacancy.since_ms,
        until_ms=group.seats.due_ms(vacancy),
        offered_to=vacancy.offered_to or None,
        led=group.seats.led == key,
    )


def _quarantined(group: Group, member_id: str, until_ms: int) -> Quarantined:
    identity = group.members[member_id].identity
    flapper = group.seats.flappers.get(identity) or Flapper()
    return Quarantined(member_id, identity, len(flapper.times_ms), flapper.count, until_ms)


def _until_ms(group: Group) -> int | None:
    """Return when the first debt is due; None if there is none. A debt whose seat is on offer waits for the offer."""
    return min(map(group.seats.due_ms, group.seats.debts), default=None)


def _frozen_until_ms(group: Group | ConsumerGroup) -> int | None:
    frozen_ms = group.seats.frozen_until_ms
    return frozen_ms if group.vitals.now_ms < frozen_ms < NEVER_MS else None
