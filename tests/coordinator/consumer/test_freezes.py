"""Freezes of a group of the consumer protocol, and changes of its policies (policies.md 3.1 to 3.3, 3.6)."""

import msgspec
import pytest

from coordinator.base.policies import Freeze, Settle
from coordinator.messages.group_records import Hold
from coordinator.messages.requests import ExpelMember
from tests.coordinator.consumer.conversation import START_MS
from tests.coordinator.consumer.policed import BEGIN_MS, SETTLE, Policed


def test_a_freeze_holds_every_change_until_its_end():
    """policies.md 3.6: group epochs are raised but not planned for."""
    c = Policed().frozen(100_000)
    c.plays("C 0 -> 3 {}\n-- 1000\nA 3 names T U -> 3\n-- 1000\nB 3 by range -> 3\n-- 1000\nC -1 -> -1").until(99_999)
    assert c.state == "Assigning 7 3"
    c.until(100_000)
    assert c.said == [
        "0 frozen 100000",
        "0 held member_joined C freeze 100000",
        "1000 held subscription_changed A freeze 100000",
        "2000 held assignor_changed B freeze 100000",
        "100000 started member_joined C 100000",
        "100000 plan 2",
    ]
    assert c.hold is msgspec.UNSET


def test_the_record_shows_the_freeze():
    c = Policed().frozen(100_000)
    c.plays("C 0 -> 3 {}")
    end_ms = c.now_ms + 100_000
    assert c.hold == Hold(
        since_ms=c.now_ms, until_ms=end_ms, frozen_until_ms=end_ms, vacant=0, standing_by=1, quarantined=0
    )


def test_a_newcomer_in_a_freeze_is_answered_as_at_rest():
    """A gateway holds back the first answer of a newcomer that will have partitions soon; here it will not."""
    assert Policed().frozen().says("C 0").pending == "none"
    c = Policed()
    c.policy(settle=SETTLE)
    assert c.says("C 0").pending == "waiting"


@pytest.mark.parametrize("unowned_max_ms", [5_000, 20_000])
def test_partitions_without_an_owner_break_the_freeze(unowned_max_ms: int):
    """policies.md 3.1: at `unowned_max_ms` after the first such partition, and a target assignment is computed."""
    c = Policed().frozen(100_000, unowned_max_ms)
    c.plays("C 0 -> 3 {}\n-- 1000\nB -1 -> -1").until(1_000 + unowned_max_ms - 1)
    assert c.state == "Assigning 5 3"
    c.until(1_000 + unowned_max_ms)
    assert c.said[2:] == [
        f"1000 vacated B freeze member_left {1_000 + unowned_max_ms}",
        f"{1_000 + unowned_max_ms} broken unowned_too_long rebalanced",
        f"{1_000 + unowned_max_ms} started member_joined C {1_000 + unowned_max_ms}",
        f"{1_000 + unowned_max_ms} plan 2",
    ]
    c.plays("-- 2000\nD 0 -> 5 {}\n= Assigning 6 5")  # the freeze goes on


def test_a_bound_that_is_noticed_late_is_waited_for_once_more():
    """policies.md 1.1: the coordinator was unavailable, so nobody could join in place of the member that left."""
    c = Policed(late_notice_ms=5_000).frozen(1_000_000, 20_000)
    c.plays("B -1 -> -1\n-- 60000\n= Assigning 4 3\n-- 21000\n= Reconciling 4 4")


def test_the_freeze_ends_before_its_unowned_partitions_break_it():
    c = Policed().frozen(10_000, 20_000)
    c.plays("B -1 -> -1").until(10_000)
    assert c.said[2:] == ["10000 started member_left B 10000", "10000 plan 1"]


def test_an_expired_session_is_held_by_a_freeze():
    c = Policed(group_consumer_session_timeout_ms=45_000).frozen(100_000)
    c.plays("A 3 -> 3").until(40_000)
    assert c.said == ["36000 frozen 100000", "36000 vacated B freeze session_expired 56000"]


def test_added_partitions_are_without_an_owner():
    """Nobody reads them in the freeze, so its bound for such partitions holds."""
    c = Policed().frozen(100_000).plays("T:6")
    c.tells_topics("T")
    c.passes(20_000)
    assert c.said[1:] == [
        "0 held topics_changed - freeze 100000",
        "20000 broken unowned_too_long rebalanced",
        "20000 started topics_changed - 20000",
        "20000 plan 2",
    ]


def test_a_new_topic_of_a_newcomer_is_without_an_owner():
    c = Policed().frozen(100_000).plays("U:1\nC 0 names U -> 3 {}")
    c.passes(20_000)
    assert c.said[2] == "20000 broken unowned_too_long rebalanced"


