"""What a member that is gone leaves behind in a Stable group: `GONE` decides, the first row that fits."""

from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from coordinator.base.config import Config
from coordinator.base.consumer_protocol import assigned_partitions
from coordinator.base.policies import Policy
from coordinator.classic.newcomers import wait_for_quiet
from coordinator.classic.offers import arm, offer_to_standby, rounded, withdraw
from coordinator.classic.rebalance import let_go
from coordinator.classic.vacancies import index_of, kin_of, put_in_vacancy, take_out
from coordinator.common.events import Blame, member_event
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import SeatVacated
from coordinator.policies.instability import End, note_end
from coordinator.policies.rules import begin_freeze, frozen_until_ms, is_seatable, owns_partitions, unowned_max_ms
from coordinator.state.classic_group import Group, Member
from coordinator.state.policy_state import Answered, Kin, Vacancy


def unowned_until_ms(group: Group, now_ms: int, config: Config) -> int:
    """Return the time at which a present member adopts the partitions of a vacancy that begins now."""
    return arm(group, rounded(group.vitals.wait(now_ms, unowned_max_ms(config))))


class Leaves(Enum):
    """What a member that is gone leaves behind."""

    AS_EVER = auto()  # a rebalance of the others
    NOTHING = auto()  # no other member hears of it
    VACANCY = auto()  # its assignment, for another member


class Going(NamedTuple):
    """A member that is about to be removed, and the policy entry in force."""

    group: Group
    member: Member
    kin: Kin
    end: End
    now_ms: int
    policy: Policy
    config: Config

    @property
    def leads(self) -> bool:
        """True if the member was told that it leads, and not only by a seat that it was offered and has not taken."""
        group = self.group
        is_leader = group.leader_id == self.member.member_id and group.seats.led is None
        return is_leader and self.member.member_id not in group.seats.offers


# -- conditions --------------------------------------------------------------------------------------------------------


def is_the_last_or_not_seatable(going: Going) -> bool:
    """Return whether no visible member is left, or the group's rebalances are not held."""
    others = (m for m in going.group.visible if m is not going.member)
    return not is_seatable(going.group, going.config) or next(others, None) is None


def owns_nothing_and_does_not_lead(going: Going) -> bool:
    return not owns_partitions(going.member) and not going.leads


def goes_in_a_freeze(going: Going) -> bool:
    return frozen_until_ms(going.config, going.now_ms) is not None


def has_succession_within_its_share(going: Going) -> bool:
    """Return whether the assignment is kept: not too many are, and either it waits or a standby waits for it."""
    group, succession = going.group, going.policy.succession
    if succession is None:
        return False
    vacant = len(group.seats.vacant) + 1
    is_an_outage = vacant > 1 and vacant * 100 > succession.vacant_percent_max * (len(group.members) + vacant - 1)
    return not is_an_outage and (succession.vacant_ms > 0 or index_of(group).standbys.first(going.kin) is not None)


def leaves_and_waits_for_quiet(going: Going) -> bool:
    settle = going.policy.settle
    return going.end is End.LEFT and settle is not None and settle.leave_quiet_ms > 0


def anybody(going: Going) -> bool:
    return True


GONE: tuple[tuple[Callable[[Going], bool], Leaves, str], ...] = (
    # a member that ...                 leaves behind   by the policy
    (is_the_last_or_not_seatable,       Leaves.AS_EVER, ""),
    (owns_nothing_and_does_not_lead,    Leaves.NOTHING, ""),
    (goes_in_a_freeze,                  Leaves.VACANCY, "freeze"),
    (has_succession_within_its_share,   Leaves.VACANCY, "succession"),
    (leaves_and_waits_for_quiet,        Leaves.VACANCY, "settle"),
    (anybody,                           Leaves.AS_EVER, ""),
)  # fmt: skip


# -- removal -----------------------------------------------------------------------------------------------------------


