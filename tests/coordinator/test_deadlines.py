"""Deadlines: never early, in order, once; and the effect of outages on members (I10, I11, I12, I21)."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS
from coordinator.base.states import Phase
from coordinator.classic.deadlines import Deadline, Kind, deadlines
from coordinator.messages.events import MemberExpired, RebalanceStarted
from coordinator.messages.requests import JoinGroup, SyncGroup
from tests.coordinator.scenario import Scenario
from tests.coordinator.waking import wake

# -- never early, and no later than the next request -------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [6_000, 10_000, 1_800_000])
def test_a_session_ends_at_its_timeout_and_not_a_millisecond_before(timeout_ms: int):
    """S05, S38, I10: a session ends at its timeout, and not a millisecond before."""
    s = Scenario.stable("ana", "bo", session_timeout_ms=timeout_ms)
    t, g = s.now_ms, s.group.generation_id
    s.at(t + timeout_ms - 1).heartbeat("ana").hears(ErrorCode.NONE)
    s.at(t + timeout_ms).heartbeat("bo").hears(ErrorCode.UNKNOWN_MEMBER_ID)
    s.heartbeat("ana").hears(ErrorCode.REBALANCE_IN_PROGRESS)
    s.join("ana").is_("CompletingRebalance", generation=g + 1)


def test_deadlines_up_to_a_requests_time_fire_before_it():
    """protocol.md 0, deadline order: every deadline up to and including the request's time."""
    Scenario.stable("ana").at(10_000).heartbeat("ana").hears(ErrorCode.UNKNOWN_MEMBER_ID)
    Scenario.stable("ana").at(9_999).heartbeat("ana").hears(ErrorCode.NONE)


def test_without_a_request_a_deadline_fires_after_the_slack_at_its_own_time():
    """design.md 7.3: requests from before the deadline may still arrive."""
    s = Scenario.stable("ana")
    s.step([], 10_999)
    s.is_("Stable")
    s.step([], 11_000)
    s.is_("Empty")
    assert s.events(MemberExpired)[0].at_ms == s.group.since_ms == 10_000


def test_heartbeats_at_a_third_of_the_timeout_keep_a_member_for_an_hour():
    """S103, S111: the member stays in the group."""
    s = Scenario.stable("ana", session_timeout_ms=45_000)
    for at_ms in range(0, 3_600_000, 15_000):
        s.until(at_ms).heartbeat("ana").hears(ErrorCode.NONE)
    assert not s.events(MemberExpired)


def test_two_lost_heartbeats_in_a_row_expel_no_member():
    """S111: the third heartbeat renews the session in time."""
    s = Scenario.stable("ana", session_timeout_ms=10_000)
    s.until(3_000).heartbeat("ana").until(12_000).heartbeat("ana").hears(ErrorCode.NONE)


# -- order -------------------------------------------------------------------------------------------------------------


def test_deadlines_sort_by_time_then_kind_then_place():
    early, late = Deadline(1, Kind.OFFSETS), Deadline(2, Kind.SESSION)
    assert early < late
    assert sorted(Deadline(5, kind) for kind in reversed(Kind)) == [Deadline(5, kind) for kind in Kind]
    assert Deadline(5, Kind.SESSION, 0, "z") < Deadline(5, Kind.SESSION, 1, "a")


def test_sessions_end_before_the_sync_deadline_of_the_same_moment():
    """W5b: protocol.md 2.6 starts sessions first."""
    s = Scenario.joined("c1", "c2").until(10_000)
    assert [e.why for e in s.events(MemberExpired)] == ["session_expired"] * 2


def test_members_that_expire_together_do_so_in_join_order():
    """I16: members that expire together do so in the order in which they joined."""
    s = Scenario.stable("z", "y", "x").until(10_000)
    assert [s.name(e.member_id) for e in s.events(MemberExpired)] == ["z", "y", "x"]
    assert [e.cause for e in s.events(RebalanceStarted)].count("session_expired") == 1


def test_a_deadline_fires_at_its_own_time_and_the_next_counts_from_there():
    """protocol.md 0: c2's session ends at 10000, however late the batch runs; joins are then collected until 20000."""
    s = Scenario.stable("c1", "c2").at(9_000).heartbeat("c1").at(12_500).heartbeat("c1")
    s.hears(ErrorCode.REBALANCE_IN_PROGRESS).is_("PreparingRebalance")
    assert (s.group.since_ms, s.group.hot_state.joins_ms) == (10_000, 20_000)


