"""The history: causes of rebalances, members that joined, left and expired, partition owners, and notices."""

from collections.abc import Callable

import pytest

from coordinator.base.consumer_protocol import Subscription, write_subscription
from coordinator.messages.events import (
    AssignmentChanged,
    GroupDeleted,
    GroupEmptied,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.fields import Event
from coordinator.messages.requests import Protocol
from coordinator.messages.responses import RebalanceNotice, Reply
from tests.coordinator.scenario import Scenario

PLAN = {"c1": {"t": [0, 1]}, "c2": {"t": [2]}}


# -- causes ------------------------------------------------------------------------------------------------------------

AS_OWNER = (Protocol("range", write_subscription(Subscription(("t",), owned={"t": [0]}, generation_id=1))),)
"""The same topics as all members, with owned partitions and their generation, as Kafka's newer clients send them."""

CAUSES: dict[str, tuple[Callable[[Scenario], Scenario], str, str, str | None]] = {
    # what happens                 to c1 (leader) and c2, Stable                   cause, member, the reason given
    "somebody joins":    (lambda s: s.join("c3", reason="new pod"),                "member_joined", "c3", "new pod"),
    "an id comes back":  (lambda s: s.join("c3", require_known_member_id=True).join("c3"),
                                                                                   "member_joined", "c3", None),
    "somebody leaves":   (lambda s: s.leave("c2", reason="closed"),                "member_left", "c2", "closed"),
    "the leader leaves": (lambda s: s.leave("c1"),                                 "member_left", "c1", None),
    "an id leaves":      (lambda s: s.join("c3", require_known_member_id=True).leave("c3", reason="bye"),
                                                                                   "member_left", "c3", "bye"),
    "silence":           (lambda s: s.at(9_000).heartbeat("c1").until(10_000),     "session_expired", "c2", None),
    "other topics":      (lambda s: s.join("c2", topics=["u"], reason="u, too"),   "metadata_changed", "c2", "u, too"),
    "leader rejoins":    (lambda s: s.join("c1", reason="t grew"),                 "leader_rejoined", "c1", "t grew"),
    "leader tells more": (lambda s: s.join("c1", protocols_as_they_are=AS_OWNER),  "leader_rejoined", "c1", None),
    "member tells more": (lambda s: s.join("c2", protocols_as_they_are=AS_OWNER),  "metadata_changed", "c2", None),
    "leader changes":    (lambda s: s.join("c1", topics=["u"]),                    "metadata_changed", "c1", None),
}  # fmt: skip


@pytest.mark.parametrize(("happens", "cause", "who", "reason"), CAUSES.values(), ids=CAUSES)
def test_each_way_to_start_a_rebalance_has_its_cause(happens, cause: str, who: str, reason: str | None):
    """S03, S04, S05, S07, S08, S67, S68, S105: one event has the cause, the member, its host and its reason."""
    s = Scenario.stable("c1", "c2")
    seen = len(s.events(RebalanceStarted))
    happens(s)
    (started,) = s.events(RebalanceStarted)[seen:]
    assert (started.cause, s.name(started.member_id), started.reason) == (cause, who, reason)
    assert started.client_id == who
    assert started.client_host == f"/{who}.example"
    assert started.generation_id == 2
    assert started.at_ms == s.group.since_ms
    assert started.joins_until_ms == s.group.hot_state.joins_ms == started.at_ms + 10_000
    assert started.members == len(s.group.members)


def owner(*partitions: int, topic: str = "t") -> tuple[Protocol, ...]:
    return (Protocol("range", write_subscription(Subscription((topic,), owned={"t": partitions}, generation_id=1))),)


FURTHER_ROUNDS = {
    # ana owned when she joined; she is assigned; she joins again with     the cause
    "it gave one up":         ((0, 1), [0], owner(0),                      "cooperative_round"),
    "it gave all up":         ((0, 1), [], owner(),                        "cooperative_round"),
    "it kept all":            ((0, 1), [0, 1, 2], owner(0, 1, 2),          "leader_rejoined"),
    "it owned none":          ((), [0], owner(0),                          "leader_rejoined"),
    "other topics as well":   ((0, 1), [0], owner(0, topic="u"),           "metadata_changed"),
}  # fmt: skip


@pytest.mark.parametrize("who", ["c1", "c2"])
@pytest.mark.parametrize(("owned", "assigned", "again", "cause"), FURTHER_ROUNDS.values(), ids=FURTHER_ROUNDS)
def test_a_member_that_had_to_give_up_partitions_begins_a_further_round(
    owned: tuple[int, ...], assigned: list[int], again: tuple[Protocol, ...], cause: str, who: str
):
    """KIP-429: it owned more when it joined than its assignment has. Any other member joins again for another cause."""
    s = Scenario.stable("c1", "c2").join(who, protocols_as_they_are=owner(*owned))
    s.join("c2" if who == "c1" else "c1").sync("c1", plan={who: {"t": assigned}}).sync("c2").is_("Stable")
    s.join(who, protocols_as_they_are=again)
    expected = "metadata_changed" if (who, cause) == ("c2", "leader_rejoined") else cause
    assert s.events(RebalanceStarted)[-1].cause == expected


def test_an_unreadable_assignment_begins_no_further_round():
    s = Scenario.stable("c1", "c2").join("c1", protocols_as_they_are=owner(0, 1)).join("c2")
    s.sync("c1", plan={"c1": b"\0"}).sync("c2").join("c1", protocols_as_they_are=owner(0))
    assert s.events(RebalanceStarted)[-1].cause == "leader_rejoined"


def test_a_missing_sync_is_a_cause():
    """S107: a sync that never arrives is the cause of a rebalance."""
    s = Scenario.joined("c1", "c2").sync("c1", plan=PLAN).at(9_000).heartbeat("c1").heartbeat("c2").until(10_000)
    started = s.events(RebalanceStarted)[-1]
    assert (started.cause, s.name(started.member_id)) == ("sync_overdue", "c2")


def test_joins_during_a_round_start_no_other_round():
    """S52, S75, W8: joins during a round start no other round."""
    s = Scenario.stable("c1", "c2")
    seen = len(s.events(RebalanceStarted))
    s.join("c3").join("c4").join("c1").leave("c4")
    assert len(s.events(RebalanceStarted)) == seen + 1


# -- notices -----------------------------------------------------------------------------------------------------------


def test_notices_go_to_exactly_the_members_that_must_rejoin():
    """S14, S110: each member but the one whose join started the round gets a notice, in its own mailbox."""
    s = Scenario.stable("c1", "c2", "c3").join("c2", topics=["u"])
    assert s.noticed() == {"c1", "c3"}
    assert {o.to for o in s.latest if isinstance(getattr(o, "answer", None), RebalanceNotice)} == {
        "c1's inbox",
        "c3's inbox",
    }


def test_a_notice_has_its_generation_and_no_request_id():
    """S110: a notice names its generation, and answers no request."""
    s = Scenario.stable("c1", "c2").join("c2", topics=["u"])
    (reply,) = [o for o in s.latest if isinstance(o, Reply)]
    assert reply.answer == RebalanceNotice(request_id=None, group_id="g", generation_id=2, member_id=s.ids["c1"])


def test_a_later_join_of_a_round_causes_no_notice():
    """S52, S110: neither the joining member nor the others get a notice."""
    s = Scenario.stable("c1", "c2").join("c3")
    assert s.noticed() == {"c1", "c2"}
    assert s.join("c4").noticed() == set()
    assert s.leave("c4").noticed() == set()


def test_the_first_member_gets_no_notice():
    s = Scenario(delay_ms=3_000).join("c1")
    assert s.noticed() == set()


def test_a_notice_goes_to_the_mailbox_of_the_latest_join():
    """S110: a member that joins from another mailbox gets the notice there."""
    s = Scenario.stable("c1", "c2").join("c2", topics=["u"], reply_to="moved").join("c1")
    s.sync("c1", plan=PLAN).sync("c2").join("c3")
    notices = {o.to for o in s.latest if isinstance(getattr(o, "answer", None), RebalanceNotice)}
    assert notices == {"c1's inbox", "moved"}


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_a_completed_rebalance_has_its_duration_and_members():
    """S12, S78: the duration is from the first start to the assignments, over all restarts of the round."""
    s = Scenario.stable("c1", "c2", "c3")
    t = 1_000
    s.at(t).join("c4").at(t + 500).leave("c3").at(t + 2_000).join("c1").at(t + 3_000).join("c2")
    s.at(t + 3_700).sync("c1", plan=PLAN)
    completed = s.events(RebalanceCompleted)[-1]
    assert (completed.at_ms, completed.generation_id, completed.protocol_name) == (t + 3_700, 3, "range")
    assert (completed.duration_ms, completed.joins_ms, completed.syncs_ms) == (3_700, 3_000, 700)
    assert s.name(completed.leader) == "c1"
    assert [*map(s.name, completed.members_before)] == ["c1", "c2", "c3"]
    assert [*map(s.name, completed.members_after)] == ["c1", "c2", "c4"]
    assert [*map(s.name, completed.joined)] == ["c4"]
    assert [*map(s.name, completed.gone)] == ["c3"]


def test_the_duration_of_a_restarted_round_counts_from_its_first_start():
    """S12: the members had no assignment all that time; the join time is up to the last complete join phase."""
    s = Scenario.stable("c1", "c2").at(1_000).join("c1").at(2_000).join("c2").at(3_000).join("c2", topics=["u"])
    s.at(5_000).join("c1").at(6_000).sync("c1", plan=PLAN)
    completed = s.events(RebalanceCompleted)[-1]
    assert (completed.duration_ms, completed.joins_ms, completed.syncs_ms) == (5_000, 4_000, 1_000)


def test_the_next_round_has_its_own_duration():
    s = Scenario.stable("c1", "c2").at(50_000 - 41_000).join("c1").join("c2").sync("c1", plan=PLAN)
    assert s.events(RebalanceCompleted)[-1].duration_ms == 0


# -- partition owners --------------------------------------------------------------------------------------------------


def handovers(s: Scenario) -> set[tuple[str, int, str, str]]:
    changed = s.events(AssignmentChanged)[-1]
    return {(h.topic, h.partition, s.name(h.before), s.name(h.after)) for h in changed.handovers}


def test_handovers_have_the_owners_before_and_after():
    """S15, S35: partitions that stay are left out."""
    s = Scenario.joined("c1", "c2").sync("c1", plan={"c1": {"t": [0, 1], "u": [0]}, "c2": {"t": [2]}}).sync("c2")
    assert handovers(s) == {("t", 0, "", "c1"), ("t", 1, "", "c1"), ("u", 0, "", "c1"), ("t", 2, "", "c2")}
    s.join("c3").join("c1").join("c2").sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [2, 3]}, "c3": {"t": [1]}})
    assert handovers(s) == {("t", 1, "c1", "c3"), ("u", 0, "c1", ""), ("t", 3, "", "c2")}


