"""Tests of members that join, change their subscription, leave, go away, expire, and are told what is new."""

import pytest

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import (
    AssignmentChanged,
    GroupEmptied,
    MemberAway,
    MemberBack,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    PlanMade,
    RebalanceCompleted,
    RebalanceStarted,
)
from tests.coordinator.consumer.conversation import START_MS, Conversation

TWO = """
    T:4
    A 0         -> 2 {0 1 2 3}
    -- 1000
    B 0         -> 3 {}
    A 2         -> 2 {0 1}
    A 2 own 0 1 -> 3
    B 3         -> 3 {2 3}
    = Stable 3 3
"""


def two() -> Conversation:
    """Return a Stable group of A with 0 and 1, and B with 2 and 3."""
    return Conversation(group_consumer_session_timeout_ms=10_000).plays(TWO)


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_lost_first_answer_costs_nothing():
    """A dynamic member that sends epoch 0 again goes on, and hears its whole assignment."""
    c = two().plays("B 0 -> 3 {2 3}\n= Stable 3 3")
    assert [e.member_id for e in c.events(MemberJoined)] == ["A", "B"]


def test_a_join_without_topics_raises_no_epoch():
    Conversation().plays("""
        A 0 names none   -> 1 {}
        = Stable 1 1
        B 0 names X      -> 2 {}
        = Reconciling 2 2
        A 1              -> 2
        = Stable 2 2
    """)


def test_the_order_of_names_and_repeats_are_no_change():
    Conversation().plays("""
        T:1
        U:1
        A 0 names T U   -> 2 {T 0, U 0}
        A 2 names U T U -> 2
        = Stable 2 2
    """)


def test_a_dynamic_member_may_become_static():
    c = two().plays("A(i) 0 -> 3 {0 1}\n= Stable 3 3\nB(i) 0 -> 111")
    assert c.group.hot_state.instances == {"i": "A"}
    c.plays("A(j) 0 -> 3 {0 1}")
    assert c.group.hot_state.instances == {"j": "A"}


def test_an_epoch_rises_once_a_request_and_a_plan_is_made_at_most_once_a_second():
    c = two().plays("""
        C 0 -> 3 {}
        = Assigning 4 3
        D 0 -> 3 {}
        = Assigning 5 3
        -- 1000
        = Reconciling 5 5
    """)
    assert [(e.generation_id, e.members) for e in c.events(PlanMade)] == [(2, 1), (3, 2), (5, 4)]


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_the_plan_after_a_leave_waits_for_no_heartbeat():
    """Kafka makes it at somebody's next heartbeat; here a deadline does, and the members are told."""
    c = two().plays("B -1 -> -1\n= Assigning 4 3\n-- 999\n= Assigning 4 3\n-- 1")
    assert c.state == "Reconciling 4 4"
    assert c.noticed == ["A"]
    c.plays("A 3 -> 4 {0 1 2 3}\n= Stable 4 4")
    assert [e.member_id for e in c.events(MemberLeft)] == ["B"]


def test_the_last_one_leaves():
    """The assignment epoch of an emptied group is its group epoch, as in Kafka 4.4."""
    c = Conversation().plays("T:1\nA 0 -> 2 {0}\nA -1 -> -1\n= Empty 3 3")
    assert len(c.events(GroupEmptied)) == 1
    c.plays("-- 1000\n= Empty 3 3\nB 0 -> 4 {0}\n= Stable 4 4")


def test_a_member_leaves_whatever_its_epoch():
    two().plays("A 99 -> 110\nA -1 -> -1\nA -1 -> 25")


# -- static members ----------------------------------------------------------------------------------------------------


def test_a_static_member_that_does_not_come_back_expires():
    c = Conversation(group_consumer_session_timeout_ms=10_000).plays("""
        T:2
        A(i) 0  -> 2 {0 1}
        -- 4000
        A(i) -2 -> -2
        A(i) -2 -> -2
        -- 5999
        = Reconciling 2 2
        -- 1
        = Empty 3 3
    """)
    assert next((e.member_id, e.until_ms) for e in c.events(MemberAway)) == ("A", START_MS + 10_000)
    assert [(e.member_id, e.why) for e in c.events(MemberExpired)] == [("A", "session_expired")]


