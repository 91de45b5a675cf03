"""The leader's seat: who leads, who is told so, and what becomes of the new leader's assignments (policies.md 1.5)."""

from collections.abc import Mapping
from typing import Any

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.policies import Freeze, Settle, Succession
from coordinator.messages.requests import JoinGroup
from coordinator.messages.responses import JoinGroupAnswer
from tests.coordinator.seats.deploy import NAMES, Deploy, joined

SUCCESSION = Succession(vacant_ms=30_000, standby_ms=60_000)
AS_PLANNED = {"c2": {"t": [1]}, "c3": {"t": [2]}, "c4": {"t": [3]}}


def without_leader(**policies: Any) -> Deploy:
    """Return the group after its leader has left; c2 leads, and was not told so."""
    s = Deploy.of(**(policies or {"succession": SUCCESSION})).at(1_000).leave("c1")
    assert s.group.leader_id == s.ids["c2"]
    return s


def roll(s: Deploy, answer: JoinGroupAnswer) -> list[str]:
    return [s.name(member.member_id) for member in answer.members]


def test_the_taker_of_the_leaders_seat_is_told_that_it_leads():
    """policies.md 1.4: with the roll, and without `skip_assignment` in every version."""
    for skips in (True, False):
        s = without_leader().new("n", supports_skipping_assignment=skips)
        answer = joined(s, "n")
        assert (s.name(answer.leader), answer.skip_assignment) == ("n", False)
        assert roll(s, answer) == ["c2", "c3", "c4", "n"]
        assert s.join("n").said == answer or roll(s, joined(s, "n")) == roll(s, answer), "once more the same"


def test_followers_hear_the_leader_of_the_moment():
    """policies.md P6: the leader may change within a generation, at a seat."""
    s = without_leader().join("c3")
    assert s.name(s.said.leader) == "c2"
    s.new("n").join("c3")
    assert s.name(s.said.leader) == "n"


def test_a_leader_that_was_not_told_leads_when_it_joins():
    """policies.md 1.5: the first of those left leads, so that there is one; its own join tells it, and is answered."""
    s = without_leader().join("c2").hears(ErrorCode.NONE, generation_id=2)
    assert roll(s, s.said) == ["c2", "c3", "c4"]
    s.sync("c2", AS_PLANNED).is_("Stable").new("n")
    assert s.name(joined(s, "n").leader) == "c2", "the vacancy leads no more"


def test_a_repeated_join_tells_a_leader_too():
    """policies.md P7: its response names the leader, and its sender may wait for it."""
    s = Deploy.of(succession=SUCCESSION).at(1_000).join("c2").leave("c1")
    s.send("c2", s.last_request("c2", JoinGroup))
    assert (s.name(joined(s, "c2").leader), s.group.policy_state.leader_vacancy) == ("c2", None)


def test_a_second_leader_that_leaves_does_not_take_the_leaders_seat_along():
    """policies.md P7: the seat of the member that was told that it leads stays the leader's."""
    s = without_leader(succession=Succession(vacant_percent_max=100)).leave("c2").new("n", client_id="c1")
    s.sync(s.name(s.group.leader_id)).new("m")
    assert s.name(joined(s, "m").leader) == "c1#2"


def test_the_leaders_seat_is_free_again_if_its_taker_leaves():
    """policies.md 1.3, 1.5: another newcomer gets it, and leads."""
    s = without_leader().new("n").leave("n").new("m").sync("m")
    assert (s.owns("m"), s.name(s.group.leader_id)) == ([0], "m")


def test_a_leader_without_partitions_leaves_a_seat_too():
    """policies.md 1.5: somebody has to watch for new partitions."""
    s = Deploy()
    for name in (*NAMES, "c1"):
        s.join(name)
    s.sync("c1", AS_PLANNED).policy(succession=SUCCESSION).at(1_000).leave("c1")
    assert s.told() == ["1000 seat_vacated c1 succession 31000"]
    s.new("n")
    assert s.name(joined(s, "n").leader) == "n"


