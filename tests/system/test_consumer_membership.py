"""The membership of a `GroupConsumer` on the real broker and query: it joins a group, stays in it and rejoins it."""

import logging
import signal
from itertools import groupby, islice

import pytest
from kafka import (
    KafkaAdminClient,
    TopicPartition,
)
from kafka.errors import (
    FencedInstanceIdError,
)

from coordinator.base.states import Phase
from coordinator.member.member import MemberState
from coordinator.messages.events import MemberFenced, MemberLeft
from coordinator.messages.group_records import GroupRecord, OffsetRecord
from tests.system.staging import Listener, MakeStage, at, calls, numbers

pytestmark = pytest.mark.long

# -- joining -----------------------------------------------------------------------------------------------------------


def test_member_joins_and_syncs_and_only_the_leader_sends_assignments(stage: MakeStage) -> None:
    """S02, S89, S119: the requests are in the log in this order, and the member has a state for each step."""
    s = stage(2)
    ana = s.consumer(client_id="ana")
    states = [ana.state]

    def turn() -> None:
        s.turn()
        states.append(ana.state)

    s.until(lambda: s.is_shared_out([0, 1]), alone=turn)
    assert [state for state, _ in groupby(states)] == [
        MemberState.UNJOINED, MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE, MemberState.STABLE,
    ]  # fmt: skip
    s.consumer(client_id="bo")
    s.until(lambda: s.is_shared_out([0], [1]))
    joins = [(join["client_id"], join["member_id"]) for join in s.requests("join_group")]
    assert joins[0] == ("ana", "")
    assert sorted(joins[1:]) == [("ana", ana.member_id), ("bo", "")]
    leader = s.asker.describe().leader
    plans = [sync for sync in s.requests("sync_group") if sync["assignments"]]
    assert [(plan["generation_id"], plan["member_id"]) for plan in plans] == [(1, ana.member_id), (2, leader)]
    assert len(s.requests("sync_group")) == 3


def test_each_join_topic_growth_and_new_subscription_is_one_rebalance(stage: MakeStage) -> None:
    """W3, S123: they are assigned 3, 2 and 1 times. W23, S07, S08: each change is one rebalance of the same members."""
    s = stage(3)
    listeners = [Listener() for _ in range(3)]
    for count, listener in enumerate(listeners, start=1):
        s.consumer(client_id=f"c{count}", listener=listener, metadata_max_age_ms=500)
        s.until(s.are_settled)
    assert [len(calls(listener, "assigned")) for listener in listeners] == [3, 2, 1]
    assert [len(calls(listener, "revoked")) for listener in listeners] == [2, 1, 0]
    ids, generation = [c.member_id for c in s.consumers], s.consumers[0].generation

    with KafkaAdminClient(bootstrap_servers=s.settings.bootstrap_servers) as admin:
        admin.create_partitions({s.topic: 4})
    s.until(lambda: s.is_shared_out([0, 1], [2], [3]))
    assert [c.member_id for c in s.consumers] == ids
    assert {c.generation for c in s.consumers} == {generation + 1}

    other = s.create(f"other-{s.number}")
    chooser, follower = s.consumers[1], s.consumers[0]
    new = TopicPartition(other, 0)
    chooser.subscribe([s.topic, other])
    s.until(lambda: new in chooser.assignment() and s.are_settled())
    assert all(new not in c.assignment() for c in s.consumers if c is not chooser)
    assert (chooser.subscription(), follower.subscription()) == ({s.topic, other}, {s.topic})
    chooser.subscribe([s.topic])
    s.until(lambda: s.is_shared_out([0, 1], [2], [3]))
    assert [c.member_id for c in s.consumers] == ids
    assert {c.generation for c in s.consumers} == {generation + 3}

    grown, *chosen = s.rebalances()[-3:]
    assert grown[0] == "leader_rejoined"
    assert f"{s.topic} has 4, had 3" in grown[1]
    assert [cause for cause, _ in chosen] == ["metadata_changed", "metadata_changed"]
    assert other in chosen[0][1]


def test_topic_that_is_made_later_is_found_soon(stage: MakeStage) -> None:
    """S08: a member that subscribed before the topic existed gets it before the metadata's maximum age has passed."""
    s = stage(1)
    later = f"later-{s.number}"
    s.consumer(later)
    s.until(lambda: s.is_shared_out([]))
    s.create(later)
    s.until(lambda: s.is_shared_out([0]))


# -- time --------------------------------------------------------------------------------------------------------------


