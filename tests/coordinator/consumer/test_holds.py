"""Settle in a group of the consumer protocol (policies.md 3.1, 3.6): target assignments that wait."""

import msgspec

from coordinator.base.policies import Settle
from coordinator.messages.events import PlanMade, RebalanceCompleted
from coordinator.messages.group_records import Hold
from coordinator.messages.policy_events import RebalanceHeld, SeatVacated
from coordinator.messages.requests import LeaveGroup, Leaving, OffsetCommit, OffsetToCommit
from tests.coordinator.consumer.conversation import Conversation
from tests.coordinator.consumer.policed import SETTLE, Policed, since


def test_sixteen_newcomers_have_one_target_assignment():
    """policies.md 3.5, 5: 4 members become 20; the clock of settle ends 3 s after the last of them."""
    c = Policed()
    c.plays("T:40")
    for name in "CD":
        c.says(f"{name} 0")
        c.passes(2_000)
    plans = len(c.events(PlanMade))
    c.policy(settle=Settle(join_quiet_ms=3_000, max_ms=60_000))
    begin_ms = since(c.now_ms)
    for number in range(16):
        c.until(begin_ms + number * 1_000)
        c.says(f"N{number} 0")
    assert (len(c.events(PlanMade)), len(c.events(RebalanceHeld))) == (plans, 16)
    c.until(begin_ms + 15_000 + 2_999)
    assert len(c.events(PlanMade)) == plans
    c.until(begin_ms + 15_000 + 3_000)
    assert c.said[-2:] == [f"{begin_ms + 18_000} started member_joined N0 18000", f"{begin_ms + 18_000} plan 20"]
    c.in_one_step()


def test_a_held_group_goes_on_working():
    """Members keep their epoch and partitions, a newcomer has none, and commits are accepted."""
    c = Policed()
    c.policy(settle=SETTLE)
    c.plays("""
        C 0     -> 3 {}
        = Assigning 4 3
        A 3     -> 3
        A 3 own 0 1 -> 3
        C 3     -> 3
        C 3 own -> 3
    """)
    offsets = (OffsetToCommit("T", 0, 5),)
    answer = c.sends(OffsetCommit, member_id="A", generation_id=3, offsets=offsets)
    assert [partition.code for partition in answer.partitions] == [0]
    assert (c.standing, c.noticed) == ({"C": "standing_by"}, [])
    at_ms = c.now_ms
    assert c.hold == Hold(
        since_ms=at_ms, until_ms=at_ms + 3_000, frozen_until_ms=None, vacant=0, standing_by=1, quarantined=0
    )
    c.until(3_000)
    assert (c.noticed, c.hold, c.standing) == (["A", "B", "C"], msgspec.UNSET, {})
    c.plays("= Reconciling 4 4\nA 3 -> 4\nB 3 -> 3 {2}\nB 3 own 2 -> 4\nC 3 -> 4 {3}\n= Stable 4 4").in_one_step()


def test_a_newcomer_moves_the_clock_up_to_the_first_cause_and_its_bound():
    """policies.md 1.1: never beyond `first + max_ms`."""
    c = Policed()
    c.policy(settle=Settle(join_quiet_ms=3_000, max_ms=5_000))
    for at_ms in (1_000, 2_000, 4_500, 5_999):
        c.until(at_ms).says(f"N{at_ms} 0")
    c.until(10_000)
    assert c.said == [
        "1000 held member_joined N1000 settle 4000",
        "2000 held member_joined N2000 settle 5000",
        "4500 held member_joined N4500 settle 6000",
        "5999 held member_joined N5999 settle 6000",
        "6000 started member_joined N1000 5000",
        "6000 plan 6",
    ]


def test_a_leaving_member_waits_for_its_own_quiet_time():
    """Its partitions have no owner meanwhile; a newcomer in that time gets them with the one target assignment."""
    c = Policed()
    c.policy(settle=SETTLE)
    c.plays("B -1 -> -1\n= Assigning 4 3").until(1_500).plays("C 0 -> 3 {}").until(4_499)
    assert (c.state, c.hold.vacant) == ("Assigning 5 3", 1)
    c.until(4_500)
    assert c.said == [
        "0 vacated B settle member_left 2000",
        "1500 held member_joined C settle 4500",
        "4500 started member_left B 4500",
        "4500 plan 2",
    ]
    (vacated,) = c.events(SeatVacated)
    assert vacated.partitions == {"T": [2, 3]}


def test_members_that_leave_in_one_request_are_as_many_vacancies():
    c = Policed()
    c.plays("C 0 -> 4 {}\n-- 2000")
    c.policy(settle=SETTLE)
    c.sends(LeaveGroup, members=(Leaving("A"), Leaving("C")))
    assert (len(c.events(SeatVacated)), c.state) == (2, "Assigning 5 4")