def test_a_static_member_comes_back_under_its_own_id():
    c = Conversation().plays("T:2\nA(i) 0 -> 2 {0 1}\nA(i) -2 -> -2\nA(i) 2 -> 110\nA(i) 0 -> 2 {0 1}\n= Stable 2 2")
    assert [(e.member_id, e.replaces) for e in c.events(MemberBack)] == [("A", "A")]


def test_what_an_absent_member_had_to_give_up_is_free():
    Conversation().plays("""
        T:4
        A(i) 0      -> 2 {0 1 2 3}
        -- 1000
        B 0         -> 3 {}
        A(i) 2      -> 2 {0 1}
        B 3         -> 3
        A(i) -2     -> -2
        B 3         -> 3 {2 3}
        A2(i) 0     -> 3 {0 1}
        = Stable 3 3
    """)


def test_a_place_is_taken_over_by_a_member_of_the_group():
    """The member that comes back under another member's id takes the place, and the other member is gone."""
    c = Conversation().plays("""
        T:4
        A(i) 0      -> 2 {0 1 2 3}
        -- 1000
        B 0         -> 3 {}
        A(i) 2      -> 2 {0 1}
        A(i) 2 own 0 1 -> 3
        B 3         -> 3 {2 3}
        A(i) -2     -> -2
        B(i) 0      -> 3 {0 1}
    """)
    assert list(c.group.members) == ["B"]


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_silent_member_expires():
    c = two().plays("-- 5000\nA 3 -> 3\n-- 4999\n= Stable 3 3\n-- 1\n= Reconciling 4 4\nB 3 -> 25\nA 3 -> 4 {0 1 2 3}")
    (expired,) = c.events(MemberExpired)
    assert (expired.member_id, expired.why, expired.silence_ms) == ("B", "session_expired", 10_000)
    assert [e.cause for e in c.events(RebalanceStarted)] == ["member_joined", "member_joined", "session_expired"]


def test_a_member_that_gives_nothing_up_is_removed():
    """After its rebalance timeout, although it sends heartbeats; those do not extend it."""
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0 1}")
    for _ in range(29):
        c.plays("-- 1000\nA 2 -> 2\nB 3 -> 3")
    c.plays("-- 1000\nA 2 -> 25\nB 3 -> 4 {0 1 2 3}")
    assert [(e.member_id, e.why) for e in c.events(MemberExpired)] == [("A", "revocation_overdue")]


def test_a_late_notice_extends_a_session_once():
    """No member is to blame while the coordinator was unavailable."""
    c = two()
    c.passes(60_000)
    assert c.state == "Stable 3 3"
    c.plays("-- 9000\nA 3 -> 3\nB 3 -> 3")


def test_a_heartbeat_on_the_members_behalf_does_not_renew_its_session():
    c = two()
    deadline_ms = c.group.hot_state.sessions["A"].deadline_ms
    c.passes(100)
    assert c.sends(ConsumerGroupHeartbeat, member_id="A", member_epoch=3, again=True).code == 0
    assert c.group.hot_state.sessions["A"].deadline_ms == deadline_ms


def test_a_plain_heartbeat_changes_no_client_on_whatever_path():
    """promises.md I17: whether a deadline is noticed before it depends on the batches, and so does its path."""
    c = two()
    c.sends(ConsumerGroupHeartbeat, member_id="A", member_epoch=3, client_id="another", client_host="/10.0.0.2")
    assert c.group.members["A"].client_id == "client-A"


