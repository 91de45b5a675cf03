"""Succession: which newcomer gets which seat, and what each request hears meanwhile (policies.md 1 and 2.2)."""

from typing import Any

import pytest

from coordinator.base.consumer_protocol import Subscription, write_subscription
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import SEAT_OFFER_MS
from coordinator.base.policies import Succession
from coordinator.messages.events import MemberJoined
from coordinator.messages.policy_events import RebalanceHeld
from coordinator.messages.requests import JoinGroup, Protocol, SyncGroup
from tests.coordinator.seats.deploy import NAMES, Deploy, cooperative

SUCCESSION = Succession(vacant_ms=30_000, standby_ms=60_000)


def deploy(**settings: Any) -> Deploy:
    """Return the group with succession."""
    return Deploy.of(succession=Succession(**settings) if settings else SUCCESSION)


def with_static(*instances: str) -> Deploy:
    """Return the group with succession, and a static member for each instance id, which is its client id too."""
    s = Deploy.of()
    for instance in instances:
        s.join(instance, group_instance_id=instance)
    for name in NAMES:
        s.join(name)
    s.sync("c1", plan={name: {"t": [place]} for place, name in enumerate((*NAMES, *instances))})
    for instance in instances:
        s.sync(instance, group_instance_id=instance)
    return s.policy(succession=SUCCESSION)


# -- which seat --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("client_id", "client_host", "partition"), [
    ("x", "/h3", 0),   # nothing but the subscription fits: the oldest vacancy
    ("x3", "/h1", 2),  # the client id
    ("x2", "/h4", 3),  # of two with the client id, the one with the host as well
    ("x2", "/h2", 1),
    ("x2", "/h9", 1),  # of two with the client id, the oldest one
])  # fmt: skip
def test_a_newcomer_gets_the_seat_that_fits_best(client_id: str, client_host: str, partition: int):
    """policies.md 1.3: same client id and host, else same client id, else the oldest vacancy."""
    s = Deploy()
    clients = {"c1": "x1", "c2": "x2", "c3": "x3", "c4": "x2", "c5": "x5"}
    for place, (name, client) in enumerate(clients.items()):
        s.join(name, client_id=client, client_host=f"/h{place + 1}")
    ids = [event.member_id for event in s.events(MemberJoined)]
    s.join("c1", member_id=ids[0], client_id="x1", client_host="/h1")
    s.sync("c1", {member_id: {"t": [p]} for p, member_id in enumerate(ids)}, member_id=ids[0], generation_id=2)
    s.policy(succession=Succession(vacant_percent_max=100))
    for place, member_id in enumerate(ids[:4]):
        s.at(10_000 + place).leave(member_id)
    s.at(11_000).join("n", client_id=client_id, client_host=client_host)
    taker = s.events(MemberJoined)[-1].member_id
    s.sync("n", member_id=taker, generation_id=2)
    assert s.owns(s.name(taker)) == [partition]


def test_an_instance_id_comes_first():
    """policies.md 1.3: the seat of an instance id goes to that instance id, whatever its client id."""
    s = with_static("i1", "i2").live_until(50_000, *NAMES)  # both static members expire
    s.join("n", group_instance_id="i2").sync("n", group_instance_id="i2")
    assert s.owns("n") == [5]


def test_a_seat_of_an_expired_static_member_may_become_anothers():
    """policies.md 1.6: another instance id or a dynamic member may take it, so pod names that change work."""
    s = with_static("i1", "i2").live_until(50_000, *NAMES)
    s.join("n", group_instance_id="i3").sync("n", group_instance_id="i3").join("m").sync("m")
    assert (s.owns("n"), s.owns("m"), s.group.generation_id) == ([4], [5], 3)


def test_standbys_are_called_in_their_order():
    """policies.md 1.3: the standby that fits best, else the one that has waited longest."""
    s = deploy(vacant_percent_max=100).at(1_000).new("a").new("b").new("c2").at(2_000)
    assert [s.leave(name).noticed() for name in ("c1", "c2", "c3")] == [{"a"}, {"c2#2"}, {"b"}]


