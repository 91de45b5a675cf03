"""Tests of requests of administrators, of commits, and of the classic protocol to a group of the consumer protocol."""

from typing import Any

import pytest

from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from coordinator.messages.events import CommitRejected, GroupConverted, MemberExpired, MemberLeft, RebalanceStarted
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    DeleteGroup,
    DescribeGroup,
    ExpelMember,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    RebalanceGroup,
    RepublishGroup,
    SyncGroup,
    TopicPartitions,
)
from tests.coordinator.consumer.conversation import Conversation, topic_id
from tests.coordinator.consumer.test_members import two
from tests.coordinator.wire import subscription

# -- offsets -----------------------------------------------------------------------------------------------------------


def commit(c: Conversation, member_id: str, epoch: int, *partitions: int, version: int = 9) -> int:
    """Commit offset 7 of some partitions, and return the number of the error."""
    offsets = tuple(OffsetToCommit("T", number, 7) for number in partitions or (0,))
    answer = c.sends(OffsetCommit, member_id=member_id, generation_id=epoch, offsets=offsets, version=version)
    return int(answer.partitions[0].code)


@pytest.mark.parametrize(
    ("member_id", "epoch", "partitions", "code"),
    [
        ("A", 3, (0, 1), 0),
        ("A", 3, (2, 99), 0),  # any partition, at the member's own epoch
        ("A", 2, (0, 1), 0),  # given at epoch 2
        ("A", 2, (0, 2), 113),  # given up since
        ("A", 1, (0,), 113),
        ("A", 4, (0,), 113),
        ("B", 2, (2,), 113),  # given at epoch 3
        ("A", -1, (0,), 113),
        ("C", 3, (0,), 25),
        ("", -1, (0,), 25),
    ],
)
def test_commit(member_id: str, epoch: int, partitions: tuple[int, ...], code: int):
    """next-generation.md 6.1: a member may commit what it was given at the epoch of the commit, or before."""
    c = two()
    assert commit(c, member_id, epoch, *partitions) == code
    assert len(c.events(CommitRejected)) == (code != 0)


def test_a_commit_needs_a_version_with_member_epochs():
    assert commit(two(), "A", 3, version=8) == 35


def test_a_member_commits_what_it_gives_up():
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 -> 3 {}\nA 2 -> 2 {0 1}")
    assert commit(c, "A", 2, 2, 3) == 0


def test_no_commit_renews_a_session():
    c = two()
    deadline_ms = c.group.hot_state.sessions["A"].deadline_ms
    c.passes(100)
    assert commit(c, "A", 3) == 0
    assert c.group.hot_state.sessions["A"].deadline_ms == deadline_ms


def test_a_commit_from_outside_needs_an_empty_group():
    c = Conversation().plays("T:1\nA 0 -> 2 {0}")
    assert commit(c, "", -1) == 25
    c.plays("A -1 -> -1")
    assert commit(c, "", -1) == 0
    assert [commit(c, "", epoch) for epoch in (0, 3)] == [25, 25]


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, 0),
        (None, 0, 25),
        ("A", 3, 0),
        ("A", 2, 113),
        ("A", 4, 113),
        ("A", -1, 113),
        ("C", 3, 25),
        ("", 3, 25),
    ],
)
def test_fetch(member_id: str | None, epoch: int, code: int):
    """next-generation.md 6.2."""
    c = two()
    commit(c, "A", 3)
    answer = c.sends(OffsetFetch, member_id=member_id, generation_id=epoch, topics=(TopicPartitions("T", (0,)),))
    assert answer.code == code
    assert [p.offset for p in answer.partitions] == [7 if not code else -1]


def test_offsets_of_subscribed_topics_are_not_deleted():
    c = two()
    commit(c, "A", 3)
    c.sends(OffsetCommit, member_id="A", generation_id=3, offsets=(OffsetToCommit("U", 0, 1),))
    answer = c.sends(OffsetDelete, topics=(TopicPartitions("T", (0,)), TopicPartitions("U", (0,))))
    assert [(p.topic, p.code) for p in answer.partitions] == [("T", 86), ("U", 0)]


def test_only_offsets_of_unsubscribed_topics_expire():
    c = Conversation(offsets_retention_ms=5_000).plays("T:1\nA 0 -> 2 {0}")
    for topic in "TU":
        c.sends(OffsetCommit, member_id="A", generation_id=2, offsets=(OffsetToCommit(topic, 0, 1),))
    c.passes(4_999)
    assert set(c.group.offsets) == {"T", "U"}
    c.passes(1)
    assert set(c.group.offsets) == {"T"}


