"""Tests of the three sentences that explain a rebalance: the cause, the member behind it, and the setting to change."""

import inspect
import re
from typing import Any

import pytest

from coordinator.classic import join, leave, policy_deadlines, rebalance
from coordinator.messages.events import (
    AnyEvent,
    AssignmentChanged,
    Handover,
    MemberExpired,
    MemberJoined,
    RebalanceCompleted,
    RebalanceStarted,
)
from coordinator.messages.heartbeats import Heartbeat
from streaming.views import GroupView
from streaming.views.history.advice import ADVICE
from streaming.views.history.instability import unstable_clients
from streaming.views.history.rebalances import rebalances
from streaming.views.sentences.why import Why, explain, why
from tests.streaming.views.test_views import folded, raws
from tests.streaming.views.written import WrittenTopics

ANA = "ana-2a84c1d0-1111-2222-3333-444455556666"
ANA_2 = "ana-99998888-1111-2222-3333-444455556666"
BO = "bo-cbcd0000-1111-2222-3333-444455556666"
T = 1_700_000_000_000
POLL, INSTANCE = "max.poll.interval.ms", "group.instance.id"


def event(kind: Any, at_ms: int, version: int = 1, **fields: Any) -> AnyEvent:
    return kind(**{"group_id": "g", "version": version, "at_ms": at_ms, "generation_id": 7} | fields)  # type: ignore[no-any-return]


def started(at_ms: int, cause: str, member_id: str = ANA, reason: str | None = None, **fields: Any) -> AnyEvent:
    member = {
        "member_id": member_id,
        "client_id": member_id.split("-")[0],
        "client_host": "/10.0.0.1",
        "reason": reason,
    }
    return event(RebalanceStarted, at_ms, cause=cause, members=2, joins_until_ms=at_ms, **member, **fields)


def completed(at_ms: int, took_ms: int) -> AnyEvent:
    return event(RebalanceCompleted, at_ms, duration_ms=took_ms, joins_ms=took_ms, syncs_ms=0, protocol_name="range",
                 leader=BO, members_before=(ANA, BO), members_after=(BO,), joined=(), gone=(ANA,))  # fmt: skip


def joined(at_ms: int, member_id: str) -> AnyEvent:
    return event(MemberJoined, at_ms, member_id=member_id, group_instance_id=None, client_id=member_id.split("-")[0],
                 client_host="/10.0.0.1", reason=None)  # fmt: skip


def expired(at_ms: int, silence_ms: int | None, why: str = "session_expired", member_id: str = ANA) -> AnyEvent:
    return event(MemberExpired, at_ms, member_id=member_id, group_instance_id=None, client_id=member_id.split("-")[0],
                 client_host="/10.0.0.1", why=why, silence_ms=silence_ms, reason=None)  # fmt: skip


MOVED = AssignmentChanged(group_id="g", version=9, at_ms=T + 400, generation_id=7,
                          handovers=(Handover("t", 0, ANA, BO), Handover("t", 1, ANA, BO)))  # fmt: skip


def explained(*events: AnyEvent, at_ms: int | None = None) -> Why:
    answer = why(GroupView("g", 0, events=list(events)), at_ms)
    assert answer is not None
    return answer


def test_a_silent_member_is_the_cause() -> None:
    """S09, S14: it was avoidable; the sentences name the member and the timeout to check."""
    answer = explained(expired(T, 10_000), started(T, "session_expired"), completed(T + 400, 400), MOVED)
    assert (answer.cause, answer.is_avoidable, answer.setting) == ("session_expired", True, "session.timeout.ms")
    assert re.fullmatch(r"g rebalanced at \S+ for 400 ms, to generation 7: 2 partitions changed hands among 1 member\.",
                        answer.what)  # fmt: skip
    assert answer.who == "ana-2a84 at /10.0.0.1 was silent for 10.0 s and was dropped."
    assert "session.timeout.ms (10.0 s)" in answer.advice


