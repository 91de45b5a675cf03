"""Tests of the target assignment: its time, its assignor and its input (next-generation.md 2.6)."""

import pytest

from coordinator.assignors.server import GroupSpec, MemberSpec
from coordinator.consumer import publish, target_assignment
from coordinator.messages.consumer_requests import GroupTopics, TopicFact
from coordinator.messages.events import PlanMade, RebalanceStarted
from coordinator.messages.group_records import GroupRecord, Published
from tests.coordinator.consumer.conversation import START_MS, Conversation, topic_id
from tests.coordinator.consumer.test_members import two
from tests.coordinator.consumer.test_mixed import Mixed


def causes(c: Conversation) -> list[str]:
    return [e.cause for e in c.events(RebalanceStarted)]


# -- the assignor ------------------------------------------------------------------------------------------------------


def test_vote_for_another_assignor_raises_the_epoch():
    """next-generation.md 2.4: if the members now vote for another one than that of the latest target assignment."""
    c = two().plays("-- 1000\nA 3 by range -> 4\n= Reconciling 4 4\nB 3 -> 4\n= Stable 4 4")
    assert (c.group.assignor, causes(c)[-1]) == ("range", "assignor_changed")
    c.plays("-- 1000\nA 4 by range -> 4\n= Stable 4 4")
    assert causes(c).count("assignor_changed") == 1


def test_tied_vote_of_a_request_raises_the_epoch():
    """The assignor that the request names wins."""
    c = two().plays("-- 1000\nA 3 by uniform -> 3\nB 3 by range -> 4")
    assert (c.group.assignor, causes(c)[-1]) == ("range", "assignor_changed")


def test_vote_for_the_present_assignor_raises_no_epoch():
    c = two().plays("-- 1000\nA 3 by uniform -> 3\n= Stable 3 3")
    assert "assignor_changed" not in causes(c)


def test_vote_of_a_minority_raises_no_epoch():
    c = two().plays("A 3 by uniform -> 3\nC 0 by uniform -> 3 {}\n-- 1000\nB 3 by range -> 3 {2}")
    assert (c.group.assignor, c.state) == ("uniform", "Reconciling 4 4")


def test_vote_before_the_first_target_assignment_raises_no_epoch():
    c = Conversation().plays("A 0 names none -> 1 {}\nA 1 by range -> 1\n= Stable 1 1")
    assert causes(c) == []


def test_vote_that_is_not_configured_any_more_does_not_count():
    """A restart may take an assignor away from the setting."""
    c = Conversation().plays("T:1\nA 0 by range -> 2 {0}")
    assert c.group.members["A"].assignor == "range"
    other = Conversation(group_consumer_assignors=("uniform",))
    c.config, c._living = other.config, other.new_shard(c.shard.to_bytes())
    c.plays("-- 1000\nB 0 -> 3 {}")
    assert c.group.assignor == "uniform"


# -- when --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passed_ms", "epoch"), [(999, 2), (1_000, 3)])
def test_target_assignment_waits_for_the_interval(passed_ms: int, epoch: int):
    Conversation().plays(f"T:4\nA 0 -> 2 {{0 1 2 3}}\n-- {passed_ms}\nB 0 -> {epoch} {{}}")


def test_first_target_assignment_waits_for_nothing():
    c = Conversation(group_consumer_assignment_interval_ms=15_000).plays("T:1\nA 0 -> 2 {0}\n= Stable 2 2")
    assert [(e.at_ms, e.waited_ms) for e in c.events(PlanMade)] == [(START_MS, 0)]
    assert c.group.assignment_ms == START_MS


def test_deadline_of_a_target_assignment_is_not_moved_by_further_changes():
    c = two().plays("-- 400\nC 0 -> 3 {}")
    assert c.group.hot_state.plan_ms == START_MS + 2_000
    c.plays("-- 400\nD 0 -> 3 {}")
    assert c.group.hot_state.plan_ms == START_MS + 2_000
    c.plays("-- 199\n= Assigning 5 3\n-- 1\n= Reconciling 5 5")
    (latest,) = c.events(PlanMade)[2:]
    assert (latest.at_ms, latest.waited_ms, latest.members) == (START_MS + 2_000, 600, 4)


def test_deadline_of_a_late_change_is_now():
    """A member leaves long after the latest target assignment: the next step computes one."""
    c = two().plays("-- 5000\nB -1 -> -1")
    assert c.state == "Reconciling 4 4"
    assert c.events(PlanMade)[-1].at_ms == c.now_ms


# -- the input ---------------------------------------------------------------------------------------------------------


def test_moved_partitions_are_those_that_were_not_in_the_members_target():
    c = two().plays("-- 1000\nC 0 -> 4 {}")
    assert [(e.members, e.partitions, e.moved) for e in c.events(PlanMade)] == [(1, 4, 4), (2, 4, 2), (3, 4, 1)]


def test_moved_partitions_of_all_members_are_counted():
    c = two().plays("-- 1000\nT:6")
    c.tells_topics("T")
    assert c.events(PlanMade)[-1].moved == 2