def test_unchanged_assignments_have_no_event():
    """S15: assignments that move no partition cause no event."""
    s = Scenario.stable("c1", "c2")
    seen = len(s.events(AssignmentChanged))
    s.join("c1").join("c2").sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}})
    assert len(s.events(AssignmentChanged)) == seen
    assert s.events(RebalanceCompleted)[-1].generation_id == 3


def test_owners_are_compared_over_incomplete_rounds():
    """S22: the owners from before the first start count, though a rebalance from CompletingRebalance resets them."""
    s = Scenario.stable("c1", "c2").join("c1").join("c2").leave("c2").join("c1").sync("c1", plan={"c1": {"t": [0, 1]}})
    assert handovers(s) == {("t", 1, "c2", "c1")}


def test_handovers_are_sorted_by_topic_and_partition():
    """I16: handovers are sorted by topic and partition."""
    s = Scenario.joined("c1").sync("c1", plan={"c1": {"z": [1, 0], "a": [2]}})
    (changed,) = s.events(AssignmentChanged)
    assert [(h.topic, h.partition) for h in changed.handovers] == [("a", 2), ("z", 0), ("z", 1)]


def test_groups_of_another_type_have_no_handovers():
    s = Scenario().join("c1", protocol_type="connect").sync("c1", plan={"c1": b"opaque"})
    assert not s.events(AssignmentChanged)
    assert s.events(RebalanceCompleted)


