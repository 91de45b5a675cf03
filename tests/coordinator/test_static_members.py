"""Members with an instance id (KIP-345, KIP-814): the cases that `traces/static_*.txt` do not contain."""

from typing import Any

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.events import MemberExpired, MemberFenced, RebalanceStarted
from coordinator.messages.requests import JoinGroup
from coordinator.messages.responses import Reply
from tests.coordinator.scenario import Scenario


def static(*names: str, **settings: Any) -> Scenario:
    """Return a scenario with `names` as static members, ana as i-ana. The first one leads and has sent assignments."""
    s = Scenario(**settings)
    for name in (*names, *names[:1] * (len(names) > 1)):
        s.join(name, group_instance_id=f"i-{name}")
    s.sync(names[0], plan={name: {"t": [place]} for place, name in enumerate(names)})
    for name in names[1:]:
        s.sync(name)
    return s.is_("Stable")


def restart(s: Scenario, name: str, **fields: Any) -> Scenario:
    """Join from another process of a static member."""
    return s.join(name, member_id="", **{"group_instance_id": f"i-{name}", "reply_to": "another inbox"} | fields)


def again(s: Scenario, name: str) -> Scenario:
    """Repeat a member's latest join."""
    return s.send(name, s.last_request(name, JoinGroup))


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance", ["i1", "", "a.b_c-d", "x" * 249])
def test_a_static_members_id_begins_with_its_instance_id(instance: str):
    """S36; protocol.md 1.2, 11: and it never gets MEMBER_ID_REQUIRED."""
    s = Scenario().join("ana", group_instance_id=instance, require_known_member_id=True).hears(ErrorCode.NONE)
    assert s.said.member_id.startswith(f"{instance}-")
    assert len(s.said.member_id) == len(instance) + 37
    assert s.said.members[0].group_instance_id == instance


def test_every_process_gets_an_id_of_its_own():
    """S36: the ids cannot be guessed, and no two are equal."""
    s = static("ana")
    for _ in range(5):
        restart(s, "ana")
    assert len({*s.ids.values()}) == 6


def test_the_empty_instance_id_is_not_the_absent_one():
    """protocol.md 11: an empty instance id is an instance id."""
    s = Scenario().join("ana", group_instance_id="").sync("ana").join("bo").join("ana").is_("CompletingRebalance")
    assert [m.group_instance_id for m in s.group.members.values()] == ["", None]
    s.heartbeat("bo", group_instance_id="").hears(ErrorCode.FENCED_INSTANCE_ID)


# -- replacements ------------------------------------------------------------------------------------------------------


def test_the_event_names_both_processes():
    """S44: the event has both member ids and both hosts."""
    s = restart(static("ana"), "ana", client_id="eve", client_host="/elsewhere")
    (event,) = s.events(MemberFenced)
    assert (s.name(event.member_id), event.client_id, event.client_host) == ("ana", "ana", "/ana.example")
    assert (event.group_instance_id, s.name(event.replaced_by)) == ("i-ana", "eve")
    assert (event.replaced_by_client_id, event.replaced_by_client_host) == ("eve", "/elsewhere")


def test_the_record_of_a_replacement_has_the_new_id_and_the_old_assignment():
    """protocol.md 4.7: it is published before the response, though neither phase nor generation changed."""
    s = restart(static("ana", "bo"), "bo")
    fenced, published, reply = s.latest
    assert isinstance(fenced, MemberFenced)
    record = published.record
    assert (record.state, record.generation_id) == (Phase.STABLE, 2)
    assert [(s.name(m.member_id), m.assigned) for m in record.members] == [("ana", {"t": [0]}), ("bo#2", {"t": [1]})]
    assert (reply.to, reply.answer.skip_assignment, reply.answer.members) == ("another inbox", False, ())
    assert s.events(RebalanceStarted)[-1].cause == "member_joined", "of the first days"


def test_sessions_of_the_new_process_begin_with_the_old_timeout():
    """protocol.md 3.2.6 d: the request's own timeout counts from the next renewal on."""
    s = restart(static("ana").at(1_000), "ana", session_timeout_ms=60_000)
    session = s.group.hot_state.sessions[s.ids["ana#2"]]
    assert (session.deadline_ms, session.timeout_ms) == (11_000, 60_000)
    s.at(2_000).heartbeat("ana#2")
    assert s.group.hot_state.sessions[s.ids["ana#2"]].deadline_ms == 62_000


def test_a_replaced_member_has_no_deadline():
    """I9, S42: the old process never expires, the new one does so once."""
    s = restart(static("ana").at(1_000), "ana").until(60_000).is_("Empty")
    assert [s.name(e.member_id) for e in s.events(MemberExpired)] == ["ana#2"]


def test_a_replaced_new_member_is_no_longer_new():
    """protocol.md 3.2.6 c: its join may wait for longer than a new member's."""
    s = static("ana", "bo", group_new_member_join_timeout_ms=20_000)
    s.join("cy", group_instance_id="i-cy", rebalance_timeout_ms=60_000)
    restart(s.at(1_000), "cy", rebalance_timeout_ms=60_000)
    for at_ms in range(5_000, 50_000, 5_000):
        s.at(at_ms).heartbeat("ana").heartbeat("bo")
    assert not s.events(MemberExpired)
    s.join("ana").join("bo").is_("CompletingRebalance", members="ana bo cy#2")


