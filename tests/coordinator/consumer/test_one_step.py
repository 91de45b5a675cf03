"""Tests of many requests in one step. The group is decoded once, so its caches have to follow every change."""

import pytest

from coordinator.base.consumer_protocol import Subscription, write_subscription
from coordinator.consumer import checks, classic_members
from coordinator.messages.consumer_requests import GroupTopics, ResolvedPattern
from coordinator.messages.requests import (
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    Protocol,
    TopicPartitions,
)
from tests.coordinator.consumer.conversation import Conversation
from tests.coordinator.consumer.test_conversations import CONVERSATIONS
from tests.coordinator.consumer.test_mixed import Mixed

TEXTS = CONVERSATIONS | {
    "a member becomes static": """
        T:2
        A 0     -> 2 {0 1}
        A(i) 0  -> 2 {0 1}
        B(i) 0  -> 111
        A(j) 0  -> 2 {0 1}
        B(i) 0  -> 2 {}
        A(j) -2 -> -2
        C(j) 0  -> 2 {0 1}
    """,
    "a topic goes and comes back": """
        T:2
        U:1
        A 0 names T U    -> 2 {T 0 1, U 0}
        A 2 names T      -> 2 {0 1}
        A 2 own T 0 1    -> 2
        -- 1000
        A 2              -> 3
        A 3 names T U    -> 3
        -- 1000
        A 3              -> 4 {T 0 1, U 0}
        = Stable 4 4
    """,
    "partitions are free for the owners of a later target assignment": """
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
        A 3 own 0 1     -> 4
        C 4             -> 4 {2}
        -- 1000
        B -1            -> -1
        A 4             -> 5 {0 1 3}
        C 4             -> 5 {2 4 5}
        = Stable 5 5
    """,
    "a pattern": """
        T:1
        U:1
        A 0 regex .* = T   -> 2 {0}
        A 2 regex .* = T U -> 2
        -- 1000
        A 2                -> 3 {T 0, U 0}
        B 0 regex .*       -> 3 {}
        A -1               -> -1
        -- 1000
        B 3                -> 5 {T 0, U 0}
        B 5 regex          -> 5 {}
    """,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_conversation_in_one_step(text: str):
    Conversation().plays(text).in_one_step()


def test_the_subscriptions_are_bounded_in_one_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "GROUP_SUBSCRIPTIONS_BYTES_MAX", 8)
    Conversation().plays("""
        A 0 names abc    -> 2 {}
        B 0 names abc    -> 2 {}
        A 2 names abcd   -> 81
        A 2 names a      -> 2
        B 2 names abcde  -> 2
        A 2 names ab     -> 81
        B -1             -> -1
        A 2 names abcdefg -> 2
    """).in_one_step()


def test_the_topics_of_patterns_are_bounded_in_one_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "GROUP_RESOLUTIONS_BYTES_MAX", 8)
    c = Conversation().plays("""
        A 0 regex a = abc   -> 2 {}
        B 0 regex b = abc   -> 2 {}
        A 2 regex a = abcd  -> 81
        A 2 regex a = a     -> 2
        B 2 regex b = abcde -> 2
        A 2 regex a = ab    -> 81
        B -1                -> -1
        A 2 regex a = abcdefg -> 2
    """)
    c.in_one_step()


def test_the_metadata_of_classic_members_are_bounded_in_one_step(monkeypatch: pytest.MonkeyPatch):
    metadata = write_subscription(Subscription(("T",)))
    monkeypatch.setattr(classic_members, "GROUP_PROTOCOLS_BYTES_MAX", 3 * len(metadata))
    c = Mixed()
    c.plays("T:1\nA 0 -> 2 {0}")

    def joins(name: str, offers: int) -> int:
        offered = tuple(Protocol(each, metadata) for each in ("range", "x", "y", "z")[:offers])
        return int(c.joins(name, protocols=offered).code)

    assert [joins("P", 2), joins("Q", 2), joins("Q", 1), joins("P", 3)] == [0, 81, 0, 81]
    assert [joins("P", 1), joins("Q", 2), joins("P", 2)] == [0, 0, 81]
    c.plays("Q 2 -> 2")
    assert [joins("P", 3), joins("R", 1)] == [0, 81]
    c.sends(LeaveGroup, members=(Leaving("P"),))
    assert [joins("R", 3), joins("S", 1)] == [0, 81]
    c.in_one_step()


def test_the_offsets_of_topics_that_were_unsubscribed_in_one_step_are_deleted():
    c = Conversation().plays("T:1\nU:1\nA 0 names T U -> 2 {T 0, U 0}\nB 0 regex V = V -> 2 {}")
    offsets = tuple(OffsetToCommit(topic, 0, 7) for topic in "TUV")
    c.sends(OffsetCommit, member_id="A", generation_id=2, offsets=offsets)
    places = tuple(TopicPartitions(topic, (0,)) for topic in "TUV")

    def deletes() -> list[int]:
        return [each.code for each in c.sends(OffsetDelete, topics=places).partitions]

    assert deletes() == [86, 86, 86]
    c.plays("A 2 names T -> 2 {0}")
    assert deletes() == [86, 0, 86]
    c.sends(GroupTopics, regexes=(ResolvedPattern("V", ("U",), "B"),))
    assert deletes() == [86, 86, 0]
    c.plays("A -1 -> -1")
    assert deletes() == [0, 86, 0]
    c.in_one_step()
