"""Tests of the reconciliation of a member with its target (next-generation.md 2.7)."""

from coordinator.base.consumer_protocol import Subscription, write_subscription
from coordinator.messages.events import AssignmentChanged, RebalanceStarted
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.requests import Protocol
from coordinator.state.consumer_member import MemberState, Partitions
from tests.coordinator.consumer.conversation import Conversation, topic_id
from tests.coordinator.consumer.test_members import two
from tests.coordinator.consumer.test_mixed import Mixed


def numbers(partitions: Partitions) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic id."""
    return {each: sorted(epochs) for each, epochs in partitions.items()}


def revoking() -> Conversation:
    """Return a group at epoch 3 in which A has 0 and 1, and has to give up 2 and 3, for which B waits."""
    return Conversation().plays("T:4\nU:1\nA 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0 1}")


def test_partitions_are_stamped_with_the_epoch_at_which_they_were_given():
    """next-generation.md 2.2: the partitions that a member keeps have the epoch from before."""
    c = two()
    assert c.group.members["A"].assigned == {topic_id("T"): {0: 2, 1: 2}}
    assert c.group.members["B"].assigned == {topic_id("T"): {2: 3, 3: 3}}
    c.plays("-- 1000\nB -1 -> -1\nA 3 -> 4 {0 1 2 3}")
    assert c.group.members["A"].assigned == {topic_id("T"): {0: 2, 1: 2, 2: 4, 3: 4}}


def test_partitions_that_are_given_up_keep_their_epoch():
    a = revoking().group.members["A"]
    assert (a.assigned, a.revoking) == ({topic_id("T"): {0: 2, 1: 2}}, {topic_id("T"): {2: 2, 3: 2}})
    assert a.state is MemberState.UNREVOKED


def test_every_change_sets_the_previous_epoch():
    c = revoking()
    assert c.group.members["A"].previous_epoch == 2, "it has given nothing up, so its epoch is as before"
    c.plays("A 2 own 0 1 -> 3")
    assert c.group.members["A"].previous_epoch == 2
    c.plays("B 3 -> 3 {2 3}")
    assert c.group.members["B"].previous_epoch == 3


def test_a_member_that_unsubscribes_while_it_gives_up_gives_up_the_rest_too():
    c = revoking().plays("A 2 names U -> 2 {}")
    a = c.group.members["A"]
    assert (a.assigned, numbers(a.revoking)) == ({}, {topic_id("T"): [0, 1, 2, 3]})
    c.plays("A 2 own T 3 -> 2\nA 2 own U 0 -> 3")


def test_a_rejoin_that_unsubscribes_frees_the_partitions_at_once():
    """A join owns nothing, so it confirms the release of all partitions."""
    c = Conversation().plays("T:2\nU:1\nA 0 names T U -> 2 {T 0 1, U 0}\nA 0 names U -> 2 {U 0}\n= Assigning 3 2")
    a = c.group.members["A"]
    assert (a.state, numbers(a.assigned), a.revoking) == (MemberState.STABLE, {topic_id("U"): [0]}, {})
    changed = c.events(AssignmentChanged)[-1]
    assert [(h.topic, h.partition, h.before, h.after) for h in changed.handovers] == [
        ("T", 0, "A", None),
        ("T", 1, "A", None),
    ]


def test_a_request_may_unsubscribe_and_confirm_the_release_at_once():
    c = Conversation().plays("T:2\nU:1\nA 0 names T U -> 2 {T 0 1, U 0}\nA 2 names T own T 0 1 -> 2 {0 1}")
    a = c.group.members["A"]
    assert (a.state, a.revoking) == (MemberState.STABLE, {})
    assert c.group.holders[topic_id("T")] == {0: "A", 1: "A"}


def test_a_request_that_unsubscribes_and_still_owns_has_to_confirm():
    c = Conversation().plays("T:2\nU:1\nA 0 names T U -> 2 {T 0 1, U 0}\nA 2 names T own T 0 1 U 0 -> 2 {0 1}")
    a = c.group.members["A"]
    assert (a.state, numbers(a.revoking)) == (MemberState.UNREVOKED, {topic_id("U"): [0]})


def test_a_subscription_to_a_further_topic_gives_nothing_up():
    """It does not extend the time that the member has to give partitions up."""
    c = revoking()
    deadline_ms = c.group.hot_state.revocations["A"].deadline_ms
    assert deadline_ms == c.now_ms + 30_000
    c.plays("-- 500\nA 2 names T U -> 2")
    assert c.group.hot_state.revocations["A"].deadline_ms == deadline_ms
    assert c.group.members["A"].previous_epoch == 2


def test_a_further_release_sets_the_deadline_anew():
    c = revoking().plays("-- 500\nA 2 names U -> 2 {}")
    assert c.group.hot_state.revocations["A"].deadline_ms == c.now_ms + 30_000
    c.plays("A 2 own U 0 -> 3")
    assert c.group.hot_state.revocations == {}


def test_a_topic_that_is_gone_is_given_up_without_a_new_target_assignment():
    """The target counts as empty for a topic to which the member does not subscribe any more."""
    c = Conversation().plays("T:2\nU:1\nA 0 names T U -> 2 {T 0 1, U 0}\n-- 1000\nA 2 names T -> 2 {0 1}")
    c.plays("A 2 own T 0 1 -> 3\n= Stable 3 3\nA 3 names T U -> 3\n-- 1000\nA 3 -> 4 {T 0 1, U 0}")


def test_a_waiting_member_takes_each_partition_when_it_is_free():
    """Two members give up at different times, and one of them unsubscribes."""
    c = Conversation().plays("""
        T:6
        A 0             -> 2 {0 1 2 3 4 5}
        -- 1000
        B 0             -> 3 {}
        A 2             -> 2 {0 1 2}
        A 2 own 0 1 2   -> 3
        B 3             -> 3 {3 4 5}
        -- 1000
        C 0             -> 4 {}
        A 3             -> 3 {0 1}
        B 3             -> 3 {3 4}
        A 3 own 0 1     -> 4
        C 4             -> 4 {2}
        C 4             -> 4
        = Reconciling 4 4
        B 3 own 3 4     -> 4
        C 4             -> 4 {2 5}
        = Stable 4 4
    """)
    assert c.group.members["C"].assigned == {topic_id("T"): {2: 4, 5: 4}}


def waiting(c: Conversation) -> None:
    """Make C wait for partition 2 of A and for 5 of B, at epoch 4."""
    c.plays("""
        T:6
        A 0             -> 2 {0 1 2 3 4 5}
        -- 1000
        B 0             -> 3 {}
        A 2             -> 2 {0 1 2}
        A 2 own 0 1 2   -> 3
        B 3             -> 3 {3 4 5}
        -- 1000
    """)


def test_a_member_is_told_of_each_free_partition():
    c = Conversation()
    waiting(c)
    c.plays("C 0 -> 4 {}\nA 3 -> 3 {0 1}\nA 3 own 0 1 -> 4")
    assert c.noticed == ["C"]
    c.plays("C 4 -> 4 {2}\nB 3 -> 3 {3 4}\nB 3 own 3 4 -> 4")
    assert c.noticed == ["C"]


def test_a_classic_member_is_told_when_all_are_free():
    """Each join costs it a round, so it joins once for all."""
    c = Mixed()
    waiting(c)
    assert c.joins("C").generation_id == 4
    c.plays("A 3 -> 3 {0 1}\nA 3 own 0 1 -> 4")
    assert c.beats("C", 4) == 0, "5 is not free"
    c.plays("B 3 -> 3 {3 4}\nB 3 own 3 4 -> 4")
    assert c.beats("C", 4) == 27


def test_the_partitions_that_a_classic_member_has_are_not_waited_for():
    c = Mixed()
    waiting(c)
    c.joins("C")
    c.plays("A 3 -> 3 {0 1}\nA 3 own 0 1 -> 4")
    assert c.joins("C").generation_id == 4
    assert c.syncs("C", 4) == "2"
    c.plays("B 3 -> 3 {3 4}\nB 3 own 3 4 -> 4")
    assert c.beats("C", 4) == 27


def test_a_classic_member_is_told_of_a_topic_that_nobody_holds():
    c = Mixed()
    both = Protocol("range", write_subscription(Subscription(("T", "U"))))
    c.plays("T:1\nU:1\nA 0 names T U -> 2 {T 0, U 0}\n-- 1000")
    assert c.joins("C", protocols=(both,)).generation_id == 3
    (mine,) = [name for name in "TU" if topic_id(name) in c.group.targets["A"]]
    assert c.says(f"A 2 own {mine} 0").member_epoch == 3
    assert c.beats("C", 3) == 27


def test_a_subscription_that_takes_nothing_away_changes_no_assignment():
    c = two().plays("A 3 names T U -> 3\n= Assigning 4 3")
    assert [e.cause for e in c.events(RebalanceStarted)][-1] == "subscription_changed"
    assert c.group.members["A"].previous_epoch == 2


def test_a_member_that_becomes_static_is_published():
    c = two().plays("A(i) 0 -> 3 {0 1}")
    (record,) = [o.record for o in c.latest if isinstance(o, Published) and isinstance(o.record, GroupRecord)]
    assert [m.group_instance_id for m in record.members] == ["i", None]


def test_a_member_that_goes_away_has_no_epochs_of_its_partitions():
    """next-generation.md 3.4, row 5: so it can commit nothing."""
    c = Conversation().plays("T:2\nA(i) 0 -> 2 {0 1}\nA(i) -2 -> -2")
    a = c.group.members["A"]
    assert (a.assigned, c.group.epoch_of("A"), a.previous_epoch) == ({topic_id("T"): {0: 0, 1: 0}}, -2, 2)
    c.plays("B(i) 0 names none -> 2 {}")
    b = c.group.members["B"]
    assert (b.previous_epoch, b.assigned) == (0, {})