@pytest.mark.parametrize("fields", [{"topics": ["u"]}, {"topics": ["t", "u"]}, {"protocols": ["range", "sticky"]}])
def test_a_newcomer_with_another_subscription_gets_no_seat(fields: dict[str, Any]):
    """policies.md 1.6: a newcomer that is not like the vacancy rebalances at once, and that pays all pending holds."""
    s = deploy().at(1_000).leave("c2").at(2_000).new("n", **fields).is_parked()
    assert s.told()[1:] == ["2000 rebalance member_joined n"]
    assert not s.group.policy_state.vacant


def test_bytes_that_do_not_count_make_no_difference():
    """policies.md, Like: version, owned partitions, user data, generation and rack do not count."""
    s = deploy().at(1_000).leave("c2")
    said = Subscription(("t",), user_data=b"mine", owned={"t": [3]}, generation_id=1, rack_id="r")
    s.new("n", protocols_as_they_are=(Protocol("range", write_subscription(said)),)).sync("n")
    assert s.owns("n") == [1]


# -- what is heard meanwhile -------------------------------------------------------------------------------------------


def test_a_hold_parks_nobody():
    """policies.md 1.1, 1.2: members and former members are answered at once, and nothing changes for them."""
    s = deploy().at(1_000).leave("c2").hears(ErrorCode.NONE)
    s.heartbeat("c1").hears(ErrorCode.NONE).sync("c3").hears(ErrorCode.NONE)
    s.commit("c3", {("t", 2): 7}).hears(ErrorCode.NONE).join("c3").hears(ErrorCode.NONE, generation_id=2)
    s.heartbeat("c2").hears(ErrorCode.UNKNOWN_MEMBER_ID).sync("c2").hears(ErrorCode.UNKNOWN_MEMBER_ID)
    s.join("c2").hears(ErrorCode.UNKNOWN_MEMBER_ID).is_("Stable", generation=2)


def test_a_called_member_alone_hears_it_and_stays_alive():
    """policies.md 1.2: its heartbeats and commits are accepted until it joins, and then it hears NONE again."""
    s = deploy(vacant_ms=600_000, standby_ms=600_000).at(1_000).new("n").sync("n").at(40_000).beat().leave("c2")
    s.heartbeat("n").hears(ErrorCode.REBALANCE_IN_PROGRESS).heartbeat("c1").hears(ErrorCode.NONE)
    s.commit("n", {("t", 0): 1}).hears(ErrorCode.NONE)
    s.at(50_000).join("n").hears(ErrorCode.NONE, generation_id=2).heartbeat("n").hears(ErrorCode.NONE)
    s.sync("n").hears(ErrorCode.NONE).is_("Stable")
    assert s.owns("n") == [1]


def test_a_sync_from_before_the_join_takes_nothing():
    """policies.md 1.2: a repeat must not take a seat, because its sender does not hear it."""
    s = deploy().at(1_000).new("n").sync("n").at(2_000).leave("c2").sync("n").hears(ErrorCode.NONE)
    assert s.owns("n") == []
    s.join("n").send("n", s.last_request("n", SyncGroup))
    assert s.owns("n") == [], "the same sync as before the join"
    s.sync("n")
    assert s.owns("n") == [1]


def test_a_repeated_join_from_before_the_call_is_no_answer_to_it():
    """policies.md 1.2: the member is called until it has joined again itself."""
    s = deploy().at(1_000).join("n", require_known_member_id=True).join("n").sync("n")
    first = s.last_request("n", JoinGroup)
    s.at(2_000).leave("c2").send("n", first).heartbeat("n").hears(ErrorCode.REBALANCE_IN_PROGRESS)
    s.sync("n")
    assert s.owns("n") == []
    s.join("n").join("n").sync("n")
    assert s.owns("n") == [1]


