"""Tests of the client's code and the coordinator's together, with random faults and in named examples.

An example of the seeds may have another timing here, and then says so: our members learn of a rebalance by a notice, in
the batch in which it begins, and the seeds' members by a heartbeat, up to `heartbeat_interval_ms` later.
"""

import pytest
from kafka import TopicPartition

from coordinator.base.consumer_protocol import assigned_partitions, subscribed_topics
from coordinator.base.states import Phase
from coordinator.member.member import MemberState
from coordinator.messages.events import MemberExpired
from coordinator.messages.requests import JoinGroup, LeaveGroup, SyncGroup
from coordinator.messages.responses import AnyAnswer, JoinGroupAnswer, SyncGroupAnswer
from tests.streaming.client.schedules import Schedule
from tests.streaming.client.simulation import COOPERATIVE, Faults, Simulation, Worker, words
from tests.tiers import NIGHTLY

SCHEDULES = 2_400
FEW_SCHEDULES = 1_000
"""Those of `make test`; `make nightly` plays the others too."""
CHUNK = 200


def reasons(worker: Worker) -> list[str | None]:
    return [request.reason for request in worker.wire.sent if isinstance(request, JoinGroup)]


# -- random faults -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [pytest.param(n, marks=() if n < FEW_SCHEDULES else NIGHTLY) for n in range(0, SCHEDULES, CHUNK)],
)
def test_the_group_comes_to_rest_after_random_faults(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """S05, S06, S15, S121, S122, protocol.md 6: faults come first, then none; the checkers of `contract` always run."""
    for seed in range(first, first + CHUNK):
        try:
            Schedule(monkeypatch, seed).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


# -- the seeds' walkthroughs -------------------------------------------------------------------------------------------


def test_three_concurrent_joins_make_one_rebalance(s: Simulation) -> None:
    """W1, S02, S119, S122: c3's first assignments are void, and no listener is called for them.

    The timing is that of the seeds: the others join while c3 is still computing the assignments.
    """
    c3 = s.start("c3")
    s.turn()
    assert c3.driver.member.state is MemberState.PREPARING_REBALANCE
    c3.is_polling = False
    s.turn()
    assert c3.driver.member.state is MemberState.COMPLETING_REBALANCE
    c2, c1 = s.start("c2"), s.start("c1")
    c2.poll()
    c1.poll()
    c3.is_polling = True
    s.settle()
    assert s.generation_id == 2
    assert [s.joins(c) for c in (c3, c2, c1)] == [2, 1, 1]
    assert s.histories() == {"c3": ["assigned t2"], "c2": ["assigned t1"], "c1": ["assigned t0"]}
    assert [type(r) for r in c2.wire.sent] == [JoinGroup, SyncGroup]


def test_all_members_leave_one_after_another(s: Simulation) -> None:
    """W1 step 8, S118: each member gives up its partitions; the group is Empty after the last one."""
    workers = [s.start(name) for name in ("c1", "c2", "c3")]
    s.settle()
    s.forget()
    for worker in workers:
        worker.leave()
    s.turn()
    group = s.group
    assert group is not None
    assert (group.phase, group.generation_id) == (Phase.EMPTY, 3)
    assert s.histories() == {"c1": ["revoked t0"], "c2": ["revoked t1"], "c3": ["revoked t2"]}
    assert [type(r) for w in workers for r in w.wire.sent] == [LeaveGroup] * 3


def test_two_more_joins_of_a_busy_group_make_two_rebalances(s: Simulation) -> None:
    """W2, S123: c1 has two pairs of calls, the others one.

    The seeds' c1 learns of c2 only after c3 has joined, as its heartbeat is not due before. Our c1 gets a notice at
    once, and does not poll for a while instead.
    """
    c1 = s.start("c1")
    s.settle()
    c1.is_polling = False
    s.start("c2")
    s.run(1_000)
    assert c1.driver.member.rejoin_needed
    s.start("c3")
    s.run(1_000)
    c1.is_polling = True
    s.settle()
    assert s.generation_id == 2
    assert s.histories() == {
        "c1": ["assigned t0 t1 t2", "revoked t0 t1 t2", "assigned t0"], "c2": ["assigned t1"], "c3": ["assigned t2"],
    }  # fmt: skip


def test_two_more_joins_a_second_apart_make_three_rebalances(s: Simulation) -> None:
    """W2 with a c1 that polls: it rejoins before c3 joins. This makes one rebalance more, and each one is shorter."""
    s.start("c1")
    s.settle()
    s.start("c2")
    s.run(1_000)
    s.start("c3")
    s.settle()
    assert s.generation_id == 3


def test_three_joins_one_after_another_make_three_rebalances(s: Simulation) -> None:
    """W3, S123: assigned calls: c1 3, c2 2, c3 1. The rounds are those of the seeds; each begins with the notice."""
    for name in ("c1", "c2", "c3"):
        s.start(name)
        s.settle(within_ms=1_000)
    assert s.generation_id == 3
    assert s.histories() == {
        "c1": ["assigned t0 t1 t2", "revoked t0 t1 t2", "assigned t0 t1", "revoked t0 t1", "assigned t0"],
        "c2": ["assigned t2", "revoked t2", "assigned t1"],
        "c3": ["assigned t2"],
    }


def test_a_notice_that_is_lost_costs_a_heartbeat_interval(s: Simulation) -> None:
    """S109, W2 step 5: without the notice c1 learns of the rebalance by its heartbeat, as the seeds' clients do."""
    s.start("c1", heartbeat_interval_ms=3_000)
    s.settle()
    s.run(3_000 - s.now_ms % 3_000)  # c1 has just sent a heartbeat
    s.faults = NoNotices()
    s.start("c2")
    s.run(2_500)
    assert not s.is_at_rest
    s.settle(within_ms=1_200)


class NoNotices(Faults):
    def arrivals(self, answer: AnyAnswer) -> tuple[int, ...]:
        return () if answer.request_id is None else (0,)


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_join_with_a_lost_response_is_repeated(s: Simulation, who: str) -> None:
    """W4, W5: the same request comes again and gets the same response; it causes no further round."""
    s.faults = lost = LosesAJoin(members=3 if who == "leader" else 0)
    for name in ("c1", "c2", "c3"):
        s.start(name, request_timeout_ms=2_000)
    s.settle(within_ms=4_000)
    assert lost.is_spent
    assert s.generation_id == 2
    assert s.histories() == {"c1": ["assigned t0"], "c2": ["assigned t1"], "c3": ["assigned t2"]}


def test_a_first_join_with_a_lost_response_makes_one_member(s: Simulation) -> None:
    """W4b: c1 never learned its id, and a round began meanwhile.

    The coordinator recognizes the repeated join and refuses it for that round; the refusal has the member id. The
    client must use this id, or the group waits until the orphan's session ends.
    """
    s.faults = lost = LosesAJoin(members=1)
    c1 = s.start("c1", request_timeout_ms=2_000)
    s.start("c2")
    s.run(4_000)
    assert lost.is_spent
    assert s.group is not None
    assert len(s.group.members) == 2
    assert s.is_at_rest
    assert c1.history == ["assigned t0 t1"]


class LosesAJoin(Faults):
    """Loses one response to a join: the first one that names so many members."""

    def __init__(self, members: int) -> None:
        self.members, self.is_spent = members, False

    def arrivals(self, answer: AnyAnswer) -> tuple[int, ...]:
        is_it = isinstance(answer, JoinGroupAnswer) and not answer.code and len(answer.members) == self.members
        is_lost, self.is_spent = is_it and not self.is_spent, is_it or self.is_spent
        return () if is_lost else (0,)


def test_the_order_of_syncs_does_not_matter(s: Simulation) -> None:
    """W7: c3 is late; the others have their assignments, and c3's own waits for it."""
    c1, c2 = s.start("c1"), s.start("c2")
    c3 = s.start("c3")
    s.turn()
    c3.is_awake = False
    s.run(1_000)
    assert (words(c1.owned), words(c2.owned), words(c3.owned)) == ("t0", "t1", "nothing")
    c3.is_awake = True
    s.settle()
    assert words(c3.owned) == "t2"
    assert s.generation_id == 2


def test_a_silent_member_loses_its_partitions_and_learns_it_later(s: Simulation) -> None:
    """W14, W21, S06: another member gets them; the commit after waking is refused; the member rejoins with a new id."""
    c1, c2 = s.start("c1", session_timeout_ms=10_000), s.start("c2", session_timeout_ms=10_000)
    s.settle()
    s.forget()
    was, c2.is_awake = c2.driver.member.member_id, False
    s.run(9_000)
    assert not s.causes()
    s.run(3_000)
    assert words(c1.owned) == "t0 t1 t2"
    (expired,) = [event for event in s.events if isinstance(event, MemberExpired)]
    assert (expired.member_id, expired.silence_ms) == (was, 10_000)
    ticket = c2.commit("t", 2, 7)
    c2.is_awake = True
    s.settle()
    assert c2.commits[ticket] == "UNKNOWN_MEMBER_ID"
    assert c2.history == ["lost t2", "assigned t2"]
    assert c2.driver.member.member_id != was


def test_a_dead_members_partitions_are_reassigned_until_it_returns(s: Simulation) -> None:
    """W22, S15: the death and the return of the member cause one rebalance each."""
    c1, c2 = s.start("c1"), s.start("c2")
    s.settle()
    s.forget()
    s.kill(c2)
    s.settle(within_ms=60_000)
    s.start("c2 again")
    s.settle()
    assert s.causes() == ["session_expired", "member_joined"]
    assert c1.history == ["revoked t0 t1", "assigned t0 t1 t2", "revoked t0 t1 t2", "assigned t0 t1"]


# -- causes of a rejoin ------------------------------------------------------------------------------------------------


def test_a_changed_subscription_makes_a_rebalance(s: Simulation) -> None:
    """S07, W23: new topics are owned, dropped topics are gone from the group, and the member id stays."""
    s.topics["u"] = 2
    c1, c2 = s.start("c1"), s.start("c2")
    s.settle()
    was = c2.driver.member.member_id
    s.forget()
    c2.subscribe("u")
    s.settle()
    assert s.causes() == ["metadata_changed"]
    assert (words(c1.owned), words(c2.owned)) == ("t0 t1 t2", "u0 u1")
    assert c2.driver.member.member_id == was
    assert reasons(c2) == ["subscribed to u"]
    group = s.group
    assert group is not None
    subscriptions = {m.member_id: subscribed_topics(m.protocols[0].metadata) for m in group.members.values()}
    assert subscriptions == {c1.driver.member.member_id: ["t"], was: ["u"]}


def test_the_leader_notices_new_partitions(s: Simulation) -> None:
    """S08, W23: the leader notices it within the metadata age; new partitions are assigned, and no member restarts."""
    c1, c2 = s.start("c1"), s.start("c2")
    s.settle()
    members = sorted(s.group.members) if s.group else []
    s.forget()
    s.topics["t"] = 4
    s.settle(within_ms=2_500)
    assert s.causes() == ["leader_rejoined"]
    assert (words(c1.owned), words(c2.owned)) == ("t0 t1", "t2 t3")
    assert members == sorted(s.group.members if s.group else [])
    assert reasons(c1) == ["partitions changed: t has 4, had 3"]
    assert reasons(c2) == ["group is already rebalancing"]


def test_a_topic_that_is_created_later_is_assigned(s: Simulation) -> None:
    """S08, protocol.md 7: a topic without metadata is skipped, and counts as one that had no partitions."""
    c1 = s.start("c1", topics=("t", "later"))
    s.settle()
    s.topics["later"] = 1
    s.settle(within_ms=2_500)
    assert words(c1.owned) == "later0 t0 t1 t2"
    assert reasons(c1)[1:] == ["partitions changed: later has 1, had 0"]


def test_a_former_leader_does_not_watch_topics(s: Simulation) -> None:
    """S120: c1 led, did not poll for too long, and is a follower; only c2, the new leader, sees the topic grow."""
    c1, c2 = s.start("c1", max_poll_interval_ms=5_000), s.start("c2")
    s.settle()
    assert c1.driver.member.is_leader
    c1.is_polling = False
    s.run(6_000)
    c1.is_polling = True
    s.settle()
    assert (c1.driver.member.is_leader, c2.driver.member.is_leader) == (False, True)
    s.forget()
    s.topics["t"] = 5
    c2.is_polling = False
    s.run(3_000)
    assert s.causes() == []
    c2.is_polling = True
    s.settle()
    assert reasons(c1) == ["group is already rebalancing"]
    assert reasons(c2) == ["partitions changed: t has 5, had 3"]


# -- assignments -------------------------------------------------------------------------------------------------------


def test_owned_partitions_equal_the_assignment_in_the_response(s: Simulation) -> None:
    """S99, S89: only the leader has sent assignments."""
    c1, c2 = s.start("c1"), s.start("c2")
    s.settle()
    for worker in (c1, c2):
        synced = [a for a in worker.received if isinstance(a, SyncGroupAnswer)]
        plan = assigned_partitions(synced[-1].assignment)
        assert plan is not None
        assert worker.owned == {TopicPartition(topic, n) for topic, ns in plan.items() for n in ns}
    plans = [[len(r.assignments) for r in w.wire.sent if isinstance(r, SyncGroup)] for w in (c1, c2)]
    assert plans == [[1, 2], [0]]


@pytest.mark.parametrize("strategies", [("range",), COOPERATIVE])
def test_an_assignment_outside_the_subscription_is_refused(s: Simulation, strategies: tuple[str]) -> None:
    """S99, protocol.md 6.5: no listener is called; the member joins again."""
    s.topics["u"] = 1
    c1 = s.start("c1", topics=("t", "u"), strategies=strategies)
    while not any(isinstance(r, SyncGroup) for r in c1.wire.sent):
        s.turn()
    c1.subscribe("t")
    s.settle()
    assert reasons(c1) == ["subscribed", "subscribed to t"]
    assert c1.history == ["assigned t0 t1 t2"]


def test_cooperative_takes_two_rounds_and_keeps_retained_partitions(s: Simulation) -> None:
    """S133: c1 owns all three partitions, and c2 joins: c1 never loses 0 and 1."""
    s.start("c1", strategies=COOPERATIVE)
    s.settle()
    s.start("c2", strategies=COOPERATIVE)
    s.settle()
    assert s.generation_id == 3
    assert s.histories() == {
        "c1": ["assigned t0 t1 t2", "revoked t2", "assigned nothing", "assigned nothing"],
        "c2": ["assigned nothing", "assigned t2"],
    }


def test_cooperative_revokes_a_dropped_topic_before_the_join(s: Simulation) -> None:
    """Protocol.md 6.5: partitions of unsubscribed topics are revoked before the join, so that one round is enough."""
    s.topics["u"] = 1
    c1 = s.start("c1", topics=("t", "u"), strategies=COOPERATIVE)
    s.settle()
    s.forget()
    c1.subscribe("t")
    s.settle()
    assert c1.history == ["revoked u0", "assigned nothing"]
    assert s.joins(c1) == 1
