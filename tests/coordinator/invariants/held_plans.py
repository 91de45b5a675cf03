"""P4, P9 in groups of the consumer protocol: holds and quarantines end in time, and are bounded in number."""

from collections import Counter
from collections.abc import Iterator

from coordinator.base.limits import (
    FREEZE_MS_MAX,
    NEVER_MS,
    POLICIES_AHEAD_MS,
    SHORT_MEMBERSHIPS_MAX,
    UNSTABLE_CLIENTS_MAX,
)
from coordinator.consumer.epochs import has_unowned
from coordinator.messages.events import GroupConverted, MemberBack
from coordinator.messages.policy_events import MemberQuarantined
from coordinator.state.consumer_group import ConsumerGroup
from tests.coordinator.invariants.agreements import Present
from tests.coordinator.invariants.seats import settings_ms
from tests.coordinator.invariants.step import KnownRequests, Step


class HoldsEnd:
    """P4: every hold and every quarantine has a deadline, no later than its policy allows, and it fires.

    A freeze holds no partition without an owner for longer than its bound for such partitions.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
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
        for group in step.consumer_groups.values():
            self.latest_ms = max(self.latest_ms, group.hot_state.now_ms)
            self._fits(group)
            if step.has_honest_clocks:
                for until_ms, longest_ms in self._waits(group):
                    assert until_ms <= self.latest_ms + longest_ms, f"{group.group_id} waits until {until_ms}"

    @staticmethod
    def _fits(group: ConsumerGroup) -> None:
        """Check that holds, quarantines, members and deadlines fit each other."""
        hot_state, held, hidden = group.hot_state, group.held, group.policy_state.quarantined
        assert hot_state.is_frozen == (held is not None and held.policy == "freeze"), f"{group.group_id}: {held}"
        if held is not None:
            assert hot_state.group_epoch > hot_state.assignment_epoch, f"{group.group_id} holds nothing"
            assert hot_state.now_ms < hot_state.plan_ms == held.due_ms, (
                f"{group.group_id} has not acted at {held.due_ms}"
            )
            assert any(group.targets.values()), f"{group.group_id} keeps no target"
        assert hidden.keys() <= group.members.keys(), f"{hidden.keys() - group.members.keys()} are no members"
        assert len(hidden) < max(len(group.members), 1), "nobody is left to own the partitions"
        assert not any(group.targets.get(member_id) for member_id in hidden), "a target of a member in quarantine"
        assert hot_state.now_ms < hot_state.policy_ms <= min(hidden.values(), default=NEVER_MS), (
            f"{group.group_id} {hidden}"
        )

    def _waits(self, group: ConsumerGroup) -> Iterator[tuple[int, int]]:
        """Yield the end of each wait, and the longest time that it may take from now."""
        held, longest = group.held, self.longest_ms
        if held is not None:
            is_frozen = held.policy == "freeze"
            yield held.until_ms, FREEZE_MS_MAX + POLICIES_AHEAD_MS if is_frozen else longest["settle"]
            if is_frozen and held.vacant and has_unowned(group):
                yield held.unowned_until_ms, longest["unowned"]
        yield from ((until_ms, longest["quarantine"]) for until_ms in group.policy_state.quarantined.values())


class QuarantinesAreBounded:
    """P9: members in quarantine are bounded by percent, one always; clients that flap are bounded in number."""

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.present = Present()
        self.converted: set[str] = set()

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            self.present.note(output)
            if isinstance(output, MemberBack) and output.replaces != output.member_id:
                self._replaced(output)
            elif isinstance(output, GroupConverted):
                self.converted.add(output.group_id or "")
            elif isinstance(output, MemberQuarantined) and output.group_id not in self.converted:
                percent = max((p.quarantine.percent_max for p in self.asked.policies if p.quarantine), default=0)
                hidden, members = (len(of[output.group_id]) for of in (self.present.hidden, self.present.members))
                assert hidden <= max(1, percent * members // 100), f"{hidden} of {members} are in quarantine"
        for group in step.consumer_groups.values():
            assert len(group.policy_state.unstable_clients) <= UNSTABLE_CLIENTS_MAX, (
                f"{len(group.policy_state.unstable_clients)} clients flap"
            )
            assert all(
                len(client.times_ms) <= SHORT_MEMBERSHIPS_MAX for client in group.policy_state.unstable_clients.values()
            )

    def _replaced(self, back: MemberBack) -> None:
        members, hidden = self.present.members[back.group_id], self.present.hidden[back.group_id]
        for of in (members, hidden):
            if back.replaces in of:
                of.remove(back.replaces)
                of.add(back.member_id)