def test_a_called_member_that_joins_under_other_policies_hears_it_no_more():
    """policies.md 1.2: its join is answered as before, and a member that has joined again is not called any more."""
    s = deploy().at(1_000).new("n").sync("n").at(2_000).leave("c2").policy(succession=SUCCESSION, assignors=["sticky"])
    s.heartbeat("n").hears(ErrorCode.REBALANCE_IN_PROGRESS)
    s.join("n").hears(ErrorCode.NONE, generation_id=2).heartbeat("n").hears(ErrorCode.NONE)


def test_a_pending_id_is_no_debt():
    """policies.md 1.2: neither the id of MEMBER_ID_REQUIRED nor its leave begins a rebalance or a hold."""
    s = deploy().at(1_000).join("n", require_known_member_id=True).hears(ErrorCode.MEMBER_ID_REQUIRED)
    s.leave("n").is_("Stable")
    assert s.told() == []


def test_a_former_member_id_stays_unknown_in_its_generation():
    """policies.md 1.6: a repeat of its first join brings the id back, and then the group needs another generation."""
    s = deploy().at(1_000).new("n")
    first = s.last_request("n", JoinGroup)
    s.leave("n").is_("Stable").at(2_000).send("n", first).is_("PreparingRebalance")


def test_several_members_that_leave_at_once_leave_as_many_seats():
    """policies.md 1.2: one request, a vacancy for each."""
    s = deploy(vacant_percent_max=100).at(1_000).leave("c2", "c3")
    assert s.told() == ["1000 seat_vacated c2 succession 31000", "1000 seat_vacated c3 succession 31000"]


def test_the_last_member_leaves_an_empty_group():
    """policies.md 1.1: Empty, as ever."""
    Deploy.of("c1", succession=SUCCESSION).at(1_000).leave("c1").is_("Empty", generation=2)


def test_a_seated_newcomer_has_its_own_session():
    """policies.md 1.6: its session timeout runs from the answer on; it owes no sync."""
    s = deploy().at(1_000).new("n", session_timeout_ms=10_000).until(10_999).is_("Stable", members="c1 c2 c3 c4 n")
    s.until(11_000).is_("Stable", members="c1 c2 c3 c4")
    assert s.told() == ["1000 rebalance_held n succession 61000"], "and nobody heard of its end"


# -- offers ------------------------------------------------------------------------------------------------------------


def test_an_offer_lapses_and_the_next_standby_is_called():
    """policies.md 1.3: after 15 s at most without the sync; the taker stays, last in the order."""
    s = deploy(standby_ms=600_000).at(1_500).new("a").new("b").leave("c2")
    assert s.noticed() == {"a"}
    offered_ms = s.group.policy_state.offers[s.ids["a"]].until_ms
    assert 1_500 + SEAT_OFFER_MS - 1_000 < offered_ms <= 1_500 + SEAT_OFFER_MS
    s.join("a").until(offered_ms - 1)
    assert s.noticed() == set()
    s.until(offered_ms)
    assert s.noticed() == {"b"}
    s.sync("a").heartbeat("b").hears(ErrorCode.REBALANCE_IN_PROGRESS)
    assert s.owns("a") == []
    s.leave("c3")
    assert s.noticed() == {"a"}, "it is called again, because no other standby waits"


def test_a_call_ends_with_its_offer_within_one_step():
    """policies.md 1.2, 1.3: the heartbeat that brings the time of the end is answered after it."""
    s = deploy(standby_ms=600_000).at(1_500).new("a").new("b").leave("c2")
    offered_ms = s.group.policy_state.offers[s.ids["a"]].until_ms
    s.at(offered_ms - 1).heartbeat("a").hears(ErrorCode.REBALANCE_IN_PROGRESS)
    s.at(offered_ms).heartbeat("a").hears(ErrorCode.NONE).heartbeat("b").hears(ErrorCode.REBALANCE_IN_PROGRESS)


def test_a_newcomer_that_lets_its_seat_pass_waits_as_others_do():
    """policies.md 1.3: it has a pending hold from then on, so it does not wait for ever."""
    s = deploy().at(1_000).leave("c2").at(2_000).new("n").beat().live_until(17_000)
    assert s.told()[1:] == ["17000 rebalance_held n succession 77000"]
    s.live_until(31_999).is_("Stable").until(32_000).is_("PreparingRebalance")


