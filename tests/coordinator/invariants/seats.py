"""P4, P9: the pending holds, offers and quarantines of policies end in time, and are bounded in number."""

from collections import Counter
from collections.abc import Iterator

from coordinator.base.config import Config
from coordinator.base.limits import (
    FREEZE_MS_MAX,
    NEVER_MS,
    POLICIES_AHEAD_MS,
    SEAT_OFFER_MS,
    SEATED_MAX,
    SHORT_MEMBERSHIPS_MAX,
    UNSTABLE_CLIENTS_MAX,
)
from coordinator.base.policies import Policy
from coordinator.base.states import Phase
from coordinator.messages.policy_events import MemberQuarantined, SeatVacated
from coordinator.state.classic_group import Group
from tests.coordinator.invariants.agreements import Present
from tests.coordinator.invariants.step import KnownRequests, Step


class SeatsEnd:
    """P4: every pending hold, offer, call and quarantine has a deadline, as its policy allows, that fires."""

    def __init__(self, config: Config, asked: KnownRequests | None = None) -> None:
        self.config = config
        self.asked = asked or KnownRequests()
        self.latest_ms = -NEVER_MS
        self.longest_ms: Counter[str] = Counter()
        self.policies = 0

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for policy in self.asked.policies[self.policies :]:
            self.longest_ms |= settings_ms(policy)
        self.policies = len(self.asked.policies)
        self.latest_ms = max(self.latest_ms, step.now_ms)
        for group in (step.groups or {}).values():
            self.latest_ms = max(self.latest_ms, group.hot_state.now_ms)
            policy_state, hot_state = group.policy_state, group.hot_state
            assert hot_state.policy_ms <= policy_state.earliest_ms, f"{group.group_id} acts at {hot_state.policy_ms}"
            assert policy_state.earliest_ms > hot_state.now_ms, (
                f"{group.group_id} has not acted at {policy_state.earliest_ms}"
            )
            self._fits(group)
            if step.has_honest_clocks:
                for until_ms, longest_ms in self._waits(group):
                    assert until_ms <= self.latest_ms + longest_ms, f"{group.group_id} waits until {until_ms}"

    @staticmethod
    def _fits(group: Group) -> None:
        """Check that members, vacancies, offers and calls fit each other, and that there are none outside Stable."""
        policy_state, members = group.policy_state, group.members
        for named in (
            policy_state.standbys,
            policy_state.offers,
            policy_state.declined,
            policy_state.quarantined,
            group.hot_state.called,
        ):
            assert named.keys() <= members.keys(), f"{named.keys() - members.keys()} are no members"
        assert group.hot_state.called.keys() <= policy_state.offers.keys(), "a member without an offer is called"
        assert not policy_state.quarantined.keys() & (policy_state.standbys.keys() | policy_state.offers.keys())
        offered = {key: member_id for member_id, offer in policy_state.offers.items() for key in offer.vacancies}
        assert offered == {
            key: vacancy.offered_to for key, vacancy in policy_state.vacant.items() if vacancy.offered_to
        }
        is_quiet = sum(hold.policy == "settle" for hold in policy_state.pending_holds)
        assert is_quiet == (0 if policy_state.settle_timer is None else policy_state.settle_timer.pending_holds), (
            "the clock of settle counts other pending holds"
        )
        assert policy_state.leader_vacancy is None or policy_state.leader_vacancy in policy_state.vacant, (
            "the leader's seat is not vacant"
        )
        if group.phase is not Phase.STABLE:
            are_paid = not (policy_state.is_held or policy_state.offers or policy_state.settle_timer)
            assert are_paid, f"pending holds in {group.phase.value}"

    def _waits(self, group: Group) -> Iterator[tuple[int, int]]:
        """Yield the end of each wait, and the longest time that it may take from now."""
        policy_state, longest, frozen_ms = group.policy_state, self.longest_ms, FREEZE_MS_MAX + POLICIES_AHEAD_MS
        for vacancy in policy_state.vacant.values():
            if vacancy.policy != "settle" and not vacancy.offered_to:
                yield vacancy.until_ms, longest["unowned" if vacancy.policy == "freeze" else "vacant"]
        for standby in policy_state.standbys.values():
            if standby.policy != "settle":
                yield standby.until_ms, frozen_ms if standby.policy == "freeze" else longest["standby"]
        if policy_state.settle_timer is not None:
            yield policy_state.settle_timer.until_ms, longest["settle"]
        yield from ((offer.until_ms, SEAT_OFFER_MS) for offer in policy_state.offers.values())
        yield from ((until_ms, longest["quarantine"]) for until_ms in policy_state.quarantined.values())


def settings_ms(policy: Policy) -> Counter[str]:
    """Return the longest waits that an entry allows; 0 if its policy is off."""
    succession, settle, freeze, quarantine = policy.succession, policy.settle, policy.freeze, policy.quarantine
    return Counter(
        vacant=succession.vacant_ms if succession else 0,
        standby=succession.standby_ms if succession else 0,
        settle=settle.max_ms if settle else 0,
        unowned=freeze.unowned_max_ms if freeze else 0,
        quarantine=quarantine.for_max_ms if quarantine else 0,
    )


class SeatsAreBounded:
    """P9: vacancies and members in quarantine are bounded by percent, one always; what is remembered by number."""

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.present = Present()
        self.vacant: dict[str | None, int] = {}

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            self.present.note(output)
            if isinstance(output, MemberQuarantined):
                percent = max((p.quarantine.percent_max for p in self.asked.policies if p.quarantine), default=0)
                hidden, members = (len(of[output.group_id]) for of in (self.present.hidden, self.present.members))
                assert hidden <= max(1, percent * members // 100), f"{hidden} of {members} are in quarantine"
            elif isinstance(output, SeatVacated) and output.policy == "succession":
                assert output.until_ms >= output.at_ms
        for group in (step.groups or {}).values():
            self._looks_right(group)

    def _looks_right(self, group: Group) -> None:
        policy_state = group.policy_state
        assert len(policy_state.unstable_clients) <= UNSTABLE_CLIENTS_MAX, (
            f"{len(policy_state.unstable_clients)} clients flap"
        )
        assert all(len(client.times_ms) <= SHORT_MEMBERSHIPS_MAX for client in policy_state.unstable_clients.values())
        assert len(policy_state.answered) <= SEATED_MAX + 1, f"{len(policy_state.answered)} members are remembered"
        kept = sum(vacancy.policy == "succession" for vacancy in policy_state.vacant.values())
        self.vacant[group.group_id], before = kept, self.vacant.get(group.group_id, 0)
        if not kept:
            return
        percent = max((p.succession.vacant_percent_max for p in self.asked.policies if p.succession), default=0)
        seated = len(group.members) + len(policy_state.vacant)
        assert kept <= max(1, before, percent * seated // 100), f"{kept} seats of {seated} are vacant"
