"""Freeze: no rebalance until its end, but a partition without an owner does not wait so long (policies.md 3.1)."""

from typing import Any

import pytest
from msgspec import UNSET

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.base.policies import MONDAY_MS, Freeze, Succession, Window
from coordinator.messages.group_records import GroupRecord
from coordinator.messages.policy_events import FreezeBegun, FreezeBroken, RebalanceHeld
from tests.coordinator.seats.deploy import NAMES, Deploy

HOURS_2_MS = 7_200_000


def frozen(**settings: Any) -> Deploy:
    """Return the group, frozen for two hours."""
    return Deploy.of(freeze=Freeze(until_ms=HOURS_2_MS, **settings))


def test_a_freeze_is_reported_once():
    """policies.md 2.3: when it puts something off for the first time."""
    s = frozen().at(1_000).new("a").new("b").leave("c2")
    assert [(e.at_ms, e.until_ms) for e in s.events(FreezeBegun)] == [(1_000, HOURS_2_MS)]


def test_newcomers_of_any_subscription_wait_for_its_end():
    """policies.md 1.6: a newcomer sits if it offers the running assignor; then there is one rebalance for all."""
    s = frozen(unowned_max_ms=600_000).at(1_000).new("a", topics=["u"]).new("b", protocols=["range", "sticky"])
    s.until(1_100).is_("Stable", members="c1 c2 c3 c4 a b")
    s = Deploy.of(freeze=Freeze(until_ms=30_000)).at(1_000).new("n").new("m").until(29_999).is_("Stable")
    s.until(30_000)
    assert s.told() == [
        "1000 rebalance_held n freeze 30000", "1000 rebalance_held m freeze 30000", "30000 rebalance member_joined n",
    ]  # fmt: skip


def test_a_newcomer_without_the_groups_assignor_breaks_it():
    """policies.md 1.6: it cannot be a member of the running generation, and nobody holds a known member's join."""
    s = Deploy.of(protocols=["range", "sticky"], freeze=Freeze(until_ms=HOURS_2_MS)).at(1_000)
    s.new("n", protocols=["sticky"])
    assert s.told() == ["1000 freeze_broken metadata_changed rebalanced n", "1000 rebalance member_joined n"]


def test_a_vacancy_is_adopted_by_the_member_with_the_fewest_partitions():
    """policies.md 1.3: of those like it, not called and not in quarantine; ties go to the one that came first."""
    s = Deploy()
    for name in (*NAMES, "c1"):
        s.join(name)
    s.sync("c1", {"c1": {"t": [0, 1]}, "c2": {"t": [2]}, "c3": {"t": [3]}, "c4": {"t": [4]}})
    s.policy(freeze=Freeze(until_ms=HOURS_2_MS)).at(1_000).leave("c2").beat().live_until(61_000)
    assert s.told() == [
        "1000 seat_vacated c2 freeze 61000", "61000 freeze_broken unowned_too_long adopted c2",
    ]  # fmt: skip
    assert s.noticed() == {"c3"}
    s.heartbeat("c4").hears(ErrorCode.NONE).join("c3").sync("c3").is_("Stable", generation=2)
    assert s.owns("c3") == [2, 3]


def test_vacancies_that_are_due_together_are_spread():
    """policies.md 1.3: each goes to the member with the fewest partitions, those on offer included."""
    s = Deploy.stable(*(f"c{n}" for n in range(8)), session_timeout_ms=45_000, rebalance_timeout_ms=300_000)
    s.policy(freeze=Freeze(until_ms=HOURS_2_MS)).at(1_000).leave(*(f"c{n}" for n in range(2, 8))).beat()
    s.live_until(61_000)
    assert s.noticed() == {"c0", "c1"}
    for name in ("c0", "c1"):
        s.join(name).sync(name)
    assert (s.owns("c0"), s.owns("c1")) == ([0, 2, 4, 6], [1, 3, 5, 7])
    assert [line.split()[1] for line in s.told()[-6:]] == ["adopted"] * 6


def test_an_adopter_that_does_not_come_is_passed_over():
    """policies.md 1.3: after 15 s the vacancy is due again, and another member is called first."""
    s = frozen(unowned_max_ms=5_000).at(1_000).leave("c2").beat().live_until(6_000)
    assert s.noticed() == {"c1"}
    s.live_until(21_000)
    assert s.noticed() == {"c3"}
    s.join("c1").hears(ErrorCode.NONE, generation_id=2).sync("c1").join("c3").sync("c3")
    assert (s.owns("c1"), s.owns("c3")) == ([0], [1, 2])


def test_a_seat_that_nobody_is_like_breaks_the_freeze():
    """policies.md 1.3: a partition without an owner for too long matters more than the freeze."""
    s = Deploy()
    s.join("c1").join("c2", topics=["u"]).join("c1").sync("c1", {"c1": {"t": [0]}, "c2": {"u": [0]}})
    s.policy(freeze=Freeze(until_ms=HOURS_2_MS)).at(1_000).leave("c2").beat().live_until(61_000)
    assert s.told()[1:] == [
        "61000 freeze_broken unowned_too_long rebalanced c2", "61000 rebalance member_left c2",
    ]  # fmt: skip