def test_a_new_member_has_a_session_whoever_sends_its_heartbeat():
    """Every wait has a deadline (promises.md I11): a member without one would never be removed."""
    c = Conversation().plays("T:4")
    c.sends(
        ConsumerGroupHeartbeat,
        member_id="A",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=("T",),
        topic_partitions=(),
        again=True,
    )
    assert c.group.hot_state.sessions["A"].deadline_ms == c.now_ms + c.config.group_consumer_session_timeout_ms


# -- what is told ------------------------------------------------------------------------------------------------------


def test_members_are_told_when_their_heartbeat_brings_something():
    """next-generation.md 10.6: by the plan, and when a partition for which a member waits is free; never twice."""
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}")
    assert c.noticed == ["A"]
    c.plays("A 2 -> 2 {0 1}")
    assert c.noticed == []
    c.plays("A 2 own 0 1 -> 3")
    assert c.noticed == ["B"]
    c.plays("A 3 -> 3")
    assert c.noticed == []
    c.plays("B 3 -> 3 {2 3}")
    assert c.noticed == []


def test_handovers_are_told_when_they_happen():
    """A partition is given up when it is free, not when its owner is asked for it."""
    c = two()
    told = [[(h.partition, h.before, h.after) for h in e.handovers] for e in c.events(AssignmentChanged)]
    assert told == [
        [(0, None, "A"), (1, None, "A"), (2, None, "A"), (3, None, "A")],
        [(2, "A", None), (3, "A", None)],
        [(2, None, "B"), (3, None, "B")],
    ]


def test_a_rebalance_is_told_from_its_first_cause_to_its_end():
    c = two()
    first, second = c.events(RebalanceCompleted)
    assert (first.duration_ms, first.joined, first.gone, first.protocol_name) == (0, ("A",), (), "uniform")
    assert (second.generation_id, second.joined, second.members_before) == (3, ("B",), ("A",))


@pytest.mark.parametrize(("votes", "assignor"), [("", "uniform"), ("by range", "range")])
def test_the_assignor_with_the_most_votes_makes_the_plan(votes: str, assignor: str):
    c = Conversation().plays(f"T:4\nA 0 {votes} -> 2 {{0 1 2 3}}")
    assert c.group.assignor == assignor


def test_a_tied_vote_is_won_by_the_request():
    """Without such a request, the first configured one wins."""
    c = Conversation().plays("T:4\nA 0 by uniform -> 2 {0 1 2 3}\n-- 1000\nB 0 by range -> 3 {}")
    assert c.group.assignor == "range"
    c.plays("-- 1000\nC 0 -> 4 {}")
    assert c.group.assignor == "uniform"


def test_a_token_grows_with_each_partition_that_is_given():
    """The fencing token of a member is above those of all earlier owners of its partitions."""
    c = two()
    a, b = (c.group.members[name].fencing_token for name in "AB")
    assert 0 < a < b == c.group.token


def test_the_partitions_of_the_last_member_are_given_up_by_name():
    """The group forgets its topics only after the event names them."""
    c = Conversation().plays("T:1\nU:1\nA 0 names T U -> 2 {T 0, U 0}\nA -1 -> -1\n= Empty 3 3")
    gone = [(h.topic, h.partition, h.before, h.after) for h in c.events(AssignmentChanged)[-1].handovers]
    assert sorted(gone) == [("T", 0, "A", None), ("U", 0, "A", None)]
    assert c.group.topics == {}


def test_a_member_that_takes_the_place_of_another_leaves_its_own():
    """The partitions of both are planned anew: none belongs to nobody."""
    c = Conversation().plays("""
        T:4
        A(i) 0 -> 2 {0 1 2 3}
        -- 1000
        B 0 -> 3 {}
        A(i) 2 -> 2 {0 1}
        A(i) 2 own 0 1 -> 3
        B 3 -> 3 {2 3}
        A(i) -2 -> -2
        -- 1000
        B(i) 0 -> 4 {0 1 2 3}
        = Stable 4 4
    """)
    assert [e.cause for e in c.events(RebalanceStarted)][-1] == "member_left"