def test_an_unreadable_assignment_owns_no_partition():
    s = Scenario.joined("c1").sync("c1", plan={"c1": b"\xff"})
    assert not s.events(AssignmentChanged)


# -- joins and ends of members -----------------------------------------------------------------------------------------


def test_events_of_a_member_from_join_to_leave():
    """S04, S112, S118: the last member that leaves empties the group."""
    s = Scenario.stable("c1").at(5_000).leave("c1", reason="done")
    joined, left, emptied = s.events(MemberJoined), s.events(MemberLeft), s.events(GroupEmptied)
    assert [(e.at_ms, e.client_id, e.client_host, e.reason) for e in joined] == [(0, "c1", "/c1.example", None)]
    assert [(e.at_ms, e.client_id, e.client_host, e.reason) for e in left] == [(5_000, "c1", "/c1.example", "done")]
    assert [(e.at_ms, e.generation_id) for e in emptied] == [(5_000, 2)]


def test_a_join_may_have_a_reason():
    """KIP-800: the event of a join has its reason."""
    s = Scenario().join("c1", reason="scaled out")
    assert [e.reason for e in s.events(MemberJoined)] == ["scaled out"]


def test_a_pending_id_has_no_member_events():
    """S61: a pending id causes neither a joined nor a left event."""
    s = Scenario().join("c1", require_known_member_id=True).leave("c1")
    assert not s.events(MemberJoined)
    assert not s.events(MemberLeft)