def test_an_empty_group_is_forgotten_and_its_epochs_go_on():
    """The first epoch of the next group with the id is above all of the group before, for a day."""
    c = Conversation(empty_group_retention_ms=5_000).plays("T:1\nA 0 -> 2 {0}\nA -1 -> -1\n= Empty 3 3\n-- 5000")
    assert c.shard.consumer_group("g") is None
    c.plays("A 0 -> 4 {0}")


# -- administration ----------------------------------------------------------------------------------------------------


def test_description():
    """next-generation.md 1.4: what a member has includes what it has to give up."""
    c = Conversation().plays("T:4\nA(i) 0 -> 2 {0 1 2 3}\n-- 1000\nB 0 by range -> 3 {}\nA(i) 2 -> 2 {0 1}")
    c.sends(ConsumerGroupHeartbeat, member_id="A", member_epoch=2, rack_id="r")
    answer = c.sends(ConsumerGroupDescribe)
    assert (answer.state.value, answer.group_epoch, answer.assignment_epoch) == ("Reconciling", 3, 3)
    assert (answer.group_id, answer.assignor) == ("g", "range")
    a, b = answer.members
    assert (a.rack_id, a.client_id, a.client_host) == ("r", "client-A", "/10.0.0.1")
    assert (a.subscribed_topic_names, a.is_classic, b.rack_id) == (("T",), False, None)
    assert (a.member_id, a.group_instance_id, a.member_epoch, a.subscribed_topic_regex) == ("A", "i", 2, "")
    assert [(each.topic, each.topic_id, each.partitions) for each in a.assignment] == [
        ("T", topic_id("T"), (0, 1, 2, 3))
    ]
    assert [each.partitions for each in a.target_assignment] == [(0, 1)]
    assert (b.assignment, [each.partitions for each in b.target_assignment]) == ((), [(2, 3)])


def test_description_leaves_out_topics_that_are_gone():
    c = Conversation().plays("T:1\nA 0 -> 2 {0}\nT:0")
    c.tells_topics("T")
    (member,) = c.sends(ConsumerGroupDescribe).members
    assert (member.assignment, member.target_assignment) == ((), ())


def test_the_classic_description_is_that_of_no_group():
    answer = two().sends(DescribeGroup)
    assert (answer.code, answer.group_id, answer.state.value, answer.members) == (0, "g", "Dead", ())
    assert answer.error_message == "Group g is not a classic group."


def test_a_classic_group_has_no_description_of_the_consumer_protocol():
    """The sentences are Kafka's: kafka-consumer-groups prints them."""
    c = Conversation()
    answer = c.sends(ConsumerGroupDescribe)
    assert (answer.code, answer.group_id, answer.error_message) == (69, "g", "Group g not found.")
    classic_join(c)
    answer = c.sends(ConsumerGroupDescribe)
    assert (answer.code, answer.group_id, answer.error_message) == (69, "g", "Group g is not a consumer group.")


def test_listing():
    c = two()
    (listed,) = c.sends(ListGroups, group_id="").groups
    assert (listed.group_id, listed.protocol_type, listed.state.value) == ("g", "consumer", "Stable")
    assert c.sends(ListGroups, group_id="", types=("CONSUMER",)).groups
    assert not c.sends(ListGroups, group_id="", types=("classic",)).groups
    assert not c.sends(ListGroups, group_id="", states=("assigning",)).groups


def test_members_are_removed_by_an_administrator():
    """The epoch grows once, however many entries are valid."""
    c = two().plays("C(i) 0 -> 3 {}\n-- 1000")
    entries = (Leaving("", "i", "upgrade"), Leaving("B"), Leaving("X"), Leaving("A", "i"))
    answer = c.sends(LeaveGroup, members=entries)
    assert [member.code for member in answer.members] == [0, 0, 25, 25]
    assert list(c.group.members) == ["A"]
    assert [(e.member_id, e.reason) for e in c.events(MemberLeft)] == [("C", "upgrade"), ("B", None)]
    assert c.group.hot_state.group_epoch == 5


def test_nothing_changes_if_an_administrator_removes_no_member():
    """next-generation.md 7."""
    c = two()
    before = c.group.version
    answer = c.sends(LeaveGroup, members=(Leaving("X"), Leaving("", "i")))
    assert [member.code for member in answer.members] == [25, 25]
    assert (c.state, c.group.version) == ("Stable 3 3", before)


def test_a_group_without_members_is_not_rebalanced():
    c = Conversation().plays("T:1\nA 0 -> 2 {0}\nA -1 -> -1")
    answer = c.sends(RebalanceGroup)
    assert (answer.code, answer.state.value, answer.generation_id) == (0, "Empty", 3)
    assert c.state == "Empty 3 3"