def test_a_vacancy_that_is_due_after_the_freeze_rebalances():
    """policies.md 1.3: adoption is for a freeze alone."""
    s = Deploy.of(freeze=Freeze(until_ms=30_000)).at(10_000).leave("c2").beat().live_until(70_000)
    assert s.told() == ["10000 seat_vacated c2 freeze 70000", "70000 rebalance member_left c2"]


def test_an_operator_breaks_it():
    """policies.md 0: an operator is never held."""
    s = frozen().at(1_000).leave("c2").rebalance()
    assert [(e.why, e.how, e.member_id) for e in s.events(FreezeBroken)] == [("operator", "rebalanced", "")]


def test_debts_from_before_the_freeze_wait_for_its_end_too():
    """policies.md 3.2: a change meets the freeze before succession and settle."""
    s = Deploy.of(succession=Succession(standby_ms=10_000)).at(1_000).new("n").sync("n")
    s.policy(freeze=Freeze(until_ms=HOURS_2_MS)).until(11_000).is_("Stable")
    assert s.told() == ["1000 rebalance_held n succession 11000", f"11000 rebalance_held n freeze {HOURS_2_MS}"]
    s = Deploy.of(succession=Succession(vacant_ms=10_000)).at(1_000).leave("c2")
    s.policy(freeze=Freeze(until_ms=HOURS_2_MS)).until(11_000)
    assert s.told()[1:] == ["11000 freeze_broken unowned_too_long adopted c2"]


def test_a_window_of_the_week_freezes_as_a_time_does():
    """policies.md 3.1: until the end of the window."""
    begin_ms = MONDAY_MS + 1_000 * 7 * 86_400_000
    s = Deploy().at(begin_ms)
    for name in (*NAMES, "c1"):
        s.join(name)
    s.sync("c1", {name: {"t": [n]} for n, name in enumerate(NAMES)})
    s.policy(freeze=Freeze(windows=(Window(from_minute=0, until_minute=1),)))
    s.at(begin_ms + 1_000).new("n").at(begin_ms + 30_000).beat().until(begin_ms + 59_999).is_("Stable")
    s.until(begin_ms + 60_000)
    assert s.told() == [
        f"{begin_ms + 1_000} rebalance_held n freeze {begin_ms + 60_000}",
        f"{begin_ms + 60_000} rebalance member_joined n",
    ]


def test_empty_groups_are_not_frozen():
    """policies.md 1.1: the last member leaves an Empty group, and a first one founds a generation."""
    s = frozen().at(1_000).leave(*NAMES).is_("Empty").new("n").is_("CompletingRebalance")
    assert s.events(FreezeBroken) == []


def test_thawing_pays_the_debts_at_once():
    """policies.md 3.3: pending holds whose policy is gone are due at the record's time."""
    s = frozen().at(1_000).new("n").at(5_000).policy(freeze=None).is_("PreparingRebalance")
    assert s.told()[-1] == "5000 rebalance member_joined n"


@pytest.mark.parametrize("with_debt", [True, False])
def test_a_thawed_group_is_not_shown_as_frozen(with_debt: bool):
    """policies.md 2.3: `frozen_until_ms` is that of the freeze in force, also if nothing is held any more."""
    s = frozen().at(1_000).new("n")
    if not with_debt:
        s.leave("n")
    assert _frozen_until_ms(s) == HOURS_2_MS
    s.at(5_000).policy(freeze=None)
    assert _frozen_until_ms(s) is None
    s.policy(freeze=Freeze(until_ms=HOURS_2_MS)).until(6_000)
    assert s.group.policy_state.frozen_until_ms == 0


def test_a_freeze_is_over_at_its_end_without_a_debt():
    """policies.md 2.3: the next freeze is reported again."""
    s = frozen().at(1_000).new("n").leave("n").live_until(HOURS_2_MS, *NAMES)
    assert s.group.policy_state.frozen_until_ms == 0
    assert s.group.hot_state.policy_ms == NEVER_MS


def test_a_freeze_whose_end_is_noticed_late_is_over_then():
    """policies.md 1.1: what lasts until a time is not waited for once more."""
    s = Deploy.of(freeze=Freeze(until_ms=20_000)).at(1_000).new("n").leave("n").away().back(40_000)
    assert (s.group.policy_state.frozen_until_ms, s.group.hot_state.policy_ms) == (0, NEVER_MS)


def _frozen_until_ms(s: Deploy) -> int | None:
    """Return the end of the freeze in the group's latest record."""
    records = [each.record for each in s.published() if isinstance(each.record, GroupRecord)]
    return None if records[-1].hold is UNSET else records[-1].hold.frozen_until_ms


@pytest.mark.parametrize(("until_ms", "due_ms"), [(20_000, 20_000), (HOURS_2_MS + 1, HOURS_2_MS)])
def test_another_freeze_moves_no_deadline_later(until_ms: int, due_ms: int):
    """policies.md 3.3: earlier, but not later. At the old end the new freeze puts the pending hold off again."""
    s = frozen().at(1_000).new("n").policy(freeze=Freeze(until_ms=until_ms))
    assert s.group.policy_state.standbys[s.ids["n"]].until_ms == due_ms
    assert len(s.events(RebalanceHeld)) == 1