def test_without_a_quiet_time_nothing_is_held():
    """policies.md 3.1: 0 is off, for newcomers and for members that leave."""
    c = Policed()
    c.policy(settle=Settle(join_quiet_ms=0))
    c.plays("C 0 -> 4 {}\n-- 2000\nC -1 -> -1\n= Reconciling 5 5")
    assert c.said == ["0 started member_joined C", "0 plan 3", "2000 started member_left C", "2000 plan 2"]


def test_an_expired_session_has_waited_enough():
    """It cuts the hold for newcomers short, because its partitions have no owner."""
    c = Policed(group_consumer_session_timeout_ms=45_000)
    c.policy(settle=Settle(join_quiet_ms=60_000, leave_quiet_ms=30_000, max_ms=300_000))
    c.plays("A 3 -> 3\nC 0 -> 3 {}").until(40_000)
    assert c.said == ["0 held member_joined C settle 60000", "36000 started session_expired B 36000", "36000 plan 2"]


def test_the_first_target_assignment_is_never_held():
    """Nobody owns anything yet, so there is nothing to keep."""
    c = Conversation()
    c.policy(settle=SETTLE)
    c.plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 2 {}\n= Assigning 3 2")


def test_the_last_member_that_leaves_empties_the_group():
    c = Policed()
    c.policy(settle=SETTLE)
    c.plays("A -1 -> -1\nB -1 -> -1\n= Empty 5 5")
    assert (c.group.held, c.hold) == (None, msgspec.UNSET)
    c.plays("-- 2000\nC 0 -> 6 {0 1 2 3}\n= Stable 6 6")


def test_other_changes_wait_for_the_clock_and_do_not_move_it():
    """Without the clock they are planned for at once."""
    c = Policed()
    c.policy(settle=SETTLE)
    c.plays("C 0 -> 3 {}\n-- 1000\nT:6")
    c.tells_topics("T")
    c.plays("= Assigning 5 3").until(3_000)
    assert c.said == [
        "0 held member_joined C settle 3000",
        "1000 held topics_changed - settle 3000",
        "3000 started member_joined C 3000",
        "3000 plan 3",
    ]
    c.plays("-- 2000\nT:8")
    c.tells_topics("T")
    assert c.said[-2:] == ["5000 started topics_changed -", "5000 plan 3"]


def test_a_newcomer_that_goes_away_again_leaves_the_clock():
    """The group epoch was raised, so a target assignment follows all the same; it moves nothing."""
    c = Policed()
    c.policy(settle=SETTLE)
    c.plays("C 0 -> 3 {}\n-- 1000\nC -1 -> -1\n= Assigning 5 3").until(3_000)
    assert c.said == ["0 held member_joined C settle 3000", "3000 started member_joined C 3000", "3000 plan 2"]
    assert c.events(PlanMade)[-1].moved == 0


def test_a_rebalance_in_progress_ends_while_the_next_one_is_held():
    """Its duration does not have the time of the hold."""
    c = Policed()
    c.plays("C 0 -> 4 {}")
    c.policy(settle=Settle(join_quiet_ms=20_000))
    c.plays("D 0 -> 4 {}\nA 3 -> 4\nB 3 -> 3 {2}\nB 3 own 2 -> 4\n-- 1000\nC 4 -> 4 {3}\n= Assigning 5 4")
    completed = c.events(RebalanceCompleted)[-1]
    assert (completed.duration_ms, completed.generation_id) == (1_000, 4)
    c.until(20_000)
    assert c.said[-2:] == ["20000 started member_joined D 20000", "20000 plan 4"]


def test_a_hold_that_is_noticed_late_waits_once_more():
    """policies.md 1.1: the coordinator was unavailable; only once."""
    c = Policed(late_notice_ms=5_000)
    c.policy(settle=SETTLE)
    c.plays("C 0 -> 3 {}\n-- 20000\n= Assigning 4 3\n-- 20000\n= Reconciling 4 4")


def test_a_classic_newcomer_is_held_too():
    """It has an empty assignment, and its heartbeat asks for a join when the target assignment is there."""
    c = Policed()
    c.policy(settle=SETTLE)
    answer = c.joins("", owned={})
    name = answer.member_id
    assert (answer.generation_id, c.syncs(name, 3), c.beats(name, 3)) == (3, "", 0)
    assert c.standing == {name: "standing_by"}
    c.passes(3_000)
    assert c.beats(name, 3) == 27


def test_without_policies_no_state_of_them_is_stored():
    c = Policed()
    c.plays("C 0 -> 4 {}\nC -1 -> -1")
    assert (c.group.held, c.group.policy_state.unstable_clients, c.group.policy_state.joined_ms) == (None, {}, {})