def test_an_assignor_is_given_the_members_and_the_existing_topics():
    c = Conversation().plays("T:1\nU:2\nA(i) 0 names T U X -> 2 {T 0, U 0 1}\nB 0 names T U X -> 2 {}")
    topic_ids = frozenset([topic_id("T"), topic_id("U")])
    assert target_assignment._spec(c.group) == GroupSpec(
        members=[
            MemberSpec("A", "i", topic_ids, {topic_id("T"): [0], topic_id("U"): [0, 1]}),
            MemberSpec("B", None, topic_ids, {}),
        ],
        partitions={topic_id("T"): 1, topic_id("U"): 2},
        names={topic_id("T"): "T", topic_id("U"): "U"},
        is_homogeneous=True,
        names_subscribed=3,
    )


@pytest.mark.parametrize(
    ("a", "b", "is_homogeneous"),
    [
        ("names T", "names T", True),
        ("names none regex .* = T", "names none regex .* = T", True),
        ("names T", "names T U", False),
        ("names T", "names none regex .* = T", False),
        ("names T regex .* = T", "names T regex .* = T", False),
    ],
)
def test_subscription_type(a: str, b: str, is_homogeneous: bool):
    """next-generation.md 2.5."""
    c = Conversation().plays(f"T:1\nU:1\nA 0 {a} -> 2 {{0}}")
    c.says(f"B 0 {b}")
    assert target_assignment._spec(c.group).is_homogeneous is is_homogeneous


def test_members_with_one_pattern_are_planned_as_members_with_the_same_names():
    """next-generation.md 2.5: the subscription type chooses the algorithm; both are homogeneous."""
    by_names, by_pattern = Conversation(), Conversation()
    for c, joins in ((by_names, "names T U"), (by_pattern, "regex .* = T U")):
        c.plays(f"T:3\nU:3\nA 0 {joins} -> 2 {{T 0 1 2, U 0 1 2}}")
        c.says(f"B 0 {joins}")
        c.says(f"C 0 {joins}")
        c.passes(1_000)
    assert by_pattern.group.targets == by_names.group.targets


def test_partitions_beyond_a_topic_that_came_back_smaller_are_in_no_target():
    c = Conversation().plays("T:3\nU:2\nA 0 names T U -> 2 {T 0 1 2, U 0 1}")
    c.sends(GroupTopics, topics=(TopicFact("T"),))
    c.sends(GroupTopics, topics=(TopicFact("T", topic_id("T"), 2),))
    c.plays("-- 1000")
    assert c.group.targets == {"A": {topic_id("T"): [0, 1], topic_id("U"): [0, 1]}}
    assert c.events(PlanMade)[-1].moved == 0


# -- the record, at a bounded rate -------------------------------------------------------------------------------------


def records(c: Conversation) -> list[int]:
    """Return the times at which the group's record was written, since the start."""
    steps: list[int] = []
    for output in c.latest:
        if isinstance(output, Published) and isinstance(output.record, GroupRecord):
            steps.append(c.group.published_ms - START_MS)
    return steps


def test_large_record_is_written_by_a_deadline(monkeypatch: pytest.MonkeyPatch):
    """The size counts members, partitions with an owner or a target, and subscriptions."""
    monkeypatch.setattr(publish, "PUBLISH_BYTES_FREE", 0)
    monkeypatch.setattr(publish, "PUBLISH_BYTES_PER_S", 100)
    c = Conversation().plays("T:4\nA 0 -> 2 {0 1 2 3}")
    size = 500 + 12 * (4 + 4) + 2 * 2
    assert records(c) == [0], "the first record was never written before"
    c.plays("A 2 names T U -> 2")
    assert records(c) == []
    size += 2 * 2
    due_ms = START_MS + size * 1_000 // 100
    assert c.group.hot_state.publish_ms == due_ms
    c.plays("-- 1000\nA 2 -> 3")
    assert (records(c), c.group.hot_state.publish_ms) == ([], due_ms), "a later change does not move the deadline"
    c.passes(due_ms - c.now_ms - 1)
    assert records(c) == []
    c.passes(1)
    assert records(c) == [due_ms - START_MS]
    assert c.group.hot_state.publish_ms > c.now_ms + 1_000_000


def test_small_record_is_written_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(publish, "PUBLISH_BYTES_FREE", 500 + 12 * 2 + 2 * 2)
    monkeypatch.setattr(publish, "PUBLISH_BYTES_PER_S", 1)
    c = Conversation().plays("T:1\nA 0 -> 2 {0}\nA 2 regex a -> 2")
    assert records(c) == []
    c = Conversation().plays("T:1\nA 0 -> 2 {0}\nA(i) 0 -> 2 {0}")
    assert records(c) == [0]


def test_topics_of_patterns_count_for_the_size_of_the_record(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(publish, "PUBLISH_BYTES_FREE", 0)
    monkeypatch.setattr(publish, "PUBLISH_BYTES_PER_S", 1_000)
    c = Conversation().plays("A 0 names none regex a = abc -> 2 {}\nA(i) 0 -> 2 {}\nA(j) 0 names none -> 2 {}")
    assert c.group.hot_state.publish_ms == START_MS + 500 + 2 * 1 + 4


def test_classic_member_that_waits_is_told_when_all_its_partitions_are_free():
    """A member of the consumer protocol is told for each of them."""
    c = Mixed()
    c.plays("T:4\nA 0 -> 2 {0 1 2 3}\n-- 1000")
    c.joins("C")
    c.plays("A 2 -> 2 {0 1}\nA 2 own 0 1 2 -> 2")
    assert [o.to for o in c.latest if getattr(o, "to", "") == "box-C"] == []
    c.plays("A 2 own 0 1 -> 3")
    assert [o.to for o in c.latest if getattr(o, "to", "") == "box-C"] == ["box-C"]