def test_one_step_may_fire_a_chain_of_deadlines():
    """A session ends, then the round that this started, then the wait for assignments: in one step, at their times."""
    s = Scenario.stable("c1", "c2", session_timeout_ms=60_000, late_notice_ms=10**6)
    s.join("c2", topics=["u"], session_timeout_ms=60_000)
    s.step([], 200_000)
    s.is_("Empty", generation=4)
    assert [(e.why, e.at_ms) for e in s.events(MemberExpired)] == [("joins_overdue", 10_000), ("syncs_overdue", 20_000)]


def test_alarms_are_never_late_and_end():
    """S74, S145: a shard that is called only at its alarms is called a bounded number of times."""
    s = Scenario.stable("c1", "c2").commit("c1", {("t", 0): 1})
    asked = 0
    while (alarm_ms := s.shard.next_deadline_ms) is not None:
        s.step([], alarm_ms + 1_000)
        asked += 1
        assert asked < 20
    s.is_gone()


def test_a_silent_shard_expires_many_groups_at_once():
    """S145: many groups expire in one step, without any request."""
    s = Scenario()
    for n in range(50):
        s.join("c", group_id=f"g{n}", member_id="")
    s.until(10_000)
    assert {s.shard.group(g).phase.value for g in s.shard.group_ids} == {"Empty"}


# -- clocks that go back -----------------------------------------------------------------------------------------------


def test_a_request_from_the_past_counts_as_of_now():
    """I12: a request from the past counts as one of the present time."""
    s = Scenario.stable("c1").at(5_000).heartbeat("c1").at(1_000).heartbeat("c1").hears(ErrorCode.NONE)
    assert s.group.hot_state.sessions[s.ids["c1"]].deadline_ms == 15_000
    s.at(0).commit("c1", {("t", 0): 1})
    assert s.group.offsets["t"][0].commit_timestamp_ms == 5_000


def test_a_batch_clock_that_goes_back_does_no_harm():
    """promises.md 1, which clock: the driver's clock may jump."""
    s = Scenario.stable("c1").at(5_000).heartbeat("c1")
    s.step([wake(5_001)], -(10**9))
    s.step([wake(5_002)], 0)
    s.is_("Stable").at(6_000).heartbeat("c1").hears(ErrorCode.NONE)


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_a_rebalance_timeout_of_zero_or_less_does_not_turn_time_back(timeout_ms: int):
    """I12; protocol.md 11: the join is answered, then the member is removed at once."""
    s = Scenario().at(1_000).join("c1", rebalance_timeout_ms=timeout_ms).hears(ErrorCode.NONE, generation_id=1)
    s.is_("Empty", generation=2)
    assert s.group.since_ms == 1_000
    s.at(2_000).join("c2").sync("c2", plan={}).join("c3", rebalance_timeout_ms=timeout_ms).is_parked()
    assert s.group.hot_state.joins_ms == 12_000


# -- outages of the coordinator ----------------------------------------------------------------------------------------

AWAY = {"noticed just in time": (15_000, "Empty"), "noticed too late": (15_001, "Stable")}


@pytest.mark.parametrize(("noticed_ms", "phase"), AWAY.values(), ids=AWAY)
def test_how_late_a_notice_may_be(noticed_ms: int, phase: str):
    """design.md 7.7: the session ended at 10000; a notice later than `late_notice_ms` counts as an outage."""
    s = Scenario.stable("c1", late_notice_ms=5_000)
    s.step([], noticed_ms)
    s.is_(phase)


def test_a_late_notice_gives_one_fresh_session_and_not_a_second():
    """I10, I21: a coordinator that is always late still expels silent members."""
    s = Scenario.stable("c1")
    s.step([], 40_000)
    s.is_("Stable")
    assert s.group.hot_state.sessions[s.ids["c1"]].deadline_ms == 50_000
    s.step([], 80_000)
    s.is_("Empty")
    assert s.events(MemberExpired)[0].at_ms == 50_000


