"""Policies in a group of the consumer protocol (policies.md 3.1, 3.2, 3.6): holds, freezes and quarantines."""

from typing import Any

import msgspec
import pytest

from coordinator.limits import FLAP_MS
from coordinator.outputs import (
    Event,
    FreezeBegun,
    FreezeBroken,
    GroupRecord,
    Hold,
    MemberQuarantined,
    PlanMade,
    Published,
    QuarantineEnded,
    RebalanceCompleted,
    RebalanceHeld,
    RebalanceStarted,
    SeatVacated,
)
from coordinator.policies import Freeze, Quarantine, Settle
from coordinator.requests import (
    ExpelMember,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetToCommit,
    RebalanceGroup,
)
from tests.coordinator.consumer.conversation import START_MS, Conversation
from tests.coordinator.consumer.test_members import TWO
from tests.coordinator.consumer.test_mixed import Mixed

SETTLE = Settle(join_quiet_ms=3_000, leave_quiet_ms=2_000, max_ms=10_000)
QUARANTINE = Quarantine(flaps=2, within_ms=600_000, for_ms=30_000, for_max_ms=100_000, percent_max=50)
BEGIN_MS = 10_000
"""When the conversations of this module begin, after `START_MS`: the last target assignment is old by then."""


class Policed(Mixed):
    """A Stable group of A with 0 and 1, and B with 2 and 3. Sessions never end, unless a test says so."""

    def __init__(self, **config: Any) -> None:
        defaults = {"group_consumer_session_timeout_ms": 1_800_000, "late_notice_ms": 2**40}
        super().__init__(**{**defaults, **config})
        self.plays(TWO)
        self.passes(BEGIN_MS - (self.now_ms - START_MS))

    def frozen(self, for_ms: int = 100_000, unowned_max_ms: int = 20_000, **policies: Any) -> "Policed":
        """Freeze the group from now on."""
        self.policy(freeze=Freeze(until_ms=self.now_ms + for_ms, unowned_max_ms=unowned_max_ms), **policies)
        return self

    def until(self, at_ms: int) -> "Policed":
        """Let time pass until a time after the beginning."""
        self.passes(BEGIN_MS + at_ms - (self.now_ms - START_MS))
        return self

    def beats_of(self, *names: str) -> "Policed":
        """Send a heartbeat of each member, with the partitions that it may use."""
        for name in names:
            owned = " ".join(str(n) for numbers in self.group.members[name].assigned.values() for n in sorted(numbers))
            self.says(f"{name} {self.group.epoch_of(name)} own {owned}")
        return self

    @property
    def said(self) -> list[str]:
        """The events of policies, and the plans, as text. Their times count from the beginning."""
        return [text for event in self.outputs if isinstance(event, Event) if (text := as_text(event)) is not None]

    @property
    def hold(self) -> Any:
        """The effect of policies, as the latest record has it."""
        records = [o.record for o in self.outputs if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
        return records[-1].hold

    @property
    def standing(self) -> dict[str, Any]:
        """The standing of members that have one, as the latest record has it."""
        records = [o.record for o in self.outputs if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
        return {m.member_id: m.standing for m in records[-1].members if m.standing is not msgspec.UNSET}

    def rebalances(self) -> Any:
        """Send the request of an operator for a rebalance."""
        return self.sends(RebalanceGroup)


def since(at_ms: int) -> int:
    return at_ms - START_MS - BEGIN_MS


def as_text(event: Event) -> str | None:
    at_ms = since(event.at_ms)
    match event:
        case _ if at_ms < 0:
            return None
        case RebalanceHeld():
            return f"{at_ms} held {event.cause} {event.member_id or '-'} {event.policy} {since(event.until_ms)}"
        case SeatVacated():
            return f"{at_ms} vacated {event.member_id} {event.policy} {event.cause} {since(event.until_ms)}"
        case RebalanceStarted():
            held = f" {event.held_ms}" if isinstance(event.held_ms, int) else ""
            return f"{at_ms} started {event.cause} {event.member_id or '-'}{held}"
        case PlanMade():
            return f"{at_ms} plan {event.members}"
        case FreezeBegun():
            return f"{at_ms} frozen {since(event.until_ms)}"
        case FreezeBroken():
            return f"{at_ms} broken {event.why} {event.how}"
        case MemberQuarantined():
            return f"{at_ms} quarantined {event.member_id} {event.flaps} {event.times} {since(event.until_ms)}"
        case QuarantineEnded():
            return f"{at_ms} free {event.member_id} {event.why}"
        case _:
            return None


# -- settle ------------------------------------------------------------------------------------------------------------


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


# -- freeze ------------------------------------------------------------------------------------------------------------


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


# -- other policies ----------------------------------------------------------------------------------------------------


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


def test_a_shorter_bound_for_unowned_partitions_counts_at_once():
    c = Policed().frozen(100_000, 60_000)
    c.plays("B -1 -> -1\n-- 8000").policy(freeze=Freeze(until_ms=c.now_ms + 50_000, unowned_max_ms=5_000))
    assert c.said[-3] == "8000 broken unowned_too_long rebalanced"


# -- quarantine --------------------------------------------------------------------------------------------------------


def flap(c: Policed, name: str, times: int = 2) -> Policed:
    """Join and leave, as a member of the same client each time."""
    for number in range(times):
        epoch = c.told(c.says(f"{name}{number} 0")).partition(" ")[0]
        assert epoch.isdigit()
        c.passes(1_000)
        c.says(f"{name}{number} -1")
        c.passes(1_000)
    return c


class Flapping(Policed):
    """All members whose names begin with the same letter are of one client."""

    def sends(self, kind: Any, **fields: Any) -> Any:
        name = fields.get("member_id") or "?"
        return super().sends(kind, **{"client_id": f"client-{name[0]}", **fields})


def quarantined(quarantine: Quarantine = QUARANTINE, **policies: Any) -> Policed:
    """Return the group at 4,000, when F has flapped twice."""
    c = Flapping()
    c.policy(quarantine=quarantine, **policies)
    flap(c, "F")
    return c.beats_of("A", "B")


def test_a_client_that_flaps_is_planned_without():
    """policies.md 3.6. Its join raises no epoch: nothing moves for it."""
    c = quarantined()
    epoch, plans = c.group.vitals.group_epoch, len(c.events(PlanMade))
    assert c.told(c.says("F2 0")) == f"{c.group.vitals.assignment_epoch} {{}}"
    assert (c.group.vitals.group_epoch, len(c.events(PlanMade))) == (epoch, plans)
    assert c.said[-1] == "4000 quarantined F2 2 1 33000"
    assert c.standing == {"F2": "quarantined"}
    assert c.hold.quarantined == 1
    c.until(32_999)
    assert not c.events(QuarantineEnded)
    c.until(33_000)
    assert c.said[-3:] == ["33000 free F2 over", "33000 started member_joined F2", "33000 plan 3"]
    assert c.group.targets["F2"]
    assert c.hold is msgspec.UNSET


def test_the_end_of_a_member_in_quarantine_raises_no_epoch():
    c = quarantined()
    c.says("F2 0")
    epoch = c.group.vitals.group_epoch
    c.says("F2 -1")
    assert (c.group.vitals.group_epoch, c.group.seats.hidden) == (epoch, {})


def test_other_plans_leave_it_out():
    c = quarantined()
    c.says("F2 0")
    c.plays("-- 2000")
    c.says("C 0")
    assert (c.said[-1], "F2" in c.group.targets) == ("6000 plan 3", False)
    c.plays(f"F2 {c.group.epoch_of('F2')} own -> {c.group.vitals.group_epoch}")


@pytest.mark.parametrize(("percent_max", "others", "is_in"), [(50, 2, True), (34, 2, False), (34, 3, True)])
def test_no_more_than_a_part_of_the_members_is_in_quarantine(percent_max: int, others: int, is_in: bool):
    """One always may be. With A, B, F and G: two of four are 50 %."""
    quarantine = msgspec.structs.replace(QUARANTINE, percent_max=percent_max)
    c = quarantined(quarantine)
    flap(c, "G")
    for number in range(others - 2):
        c.says(f"H{number} 0")
        c.says(f"I{number} 0")
    c.says("F2 0")
    c.says("G2 0")
    assert ("G2" in c.group.seats.hidden) == is_in


def test_the_last_owner_is_in_no_quarantine():
    """The quarantine ends when the others are gone, or when nobody else subscribes to a topic."""
    c = quarantined()
    c.says("F2 0")
    c.plays("A -1 -> -1\nB -1 -> -1\n-- 1000")
    assert (c.said[-3:-1], c.state) == (["4000 free F2 nobody_else", "4000 started member_left B"], c.state)
    assert c.group.targets["F2"]
    c = quarantined()
    c.plays("U:1")
    c.says("F2 0 names T U")
    assert not c.group.seats.hidden
    c = quarantined()
    c.says("F2 0")
    for name in ("A", "B"):
        c.says(f"{name} {c.group.epoch_of(name)} names U")
    assert c.events(QuarantineEnded)[-1].why == "nobody_else"


def test_a_newcomer_of_an_empty_group_is_in_no_quarantine():
    c = quarantined()
    c.plays("A -1 -> -1\nB -1 -> -1\n-- 2000")
    c.says("F2 0")
    assert (c.group.seats.hidden, c.events(MemberQuarantined)) == ({}, [])


@pytest.mark.parametrize(("after_ms", "is_flap"), [(FLAP_MS, True), (FLAP_MS + 1, False)])
def test_a_membership_that_ends_soon_is_a_flap(after_ms: int, is_flap: bool):
    c = Flapping()
    c.policy(quarantine=QUARANTINE)
    flap(c, "F", 1)
    c.says("F1 0")
    c.passes(after_ms)
    c.says("F1 -1")
    c.says("F2 0")
    assert bool(c.events(MemberQuarantined)) == is_flap


def test_an_expired_session_is_a_flap_and_an_operators_request_is_none():
    c = Flapping(group_consumer_session_timeout_ms=100_000)
    c.policy(quarantine=QUARANTINE)
    for number in range(2):
        c.says(f"F{number} 0")
        for _ in range(2):
            c.passes(50_000)
            c.beats_of("A", "B").beats_of("A", "B")
    assert len(c.group.seats.flappers["client-F/10.0.0.1"].times_ms) == 2
    c = Flapping()
    c.policy(quarantine=QUARANTINE)
    c.says("F0 0")
    c.sends(ExpelMember, member_id="F0")
    assert not c.group.seats.flappers


def test_without_its_policy_a_quarantine_ends():
    c = quarantined()
    c.says("F2 0")
    c.passes(1_000)
    c.policy()
    assert c.said[-3:] == ["5000 free F2 policy", "5000 started member_joined F2", "5000 plan 3"]
    assert not c.group.seats.flappers


def test_the_end_of_a_quarantine_is_held_as_a_join_is():
    """policies.md 2.3: as if the member came now."""
    c = quarantined(settle=Settle(join_quiet_ms=3_000))
    c.says("F2 0")
    free_ms = since(c.group.seats.hidden["F2"])
    c.until(free_ms + 3_000)
    assert c.said[-4:] == [
        f"{free_ms} free F2 over",
        f"{free_ms} held member_joined F2 settle {free_ms + 3_000}",
        f"{free_ms + 3_000} started member_joined F2 3000",
        f"{free_ms + 3_000} plan 3",
    ]


def test_growth_that_a_member_in_quarantine_reports_is_planned_for():
    c = quarantined()
    c.passes(2_000)
    c.plays("T:6")
    c.says("F2 0")
    assert c.said[-3:] == ["6000 quarantined F2 2 1 33000", "6000 started topics_changed F2", "6000 plan 2"]
    assert sum(len(numbers) for target in c.group.targets.values() for numbers in target.values()) == 6


# -- members of the classic protocol -----------------------------------------------------------------------------------


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


def test_a_classic_member_may_be_in_quarantine():
    c = Flapping()
    c.policy(quarantine=QUARANTINE)
    flap(c, "F")
    answer = c.joins("", client_id="client-F")
    assert list(c.group.seats.hidden) == [answer.member_id]


# -- without policies --------------------------------------------------------------------------------------------------


def test_without_policies_no_state_of_them_is_stored():
    c = Policed()
    c.plays("C 0 -> 4 {}\nC -1 -> -1")
    assert (c.group.held, c.group.seats.flappers, c.group.seats.joined_ms) == (None, {}, {})