def test_partitions_that_are_gone_break_no_freeze():
    """The topic was deleted before the bound."""
    c = Policed().frozen(100_000).plays("U:1\nA 3 names T U -> 3\n-- 1000\nU:0")
    c.tells_topics("U")
    c.passes(98_999)
    assert c.state == "Assigning 5 3"


def test_an_operator_breaks_a_freeze():
    """policies.md 1.1: a request for a rebalance, and one that expels a member."""
    c = Policed().frozen(100_000)
    c.plays("C 0 -> 3 {}\n-- 1000")
    assert c.rebalances().state.value == "Assigning"
    c.passes(0)
    assert c.said[2:] == ["1000 broken operator rebalanced", "1000 started operator - 1000", "1000 plan 3"]
    c.passes(2_000)
    c.sends(ExpelMember, member_id="B")
    assert c.said[5:7] == ["3000 broken operator rebalanced", "3000 started operator B"]


def test_an_operator_ends_the_clock_of_settle():
    c = Policed()
    c.policy(settle=SETTLE)
    c.plays("C 0 -> 3 {}\n-- 1000")
    c.rebalances()
    c.passes(0)
    assert c.said[1:] == ["1000 started operator - 1000", "1000 plan 3"]


def test_a_freeze_that_begins_in_a_hold_goes_on_with_it():
    """policies.md 3.2: a freeze comes before settle. Newcomers are held again, until its end."""
    c = Policed()
    c.policy(settle=SETTLE)
    c.plays("C 0 -> 3 {}\n-- 1000").frozen(50_000, settle=SETTLE).until(50_999)  # type: ignore[attr-defined]
    assert c.state == "Assigning 4 3"
    c.until(51_000)
    assert c.said == [
        "0 held member_joined C settle 3000",
        "3000 frozen 51000",
        "3000 held member_joined C freeze 51000",
        "51000 started member_joined C 51000",
        "51000 plan 3",
    ]


def test_unowned_partitions_of_a_hold_count_in_a_freeze_that_begins():
    c = Policed()
    c.policy(settle=Settle(join_quiet_ms=3_000, leave_quiet_ms=3_000))
    c.plays("B -1 -> -1\n-- 1000").frozen(50_000, 5_000).until(10_000)  # type: ignore[attr-defined]
    assert c.said == [
        "0 vacated B settle member_left 3000",
        "1000 frozen 51000",
        "5000 broken unowned_too_long rebalanced",
        "5000 started member_left B 5000",
        "5000 plan 1",
    ]


def test_a_hold_without_its_policy_is_due_at_once():
    """policies.md 3.3."""
    for policies in ({"settle": SETTLE}, {"freeze": Freeze(until_ms=START_MS + BEGIN_MS + 50_000)}):
        c = Policed()
        c.policy(**policies)
        c.plays("C 0 -> 3 {}\n-- 1000").policy()
        assert c.said[-2:] == ["1000 started member_joined C 1000", "1000 plan 3"]


def test_no_deadline_moves_later():
    """policies.md 3.3: longer settings are for later causes, shorter ones for those of now."""
    c = Policed()
    c.policy(settle=SETTLE)
    c.plays("C 0 -> 3 {}\n-- 1000").policy(settle=Settle(join_quiet_ms=60_000, max_ms=60_000)).passes(2_000)
    assert c.said[-1] == "3000 plan 3"
    c = Policed()
    c.policy(settle=Settle(join_quiet_ms=60_000, max_ms=60_000))
    c.plays("C 0 -> 3 {}\n-- 1000").policy(settle=Settle(join_quiet_ms=2_000, max_ms=2_000)).passes(1_000)
    assert c.said[-1] == "2000 plan 3"


def test_a_thawed_group_is_not_shown_as_frozen():
    """policies.md 2.3: `frozen_until_ms` is that of the freeze in force."""
    c = Policed().frozen(100_000).plays("C 0 -> 3 {}\n-- 1000")
    assert c.hold.frozen_until_ms is not None
    c.policy()
    assert (c.hold, c.group.policy_state.frozen_until_ms) == (msgspec.UNSET, 0)


def test_a_shorter_bound_for_unowned_partitions_counts_at_once():
    c = Policed().frozen(100_000, 60_000)
    c.plays("B -1 -> -1\n-- 8000").policy(freeze=Freeze(until_ms=c.now_ms + 50_000, unowned_max_ms=5_000))
    assert c.said[-3] == "8000 broken unowned_too_long rebalanced"
