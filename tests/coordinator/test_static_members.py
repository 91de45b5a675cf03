"""Members under an instance id (KIP-345, KIP-814): what their stories in `traces/static_*.txt` do not show."""

from typing import Any

import pytest

from coordinator.errors import ErrorCode
from coordinator.outputs import MemberExpired, MemberFenced, RebalanceStarted, Reply
from coordinator.phases import Phase
from coordinator.requests import JoinGroup
from tests.coordinator.scenario import Scenario


def static(*names: str, **settings: Any) -> Scenario:
    """Have `names` join as static members, ana as i-ana; the first one leads and has brought a plan."""
    s = Scenario(**settings)
    for name in (*names, *names[:1] * (len(names) > 1)):
        s.join(name, group_instance_id=f"i-{name}")
    s.sync(names[0], plan={name: {"t": [place]} for place, name in enumerate(names)})
    for name in names[1:]:
        s.sync(name)
    return s.is_("Stable")


def restart(s: Scenario, name: str, **fields: Any) -> Scenario:
    """Have another process of a static member join."""
    return s.join(name, member_id="", **{"group_instance_id": f"i-{name}", "reply_to": "another inbox"} | fields)


def again(s: Scenario, name: str) -> Scenario:
    """Have the broker deliver a member's latest join once more."""
    return s.send(name, s.last_request(name, JoinGroup))


# -- ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance", ["i1", "", "a.b_c-d", "x" * 249])
def test_a_static_members_id_begins_with_its_instance_id(instance: str):
    """S36; protocol.md 1.2, 11: and it never hears MEMBER_ID_REQUIRED."""
    s = Scenario().join("ana", group_instance_id=instance, require_known_member_id=True).hears(ErrorCode.NONE)
    assert s.said.member_id.startswith(f"{instance}-")
    assert len(s.said.member_id) == len(instance) + 37
    assert s.said.members[0].group_instance_id == instance


def test_every_process_gets_an_id_of_its_own():
    """S36: unguessable, and none twice."""
    s = static("ana")
    for _ in range(5):
        restart(s, "ana")
    assert len({*s.ids.values()}) == 6


def test_the_empty_instance_id_is_not_the_absent_one():
    """protocol.md 11."""
    s = Scenario().join("ana", group_instance_id="").sync("ana").join("bo").join("ana").is_("CompletingRebalance")
    assert [m.group_instance_id for m in s.group.members.values()] == ["", None]
    s.heartbeat("bo", group_instance_id="").hears(ErrorCode.FENCED_INSTANCE_ID)


# -- replacing ---------------------------------------------------------------------------------------------------------


def test_the_event_names_both_processes():
    """S44: who is out, who is in, and on which hosts."""
    s = restart(static("ana"), "ana", client_id="eve", client_host="/elsewhere")
    (event,) = s.events(MemberFenced)
    assert (s.name(event.member_id), event.client_id, event.client_host) == ("ana", "ana", "/ana.example")
    assert (event.group_instance_id, s.name(event.replaced_by)) == ("i-ana", "eve")
    assert (event.replaced_by_client_id, event.replaced_by_client_host) == ("eve", "/elsewhere")


def test_the_record_of_a_replacement_has_the_new_id_and_the_old_plan():
    """protocol.md 4.7: published though neither phase nor generation changed, before the reply."""
    s = restart(static("ana", "bo"), "bo")
    fenced, published, reply = s.latest
    assert isinstance(fenced, MemberFenced)
    record = published.record
    assert (record.state, record.generation_id) == (Phase.STABLE, 2)
    assert [(s.name(m.member_id), m.assigned) for m in record.members] == [("ana", {"t": [0]}), ("bo#2", {"t": [1]})]
    assert (reply.to, reply.answer.skip_assignment, reply.answer.members) == ("another inbox", False, ())
    assert s.events(RebalanceStarted)[-1].cause == "member_joined", "of the first days"


def test_sessions_of_the_new_process_begin_with_the_old_timeout():
    """protocol.md 3.2.6 d: the request's own counts from the next sign of life on."""
    s = restart(static("ana").at(1_000), "ana", session_timeout_ms=60_000)
    session = s.group.vitals.sessions[s.ids["ana#2"]]
    assert (session.deadline_ms, session.timeout_ms) == (11_000, 60_000)
    s.at(2_000).heartbeat("ana#2")
    assert s.group.vitals.sessions[s.ids["ana#2"]].deadline_ms == 62_000


def test_a_replaced_member_leaves_no_deadline_behind():
    """I9, S42: the old process never expires, the new one does so once."""
    s = restart(static("ana").at(1_000), "ana").until(60_000).is_("Empty")
    assert [s.name(e.member_id) for e in s.events(MemberExpired)] == ["ana#2"]


def test_a_newcomer_that_is_replaced_is_new_no_longer():
    """protocol.md 3.2.6 c: its join may wait for longer than a newcomer's."""
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
    assert s.group.vitals.joins_ms == 11_000