def test_a_renewed_session_may_be_extended_again():
    """I21: a member gets one further session in each outage, not one in all."""
    s = Scenario.stable("c1")
    s.step([], 40_000)
    s.at(41_000).heartbeat("c1").hears(ErrorCode.NONE)
    s.step([], 90_000)
    s.is_("Stable")


@pytest.mark.parametrize("phase", ["PreparingRebalance", "CompletingRebalance"])
def test_a_round_that_is_always_noticed_late_ends(phase: str):
    """I11: every phase ends, however slow the batches are."""
    s = Scenario.stable("c1", "c2") if phase == "PreparingRebalance" else Scenario.joined("c1", "c2")
    if phase == "PreparingRebalance":
        s.join("c3", session_timeout_ms=1_800_000)
    for now_ms in range(30_000, 300_000, 30_000):
        s.step([], now_ms)
    s.is_("Empty")


def test_a_round_after_a_late_one_has_its_own_extension():
    """I21: an extension in one generation does not count in the next."""
    s = Scenario.stable("c1", session_timeout_ms=1_800_000).join("c2", session_timeout_ms=1_800_000)
    s.step([], 30_000)
    assert s.group.hot_state.joins_ms == 40_000
    s.at(31_000).join("c1", session_timeout_ms=1_800_000).is_("CompletingRebalance", generation=2)
    s.step([], 60_000)
    assert s.group.hot_state.syncs_ms == 70_000
    s.is_("CompletingRebalance", generation=2)


def test_offsets_expire_on_time_after_an_outage():
    """I15: an outage of the coordinator extends no offset's retention."""
    s = Scenario(offsets_retention_ms=100_000).commit_from_outside("tool", {("t", 0): 1})
    s.step([], 500_000)
    s.is_gone()


def test_a_deadline_of_the_request_itself_is_never_late():
    """protocol.md 0: a deadline of 0 ms fires before the next event, however late the batch runs."""
    s = Scenario().away().join("c1").back(60_000)
    assert s.heard("c1", JoinGroup).generation_id == 1


def test_an_outage_expels_no_member_with_an_unanswered_heartbeat():
    """W27, S146, I21: a client has one heartbeat in flight; its response comes after the session deadline."""
    s = Scenario.stable("c1", "c2").at(500).away().heartbeat("c1").heartbeat("c2").back(12_000)
    s.is_("Stable")


def test_an_outage_expels_no_member_with_an_unanswered_join():
    """W27, S146, I21: the same for the responses to a join and to a sync."""
    s = Scenario().at(500).away().join("c1").back(12_000)
    s.is_("CompletingRebalance", generation=1)
    s.at(12_500).sync("c1", plan={}).hears(ErrorCode.NONE).is_("Stable")


def test_an_outage_ends_no_round_before_its_members_are_notified():
    """W27, S146, I21: c1 is notified of the rebalance when the coordinator is back, and then has the round's time."""
    s = Scenario.stable("c1", "c2").at(500).away().heartbeat("c1").heartbeat("c2").join("c3").back(12_000)
    s.is_("PreparingRebalance", members="c1 c2 c3")
    s.at(12_500).join("c1").join("c2").is_("CompletingRebalance", members="c1 c2 c3")


@pytest.mark.parametrize("back_ms", [9_000, 12_000], ids=["before its session ended", "shortly after"])
def test_an_outage_expels_no_member_that_could_not_reach_the_coordinator(back_ms: int):
    """I21: a member without a connection sends no heartbeat until the coordinator is back. Kafka renews on load.

    What shows the outage is a heartbeat with no member id, which a gateway sends about each group that is looked for.
    """
    s = Scenario.stable("c1", "c2").at(500).away().heartbeat("nobody", member_id="").back(back_ms).is_("Stable")
    s.until(back_ms + 9_000).heartbeat("c1").hears(ErrorCode.NONE).until(back_ms + 11_001)
    s.is_("PreparingRebalance", members="c1")
    assert [event.at_ms for event in s.events(MemberExpired)] == [back_ms + 10_000]


def test_a_wait_that_began_after_an_outage_is_not_extended():
    """I10: a member that is heard when the coordinator is back has its timeout from then on, and no more."""
    s = Scenario.stable("c1").at(500).away().heartbeat("c1").back(9_000).until(20_001)
    assert [event.at_ms for event in s.events(MemberExpired)] == [19_000]