def test_the_time_for_joins_does_not_grow_with_a_replacement():
    """S75: joins during PreparingRebalance neither add nor move a deadline."""
    s = static("ana", "bo", "cy").at(1_000).join("bo", topics=["u"])
    restart(s.at(5_000), "bo", rebalance_timeout_ms=600_000)
    assert s.group.hot_state.joins_ms == 11_000


def test_a_refused_join_fences_no_member():
    """protocol.md 3.2.1, 3.2.2: the checks come first."""
    s = static("ana", "bo")
    before = s.shard.to_bytes()
    restart(s, "bo", protocols=["foo"]).hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id="")
    restart(s, "bo", protocol_type="connect").hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    restart(s, "bo", session_timeout_ms=1).hears(ErrorCode.INVALID_SESSION_TIMEOUT)
    assert s.shard.to_bytes() == before


@pytest.mark.parametrize("skips", [True, False])
def test_a_follower_never_gets_skip_assignment(skips: bool):
    """protocol.md 3.2.6: only the leader gets skipAssignment."""
    s = restart(static("ana", "bo"), "bo", supports_skipping_assignment=skips)
    s.hears(ErrorCode.NONE, skip_assignment=False, members=(), leader=s.ids["ana"])


# -- repeated joins (KAFKA-20985, I7) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True], ids=["newcomer", "restarted"])
@pytest.mark.parametrize("skips", [True, False], ids=["v9", "older"])
def test_a_repeated_join_of_a_leader_fences_no_member(is_restarted: bool, skips: bool):
    """KAFKA-20985, I4, I7: the response says that the generation continues, in a form that its client can read."""
    s = Scenario().join("ana", group_instance_id="i-ana", supports_skipping_assignment=skips).sync("ana")
    if is_restarted:
        restart(s, "ana", supports_skipping_assignment=skips).sync("ana#2")
    again(s, "ana")
    assert s.answers[s.latest_request_id][-1].error == "NONE"
    s.heartbeat("ana#2" if is_restarted else "ana", group_instance_id="i-ana").hears(ErrorCode.NONE)


def test_a_repeated_join_of_a_follower_gets_the_same_response():
    """I7: the response is the same, and no member is fenced."""
    s = restart(static("ana", "bo"), "bo")
    again(s, "bo")
    first, second = s.answers[s.latest_request_id]
    assert first == second
    assert len(s.events(MemberFenced)) == 1, "only the old process is fenced"


def test_a_repeated_parked_join_in_a_full_round_stays_parked():
    """I7: it is not a new member. GROUP_MAX_SIZE_REACHED would stop the client of a member."""
    s = Scenario(delay_ms=3_000, group_max_size=1).join("ana", group_instance_id="i-ana")
    again(s, "ana").is_parked()
    s.until(3_000).hears(ErrorCode.NONE)


def test_the_same_request_id_from_another_mailbox_is_another_process():
    """I5: request ids are unique only in their mailbox."""
    s = static("ana", "bo")
    taken = s.last_request("bo", JoinGroup).request_id
    restart(s, "bo", request_id=taken)
    assert s.events(MemberFenced)
    s.heartbeat("bo", group_instance_id="i-bo").hears(ErrorCode.FENCED_INSTANCE_ID)


def test_notices_go_to_the_mailbox_of_the_last_join():
    """I5: this includes a join that only repeated a lost response."""
    s = static("ana", "bo").join("bo", group_instance_id="i-bo", reply_to="new inbox").hears(ErrorCode.NONE)
    s.rebalance()
    notices = {output.to for output in s.latest if isinstance(output, Reply) and output.answer.request_id is None}
    assert notices == {"ana's inbox", "new inbox"}


# -- events of a restart -----------------------------------------------------------------------------------------------


def test_a_restart_has_its_host_and_reason():
    """S28, S44: the new process's host, and its own reason for the rebalance that it causes."""
    s = static("ana", "bo")
    restart(s, "bo", client_host="/10.0.0.7", protocols=["sticky", "range"], reason="new version")
    (fenced,) = s.events(MemberFenced)
    assert (fenced.client_host, fenced.replaced_by_client_host) == ("/bo.example", "/10.0.0.7")
    s.is_("Stable")
    restart(s.join("ana"), "bo", reason="rollback")
    assert s.events(RebalanceStarted)[-1].reason is None, "it joined a round that had begun"
    s = Scenario.joined("ana").join("bo", group_instance_id="i-bo").join("ana").is_("CompletingRebalance")
    restart(s, "bo", reason="new version")
    started = s.events(RebalanceStarted)[-1]
    assert (started.cause, started.reason) == ("static_member_replaced", "new version")


def test_a_restarted_member_is_not_new():
    """S104, W19: while its join is parked, no session ends it, unlike a member in its first round."""
    s = Scenario(group_new_member_join_timeout_ms=20_000)
    s.join("ana", rebalance_timeout_ms=100_000).join("bo", group_instance_id="i-bo", rebalance_timeout_ms=100_000)
    s.join("ana", rebalance_timeout_ms=100_000).is_("CompletingRebalance")
    restart(s, "bo", rebalance_timeout_ms=100_000).is_parked()
    for at_ms in range(5_000, 60_000, 5_000):
        s.at(at_ms).heartbeat("ana")
    assert s.events(MemberExpired) == []
