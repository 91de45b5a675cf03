"""Joins, syncs and leaves: the cases that the traces and the cells do not contain."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.messages.events import MemberExpired
from coordinator.messages.requests import Assignment, JoinGroup, LeaveGroup, Leaving, SyncGroup
from coordinator.messages.responses import JoinGroupAnswer, SyncGroupAnswer
from tests.coordinator.scenario import Scenario

# -- the order of JoinGroup's checks -----------------------------------------------------------------------------------

WRONG = {
    # faults, the first check first (protocol.md 3.0, 3.2.1, 11)    the response
    "no group id":         ({"group_id": ""},                       ErrorCode.INVALID_GROUP_ID),
    "session too short":   ({"session_timeout_ms": 5_999},          ErrorCode.INVALID_SESSION_TIMEOUT),
    "group is full":       ({},                                     ErrorCode.GROUP_MAX_SIZE_REACHED),
    "another type":        ({"protocol_type": "connect"},           ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "id is unknown":       ({"member_id": "made-up"},               ErrorCode.UNKNOWN_MEMBER_ID),
}  # fmt: skip


@pytest.mark.parametrize("first", range(len(WRONG)), ids=WRONG)
def test_of_several_faults_the_first_check_decides(first: int):
    """S60: a join that has every fault from the `first` one on gets the error of that one."""
    is_full = first <= list(WRONG).index("group is full")
    s = Scenario.stable("c1", group_max_size=1 if is_full else 10)
    before = s.shard.to_bytes()
    faults = list(WRONG.values())[first:]
    fields = {name: value for fault, _ in reversed(faults) for name, value in fault.items()}
    s.join("n", **fields).hears(faults[0][1], generation_id=-1, leader="", members=())
    assert s.shard.to_bytes() == before, "a refused join changes nothing"


ECHOED = {
    # a join with an id that gets ...          repeats the id, or not
    ErrorCode.INVALID_SESSION_TIMEOUT: ({"session_timeout_ms": 1}, "made-up"),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ({"protocols": ["foo"]}, "made-up"),
    ErrorCode.UNKNOWN_MEMBER_ID: ({}, "made-up"),
    ErrorCode.GROUP_MAX_SIZE_REACHED: ({}, ""),
}


@pytest.mark.parametrize("error", ECHOED, ids=lambda error: error.name)
def test_which_refusals_repeat_the_member_id(error: ErrorCode):
    """protocol.md 3.2.1, 3.2.4: some errors repeat the member id, others do not."""
    fields, echoed = ECHOED[error]
    s = Scenario.stable("c1", group_max_size=1 if error is ErrorCode.GROUP_MAX_SIZE_REACHED else 10)
    s.join("c1", member_id="made-up", **fields).hears(error, member_id=echoed, generation_id=-1)


# -- ids ---------------------------------------------------------------------------------------------------------------


def test_a_repeated_first_join_makes_no_second_member():
    """Without the round of KIP-394, the request id identifies the member: parked, answered, Stable."""
    s = Scenario(delay_ms=3_000).join("c1")
    first = s.last_request("c1", JoinGroup)
    s.send("c1", first).is_parked().until(3_000).hears(ErrorCode.NONE).is_("CompletingRebalance", members="c1")
    s.send("c1", first).sync("c1").send("c1", first).is_("Stable", generation=1, members="c1")
    heard = s.answers[first.request_id]
    assert [(a.member_id, a.code) for a in heard] == [(s.ids["c1"], 0)] * 3


def test_first_joins_with_lost_responses_leave_no_member():
    """KIP-394: a pending id is not a member, and expires when its own session would have ended."""
    s = Scenario.stable("c1", session_timeout_ms=30_000)
    for _ in range(3):
        s.join("c2", member_id="", require_known_member_id=True).hears(ErrorCode.MEMBER_ID_REQUIRED)
    s.is_("Stable", generation=1, members="c1")
    assert len(s.group.hot_state.pending) == 3
    s.join("c2").join("c1", session_timeout_ms=30_000).until(10_000)
    s.is_("CompletingRebalance", generation=2, members="c1 c2")
    assert not s.group.hot_state.pending


def test_equal_first_joins_of_two_processes_make_two_members():
    """A request id is unique only in its mailbox."""
    s = (
        Scenario(delay_ms=3_000)
        .join("c1", request_id="1", reply_to="here")
        .join("c2", request_id="1", reply_to="there")
    )
    assert len(s.group.members) == 2


def test_a_member_id_begins_with_the_client_id():
    """S36, S61: a member id begins with the client id."""
    s = Scenario().join("ana").hears(ErrorCode.NONE)
    assert s.ids["ana"].startswith("ana-")
    assert len(s.ids["ana"]) == len("ana-") + 36


def test_a_new_member_may_have_no_client_id():
    s = Scenario().join("ana", client_id="").hears(ErrorCode.NONE)
    assert s.said.member_id.startswith("-")


def test_an_id_from_the_first_join_is_the_members_id_in_the_second():
    """S61: the second join with the id makes the member."""
    s = Scenario().join("ana", require_known_member_id=True).hears(ErrorCode.MEMBER_ID_REQUIRED, generation_id=-1)
    first = s.said.member_id
    s.join("ana", require_known_member_id=True).hears(ErrorCode.NONE, member_id=first)
    s.is_("CompletingRebalance", generation=1)


def test_a_pending_id_is_kept_when_its_join_is_refused():
    """protocol.md 3.2.4 row 2: the id stays pending."""
    s = Scenario.stable("c1").join("p", require_known_member_id=True)
    s.join("p", protocols=["foo"]).hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=s.ids["p"])
    s.join("p").is_parked()


def test_a_refused_member_stays_a_member():
    """protocol.md 3.2.4 row 2: a member whose join is refused stays a member."""
    s = Scenario.stable("c1", "c2").join("c2", protocols=["foo"]).hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    s.heartbeat("c2").hears(ErrorCode.NONE)


def test_a_pending_id_has_the_session_timeout_of_its_own_request():
    """S106; protocol.md 4.5: the id expires after that time."""
    s = Scenario().join("p", require_known_member_id=True, session_timeout_ms=6_000)
    s.until(5_999).join("q").hears(ErrorCode.NONE)
    s.at(6_000).join("p").hears(ErrorCode.UNKNOWN_MEMBER_ID)


# -- capacity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Empty", "CompletingRebalance", "Stable"])
def test_a_join_beyond_the_largest_size_is_refused(phase: str):
    """protocol.md 3.2.3: at the bound accepted, one beyond refused, except in an Empty group."""
    make = {"Empty": Scenario, "CompletingRebalance": Scenario.joined, "Stable": Scenario.stable}[phase]
    s = make(*([] if phase == "Empty" else ["c1", "c2"]), group_max_size=2)
    s.join("c3", require_known_member_id=True)
    s.hears(ErrorCode.MEMBER_ID_REQUIRED if phase == "Empty" else ErrorCode.GROUP_MAX_SIZE_REACHED)
    s = make(*([] if phase == "Empty" else ["c1", "c2"]), group_max_size=3)
    s.join("c3", require_known_member_id=True).hears(ErrorCode.MEMBER_ID_REQUIRED)


def test_eleven_first_joins_get_an_id_and_the_eleventh_second_join_is_refused():
    """protocol.md 3.2.3: pending ids do not count."""
    s = Scenario(delay_ms=3_000, group_max_size=10)
    names = [f"c{n}" for n in range(11)]
    for name in names:
        s.join(name, require_known_member_id=True).hears(ErrorCode.MEMBER_ID_REQUIRED)
    for name in names[:10]:
        s.join(name).is_parked()
    s.join(names[10]).hears(ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")
    assert not s.group.hot_state.pending


def test_a_member_with_a_parked_join_may_join_again_in_a_full_round():
    """protocol.md 3.2.3, PreparingRebalance: the join is accepted."""
    s = Scenario(delay_ms=3_000, group_max_size=2).join("c1").join("c2").join("c1").is_parked()
    s.join("c3").hears(ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_a_member_that_joins_a_full_round_too_late_is_removed():
    """protocol.md 3.2.1 row 5, 3.2.3: the slowest member is removed, and an event reports it."""
    s = Scenario.joined("c1", "c2", "c3", group_max_size=3).sync("c1", plan={}).leave("c3").join("c4").join("c5")
    s.join("c1").is_parked().join("c2").hears(ErrorCode.GROUP_MAX_SIZE_REACHED, member_id="")
    (gone,) = s.events(MemberExpired)
    assert (s.name(gone.member_id), gone.why) == ("c2", "group_full")
    s.heartbeat("c2").hears(ErrorCode.UNKNOWN_MEMBER_ID)


# -- the leader --------------------------------------------------------------------------------------------------------


def test_the_first_member_leads_and_stays_leader_while_it_rejoins():
    """S58: the first member leads, and stays the leader while it rejoins."""
    s = Scenario(delay_ms=3_000).join("c1").join("c2").join("c3").until(9_000)
    assert [s.name(s.heard(c, JoinGroup).leader) for c in ("c1", "c2", "c3")] == ["c1"] * 3
    s.sync("c1", plan={}).join("c1").join("c3").join("c2").is_("CompletingRebalance", generation=2)
    assert s.name(s.group.leader_id) == "c1"


def test_a_leader_that_does_not_rejoin_is_replaced_by_one_that_did():
    """S58, S78; protocol.md 2.4: a member that rejoined is the new leader."""
    s = Scenario.stable("c1", "c2", "c3", session_timeout_ms=60_000)
    s.join("c3", topics=["u"], session_timeout_ms=60_000).join("c2", session_timeout_ms=60_000)
    s.until(10_000).is_("CompletingRebalance", generation=3, members="c2 c3")
    assert s.name(s.heard("c3", JoinGroup).leader) == "c2"


def test_an_empty_group_has_no_leader():
    """S73: a group without members has no leader."""
    s = Scenario.stable("c1").leave("c1").is_("Empty")
    assert s.group.leader_id is None


# -- assignments -------------------------------------------------------------------------------------------------------


def test_assignments_of_a_follower_are_ignored():
    """S89: only the leader's assignments count."""
    s = Scenario.joined("c1", "c2").sync("c2", plan={"c2": {"t": [0, 1, 2]}}).is_parked()
    s.sync("c1", plan={"c1": {"t": [0]}})
    assert s.heard("c2", SyncGroup).assignment == b""