@pytest.mark.parametrize("back_ms", [9_000, 12_000])
def test_an_outage_ends_no_round_of_members_that_could_not_join(back_ms: int):
    """I21: c1 and c2 have seen the rebalance, and find no coordinator to join again. The round began before."""
    s = Scenario.stable("c1", "c2").join("c3").heartbeat("c1").heartbeat("c2").at(500).away()
    s.heartbeat("nobody", member_id="").back(back_ms).until(back_ms + 8_000).join("c1").join("c2")
    s.is_("CompletingRebalance", members="c1 c2 c3")


def test_silent_members_are_expelled_after_an_outage():
    """W27 step 5: a silent member is expelled after one further session at the latest."""
    s = Scenario.stable("c1", "c2").away()
    for at_ms in range(3_000, 30_000, 3_000):
        s.at(at_ms).heartbeat("c1")
    s.back(30_000).is_("Stable").at(33_000).heartbeat("c1").hears(ErrorCode.NONE)
    s.at(38_000).heartbeat("c1").until(40_000).is_("PreparingRebalance", members="c1")


# -- set deadlines -----------------------------------------------------------------------------------------------------


def armed(s: Scenario) -> dict[Kind, int]:
    """Return the deadlines that are set. The check of offsets is included only if an offset or the group may expire."""
    found = {d.kind: d.at_ms for d in sorted(deadlines(s.group), reverse=True) if d.at_ms < NEVER_MS}
    if s.group.phase is not Phase.EMPTY:
        found.pop(Kind.OFFSETS, None)
    return found


def test_the_deadlines_in_each_phase():
    """W10; protocol.md 4: an Empty group has only the deadline of its deletion, a round its end, and so on."""
    s = Scenario(delay_ms=3_000).fetch("nobody").join("c1", require_known_member_id=True, session_timeout_ms=8_000)
    assert armed(s) == {Kind.PENDING: 8_000, Kind.OFFSETS: 600_000}
    s.at(1_000).join("c1", session_timeout_ms=8_000)
    assert armed(s) == {Kind.SESSION: 301_000, Kind.JOINS: 4_000}
    s.until(4_000)
    assert armed(s) == {Kind.SESSION: 12_000, Kind.SYNCS: 14_000}
    s.at(5_000).sync("c1", plan={})
    assert armed(s) == {Kind.SESSION: 13_000}
    s.at(6_000).leave("c1")
    assert armed(s) == {Kind.OFFSETS: 606_000}


def test_the_last_owed_sync_removes_the_sync_deadline():
    """W4, W7; protocol.md 3.3 rows 8 and 9: the last owed sync removes the sync deadline."""
    s = Scenario.joined("c1", "c2").sync("c1", plan={})
    assert s.group.hot_state.syncs_ms == 10_000
    s.sync("c2").hears(ErrorCode.NONE)
    assert s.group.hot_state.syncs_ms == NEVER_MS
    s = Scenario.joined("c1", "c2").sync("c1", plan={}).leave("c2").join("c1")
    assert s.heard("c1", JoinGroup).generation_id == 3


def test_a_follower_that_leaves_no_longer_owes_a_sync():
    """protocol.md 2.4: it is removed from pendingSync; nothing of it is left in the next generation."""
    s = Scenario.joined("c1", "c2", "c3").sync("c1", plan={}).sync("c2").leave("c3")
    s.join("c1").join("c2").sync("c2").sync("c1", plan={}).is_("Stable", generation=3)
    assert s.group.hot_state.syncs_ms == NEVER_MS
    assert s.heard("c2", SyncGroup).error == "NONE"


def test_a_clock_jump_does_not_lengthen_sessions_for_long():
    """I12: one batch has a time an hour ahead of its request, then the time is right again."""
    s = Scenario.stable("ana", session_timeout_ms=10_000)
    s.away().heartbeat("ana").back(s.now_ms, batch_ms=3_600_000)
    s.at(20_000).heartbeat("ana").hears(ErrorCode.NONE)
    s.step([], 30_999)
    s.is_("Stable")
    s.step([], 31_000)
    s.is_("Empty")
