"""The client's code of the consumer protocol and the coordinator's together, in named examples."""

import pytest

from coordinator.consumer.heartbeat import assigned_topics
from coordinator.member.consumer_member import State
from coordinator.messages.events import GroupConverted, MemberBack, MemberExpired, MemberLeft, RebalanceStarted
from coordinator.messages.requests import JoinGroup, Request
from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer
from tests.streaming.client.consumer_protocol.simulation import BothSimulation, ConsumerWorker
from tests.streaming.client.simulation import COOPERATIVE, Faults, Worker

ALL = "t0 t1 t2 t3"


def rest(s: BothSimulation, within_ms: int) -> None:
    """Run turns until the group is at rest; fail if that takes longer."""
    until_ms = s.now_ms + within_ms
    while not (s.is_at_rest and not s.is_late):
        assert s.now_ms < until_ms, f"not at rest:\n{s}"
        s.turn()


def start(s: BothSimulation, *names: str) -> list[ConsumerWorker]:
    workers = []
    for name in names:
        workers.append(s.start_consumer(name))
        rest(s, 3_000)
        s.run(1_000)
    s.forget()
    return workers


def epoch(s: BothSimulation) -> int:
    group = s.consumer_group
    assert group is not None
    return group.hot_state.group_epoch


def test_a_second_member_gets_its_part_within_five_batches(s: BothSimulation) -> None:
    """10.6, 11.2: a notice takes the place of waiting for the interval of 5 s. A batch takes 100 ms."""
    (ana,) = start(s, "ana")
    bo = s.start_consumer("bo")
    rest(s, 600)
    assert ana.history == ["revoked t2 t3", "assigned nothing"]
    assert bo.history == ["assigned nothing", "assigned t2 t3"]


def test_a_member_that_leaves_revokes_its_partitions_and_the_others_get_them(s: BothSimulation) -> None:
    ana, bo = start(s, "ana", "bo")
    bo.leave()
    rest(s, 1_500)
    assert bo.history == ["revoked t2 t3"]
    assert ana.history == ["assigned t2 t3"]
    assert [e.member_id for e in s.events if isinstance(e, MemberLeft)] == ["bo-id"]
    bo.come_back()
    rest(s, 3_000)
    assert len(bo.owned) == 2


def test_the_partitions_of_a_killed_process_are_assigned_after_its_session(s: BothSimulation) -> None:
    ana, bo = start(s, "ana", "bo")
    s.kill(bo)  # type: ignore[arg-type]
    s.run(30_000)
    assert ana.history == []
    rest(s, 20_000)
    assert ana.history == ["assigned t2 t3"]
    assert [e.member_id for e in s.events if isinstance(e, MemberExpired)] == ["bo-id"]


def test_a_process_that_was_paused_for_longer_than_its_session_has_lost_its_partitions(s: BothSimulation) -> None:
    """11.13: 25, then epoch 0 under the same id."""
    ana, bo = start(s, "ana", "bo")
    bo.is_awake = False
    s.run(60_000)
    assert len(ana.owned) == 4
    bo.is_awake = True
    rest(s, 2_000)
    assert bo.history[0] == "lost t2 t3"
    assert len(bo.owned) == 2


def test_a_single_member_whose_group_was_forgotten_joins_again(s: BothSimulation) -> None:
    """69 with an epoch: the group has emptied and was forgotten. Kafka's clients stop then."""
    (ana,) = start(s, "ana")
    ana.is_awake = False
    s.run(60_000)
    ana.is_awake = True
    rest(s, 2_000)
    assert ana.history == [f"lost {ALL}", f"assigned {ALL}"]


def test_a_member_that_is_not_polled_leaves_and_comes_back(s: BothSimulation) -> None:
    """9.1: STALE."""
    ana = s.start_consumer("ana", max_poll_interval_ms=8_000)
    start(s, "bo")
    ana.is_polling = False
    s.run(10_000)
    assert ana.driver.member.state is State.STALE
    ana.is_polling = True
    rest(s, 2_000)
    assert ana.history[0] == "lost t0 t1"


def test_a_listener_that_fails_stops_no_rebalance(s: BothSimulation) -> None:
    class ListenersFail(Faults):
        def fails(self, what: str) -> bool:
            return what == "listener"

    ana, _ = start(s, "ana", "bo")
    s.faults = ListenersFail()
    s.start_consumer("cy")
    rest(s, 3_000)
    assert ana.raised


