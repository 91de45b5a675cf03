"""What a member that is gone leaves behind in a Stable group: `LEAVE_OUTCOMES` decides, the first row that fits."""

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import assigned_partitions
from coordinator.base.policies import NO_SETTLE, NO_SUCCESSION, Policy
from coordinator.classic.newcomers import wait_for_quiet
from coordinator.classic.offers import (
    arm,
    index_of,
    index_vacancy,
    match_key_of,
    offer_to_standby,
    rounded,
    unindex_member,
    withdraw,
)
from coordinator.classic.rebalance import remove_member
from coordinator.common.events import RebalanceCause, member_event
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import SeatVacated
from coordinator.policies.instability import End, record_end
from coordinator.policies.rules import begin_freeze, frozen_until_ms, is_seatable, owns_partitions, unowned_max_ms
from coordinator.state.classic_group import Group, Member
from coordinator.state.policy_state import Answered, MatchKey, Vacancy


def unowned_until_ms(group: Group, now_ms: int, config: Config) -> int:
    """Return the time at which a present member adopts the partitions of a vacancy that begins now."""
    return arm(group, rounded(group.hot_state.wait(now_ms, unowned_max_ms(config))))


class LeaveOutcome(Enum):
    """What a member that is gone leaves behind."""

    REBALANCE = auto()  # a rebalance of the others
    NOTHING = auto()  # no other member hears of it
    VACANCY = auto()  # its assignment, for another member


class LeavingMember(NamedTuple):
    """A member that is about to be removed, and the policy entry in force."""

    group: Group
    member: Member
    match_key: MatchKey
    end: End
    now_ms: int
    policy: Policy
    config: Config

    @property
    def leads(self) -> bool:
        """True if the member was told that it leads, and not only by a seat that it was offered and has not taken."""
        group = self.group
        is_leader = group.leader_id == self.member.member_id and group.policy_state.leader_vacancy is None
        return is_leader and self.member.member_id not in group.policy_state.offers


# -- conditions --------------------------------------------------------------------------------------------------------


def is_the_last_or_not_seatable(leaving: LeavingMember) -> bool:
    """Return whether no visible member is left, or the group's rebalances are not held."""
    others = (m for m in leaving.group.visible if m is not leaving.member)
    return not is_seatable(leaving.group, leaving.config) or next(others, None) is None


def owns_nothing_and_does_not_lead(leaving: LeavingMember) -> bool:
    return not owns_partitions(leaving.member) and not leaving.leads


def goes_in_a_freeze(leaving: LeavingMember) -> bool:
    return frozen_until_ms(leaving.config, leaving.now_ms) is not None


def has_succession_within_its_share(leaving: LeavingMember) -> bool:
    """Return whether the assignment is kept: not too many are, and either it waits or a standby waits for it."""
    group, succession = leaving.group, leaving.policy.succession
    if succession is None:
        return False
    vacant = len(group.policy_state.vacant) + 1
    is_an_outage = vacant > 1 and vacant * 100 > succession.vacant_percent_max * (len(group.members) + vacant - 1)
    return not is_an_outage and (
        succession.vacant_ms > 0 or index_of(group).standbys.first(leaving.match_key) is not None
    )


def leaves_and_waits_for_quiet(leaving: LeavingMember) -> bool:
    return leaving.end is End.LEFT and (leaving.policy.settle or NO_SETTLE).leave_quiet_ms > 0


def anybody(leaving: LeavingMember) -> bool:
    return True


LEAVE_OUTCOMES: tuple[tuple[Callable[[LeavingMember], bool], LeaveOutcome, str], ...] = (
    # a member that ...                 leaves behind           by the policy
    (is_the_last_or_not_seatable,       LeaveOutcome.REBALANCE, ""),
    (owns_nothing_and_does_not_lead,    LeaveOutcome.NOTHING,   ""),
    (goes_in_a_freeze,                  LeaveOutcome.VACANCY,   "freeze"),
    (has_succession_within_its_share,   LeaveOutcome.VACANCY,   "succession"),
    (leaves_and_waits_for_quiet,        LeaveOutcome.VACANCY,   "settle"),
    (anybody,                           LeaveOutcome.REBALANCE, ""),
)  # fmt: skip


# -- removal -----------------------------------------------------------------------------------------------------------


