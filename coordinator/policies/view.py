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
from coordinator.state.policy_state import UnstableClient, Vacancy


def hold_of(group: Group) -> Hold | UnsetType:
    """Return the effect of policies for the record of a group; UNSET if they have none."""
    policy_state, frozen_ms = group.policy_state, _frozen_until_ms(group)
    if not (policy_state.is_held or policy_state.quarantined or frozen_ms):
        return UNSET
    return Hold(
        since_ms=policy_state.since_ms,
        until_ms=_until_ms(group),
        frozen_until_ms=frozen_ms,
        vacant=len(policy_state.vacant),
        standing_by=len(policy_state.standbys),
        quarantined=len(policy_state.quarantined),
    )


def standing_of(group: Group, member: Member) -> str | UnsetType:
    """Return the standing that a policy gives a member; UNSET if it has none."""
    if member.member_id in group.policy_state.quarantined:
        return "quarantined"
    if member.member_id in group.hot_state.called:
        return "called"
    return "standing_by" if member.member_id in group.policy_state.standbys else UNSET


def hold_of_consumers(group: ConsumerGroup) -> Hold | UnsetType:
    """Return the effect of policies for the record of a group of the consumer protocol; UNSET if they have none."""
    held, policy_state, frozen_ms = group.held, group.policy_state, _frozen_until_ms(group)
    if held is None and not policy_state.quarantined:
        return UNSET
    return Hold(
        since_ms=None if held is None else held.since_ms,
        until_ms=None if held is None else held.due_ms,
        frozen_until_ms=frozen_ms,
        vacant=0 if held is None else held.vacant,
        standing_by=sum(standing_of_consumer(group, member) == "standing_by" for member in group.members.values()),
        quarantined=len(policy_state.quarantined),
    )


def standing_of_consumer(group: ConsumerGroup, member: ConsumerMember) -> str | UnsetType:
    """Return the standing that a policy gives a member of such a group; UNSET if it has none.

    A newcomer has no target before the target assignment that is held.
    """
    if member.member_id in group.policy_state.quarantined:
        return "quarantined"
    is_waiting = group.held is not None and member.member_id not in group.targets
    return "standing_by" if is_waiting else UNSET


def policy_of(config: Config) -> PolicyName | UnsetType:
    """Return the name of the policy entry in force; UNSET if there is none."""
    return UNSET if config.policy is None else PolicyName(config.policy.name, config.policy.pattern)


def described_hold_of(group: Group) -> DescribedHold | UnsetType:
    """Return the effect of policies for the description of a group; UNSET if they have none."""
    hold, policy_state = hold_of(group), group.policy_state
    if hold is UNSET:
        return UNSET
    return DescribedHold(
        since_ms=policy_state.since_ms,
        until_ms=_until_ms(group),
        frozen_until_ms=_frozen_until_ms(group),
        vacant=tuple(_vacant(group, key, vacancy) for key, vacancy in policy_state.vacant.items()),
        standing_by=tuple(
            StandingBy(member_id, standby.policy, standby.since_ms, policy_state.due_ms(standby))
            for member_id, standby in policy_state.standbys.items()
        ),
        quarantined=tuple(
            _quarantined(group, member_id, until_ms) for member_id, until_ms in policy_state.quarantined.items()
        ),
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
        until_ms=group.policy_state.due_ms(vacancy),
        offered_to=vacancy.offered_to or None,
        led=group.policy_state.leader_vacancy == key,
    )


def _quarantined(group: Group, member_id: str, until_ms: int) -> Quarantined:
    identity = group.members[member_id].identity
    client = group.policy_state.unstable_clients.get(identity) or UnstableClient()
    return Quarantined(member_id, identity, len(client.times_ms), client.count, until_ms)


def _until_ms(group: Group) -> int | None:
    """Return when the first pending hold is due; None without one. One whose seat is on offer waits for the offer."""
    return min(map(group.policy_state.due_ms, group.policy_state.pending_holds), default=None)


def _frozen_until_ms(group: Group | ConsumerGroup) -> int | None:
    frozen_ms = group.policy_state.frozen_until_ms
    return frozen_ms if group.hot_state.now_ms < frozen_ms < NEVER_MS else None