class Departure:
    """The removal of a member that leaves or expires.

    Attributes:
        is_held: No rebalance follows: a policy decides.
    """

    def __init__(self, group: Group, member: Member, end: End, now_ms: int, config: Config) -> None:
        self._group, self._member, self._now_ms, self._config = group, member, now_ms, config
        self._going = going = _going(group, member, end, now_ms, config)
        self._leaves, self._policy = _leaves(going) if going is not None else (Leaves.AS_EVER, "")
        self.is_held = self._leaves is not Leaves.AS_EVER
        self._led = going is not None and going.leads
        self._freed: list[str] = []
        note_end(group, member, end, now_ms, config)

    def remove(self) -> Iterator[Output]:
        """Remove the member. If a rebalance follows, its round begins with the members before."""
        if not self.is_held:
            self._group.open_round(self._now_ms)
        else:
            leads_by_its_offer = self._group.leader_id == self._member.member_id and not self._led
            self._freed = withdraw(self._group, self._member)
            if leads_by_its_offer and self._freed and self._group.seats.led is None:
                self._group.seats.led = self._freed[0]
            take_out(self._group, self._member)
            self._group.seats.answered.setdefault(self._member.member_id, Answered())
        yield from let_go(self._group, self._member)

    def leave_behind(self, behind: Blame) -> Iterator[Output]:
        """Keep what the member leaves behind, after the event of its end.

        Args:
            behind: The cause of the rebalance that is held.
        """
        if self._leaves is Leaves.VACANCY:
            assert self._going is not None, "its row says so"
            yield from _keep(self._going, self._policy, behind, led=self._led)
            self._freed.append(self._member.member_id)
        self._group.are_seats_news |= self.is_held
        for key in self._freed:
            yield from offer_to_standby(self._group, key, self._now_ms)


def _going(group: Group, member: Member, end: End, now_ms: int, config: Config) -> Going | None:
    """Return a member that goes, for the table; None if no policy is in force."""
    if config.policy is None:
        return None
    return Going(group, member, kin_of(group, member), end, now_ms, config.policy, config)


def _leaves(going: Going) -> tuple[Leaves, str]:
    return next((then, policy) for fits, then, policy in GONE if fits(going))


def _keep(going: Going, policy: str, behind: Blame, *, led: bool) -> Iterator[Output]:
    """Keep the assignment of a member that was removed."""
    group, member, now_ms = going.group, going.member, going.now_ms
    until_ms, wait_ms = _until_ms(going, policy)
    group.seats.vacant[member.member_id] = Vacancy(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        likeness=going.kin.likeness,
        assignment=member.assignment,
        since_ms=now_ms,
        until_ms=until_ms,
        policy=policy,
        wait_ms=wait_ms,
        cause=behind.cause,
        reason=behind.reason,
    )
    put_in_vacancy(group, member.member_id)
    if led:
        group.seats.led = member.member_id
    if policy == "freeze":
        yield from begin_freeze(group, now_ms, going.config)
    yield member_event(
        SeatVacated,
        group,
        member,
        now_ms,
        policy=policy,
        cause=behind.cause,
        reason=behind.reason,
        partitions=assigned_partitions(member.assignment) or {},
        until_ms=until_ms,
    )


def _until_ms(going: Going, policy: str) -> tuple[int, int]:
    """Return the time at which the debt is due, noted as a deadline, and how long it waits."""
    group, policies, now_ms = going.group, going.policy, going.now_ms
    if policy == "freeze":
        return unowned_until_ms(group, now_ms, going.config), unowned_max_ms(going.config)
    if policy == "succession":
        assert policies.succession is not None, "its row says so"
        wait_ms = policies.succession.vacant_ms
        return arm(group, group.vitals.wait(now_ms, wait_ms)), wait_ms
    assert policies.settle is not None, "its row says so"
    wait_ms = policies.settle.leave_quiet_ms
    return wait_for_quiet(group, wait_ms, policies.settle.max_ms, now_ms), wait_ms