class Departure:
    """The removal of a member that leaves or expires.

    Attributes:
        is_held: No rebalance follows: a policy decides.
    """

    def __init__(self, group: Group, member: Member, end: End, now_ms: int, config: Config) -> None:
        self._group, self._member, self._now_ms, self._config = group, member, now_ms, config
        self._leaving = leaving = _leaving_member(group, member, end, now_ms, config)
        self._outcome, self._policy = _leave_outcome(leaving) if leaving is not None else (LeaveOutcome.REBALANCE, "")
        self.is_held = self._outcome is not LeaveOutcome.REBALANCE
        self._was_leader = leaving is not None and leaving.leads
        self._freed: list[str] = []
        record_end(group, member, end, now_ms, config)

    def remove(self) -> Iterator[Output]:
        """Remove the member. If a rebalance follows, its round begins with the members before."""
        if not self.is_held:
            self._group.open_round(self._now_ms)
        else:
            leads_by_its_offer = self._group.leader_id == self._member.member_id and not self._was_leader
            self._freed = withdraw(self._group, self._member)
            if leads_by_its_offer and self._freed and self._group.policy_state.leader_vacancy is None:
                self._group.policy_state.leader_vacancy = self._freed[0]
            unindex_member(self._group, self._member)
            self._group.policy_state.answered.setdefault(self._member.member_id, Answered())
        yield from remove_member(self._group, self._member)

    def leave_behind(self, cause: RebalanceCause) -> Iterator[Output]:
        """Keep what the member leaves behind, after the event of its end.

        Args:
            cause: The cause of the rebalance that is held.
        """
        if self._leaving is not None and self._outcome is LeaveOutcome.VACANCY:
            yield from _create_vacancy(self._leaving, self._policy, cause, was_leader=self._was_leader)
            self._freed.append(self._member.member_id)
        self._group.is_policy_state_changed |= self.is_held
        for key in self._freed:
            yield from offer_to_standby(self._group, key, self._now_ms)


def _leaving_member(group: Group, member: Member, end: End, now_ms: int, config: Config) -> LeavingMember | None:
    """Return a member that goes, for the table; None if no policy is in force."""
    if config.policy is None:
        return None
    return LeavingMember(group, member, match_key_of(group, member), end, now_ms, config.policy, config)


def _leave_outcome(leaving: LeavingMember) -> tuple[LeaveOutcome, str]:
    return next((then, policy) for fits, then, policy in LEAVE_OUTCOMES if fits(leaving))


def _create_vacancy(
    leaving: LeavingMember, policy: str, cause: RebalanceCause, *, was_leader: bool
) -> Iterator[Output]:
    """Keep the assignment of a member that was removed."""
    group, member, now_ms = leaving.group, leaving.member, leaving.now_ms
    until_ms, wait_ms = _until_ms(leaving, policy)
    group.policy_state.vacant[member.member_id] = Vacancy(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscription_digest=leaving.match_key.subscription_digest,
        assignment=member.assignment,
        since_ms=now_ms,
        until_ms=until_ms,
        policy=policy,
        wait_ms=wait_ms,
        cause=cause.name,
        reason=cause.reason,
    )
    index_vacancy(group, member.member_id)
    if was_leader:
        group.policy_state.leader_vacancy = member.member_id
    if policy == "freeze":
        yield from begin_freeze(group, now_ms, leaving.config)
    yield member_event(
        SeatVacated,
        group,
        member,
        now_ms,
        policy=policy,
        cause=cause.name,
        reason=cause.reason,
        partitions=assigned_partitions(member.assignment) or {},
        until_ms=until_ms,
    )


def _until_ms(leaving: LeavingMember, policy: str) -> tuple[int, int]:
    """Return the time at which the pending hold is due, noted as a deadline, and how long it waits."""
    group, policies, now_ms = leaving.group, leaving.policy, leaving.now_ms
    if policy == "freeze":
        return unowned_until_ms(group, now_ms, leaving.config), unowned_max_ms(leaving.config)
    if policy == "succession":
        wait_ms = (policies.succession or NO_SUCCESSION).vacant_ms
        return arm(group, group.hot_state.wait(now_ms, wait_ms)), wait_ms
    settle = policies.settle or NO_SETTLE
    return wait_for_quiet(group, settle.leave_quiet_ms, settle.max_ms, now_ms), settle.leave_quiet_ms