def test_member_that_polls_too_late_leaves_and_rejoins(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    """W24, S127, S128: the member logs a warning, calls on_partitions_lost and gets a new member id."""
    s = stage(2)
    listener = Listener()
    s.consumer(client_id="bo")
    ana = s.consumer(client_id="ana", listener=listener, max_poll_interval_ms=1_500)
    s.until(lambda: s.is_shared_out([0], [1]))
    was, had = ana.member_id, numbers(ana.assignment())
    s.consumers.remove(ana)
    s.until(lambda: s.is_shared_out([0, 1]))
    left = next(s.published(MemberLeft))
    assert (left.client_id, left.reason) == ("ana", "consumer poll timeout has expired")
    with caplog.at_level(logging.WARNING, "streaming.client"):
        s.consumers.append(ana)
        s.until(lambda: s.is_shared_out([0], [1]))
    assert "max_poll_interval_ms is 1500" in caplog.text
    assert [what for what, _ in listener.calls] == ["assigned", "lost", "assigned"]
    assert listener.calls[1] == ("lost", had)
    assert ana.member_id not in ("", was)


def test_member_that_works_for_longer_than_a_session_stays_a_member(stage: MakeStage) -> None:
    """S111, S126: heartbeats continue while the caller works."""
    s = stage(1)
    ana = s.consumer(session_timeout_ms=10_000, heartbeat_interval_ms=900)
    s.until(lambda: s.is_shared_out([0]))
    since = len(s.requests("heartbeat"))
    s.until(lambda: len(s.requests("heartbeat")) >= since + 12, alone=lambda: None)
    s.turn()
    assert (ana.generation, len(s.rebalances())) == (1, 1)


def test_warning_comes_before_max_poll_interval_ends(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    """S128: the warning comes from 80 % of max_poll_interval_ms on, if the member owns partitions."""
    s = stage(1)
    ana = s.consumer()

    def warnings_after(away_ms: int) -> int:
        caplog.clear()
        ana._polled_ms -= away_ms
        ana.poll(0)
        return caplog.text.count("passed between two polls, and max_poll_interval_ms is 300000")

    assert warnings_after(250_000) == 0
    s.until(lambda: s.is_shared_out([0]))
    assert [warnings_after(away_ms) for away_ms in (230_000, 250_000, 0)] == [0, 1, 0]


# -- rejoining ---------------------------------------------------------------------------------------------------------


def test_one_of_three_members_crashes_and_rejoins(stage: MakeStage) -> None:
    """W22, S15, S138: there are two rebalances, and each owner continues at the committed offset of the last one."""
    s = stage(3)
    for name in ("ana", "bo"):
        s.consumer(client_id=name)

    def turn() -> None:
        s.turn()
        for consumer in s.consumers:
            consumer.commit_async()

    def produce() -> None:
        for number in range(3):
            s.produce(*(b"%d" % n for n in range(10)), partition=number)

    def are_shared_out(count: int) -> bool:
        return sum(map(len, s.shares())) == count and s.are_settled()

    def seen(number: int) -> list[int]:
        return [record.offset for record in s.read if record.partition == number]

    cy = s.worker(client_id="cy", session_timeout_ms=2_500, commits=True)
    (theirs,) = cy.tells("assigned", turn)
    produce()
    while cy.tells("committed", turn) != {str(theirs): 10}:
        continue
    cy.signal(signal.SIGKILL)
    s.until(lambda: are_shared_out(3), alone=turn)
    produce()
    s.until(lambda: all(19 in seen(number) for number in range(3)), alone=turn)
    assert seen(theirs) == list(range(10, 20)), "committed records are not read again"
    again = s.worker(client_id="cy", session_timeout_ms=2_500, commits=True)
    (now_theirs,) = again.tells("assigned", turn)
    produce()
    assert again.tells("read", turn)[:2] == [now_theirs, 20]
    s.until(lambda: are_shared_out(2) and all(29 in seen(n) for n in {0, 1, 2} - {now_theirs}), alone=turn)
    assert all(set(seen(n)) == set(range(30)) for n in {0, 1, 2} - {theirs, now_theirs})
    assert [cause for cause, _ in s.rebalances()][-2:] == ["session_expired", "member_joined"]


def test_static_member_restarts_without_a_rebalance_and_a_duplicate_is_fenced(stage: MakeStage) -> None:
    """S44, S101, KIP-345: a restarted static member gets the same partitions without a rebalance.

    Of two members with one instance id, the older one is fenced.
    """
    s = stage(2)
    s.consumer(client_id="bo", group_instance_id="desk-2")
    ana = s.consumer(client_id="ana", group_instance_id="desk-1")
    s.until(lambda: s.is_shared_out([0], [1]))
    had, generation, was = ana.assignment(), ana.generation, ana.member_id
    s.consumers.remove(ana)
    ana.close()
    again = s.consumer(client_id="ana", group_instance_id="desk-1")
    s.until(lambda: s.is_shared_out([0], [1]))
    assert (again.assignment(), again.generation) == (had, generation)
    assert again.member_id != was
    assert s.requests("leave_group") == []
    rebalances = len(s.rebalances())

    s.consumers.remove(again)
    double = s.consumer(client_id="double", group_instance_id="desk-1")
    s.until(lambda: s.is_shared_out([0], [1]))
    with pytest.raises(FencedInstanceIdError):
        s.until(lambda: False, alone=lambda: again.poll(20))
    assert again.assignment() == set()
    assert double.assignment() == had
    assert {c.generation for c in s.consumers} == {generation}
    assert [e.replaced_by_client_id for e in islice(s.published(MemberFenced), 2)] == ["ana", "double"]
    assert len(s.rebalances()) == rebalances


def test_published_records_agree_with_the_members(stage: MakeStage) -> None:
    """S140, S141: the published records name the group, topic and partition, and anybody can read them."""
    s = stage(2)
    ana = s.consumer(client_id="ana")
    s.until(lambda: s.is_shared_out([0, 1]))
    ana.commit({s.partition(1): at(7, "seven")})
    offset = next(s.published(OffsetRecord))
    assert (offset.topic, offset.partition, offset.offset, offset.metadata) == (s.topic, 1, 7, "seven")
    assert (offset.generation_id, offset.member_id) == (ana.generation, ana.member_id)
    group = next(r for r in s.published(GroupRecord) if r.state is Phase.STABLE)
    assert [member.assigned for member in group.members] == [{s.topic: [0, 1]}]