def test_a_vacancy_waits_for_an_open_offer_and_no_longer():
    """policies.md 1.1: a pending hold takes its window, and at most 15 s where a seat is on offer when it ends."""
    s = deploy().at(1_000).leave("c2").beat().live_until(29_000).new("n").until(43_999).is_("Stable")
    s.until(44_000).is_("PreparingRebalance")


def test_the_seat_of_a_taker_that_leaves_is_free_again():
    """policies.md 1.3: what was not told can be withdrawn."""
    s = deploy(standby_ms=600_000).at(1_000).new("a").new("b").leave("c2").join("a").leave("a")
    assert s.noticed() == {"b"}
    s.join("b").sync("b")
    assert s.owns("b") == [1]


def test_a_vacancy_of_no_time_is_for_standbys_alone():
    """policies.md 3.1: with `vacant_ms` 0 a seat passes to a standby, or the group rebalances at once."""
    s = deploy(vacant_ms=0).at(1_000).leave("c2").is_("PreparingRebalance")
    s = deploy(vacant_ms=0).at(1_000).new("n").leave("c2").is_("Stable").join("n").sync("n")
    assert s.owns("n") == [1]


def test_newcomers_rebalance_without_a_standby_time():
    """policies.md 3.1: with `standby_ms` 0 a newcomer that finds no vacancy rebalances at once."""
    deploy(standby_ms=0).at(1_000).new("n").is_parked().is_("PreparingRebalance")


@pytest.mark.parametrize(("percent", "kept"), [(1, 1), (49, 1), (50, 2), (75, 3), (100, 3)])
def test_too_many_vacancies_are_an_outage(percent: int, kept: int):
    """policies.md 3.1: beyond `vacant_percent_max` of the members, the group rebalances at once; one is always kept."""
    s = deploy(vacant_percent_max=percent)
    for place, name in enumerate(NAMES[1:]):
        s.at(1_000 + place).leave(name)
    lines = [line.split()[1] for line in s.told()]
    assert lines == ["seat_vacated"] * kept + ["rebalance"] * (kept < 3)


def test_overdue_syncs_in_a_stable_group_leave_seats():
    """policies.md 1.1: a member that never synced has an assignment, which passes on as others do."""
    s = Deploy.joined("c1", "c2", session_timeout_ms=600_000, rebalance_timeout_ms=10_000).policy(succession=SUCCESSION)
    s.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}}).until(10_000).is_("Stable", members="c1")
    assert s.told()[-1] == "10000 seat_vacated c2 succession 40000"
    s.new("n").sync("n")
    assert s.owns("n") == [1]


# -- joins of members --------------------------------------------------------------------------------------------------


def test_a_called_member_with_another_subscription_rebalances():
    """policies.md 1.6: as ever; it is not like the seat any more."""
    deploy().at(1_000).new("n").leave("c2").join("n", topics=["u"]).is_parked().is_("PreparingRebalance")


def test_a_members_own_join_is_never_held():
    """policies.md 0: who joins again has given its partitions up already; the rebalance pays all pending holds."""
    s = deploy().at(1_000).leave("c2").at(2_000).join("c3", topics=["t", "u"]).is_("PreparingRebalance")
    assert s.told()[-1] == "2000 rebalance metadata_changed c3"
    s.is_("PreparingRebalance", generation=2)
    assert not s.group.policy_state.is_held


@pytest.mark.parametrize("request_", ["rebalance", "expel"])
def test_an_operator_is_never_held(request_: str):
    """policies.md 1.1: the hold is cut short, and its pending holds are over."""
    s = deploy().at(1_000).leave("c2").at(2_000)
    (s.rebalance() if request_ == "rebalance" else s.expel("c3")).is_("PreparingRebalance")
    assert s.told()[-1].startswith("2000 rebalance operator")