def test_a_follower_without_partitions_leaves_nothing():
    """policies.md 2.2: nobody hears of its end."""
    s = Deploy()
    for name in (*NAMES, "c1"):
        s.join(name)
    s.sync("c1", {"c1": {"t": [0]}}).policy(succession=SUCCESSION).at(1_000).leave("c2").is_("Stable")
    assert s.told() == []


# -- its assignments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("added", "follows"), [
    ({}, []),
    ({"n": {"t": [0, 4]}}, ["rebalance partitions_added n"]),
    ({"c2": {"t": [1], "u": [0]}}, ["rebalance partitions_added n"]),
    ({"c3": {"t": []}}, []),  # what is missing means nothing
    ({"n": {"t": [1, 2, 3]}}, []),  # nor what is another's
])  # fmt: skip
def test_a_new_leaders_assignments_are_looked_at(added: Mapping[str, Any], follows: list[str]):
    """policies.md 1.5: never installed; partitions that nobody has begin a rebalance."""
    s = without_leader().at(2_000).new("n").sync("n", plan={**AS_PLANNED, "n": {"t": [0]}, **added})
    s.hears(ErrorCode.NONE)
    assert (s.owns("n"), s.owns("c2")) == ([0], [1])
    assert [line.removeprefix("2000 ") for line in s.told()[2:]] == follows


def test_a_vacancy_has_its_partitions():
    """policies.md 1.5: partitions of a vacancy are not new."""
    s = without_leader(succession=Succession(vacant_percent_max=100)).leave("c2").new("n", client_id="c1")
    s.sync("c1#2", plan={"c1#2": {"t": [0, 1]}, "c3": {"t": [2]}, "c4": {"t": [3]}}).is_("Stable")


def test_only_a_leader_that_was_told_so_is_heard():
    """policies.md 1.5: a plan for a Stable group is ignored, as in Kafka."""
    s = without_leader().sync("c2", plan={"c2": {"t": [1, 9]}}).is_("Stable")
    s.new("n").sync("c3", plan={"c3": {"t": [8]}}).is_("Stable").sync("n", plan={"n": {"t": [0]}})
    s.sync("n", plan={"n": {"t": [7]}}).is_("Stable", generation=2)


def test_added_partitions_in_a_freeze_are_adopted():
    """policies.md 1.5: a vacancy of just these, which is adopted when it is due."""
    s = without_leader(freeze=Freeze(until_ms=7_200_000)).at(2_000).new("n")
    s.sync("n", plan={**AS_PLANNED, "n": {"t": [0, 4]}}).is_("Stable").beat().live_until(61_999)
    assert s.told()[2:] == ["2000 rebalance_held n freeze 62000"]
    s.until(62_000)
    assert s.noticed() == {"c2"}
    s.join("c2").sync("c2")
    assert s.owns("c2") == [1, 4]


def test_partitions_that_are_added_twice_are_one_vacancy():
    """policies.md 1.5: in a freeze a leader joins at will, and its assignments are looked at each time."""
    s = Deploy.of(freeze=Freeze(until_ms=7_200_000)).at(1_000)
    for added in ([4], [4, 5]):
        s.join("c1").hears(ErrorCode.NONE, generation_id=2).sync("c1", {"c1": {"t": [0, *added]}})
    s.beat().live_until(61_000).join("c1").sync("c1")
    assert s.owns("c1") == [0, 4, 5]


# -- a leader that joins by itself -------------------------------------------------------------------------------------


def test_a_leader_that_joins_by_itself_rebalances():
    """policies.md 1.5: as ever; so a leader that has seen new partitions is heard."""
    s = Deploy.of(succession=SUCCESSION, settle=Settle()).at(1_000).join("c1").is_parked()
    assert s.told() == ["1000 rebalance leader_rejoined c1"]


def test_in_a_freeze_it_is_answered_at_once():
    """policies.md 1.5: as the leader, with the roll."""
    s = Deploy.of(freeze=Freeze(until_ms=7_200_000)).at(1_000).join("c1").hears(ErrorCode.NONE, skip_assignment=False)
    assert roll(s, s.said) == list(NAMES)
    s.join("c1", topics=["u"]).is_parked()
    assert s.told() == ["1000 freeze_broken metadata_changed rebalanced c1", "1000 rebalance metadata_changed c1"]