WAYS_OUT: dict[str, tuple[Callable[[], Scenario], str, int | None]] = {
    "silence": (lambda: Scenario.stable("c1").until(10_000), "session_expired", 10_000),
    "a join that waits for too long": (
        lambda: Scenario.stable("c0", session_timeout_ms=10**6, rebalance_timeout_ms=10**6).join("c1").until(300_000),
        "session_expired",
        None,
    ),
    "no join in time": (
        lambda: Scenario.stable("c1", session_timeout_ms=60_000).join("c2").until(10_000),
        "joins_overdue",
        None,
    ),
    "no sync in time": (
        lambda: Scenario.joined("c1", session_timeout_ms=60_000).until(10_000),
        "syncs_overdue",
        None,
    ),
}


@pytest.mark.parametrize(("happens", "why", "silence_ms"), WAYS_OUT.values(), ids=WAYS_OUT)
def test_each_expiry_has_its_reason(happens: Callable[[], Scenario], why: str, silence_ms: int | None):
    """S05, S78, S105, S107: each expiry has its reason; group_full is in test_membership."""
    s = happens()
    (expired,) = s.events(MemberExpired)
    assert (s.name(expired.member_id), expired.client_host) == ("c1", "/c1.example")
    assert (expired.why, expired.silence_ms) == (why, silence_ms)


def test_an_extended_session_has_no_silence_time():
    """I21: the session timeout would be less than the member's true silence."""
    s = Scenario.stable("c1")
    s.step([], 40_000)
    s.until(50_000)
    assert s.events(MemberExpired)[0].silence_ms is None


def test_a_deleted_group_has_its_reason():
    """S50, S54: the event of a group's end has its reason."""
    s = Scenario.stable("c1").leave("c1").until(600_000).is_gone()
    (deleted,) = s.events(GroupDeleted)
    assert (deleted.at_ms, deleted.generation_id, deleted.why) == (600_000, 2, "no member and no offset left")


def test_every_event_is_numbered_timed_and_of_a_generation():
    """design.md 6, I8: every event has a version, a time and a generation."""
    s = Scenario.stable("c1", "c2").at(9_000).heartbeat("c1").until(10_000).join("c1").leave("c1").until(700_000)
    events = s.events(Event)
    assert {type(e).__struct_config__.tag for e in events} >= {
        "member_joined",
        "rebalance_started",
        "rebalance_completed",
        "assignment_changed",
        "member_expired",
        "member_left",
        "group_emptied",
        "group_deleted",
    }
    assert all(e.group_id == "g" and e.version and e.generation_id is not None for e in events)
