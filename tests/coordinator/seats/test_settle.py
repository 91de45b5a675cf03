"""Settle: causes gather, and one rebalance follows (policies.md 3.1)."""

import pytest

from coordinator.base.policies import Settle, Succession
from tests.coordinator.seats.deploy import Deploy


def test_a_later_cause_moves_the_clock_up_to_the_first_cause_and_its_bound():
    """policies.md 1.1: the only deadline that a second cause moves, and never beyond `first + max_ms`."""
    s = Deploy.of(settle=Settle(join_quiet_ms=3_000, max_ms=5_000))
    for at_ms, until_ms in ((1_000, 4_000), (2_000, 5_000), (4_500, 6_000), (5_999, 6_000)):
        s.at(at_ms).new(f"n{at_ms}")
        assert s.told()[-1] == f"{at_ms} rebalance_held n{at_ms} settle {until_ms}"
    s.until(5_999).is_("Stable").until(6_000).is_("PreparingRebalance")
    assert s.told()[-1] == "6000 rebalance member_joined n1000"


def test_the_clock_stops_with_its_last_debt():
    """policies.md 1.1: a standby that goes away has paid; the next cause begins anew."""
    s = Deploy.of(settle=Settle(join_quiet_ms=3_000, max_ms=5_000)).at(1_000).new("n").at(2_000).leave("n")
    s.until(10_000).is_("Stable").at(20_000).new("m").until(22_999).is_("Stable").until(23_000)
    assert s.told()[-1] == "23000 rebalance member_joined m"


def test_no_quiet_time_is_no_hold():
    """policies.md 3.1: with `join_quiet_ms` 0 newcomers rebalance at once, as leaves do unless they have a time."""
    Deploy.of(settle=Settle(join_quiet_ms=0)).at(1_000).new("n").is_("PreparingRebalance")
    Deploy.of(settle=Settle()).at(1_000).leave("c2").is_("PreparingRebalance")


def test_leaves_gather_too_and_their_seats_are_nobodys():
    """policies.md 2.2: a vacancy of settle only delays the rebalance; no newcomer takes it."""
    s = Deploy.of(settle=Settle(join_quiet_ms=3_000, leave_quiet_ms=2_000)).at(1_000).leave("c2").at(2_000).new("n")
    s.sync("n").until(4_999).is_("Stable").until(5_000)
    assert s.told() == [
        "1000 seat_vacated c2 settle 3000", "2000 rebalance_held n settle 5000", "5000 rebalance member_left c2",
    ]  # fmt: skip


def test_a_leave_does_not_move_the_clock_back():
    """policies.md 1.1: no deadline moves earlier or later but by a longer quiet time."""
    s = Deploy.of(settle=Settle(join_quiet_ms=10_000, leave_quiet_ms=1_000)).at(1_000).new("n").at(2_000).leave("c2")
    s.until(10_999).is_("Stable").until(11_000).is_("PreparingRebalance")


def test_expired_sessions_have_waited_enough():
    """policies.md 3.1: `leave_quiet_ms` is for members that leave by themselves."""
    s = (
        Deploy.of(settle=Settle(leave_quiet_ms=2_000))
        .at(1_000)
        .beat("c1", "c2", "c3")
        .live_until(45_000, "c1", "c2", "c3")
    )
    assert s.told() == ["45000 rebalance session_expired c4"]


@pytest.mark.parametrize(("topics", "policy", "until_ms"), [(["t"], "succession", 61_000), (["u"], "settle", 4_000)])
def test_succession_comes_before_settle(topics: list[str], policy: str, until_ms: int):
    """policies.md 3.2: a newcomer that is like a seat waits for one, every other one for quiet."""
    s = Deploy.of(succession=Succession(), settle=Settle()).at(1_000).new("n", topics=topics)
    assert s.told() == [f"1000 rebalance_held n {policy} {until_ms}"]


def test_topics_of_a_standby_are_subscribed():
    """policies.md 1.6: from its join on, so their offsets are kept."""
    s = Deploy.of(settle=Settle(join_quiet_ms=60_000, max_ms=60_000)).commit("c1", {("u", 0): 5})
    s.delete_offsets("admin", {"u": [1]}).at(1_000).new("n", topics=["u", "v"])
    s.delete_offsets("admin", {"u": [0], "w": [0]})
    assert [p.error for p in s.said.partitions] == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE"]
    assert s.describe().said.subscribed_topics == ("t", "u", "v")


def test_a_newcomer_that_does_not_offer_the_groups_assignor_rebalances():
    """policies.md 1.6: it cannot be a member of the running generation."""
    s = Deploy.of(protocols=["range", "sticky"], settle=Settle()).at(1_000).new("n", protocols=["sticky"])
    s.is_("PreparingRebalance")


def test_one_rebalance_for_all_has_the_name_of_the_oldest_debt():
    """policies.md 1.1, 2.3: and the event has how long it was held."""
    s = Deploy.of(succession=Succession(vacant_ms=5_000), settle=Settle(join_quiet_ms=60_000, max_ms=60_000))
    s.at(1_000).new("n", topics=["u"]).at(2_000).leave("c2").until(7_000)
    assert s.told()[-1] == "7000 rebalance member_joined n"
    (started,) = [e for e in s.events() if getattr(e, "held_ms", None) == 6_000]
    assert started.cause == "member_joined"


def test_a_deadline_that_is_noticed_late_is_waited_for_once_more():
    """policies.md 1.1: the coordinator was unavailable, and the newcomers could not come; once for each hold."""
    s = Deploy.of(succession=Succession(vacant_ms=10_000)).at(1_000).leave("c2").away().back(40_000)
    assert s.group.policy_state.vacant[s.ids["c2"]].until_ms == 50_000
    s.away().back(60_000).is_("PreparingRebalance")