def test_who_is_refused_fences_nobody():
    """protocol.md 3.2.1, 3.2.2: the checks come first."""
    s = static("ana", "bo")
    before = s.shard.to_bytes()
    restart(s, "bo", protocols=["foo"]).hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id="")
    restart(s, "bo", protocol_type="connect").hears(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    restart(s, "bo", session_timeout_ms=1).hears(ErrorCode.INVALID_SESSION_TIMEOUT)
    assert s.shard.to_bytes() == before


@pytest.mark.parametrize("skips", [True, False])
def test_a_follower_is_never_told_to_skip_the_plan(skips: bool):
    """protocol.md 3.2.6: skipAssignment is the leader's."""
    s = restart(static("ana", "bo"), "bo", supports_skipping_assignment=skips)
    s.hears(ErrorCode.NONE, skip_assignment=False, members=(), leader=s.ids["ana"])


# -- the same join once more (KAFKA-20985, I7) -------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True], ids=["newcomer", "restarted"])
@pytest.mark.parametrize("skips", [True, False], ids=["v9", "older"])
def test_the_join_of_a_leader_that_comes_again_fences_nobody(is_restarted: bool, skips: bool):
    """KAFKA-20985, I4, I7: it hears that the generation goes on, in a way that its client can read.

    Fails for `older` until the core is mended (membership._join_again): told that it leads, and of no members.
    """
    s = Scenario().join("ana", group_instance_id="i-ana", supports_skipping_assignment=skips).sync("ana")
    if is_restarted:
        restart(s, "ana", supports_skipping_assignment=skips).sync("ana#2")
    again(s, "ana")
    assert s.answers[s.latest_request_id][-1].error == "NONE"
    s.heartbeat("ana#2" if is_restarted else "ana", group_instance_id="i-ana").hears(ErrorCode.NONE)


def test_the_join_of_a_follower_that_comes_again_hears_the_same():
    """I7."""
    s = restart(static("ana", "bo"), "bo")
    again(s, "bo")
    first, second = s.answers[s.latest_request_id]
    assert first == second
    assert len(s.events(MemberFenced)) == 1, "only the old process is fenced"


def test_a_parked_join_that_comes_again_into_a_full_round_is_the_one_that_is_parked():
    """I7: it is no newcomer; GROUP_MAX_SIZE_REACHED would tell a client to give up that is a member all the same.

    Fails until the core is mended (checks.has_room counts the repeat as a newcomer).
    """
    s = Scenario(delay_ms=3_000, group_max_size=1).join("ana", group_instance_id="i-ana")
    again(s, "ana").is_parked()
    s.until(3_000).hears(ErrorCode.NONE)


def test_the_same_request_id_from_another_inbox_is_another_process():
    """I5: request ids are unique to their asker, and to nobody else."""
    s = static("ana", "bo")
    taken = s.last_request("bo", JoinGroup).request_id
    restart(s, "bo", request_id=taken)
    assert s.events(MemberFenced)
    s.heartbeat("bo", group_instance_id="i-bo").hears(ErrorCode.FENCED_INSTANCE_ID)


def test_notices_go_to_where_a_member_was_heard_of_last():
    """I5: also where its join only repeated what it had missed.

    Fails until the core is mended (membership._rejoin keeps the old inbox where it answers at once).
    """
    s = static("ana", "bo").join("bo", group_instance_id="i-bo", reply_to="new inbox").hears(ErrorCode.NONE)
    s.rebalance()
    notices = {output.to for output in s.latest if isinstance(output, Reply) and output.answer.request_id is None}
    assert notices == {"ana's inbox", "new inbox"}


# -- what is told of a restart -----------------------------------------------------------------------------------------


def test_who_has_come_and_why_is_told():
    """S28, S44: where the new process runs, and its own reason for the rebalance that it brings about."""
    s = static("ana", "bo")
    restart(s, "bo", client_host="/10.0.0.7", protocols=["sticky", "range"], reason="new version")
    (fenced,) = s.events(MemberFenced)
    assert (fenced.client_host, fenced.replaced_by_client_host) == ("/bo.example", "/10.0.0.7")
    s.is_("Stable")
    restart(s.join("ana"), "bo", reason="rollback")
    assert s.events(RebalanceStarted)[-1].reason is None, "it came into a round that had begun"
    s = Scenario.joined("ana").join("bo", group_instance_id="i-bo").join("ana").is_("CompletingRebalance")
    restart(s, "bo", reason="new version")
    started = s.events(RebalanceStarted)[-1]
    assert (started.cause, started.reason) == ("static_member_replaced", "new version")


def test_a_member_that_came_back_is_no_newcomer():
    """S104, W19: parked, it is not given up by any session, as a member in its first round would be."""
    s = Scenario(group_new_member_join_timeout_ms=20_000)
    s.join("ana", rebalance_timeout_ms=100_000).join("bo", group_instance_id="i-bo", rebalance_timeout_ms=100_000)
    s.join("ana", rebalance_timeout_ms=100_000).is_("CompletingRebalance")
    restart(s, "bo", rebalance_timeout_ms=100_000).is_parked()
    for at_ms in range(5_000, 60_000, 5_000):
        s.at(at_ms).heartbeat("ana")
    assert s.events(MemberExpired) == []
