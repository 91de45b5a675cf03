"""Quarantine: a client whose memberships end too often has no partitions for a while (policies.md 3.1)."""

from typing import Any

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NAMESAKES_MAX, UNSTABLE_CHECK_MS, UNSTABLE_CLIENTS_MAX
from coordinator.base.policies import Quarantine, Succession
from coordinator.messages.policy_events import MemberQuarantined
from tests.coordinator.seats.deploy import NAMES, Deploy, joined

QUARANTINE = Quarantine(flaps=2, within_ms=600_000, for_ms=30_000, for_max_ms=100_000)
SUCCESSION = Succession(vacant_ms=600_000, standby_ms=600_000, vacant_percent_max=100)


def group(quarantine: Quarantine = QUARANTINE, **policies: Any) -> Deploy:
    """Return the group; newcomers stand by for ten minutes."""
    return Deploy.of(**{"quarantine": quarantine, "succession": SUCCESSION, **policies})


def flap(s: Deploy, *names: str, **fields: Any) -> Deploy:
    """Join and leave at once as some members, a second after each other."""
    for name in names:
        s.at(s.now_ms + 1_000).new(name.split("#")[0], **fields).leave(name)
    return s


def quarantined(s: Deploy) -> list[str]:
    return [line.split(" ", 2)[2] for line in s.told() if " quarantined " in line]


# -- what counts -------------------------------------------------------------------------------------------------------


def test_a_membership_that_ends_soon_is_a_flap():
    """policies.md 3.1: within 60 s of its beginning; not a millisecond later."""
    for after_ms, is_flap in ((UNSTABLE_CHECK_MS, True), (UNSTABLE_CHECK_MS + 1, False)):
        s = flap(group(), "f").at(2_000).new("f").beat().live_until(2_000 + after_ms).leave("f#2").new("f")
        assert bool(quarantined(s)) == is_flap


def test_an_expired_session_is_a_flap():
    """policies.md 3.1: however long the membership was."""
    s = group().at(1_000).new("f").beat().live_until(100_000)
    for is_second in (False, True):
        s.live_until(s.now_ms + 50_000, *NAMES).new("f")
        assert bool(quarantined(s)) == is_second


def test_overdue_joins_are_flaps_and_an_operators_wish_is_none():
    """policies.md 3.1: own expiries, overdue joins and overdue syncs."""
    s = Deploy.of(quarantine=QUARANTINE).at(1_000)
    for name in ("f", "f#2"):
        s.new("f", session_timeout_ms=600_000, rebalance_timeout_ms=1_000)
        for each in NAMES:
            s.join(each, rebalance_timeout_ms=1_000)
        s.sync("c1", {}).rebalance()
        for each in NAMES:
            s.join(each, rebalance_timeout_ms=1_000)
        s.until(s.now_ms + 1_000).sync("c1", {"c1": {"t": [0]}})
        assert s.ids[name] not in s.group.members
    s.new("f")
    assert quarantined(s) == ["f#3 2 1 " + str(s.group.policy_state.quarantined[s.ids["f#3"]])]
    s = group().at(1_000).new("f").expel("f").rebalance()
    assert not s.group.policy_state.unstable_clients


@pytest.mark.parametrize(("gap_ms", "is_in"), [(59_999, True), (60_000, False)])
def test_flaps_count_within_a_time(gap_ms: int, is_in: bool):
    """policies.md 3.1: `within_ms`."""
    s = flap(group(Quarantine(flaps=2, within_ms=60_000, for_ms=600_000, for_max_ms=600_000)), "f")
    s.beat().live_until(1_000 + gap_ms).new("f").leave("f#2").new("f")
    assert bool(quarantined(s)) == is_in


def test_a_quarantine_is_doubled_up_to_its_longest_time():
    """policies.md 3.1: from the flap that made it; doubled each time it has been in; at most `for_max_ms`."""
    s = flap(group(), "f", "f#2").new("f")
    assert quarantined(s) == ["f#3 2 1 32000"]
    s.at(3_000).leave("f#3").new("f").at(4_000).leave("f#4").new("f")
    assert quarantined(s)[1:] == ["f#4 3 2 63000", "f#5 4 3 104000"]