def test_a_coordinator_that_was_away_expels_nobody(s: BothSimulation) -> None:
    """11.14: members go on, and the assignment is the same."""
    ana, bo = start(s, "ana", "bo")
    before = epoch(s)
    s.is_up = False
    s.run(90_000)
    s.come_back(with_its_state=False)
    rest(s, 3_000)
    s.run(20_000)
    assert (ana.history, bo.history, epoch(s)) == ([], [], before)


def test_a_static_member_restarts_without_a_rebalance(s: BothSimulation) -> None:
    """3.5, 11.7: same partitions, and no epoch changes."""
    start(s, "bo")
    ana = s.start_consumer("ana", group_instance_id="i")
    rest(s, 3_000)
    had, before = ana.owned, epoch(s)
    ana.leave()
    s.kill(ana)  # type: ignore[arg-type]
    s.run(10_000)
    s.events.clear()
    again = s.start_consumer("ana2", group_instance_id="i")
    rest(s, 3_000)
    assert (again.owned, epoch(s)) == (had, before)
    assert [type(e) for e in s.events if isinstance(e, MemberBack | RebalanceStarted)] == [MemberBack]


def test_a_second_process_of_a_static_member_is_refused(s: BothSimulation) -> None:
    """111; the first one is not disturbed."""
    first = s.start_consumer("ana", group_instance_id="i")
    rest(s, 3_000)
    second = s.start_consumer("twin", group_instance_id="i")
    s.run(500)
    assert "UNRELEASED_INSTANCE_ID" in str(second.failed)
    assert second.driver.member.state is State.FATAL
    assert len(first.owned) == 4


def test_a_static_member_that_was_fenced_takes_its_own_place_again(s: BothSimulation) -> None:
    """Else its own instance id would count as taken until its session ends."""
    ana = s.start_consumer("ana", group_instance_id="i", max_poll_interval_ms=8_000)
    rest(s, 3_000)
    ana.driver.member.epoch = 7  # as if the coordinator had lost a change
    rest(s, 10_000)
    assert ana.failed is None
    assert ana.history == [f"assigned {ALL}", f"lost {ALL}", f"assigned {ALL}"]


def test_the_same_partitions_under_another_token_call_no_listener(s: BothSimulation) -> None:
    """Java acknowledges such an assignment, and calls nobody."""
    (ana,) = start(s, "ana")
    had = ana.driver.target
    assert had is not None
    s.is_up = False
    s.run(6_000)
    group = s.consumer_group
    assert group is not None
    again = ConsumerGroupHeartbeatAnswer(
        request_id=ana.wire.sent[-1].request_id,
        member_id="ana-id",
        member_epoch=had.epoch,
        heartbeat_interval_ms=5_000,
        assignment=assigned_topics(group, group.members["ana-id"].assigned),
        fencing_token=had.token + 1,
    )
    ana.driver.receive(again)
    ana.poll()
    assert (ana.history, ana.participant.fencing_token, ana.driver.member.state) == ([], had.token + 1, State.STABLE)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_new_partitions_are_assigned_within_the_age_of_the_metadata(s: BothSimulation) -> None:
    """5.2, 11.6."""
    (ana,) = start(s, "ana")
    s.topics["t"] = 6
    rest(s, 2_500)
    assert ana.history == ["assigned t4 t5"]


def test_a_topic_that_is_deleted_is_revoked_and_one_that_is_made_anew_is_assigned(s: BothSimulation) -> None:
    (ana,) = start(s, "ana")
    del s.topics["t"]
    rest(s, 2_500)
    assert ana.history == [f"revoked {ALL}", "assigned nothing"]
    s.make_anew("t", 2)
    rest(s, 3_500)
    assert ana.history[2:] == ["assigned t0 t1"]


def test_a_topic_that_is_made_anew_is_given_up_under_its_old_id_first(s: BothSimulation) -> None:
    (ana,) = start(s, "ana")
    s.make_anew("t", 4)
    s.run(2_000)
    rest(s, 3_500)
    assert ana.history == [f"revoked {ALL}", "assigned nothing", f"assigned {ALL}"]