def test_the_last_of_two_assignments_of_a_member_counts():
    s = Scenario.joined("c1")
    own = s.ids["c1"]
    s.ask("c1", SyncGroup, assignments=(Assignment(own, b"first"), Assignment(own, b"second")))
    s.hears(ErrorCode.NONE, assignment=b"second")


def test_assignments_may_be_empty():
    """protocol.md 3.3.1: members without an assignment get an empty one."""
    Scenario.joined("c1").sync("c1").hears(ErrorCode.NONE, assignment=b"").is_("Stable")


@pytest.mark.parametrize("plan", [b"", b"\x00", bytes(100_000)], ids=["none", "short", "long"])
def test_an_assignment_is_returned_byte_for_byte(plan: bytes):
    """S40, S88: a member gets the leader's bytes."""
    s = Scenario.joined("c1").sync("c1", plan={"c1": plan}).hears(ErrorCode.NONE, assignment=plan)
    s.sync("c1").hears(ErrorCode.NONE, assignment=plan)


def test_a_rebalance_from_completing_resets_assignments():
    """S87; protocol.md 2.5, 3.11: a rebalance from Completing resets assignments, one from Stable keeps them."""
    s = Scenario.stable("c1", "c2").join("c1")
    assert all(m.assignment for m in s.group.members.values())
    s.join("c2").is_("CompletingRebalance")
    assert all(m.assignment for m in s.group.members.values())
    s.leave("c2").is_("PreparingRebalance")
    assert not any(m.assignment for m in s.group.members.values())