def test_a_called_cooperative_member_brings_what_it_owns():
    """policies.md 1.6: its bytes differ from those kept, so being like decides."""
    s = Deploy()
    for name in (*NAMES, "c1"):
        s.join(name, protocols_as_they_are=cooperative())
    s.sync("c1", plan={name: {"t": [place]} for place, name in enumerate(NAMES)})
    s.policy(succession=Succession(standby_ms=600_000)).at(1_000)
    s.new("n", protocols_as_they_are=cooperative()).sync("n").leave("c2")
    s.join("n", protocols_as_they_are=cooperative([9], 2)).hears(ErrorCode.NONE, generation_id=2).sync("n")
    assert s.owns("n") == [1]


def test_an_unfinished_cooperative_plan_seats_nobody():
    """policies.md 1.6: a partition that its owner has to give up first is assigned in the round that follows."""
    s = Deploy()
    for name in ("c1", "c2", "c1"):
        s.join(name, protocols_as_they_are=cooperative())
    s.policy(succession=SUCCESSION)
    s.sync("c1", plan={"c1": {"t": [0, 1, 2]}, "c2": {"t": [3]}})
    s.join("c2", protocols_as_they_are=cooperative([3], 2)).join("c1", protocols_as_they_are=cooperative([0, 1, 2], 2))
    s.sync("c1", plan={"c1": {"t": [0, 1]}, "c2": {"t": [3]}}).is_("Stable", generation=3)
    s.at(1_000).new("n", protocols_as_they_are=cooperative()).is_parked().is_("PreparingRebalance")


# -- static members ----------------------------------------------------------------------------------------------------


def test_a_static_standby_that_restarts_keeps_its_place():
    """policies.md 1.6: the new process takes over the standby, and its join answers the call."""
    s = (
        deploy(standby_ms=600_000)
        .at(1_000)
        .join("i", group_instance_id="i")
        .sync("i", group_instance_id="i")
        .leave("c2")
    )
    s.join("i", member_id="", group_instance_id="i").hears(ErrorCode.NONE, generation_id=2)
    s.sync("i#2", group_instance_id="i").hears(ErrorCode.NONE)
    assert s.owns("i#2") == [1]
    s.heartbeat("i", group_instance_id="i").hears(ErrorCode.FENCED_INSTANCE_ID)


def test_a_static_taker_with_another_subscription_loses_its_seat():
    """policies.md 1.6: its new process is not like the vacancy, and waits for nothing any more."""
    s = deploy().at(1_000).leave("c2").join("i", group_instance_id="i")
    s.join("i", member_id="", group_instance_id="i", topics=["u"]).is_("PreparingRebalance")


def test_a_static_member_that_restarts_is_no_newcomer():
    """policies.md 1.6: as ever (KIP-345), with its assignment and a token of its own."""
    s = with_static("i1").at(1_000).join("i1", member_id="", group_instance_id="i1").hears(ErrorCode.NONE)
    assert s.owns("i1#2") == [4]
    assert s.events(RebalanceHeld) == []


# -- other groups ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol_type", "protocols"), [("connect", ("range",)), ("consumer", ("stream",))])
def test_only_plain_assignments_pass_on(protocol_type: str, protocols: tuple[str, ...]):
    """policies.md 0: Kafka Streams and Connect put more than partitions into an assignment."""
    s = Deploy()
    for name in ("c1", "c2", "c1"):
        s.join(name, protocol_type=protocol_type, protocols=protocols)
    s.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}}).policy(succession=SUCCESSION)
    s.at(1_000).leave("c2").is_("PreparingRebalance")


def test_an_entry_may_name_other_assignors():
    """policies.md 3.1: `assignors` are those whose assignments are nothing but partitions."""
    s = Deploy.of("c1", "c2", protocols=["mine"]).policy(succession=SUCCESSION, assignors=("mine",))
    s.at(1_000).leave("c2").is_("Stable")


def test_a_vacant_seat_does_not_count_towards_the_size():
    """policies.md 1.6: `group_max_size` counts members."""
    s = Deploy.of(config={"group_max_size": 4}, succession=SUCCESSION).at(1_000).leave("c2").new("n").sync("n")
    s.new("m").hears(ErrorCode.GROUP_MAX_SIZE_REACHED)