CASES = [
    # cause                    member's reason                       reported cause            avoidable  setting
    ("member_joined",          "subscribed",                         "member_joined",          False, None),
    ("member_left",            "the consumer is being closed",       "member_left",            False, None),
    ("member_left",            "consumer poll timeout has expired.", "poll_overdue",           True, POLL),
    ("member_left",            "max poll interval exceeded",         "poll_overdue",           True, POLL),
    ("metadata_changed",       None,                                 "metadata_changed",       False, None),
    ("leader_rejoined",        "partitions were added",              "leader_rejoined",        False, None),
    ("sync_overdue",           None,                                 "sync_overdue",           True, POLL),
    ("static_member_replaced", None,                                 "static_member_replaced", True, INSTANCE),
    ("operator",               "a drill",                            "operator",               False, None),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "reason", "reported_cause", "is_avoidable", "setting"), CASES)
def test_each_cause_has_its_advice_and_setting(
    cause: str, reason: str | None, reported_cause: str, is_avoidable: bool, setting: str | None
) -> None:
    """S09, S107: each cause is avoidable or unavoidable, and an avoidable one names the setting."""
    answer = explained(started(T, cause, reason=reason), completed(T + 10, 10))
    assert (answer.cause, answer.is_avoidable, answer.setting) == (reported_cause, is_avoidable, setting)
    assert answer.advice.startswith("Avoidable" if is_avoidable else "Unavoidable")
    assert (setting or "") in answer.advice
    assert all(sentence.endswith(".") and "{" not in sentence for sentence in (answer.what, answer.who, answer.advice))


def test_a_client_that_comes_back_soon_was_restarted() -> None:
    """S09: with an instance id there would be no rebalance."""
    answer = explained(started(T, "member_left"), joined(T + 9_000, ANA_2), completed(T + 9_500, 9_500))
    assert (answer.cause, answer.setting) == ("restarted", "group.instance.id")
    assert "joined again after 9.0 s" in answer.who
    late = explained(started(T, "member_left"), joined(T + 120_001, ANA_2), completed(T + 130_000, 130_000))
    assert late.cause == "member_left"
    assert (
        explained(started(T, "member_left"), joined(T + 9_000, BO), completed(T + 9_500, 9_500)).cause == "member_left"
    )


def test_a_member_that_does_not_rejoin_is_named_before_the_one_that_began_it() -> None:
    """S09, S14, S78: a slow poller sends heartbeats and never rejoins; the new member only began the rebalance."""
    world = WrittenTopics(["g"])
    world.join("g", client_id="ana", client_host="/1")
    (ana,) = (o.answer.member_id for o in world.batch() if hasattr(getattr(o, "answer", None), "member_id"))
    world.sync("g", 1, ana, {ana: [0]})
    world.batch()
    world.join("g", client_id="cy", client_host="/2")
    for _ in range(8):
        world.ask(Heartbeat, "g", generation_id=1, member_id=ana)
        world.batch()
        world.now_ms += 1_000
    answer = why(folded(raws(world)).groups["g"])
    assert answer is not None
    assert (answer.cause, answer.is_avoidable, answer.setting) == ("join_overdue", True, POLL)
    assert (answer.member_id, answer.client_id, answer.client_host) == (ana, "ana", "/1")
    assert re.fullmatch(
        r"ana-\w+ at /1 did not join again, and all members waited 6\.0 s for it;"
        r" the first cause: cy-\w+ at /2 joined\.",
        answer.who,
    )


def test_a_member_that_does_not_sync_is_named() -> None:
    """S09: the wait counts from the start of the rebalance; a second late member is counted, and not named."""
    late = [expired(T + 6_000, None, "syncs_overdue"), expired(T + 6_000, None, "syncs_overdue", ANA_2)]
    answer = explained(
        started(T, "member_joined", BO), *late, started(T + 6_000, "sync_overdue"), completed(T + 6_100, 6_100)
    )
    assert (answer.cause, answer.setting, answer.member_id) == ("sync_overdue", POLL, ANA)
    assert "leader computes the assignments" in answer.advice
    waited = "all members waited 6.0 s for it and 1 member more"
    assert f"{waited}; the first cause: bo-cbcd at /10.0.0.1 joined." in answer.who


