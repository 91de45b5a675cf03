"""Quarantines of a group of the consumer protocol (policies.md 2.3, 3.6)."""

from typing import Any

import msgspec
import pytest

from coordinator.base.limits import UNSTABLE_CHECK_MS
from coordinator.base.policies import Quarantine, Settle
from coordinator.messages.events import PlanMade
from coordinator.messages.policy_events import MemberQuarantined, QuarantineEnded
from coordinator.messages.requests import ExpelMember
from tests.coordinator.consumer.policed import Policed, since

QUARANTINE = Quarantine(flaps=2, within_ms=600_000, for_ms=30_000, for_max_ms=100_000, percent_max=50)


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
    epoch, plans = c.group.hot_state.group_epoch, len(c.events(PlanMade))
    assert c.told(c.says("F2 0")) == f"{c.group.hot_state.assignment_epoch} {{}}"
    assert (c.group.hot_state.group_epoch, len(c.events(PlanMade))) == (epoch, plans)
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
    epoch = c.group.hot_state.group_epoch
    c.says("F2 -1")
    assert (c.group.hot_state.group_epoch, c.group.policy_state.quarantined) == (epoch, {})


def test_other_plans_leave_it_out():
    c = quarantined()
    c.says("F2 0")
    c.plays("-- 2000")
    c.says("C 0")
    assert (c.said[-1], "F2" in c.group.targets) == ("6000 plan 3", False)
    c.plays(f"F2 {c.group.epoch_of('F2')} own -> {c.group.hot_state.group_epoch}")


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
    assert ("G2" in c.group.policy_state.quarantined) == is_in


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
    assert not c.group.policy_state.quarantined
    c = quarantined()
    c.says("F2 0")
    for name in ("A", "B"):
        c.says(f"{name} {c.group.epoch_of(name)} names U")
    assert c.events(QuarantineEnded)[-1].why == "nobody_else"


def test_a_newcomer_of_an_empty_group_is_in_no_quarantine():
    c = quarantined()
    c.plays("A -1 -> -1\nB -1 -> -1\n-- 2000")
    c.says("F2 0")
    assert (c.group.policy_state.quarantined, c.events(MemberQuarantined)) == ({}, [])


@pytest.mark.parametrize(("after_ms", "is_flap"), [(UNSTABLE_CHECK_MS, True), (UNSTABLE_CHECK_MS + 1, False)])
def test_a_membership_that_ends_soon_is_a_flap(after_ms: int, is_flap: bool):
    c = Flapping()
    c.policy(quarantine=QUARANTINE)
    flap(c, "F", 1)
    c.says("F1 0")
    c.passes(after_ms)
    c.says("F1 -1")
    c.says("F2 0")
    assert bool(c.events(MemberQuarantined)) == is_flap


def test_the_new_process_of_a_static_member_stays_in_quarantine():
    """It is the same member, and its membership began when the first process joined."""
    c = Flapping()
    c.policy(quarantine=QUARANTINE)
    for number in range(2):
        c.says(f"S{number}(s) 0")
        c.passes(1_000)
        c.says(f"S{number}(s) -1")
        c.passes(1_000)
    c.says("S2(s) 0")
    (until_ms,) = c.group.policy_state.quarantined.values()
    joined_ms = c.group.policy_state.joined_ms["S2"]
    c.passes(1_000)
    c.says("S2(s) -2")
    c.says("S3(s) 0")
    assert (c.group.policy_state.quarantined, c.group.policy_state.joined_ms["S3"]) == ({"S3": until_ms}, joined_ms)
    c.in_one_step()


def test_an_expired_session_is_a_flap_and_an_operators_request_is_none():
    c = Flapping(group_consumer_session_timeout_ms=100_000)
    c.policy(quarantine=QUARANTINE)
    for number in range(2):
        c.says(f"F{number} 0")
        for _ in range(2):
            c.passes(50_000)
            c.beats_of("A", "B").beats_of("A", "B")
    assert len(c.group.policy_state.unstable_clients["client-F/10.0.0.1"].times_ms) == 2
    c = Flapping()
    c.policy(quarantine=QUARANTINE)
    c.says("F0 0")
    c.sends(ExpelMember, member_id="F0")
    assert not c.group.policy_state.unstable_clients


def test_without_its_policy_a_quarantine_ends():
    c = quarantined()
    c.says("F2 0")
    c.passes(1_000)
    c.policy()
    assert c.said[-3:] == ["5000 free F2 policy", "5000 started member_joined F2", "5000 plan 3"]
    assert not c.group.policy_state.unstable_clients


def test_the_end_of_a_quarantine_is_held_as_a_join_is():
    """policies.md 2.3: as if the member came now."""
    c = quarantined(settle=Settle(join_quiet_ms=3_000))
    c.says("F2 0")
    free_ms = since(c.group.policy_state.quarantined["F2"])
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


def test_a_classic_member_may_be_in_quarantine():
    c = Flapping()
    c.policy(quarantine=QUARANTINE)
    flap(c, "F")
    answer = c.joins("", client_id="client-F")
    assert list(c.group.policy_state.quarantined) == [answer.member_id]