def test_a_client_without_flaps_for_long_begins_anew():
    """policies.md 3.1: forgotten after four times `within_ms`."""
    quarantine = Quarantine(flaps=2, within_ms=60_000, for_ms=30_000, for_max_ms=100_000)
    s = flap(group(quarantine), "f", "f#2").beat().live_until(243_000)
    s.new("f").leave("f#3").new("f").leave("f#4").new("f")
    assert quarantined(s) == ["f#5 2 1 273000"]


# -- whose it is -------------------------------------------------------------------------------------------------------


def test_an_identity_is_the_instance_id_or_client_and_host():
    """policies.md 3.1: another host or another client is another identity."""
    s = flap(group(), "f", "f#2")
    s.new("f", client_host="/elsewhere").new("g", client_host="/f.example")
    assert quarantined(s) == []
    s.new("f")
    assert quarantined(s) == ["f#4 2 1 32000"]
    s = group()
    for member, host in (("i", "/a"), ("i#2", "/b")):
        s.at(s.now_ms + 1_000).new("i", group_instance_id="x", client_host=host).remove("x")
        assert member in s.ids
    s.new("i", group_instance_id="x", client_host="/c")
    assert quarantined(s) == ["i#3 2 1 32000"]


def test_a_shared_identity_is_nobodys():
    """policies.md 3.1: two members have it if one joined before the other one was last heard of."""
    s = group().at(1_000).new("f").sync("f")
    s = flap(s, "f#2", "f#3", "f#4", "f#5").new("f")
    assert quarantined(s) == []


def test_a_restart_shares_nothing():
    """policies.md 3.1: it joins after the silent member was last heard of."""
    s = group().at(1_000).new("f", session_timeout_ms=10_000).at(5_000).new("f", session_timeout_ms=10_000)
    s.beat(*NAMES).live_until(30_000, *NAMES).new("f")
    assert quarantined(s) == ["f#3 2 1 45000"]


def test_an_identity_of_very_many_members_is_shared():
    """I22: whenever they joined, so that nobody looks through all of them."""
    s = group(Quarantine(flaps=2, percent_max=50)).at(1_000)
    for _ in range(NAMESAKES_MAX + 2):
        s.new("f")
    s.leave("f").new("f")
    assert not any(client.times_ms for client in s.group.policy_state.unstable_clients.values())


def test_when_many_expire_at_once_none_is_counted():
    """policies.md 3.1: more than two, and more than a quarter; and those of that time are taken back."""
    s = Deploy.stable(*(f"c{n}" for n in range(8)), session_timeout_ms=10_000, rebalance_timeout_ms=300_000)
    s.policy(quarantine=Quarantine(flaps=2), succession=Succession(vacant_percent_max=100, vacant_ms=600_000))
    s.at(5_000).beat("c0", "c1", "c2", "c3", "c4", "c5").until(10_000)
    assert len(s.group.policy_state.unstable_clients) == 2
    s.beat("c0", "c1", "c2", "c3", "c4").until(15_000)
    assert [client.times_ms for client in s.group.policy_state.unstable_clients.values()] == [[], []]


# -- what follows ------------------------------------------------------------------------------------------------------


def hidden() -> Deploy:
    """Return the group with f#3 in quarantine until 32 s."""
    return flap(group(), "f", "f#2").new("f").sync("f#3")


def test_a_member_in_quarantine_is_no_part_of_a_round():
    """policies.md 2.2: no round waits for it, the roll does not name it, and it is assigned nothing."""
    s = hidden().at(4_000).rebalance()
    for name in NAMES:
        s.join(name)
    s.is_("CompletingRebalance", members="c1 c2 c3 c4")  # it had not joined again, and is dropped
    s.heartbeat("f#3").hears(ErrorCode.UNKNOWN_MEMBER_ID)
    s.new("f").hears(ErrorCode.NONE, generation_id=3).sync("f#4").is_parked()
    s.sync("c1", {"c1": {"t": [0]}, "f#4": {"t": [1]}}).is_("Stable", generation=3)
    assert s.owns("f#4") == []
    assert [m.member_id for m in joined(s, "c1").members] == [s.ids[name] for name in NAMES]
    assert s.group.policy_state.unstable_clients["f/f.example"].times_ms == [1_000, 2_000], (
        "the round that it missed is no flap"
    )