def test_a_member_dropped_between_two_rebalances_caused_neither() -> None:
    late = expired(T + 20, None, "joins_overdue")
    events = [started(T, "member_joined", BO), completed(T + 10, 10), late, started(T + 20, "operator", BO)]
    assert explained(*events).cause == "operator"
    assert explained(*events, at_ms=T + 19).cause == "member_joined"


class CountingList(list[AnyEvent]):
    """A list of events that counts how often an item is read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("cause", ["member_left", "session_expired"])
def test_a_long_history_is_not_searched_for_each_rebalance(cause: str) -> None:
    """A member that comes back after two minutes was not restarted: no later event is read."""
    events = CountingList(started(T + n * 60_000, cause) for n in range(1_000))
    (rebalance,) = rebalances(events[:1])
    explain(GroupView("g", 0, events=events), rebalance, begun={})
    assert events.reads < 50


def test_every_cause_of_the_core_has_advice() -> None:
    """S09: the table has every cause that the coordinator publishes."""
    source = "".join(map(inspect.getsource, (leave, join, rebalance, policy_deadlines)))
    named = set(re.findall(r'(?:member_cause\(.+?, |RebalanceCause\(\s*|cause = )"([a-z_]+)"', source))
    named |= set(re.findall(r'"([a-z_]+)" if is_leader and asks_as_before else "([a-z_]+)"', source)[0])
    assert {"session_expired", "member_left", "sync_overdue", "operator", "metadata_changed"} <= named
    named.remove("group_full")  # a group drops a member for want of room only in a join phase, so that none begins
    assert named <= ADVICE.keys()


def test_the_first_of_two_causes_of_a_rebalance_counts() -> None:
    answer = explained(started(T, "member_joined", BO), started(T + 50, "session_expired"), completed(T + 400, 400))
    assert (answer.cause, answer.at_ms) == ("member_joined", T)


def test_an_earlier_rebalance_can_be_explained() -> None:
    events = [started(T, "member_joined"), completed(T + 10, 10), started(T + 60_000, "operator")]
    assert explained(*events).cause == "operator"
    assert explained(*events).what.endswith("and still rebalances.")
    assert explained(*events, at_ms=T + 59_999).cause == "member_joined"
    assert why(GroupView("g", 0, events=events), T - 1) is None


def test_a_flapping_client_is_named() -> None:
    """S14: the answer counts a client's rebalances within the hour, and the list is sorted by that number."""
    events: list[AnyEvent] = []
    for n in range(3):
        at_ms = T + n * 60_000
        events += [expired(at_ms, 6_000), started(at_ms, "session_expired"), completed(at_ms + 10, 10)]
    events += [started(T + 200_000, "member_joined", BO), completed(T + 200_010, 10)]
    group = GroupView("g", 0, events=events)
    answer = why(group, T + 130_000)
    assert answer is not None
    assert answer.flapping
    assert "it caused 3 rebalances of the last hour" in answer.who
    assert [(f.client_id, f.rebalances, f.dropped) for f in unstable_clients(group, T)] == [("ana", 3, 3), ("bo", 1, 0)]


def test_an_unknown_cause_is_reported_as_unknown() -> None:
    answer = explained(completed(T, 300))
    assert (answer.cause, answer.is_avoidable, answer.at_ms) == ("unknown", False, T - 300)
    assert answer.who == "The member that caused it is not known any more."


def test_control_characters_of_ids_are_escaped() -> None:
    answer = explained(started(T, "member_joined", "\x1b[2Jevil", reason="\n\x1b]0;x"), completed(T + 1, 1))
    assert all((answer.what + answer.who + answer.advice).isprintable() for _ in "x")