# -- responses to superseded requests ----------------------------------------------------------------------------------


def test_a_superseded_join_is_answered_in_its_own_mailbox():
    """S43, I5: each of two processes gets the response to its own request."""
    s = Scenario.stable("c1", "c2").join("c1", reply_to="old inbox").join("c1", reply_to="new inbox")
    (reply,) = [o for o in s.latest if isinstance(getattr(o, "answer", None), JoinGroupAnswer)]
    assert (reply.to, reply.answer.error) == ("old inbox", "REBALANCE_IN_PROGRESS")
    s.join("c2")
    assert {o.to for o in s.latest if isinstance(getattr(o, "answer", None), JoinGroupAnswer)} == {
        "new inbox",
        "c2's inbox",
    }


def test_a_superseded_sync_is_answered_in_its_own_mailbox():
    """S43, I5: each of two processes gets the response to its own request."""
    s = Scenario.joined("c1", "c2").sync("c2", reply_to="old inbox").sync("c2", reply_to="new inbox")
    (reply,) = s.latest
    assert (reply.to, reply.answer.error) == ("old inbox", "REBALANCE_IN_PROGRESS")
    s.sync("c1", plan={})
    assert [o.to for o in s.latest if isinstance(getattr(o, "answer", None), SyncGroupAnswer)] == [
        "c1's inbox",
        "new inbox",
    ]


def test_a_rebalance_from_completing_answers_every_parked_sync():
    """S87, I3: this includes the sync of the member that caused the rebalance."""
    s = Scenario.joined("c1", "c2").sync("c2").is_parked().join("c2", topics=["u"]).is_parked()
    assert s.heard("c2", SyncGroup).error == "REBALANCE_IN_PROGRESS"


# -- leaves ------------------------------------------------------------------------------------------------------------


def test_a_leave_without_members_changes_nothing():
    """protocol.md 11: NONE and an empty list, no rebalance."""
    s = Scenario.stable("c1")
    before = s.shard.to_bytes()
    s.ask("c1", LeaveGroup, members=()).hears(ErrorCode.NONE, members=())
    assert s.shard.to_bytes() == before


def test_a_leave_answers_its_entries_in_order():
    """protocol.md 3.5: the entries of the response have the order of the request."""
    s = Scenario.stable("c1", "c2").leave("c2", "made-up", "c1").hears(ErrorCode.NONE)
    assert [(s.name(m.member_id), m.code) for m in s.said.members] == [("c2", 0), ("made-up", 25), ("c1", 0)]


def test_a_leave_of_an_unknown_instance_is_refused():
    """protocol.md 3.5: the administrative form, with an unknown instance id."""
    s = Scenario.stable("c1").ask("admin", LeaveGroup, members=(Leaving("", "i1"),)).hears(ErrorCode.NONE)
    assert [(m.member_id, m.group_instance_id, m.code) for m in s.said.members] == [("", "i1", 25)]


def test_a_member_that_left_has_no_deadline():
    """S42: no expiry ever follows for that id."""
    s = Scenario.stable("c1", "c2").leave("c2").join("c1").sync("c1", plan={})
    for at_ms in range(5_000, 60_000, 5_000):
        s.until(at_ms).heartbeat("c1").hears(ErrorCode.NONE)
    assert not s.events(MemberExpired)