def test_a_member_is_expelled():
    c = two()
    assert c.sends(ExpelMember, member_id="X").code == 25
    assert c.sends(ExpelMember, member_id="B", reason="stuck").member_id == "B"
    assert [(e.member_id, e.why, e.reason) for e in c.events(MemberExpired)] == [("B", "expelled", "stuck")]
    assert [(e.cause, e.member_id) for e in c.events(RebalanceStarted)][-1] == ("operator", "B")


def test_an_operator_asks_for_a_new_plan():
    c = two()
    c.passes(1_000)
    answer = c.sends(RebalanceGroup, reason="test")
    assert (answer.generation_id, c.state) == (4, "Reconciling 4 4")
    c.plays("A 3 -> 4\nB 3 -> 4\n= Stable 4 4")


def test_a_group_with_members_is_not_deleted():
    c = two()
    assert c.sends(DeleteGroup).code == 68
    c.plays("A -1 -> -1\nB -1 -> -1")
    assert c.sends(DeleteGroup).code == 0
    assert c.shard.consumer_group("g") is None


def test_the_record_of_a_group_is_written_again_on_request():
    assert two().sends(RepublishGroup, group=True).records == 1


# -- the classic protocol ----------------------------------------------------------------------------------------------

JOIN: dict[str, Any] = {
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocols": (Protocol("range", subscription("T")),),
    "require_known_member_id": False,
}


def classic_join(c: Conversation) -> None:
    """Start a classic group with a parked join."""
    c.steps_join(JOIN)


def test_new_classic_member_gets_its_id_before_its_metadata_is_read():
    """KIP-394. The join with that id is refused."""
    c = Conversation().plays("T:1\nA 0 -> 2 {0}")
    broken = JOIN | {"protocols": (Protocol("range", b""),), "require_known_member_id": True}
    answer = c.sends(JoinGroup, member_id="", **broken)
    assert answer.code == 79
    assert c.sends(JoinGroup, member_id=answer.member_id, **broken).code == 23


def test_no_protocols_are_mixed_if_the_policy_says_so():
    """`group_consumer_migration_policy=disabled`: the first members decide."""
    c = Conversation(group_consumer_migration_policy="disabled").plays("T:1\nA 0 -> 2 {0}")
    answer = c.sends(JoinGroup, member_id="", **JOIN)
    assert (answer.code, answer.generation_id) == (23, -1)
    assert c.sends(SyncGroup, member_id="A", generation_id=2).code == 25
    assert c.sends(Heartbeat, member_id="A", generation_id=2).code == 25
    c.group_id = "h"
    classic_join(c)
    c.plays("A 0 -> 69\nA 3 -> 69\nA -1 -> 69")


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets():
    """next-generation.md 8.1: epochs and generations begin anew."""
    c = Conversation(group_initial_rebalance_delay_ms=0).plays("T:1\nA 0 -> 2 {0}")
    assert commit(c, "A", 2) == 0
    c.plays("A -1 -> -1\n= Empty 3 3")
    answer = c.sends(JoinGroup, member_id="", **JOIN)
    assert (answer.code, answer.generation_id) == (0, 1)
    assert c.shard.group("g") is not None
    c.sends(LeaveGroup, members=(Leaving(answer.member_id),))
    c.plays("A 2 -> 69\nA 0 -> 2 {0}\n= Stable 2 2")
    fetched = c.sends(OffsetFetch, topics=None)
    assert [(p.topic, p.partition, p.offset) for p in fetched.partitions] == [("T", 0, 7)]
    assert [(e.group_type, e.generation_before) for e in c.events(GroupConverted)] == [("classic", 3), ("consumer", 2)]


def test_a_refused_heartbeat_does_not_change_the_protocol():
    c = Conversation(group_initial_rebalance_delay_ms=0)
    answer = c.sends(JoinGroup, member_id="", **JOIN)
    c.sends(LeaveGroup, members=(Leaving(answer.member_id),))
    c.plays("A 0 by none -> 112")
    assert c.sends(ConsumerGroupHeartbeat, member_id="A", rebalance_timeout_ms=-1).code == 42
    assert c.shard.group("g") is not None


def test_a_description_has_partitions_that_are_being_given_up():
    """Also those of a topic that no member subscribes to any more. A topic that does not exist is left out."""
    c = Conversation().plays("""
        T:2
        U:2
        A 0 names T U  -> 2 {T 0 1, U 0 1}
        -- 1000
        A 2 names T    -> 2 {0 1}
    """)
    (member,) = c.sends(ConsumerGroupDescribe).members
    assert sorted((each.topic, each.partitions) for each in member.assignment) == [("T", (0, 1)), ("U", (0, 1))]
    c.plays("A 2 own T 0 1 -> 3")
    (member,) = c.sends(ConsumerGroupDescribe).members
    assert [each.topic for each in member.assignment] == ["T"]