def test_a_subscription_that_changes_is_followed_at_once(s: BothSimulation) -> None:
    s.topics["u"] = 1
    (ana,) = start(s, "ana")
    s.run(2_000)
    ana.subscribe("u")
    rest(s, 3_000)
    assert ana.history == [f"revoked {ALL}", "assigned nothing", "assigned u0"]


def test_a_pattern_is_resolved_with_the_join_and_follows_new_topics(s: BothSimulation) -> None:
    """5.3, 11.5."""
    ana = s.start_consumer("ana", (), regex="t.*")
    rest(s, 1_000)
    assert ana.history == [f"assigned {ALL}"]
    s.topics |= {"t-new": 1, "other": 1}
    rest(s, 2_500)
    assert ana.history[1:] == ["assigned t-new0"]


def test_a_server_assignor_is_chosen_by_vote(s: BothSimulation) -> None:
    """11.4."""
    s.topics |= {"t": 3, "u": 3}
    for name in ("ana", "bo"):
        s.start_consumer(name, ("t", "u"), server_assignor="range")
    rest(s, 4_000)
    assert [sorted(f"{p.topic}{p.partition}" for p in w.owned) for w in s.consumers] == [
        ["t0", "t1", "u0", "u1"], ["t2", "u2"],
    ]  # fmt: skip


# -- both protocols ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategies", [("range",), COOPERATIVE], ids=["eager", "cooperative"])
def test_a_classic_group_becomes_a_consumer_group_and_classic_again(
    s: BothSimulation, strategies: tuple[str, ...]
) -> None:
    """8.2 to 8.4, 11.10: the coordinator asks for the topics of the classic members, and the client answers."""
    old = [s.start(name, strategies=strategies) for name in ("c1", "c2")]
    s.settle()
    new = s.start_consumer("ana")
    rest(s, 15_000)
    assert s.consumer_group is not None
    assert sorted(len(w.owned) for w in s.workers) == [1, 1, 2]
    new.leave()
    s.kill(new)  # type: ignore[arg-type]
    s.settle()
    assert s.consumer_group is None
    assert {len(w.owned) for w in old} == {2}
    assert [e.group_type for e in s.events if isinstance(e, GroupConverted)] == ["consumer", "classic"]


def test_a_classic_member_joins_a_group_of_consumers(s: BothSimulation) -> None:
    (ana,) = start(s, "ana")
    old: Worker = s.start("c1", strategies=COOPERATIVE)
    rest(s, 10_000)
    assert (len(ana.owned), len(old.owned)) == (2, 2)
    assert s.consumer_group is not None


def test_a_first_join_that_is_sent_twice_makes_one_classic_member_in_a_group_of_consumers(s: BothSimulation) -> None:
    """A client repeats a join without a response under the same request id. The coordinator must not stop at it."""

    class JoinsTwice(Faults):
        def repeated_after_ms(self, request: Request) -> int | None:
            return 0 if isinstance(request, JoinGroup) else None

    start(s, "ana")
    s.faults = JoinsTwice()
    s.start("c1", strategies=COOPERATIVE)
    rest(s, 10_000)
    assert s.consumer_group is not None
    assert len(s.consumer_group.members) == 2


# -- commits -----------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_and_fetched_with_the_epoch(s: BothSimulation) -> None:
    (ana,) = start(s, "ana")
    ticket, asked = ana.commit("t", 1, 7), ""
    s.run(300)
    asked = ana.fetch("t", 1)
    s.run(300)
    assert ana.ended[ticket].code == 0
    assert [(p.partition, p.offset) for p in ana.ended[asked].partitions] == [(1, 7)]  # type: ignore[union-attr]


def test_a_commit_of_an_expelled_member_fails_and_it_learns_that_at_once(s: BothSimulation) -> None:
    """A commit is refused long before the next heartbeat is due."""
    ana, _ = start(s, "ana", "bo")
    ana.is_awake = False
    s.run(60_000)
    ticket = ana.commit("t", 0, 7)
    s.turn()
    ana.is_awake = True
    s.run(300)
    assert ana.ended[ticket].error == "UNKNOWN_MEMBER_ID"
    assert ana.history[0] == "lost t0 t1"


def test_the_events_say_why_the_group_rebalanced(s: BothSimulation) -> None:
    start(s, "ana", "bo")[1].leave()
    s.topics["t"] = 5
    rest(s, 3_000)
    assert [e.cause for e in s.events if isinstance(e, RebalanceStarted)] == ["member_left", "topics_changed"]