def test_a_member_in_quarantine_may_join_a_round():
    """policies.md 2.2: then it stays, as a follower with nothing."""
    s = hidden().at(4_000).rebalance().join("f#3").is_parked()
    for name in NAMES:
        s.join(name)
    s.is_("CompletingRebalance", members="c1 c2 c3 c4 f#3").sync("c1", {"f#3": {"t": [0]}}).sync("f#3")
    assert s.owns("f#3") == []


def test_a_newcomer_in_quarantine_joins_a_round_hidden():
    """policies.md 2.2: in every phase; otherwise each restart during a round would count as a member."""
    s = flap(group(), "f", "f#2").at(4_000).rebalance().new("f").is_parked()
    for name in NAMES:
        s.join(name)
    s.is_("CompletingRebalance")
    assert quarantined(s) == ["f#3 2 1 32000"]
    assert len(joined(s, "c1").members) == 4


def test_it_may_change_its_subscription_at_no_cost():
    """policies.md 2.2: nobody assigns it anything."""
    s = hidden().at(4_000).join("f#3", topics=["u"]).hears(ErrorCode.NONE, generation_id=2).is_("Stable")
    assert s.describe().said.subscribed_topics == ("t", "u")


def test_its_end_makes_a_newcomer_of_it():
    """policies.md 2.2: as if it came now; here a vacancy is offered to it, and it is called."""
    s = flap(group(), "f", "f#2").new("f").sync("f#3").at(4_000).leave("c2").beat().until(32_000)
    assert s.told()[-1] == "32000 released f#3 over"
    assert s.noticed() == {"f#3"}
    s.join("f#3").sync("f#3")
    assert s.owns("f#3") == [1]
    assert s.told()[-1] == "32000 passed f#3 c2 28000"


def test_it_ends_during_a_round_too():
    """policies.md 2.2: then the round waits for it."""
    s = hidden().at(4_000).rebalance().join("f#3")
    for name in NAMES[:3]:
        s.join(name)
    s.until(32_000).join("c4").is_("CompletingRebalance")
    assert len(joined(s, "c1").members) == 5


def test_nobody_else_ends_it():
    """policies.md 3.1: never in quarantine is the member that would be the last to own anything."""
    s = hidden().at(4_000).leave(*NAMES).is_("PreparingRebalance", members="f#3")
    assert s.told()[-2:] == ["4000 released f#3 nobody_else", "4000 rebalance member_left c4"]
    s.join("f#3").is_("CompletingRebalance").sync("f#3", {"f#3": {"t": [0]}})
    assert s.owns("f#3") == [0]


def test_without_another_owner_there_is_no_quarantine():
    """policies.md 3.1: the group's only client may flap as it likes."""
    s = Deploy.of("f", quarantine=QUARANTINE).at(1_000)
    for name in ("f", "f#2", "f#3"):
        s.leave(name).new("f")
    assert quarantined(s) == []


@pytest.mark.parametrize(("percent", "most"), [(1, 1), (20, 1), (30, 2), (50, 3)])
def test_only_some_may_be_in_quarantine_at_once(percent: int, most: int):
    """policies.md 3.1: `percent_max` of the members, one always. The others are newcomers as ever."""
    s = group(Quarantine(flaps=2, for_ms=600_000, for_max_ms=600_000, percent_max=percent))
    for client in ("f", "g", "h"):
        s = flap(s, client, f"{client}#2")
    for client in ("f", "g", "h"):
        s.new(client)
    assert len(s.group.policy_state.quarantined) == most
    assert len(s.events(MemberQuarantined)) == most


def test_switching_it_off_releases_all():
    """policies.md 2.3: why=policy; the flaps are forgotten."""
    s = hidden().at(4_000).policy(quarantine=None)
    assert s.told()[-2:] == ["4000 released f#3 policy", "4000 rebalance_held f#3 succession 604000"]
    assert not s.group.policy_state.unstable_clients


def test_flappers_are_bounded():
    """I22: beyond 64 the one that ended longest ago is dropped."""
    s = group().at(1_000)
    for n in range(UNSTABLE_CLIENTS_MAX + 1):
        s.new(f"f{n}").leave(f"f{n}")
    assert len(s.group.policy_state.unstable_clients) == UNSTABLE_CLIENTS_MAX
    assert "f0/f0.example" not in s.group.policy_state.unstable_clients
