"""Tests of the refusals of a heartbeat, in the order of the checks (next-generation.md 1.3)."""

from typing import Any

import pytest

from coordinator.consumer import not_found
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.events import EpochFenced
from tests.coordinator.consumer.conversation import Conversation, topic_id

JOIN: dict[str, Any] = {
    "member_id": "A",
    "rebalance_timeout_ms": 30_000,
    "subscribed_topic_names": ("T",),
    "topic_partitions": (),
}
OWNED = (OwnedPartitions(topic_id("T"), (0,)),)

INVALID: dict[str, dict[str, Any]] = {
    "no member id in version 1": JOIN | {"member_id": ""},
    "a blank member id": JOIN | {"member_id": " \t"},
    "no member id after the join": {"member_id": "", "member_epoch": 2, "version": 0},
    "no member id to leave": {"member_id": "", "member_epoch": -1, "version": 0},
    "no group id": JOIN | {"group_id": " "},
    "an empty instance id": JOIN | {"group_instance_id": ""},
    "an instance id of control characters": JOIN | {"group_instance_id": "\0\x1f"},
    "a blank rack": JOIN | {"rack_id": " "},
    "a join without a rebalance timeout": JOIN | {"rebalance_timeout_ms": -1},
    "a join that does not say what it owns": JOIN | {"topic_partitions": None},
    "a join that owns something": JOIN | {"topic_partitions": OWNED},
    "a join without a subscription": JOIN | {"subscribed_topic_names": None},
    "an epoch below -2": {"member_id": "A", "member_epoch": -3},
    "away for a while without an instance id": {"member_id": "A", "member_epoch": -2},
}


@pytest.mark.parametrize("fields", INVALID.values(), ids=INVALID)
def test_an_invalid_heartbeat_is_refused(fields: dict[str, Any]):
    """INVALID_REQUEST, and no group is founded."""
    c = Conversation()
    answer = c.sends(ConsumerGroupHeartbeat, **fields)
    assert (answer.code, answer.member_id, answer.member_epoch) == (42, None, 0)
    assert c.shard.consumer_group("g") is None


def test_only_the_spaces_of_java_are_blank():
    """`String.trim` keeps an ideographic space."""
    c = Conversation()
    assert c.sends(ConsumerGroupHeartbeat, **JOIN | {"group_instance_id": "\u3000"}).code == 0


@pytest.mark.parametrize("assignor", ["", "sticky", "Uniform"])
def test_an_unknown_assignor_is_refused(assignor: str):
    c = Conversation()
    assert c.sends(ConsumerGroupHeartbeat, **JOIN, server_assignor=assignor).code == 112


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_group_that_does_not_exist_is_not_found(epoch: int):
    c = Conversation()
    answer = c.sends(ConsumerGroupHeartbeat, member_id="A", member_epoch=epoch)
    assert (answer.code, answer.error_message) == (69, not_found.NOT_OF_CONSUMERS)
    assert c.shard.is_blank


def test_a_full_group_takes_no_other_member():
    c = Conversation(group_consumer_max_size=2).plays("""
        T:4
        A 0     -> 2 {0 1 2 3}
        B(i) 0  -> 2 {}
        C 0     -> 81
        C 2     -> 81
        C(i) 0  -> 111
        C(j) 0  -> 81
        B(i) -2 -> -2
        C(i) 0  -> 2 {}
        A 0     -> 2 {0 1 2 3}
        D -1    -> 25
    """)
    assert list(c.group.members) == ["A", "C"], "C took the place of B"


def test_an_unknown_member_is_refused():
    Conversation().plays("""
        T:4
        A(i) 0 -> 2 {0 1 2 3}
        B 2    -> 25
        B(i) 2 -> 82
        A(j) 2 -> 25
        B(i) -1 -> 82
        B(j) -1 -> 25
        B(j) -2 -> 25
        B(i) -2 -> 82
        A 2    -> 2
    """)


def test_the_place_of_a_living_static_member_is_taken_by_nobody():
    """UNRELEASED_INSTANCE_ID, also for the member's own id: its first answer may be lost."""
    c = Conversation().plays("""
        T:4
        A(i) 0 -> 2 {0 1 2 3}
        B(i) 0 -> 111
        A(i) 0 -> 111
        A(i) 2 -> 2
    """)
    assert list(c.group.members) == ["A"]


def test_an_epoch_that_is_not_the_members_is_fenced():
    """FENCED_MEMBER_EPOCH: above it, far below it, or below it without the partitions that it owns."""
    c = Conversation().plays("""
        T:4
        A 0              -> 2 {0 1 2 3}
        A 3              -> 110
        A 1              -> 110
        -- 1000
        B 0              -> 3 {}
        A 2              -> 2 {0 1}
        A 2 own 0 1      -> 3
        A 2              -> 110
        A 2 own 0 1 2    -> 110
        A 2 own 0 U 0    -> 110
        A 2 own 0        -> 3
        A 2 own 0 1 full -> 3 {0 1}
    """)
    assert [(e.error, e.claimed_epoch, e.member_epoch) for e in c.events(EpochFenced)] == [
        ("FENCED_MEMBER_EPOCH", 3, 2),
        ("FENCED_MEMBER_EPOCH", 1, 2),
        ("FENCED_MEMBER_EPOCH", 2, 3),
        ("FENCED_MEMBER_EPOCH", 2, 3),
        ("FENCED_MEMBER_EPOCH", 2, 3),
    ]


def test_a_static_member_that_was_replaced_is_fenced():
    """FENCED_INSTANCE_ID: the event has the epoch of the member that has the instance id now."""
    c = Conversation().plays("""
        T:4
        A(i) 0   -> 2 {0 1 2 3}
        A(i) -2  -> -2
        B(i) 0   -> 2 {0 1 2 3}
        A(i) 2   -> 82
        A(i) -1  -> 82
        A 2      -> 25
    """)
    assert [
        (e.member_id, e.group_instance_id, e.client_id, e.error, e.claimed_epoch, e.member_epoch)
        for e in c.events(EpochFenced)
    ] == [
        ("A", "i", "client-A", "FENCED_INSTANCE_ID", 2, 2),
        ("A", "i", "client-A", "FENCED_INSTANCE_ID", -1, 2),
    ]


def test_a_refused_heartbeat_does_not_renew_the_session():
    c = Conversation(group_consumer_session_timeout_ms=10_000).plays("T:4\nA 0 -> 2 {0 1 2 3}")
    before = c.group.hot_state.sessions["A"].deadline_ms
    c.plays("-- 100\nA 7 -> 110")
    assert c.group.hot_state.sessions["A"].deadline_ms == before
    c.plays("A 2 -> 2")
    assert c.group.hot_state.sessions["A"].deadline_ms == before + 100


def test_a_pattern_that_does_not_compile_is_refused():
    """INVALID_REGULAR_EXPRESSION, with the sentence of the compiler. The group is not founded by it."""
    c = Conversation()
    fields = JOIN | {"subscribed_topic_names": None, "subscribed_topic_regex": "(", "regex_error": "missing )"}
    answer = c.sends(ConsumerGroupHeartbeat, **fields)
    assert (answer.code, answer.error_message) == (128, "missing )")
    assert c.shard.is_blank
    c.plays("T:4\nA 0 -> 2 {0 1 2 3}")
    assert c.sends(ConsumerGroupHeartbeat, **fields | {"member_id": "B"}).code == 128
    assert list(c.group.members) == ["A"]


def test_a_member_without_an_id_gets_one_in_version_0():
    """A repeat of the request gets the same id. The same request to another group gets another one."""
    c = Conversation().plays("T:4")
    answer = c.sends(ConsumerGroupHeartbeat, **JOIN | {"member_id": "", "version": 0})
    assert answer.code == 0
    assert answer.member_id in c.group.members
    assert len(answer.member_id) >= 22
    other = Conversation()
    other.group_id = "h"
    assert other.sends(ConsumerGroupHeartbeat, **JOIN | {"member_id": "", "version": 0}).member_id != answer.member_id


def test_every_error_has_a_sentence():
    """Kafka's response has one beside each error, and clients print it."""
    c = Conversation().plays("""
        T:4
        A 0     -> 2 {0 1 2 3}
        S(i) 0  -> 2 {}
    """)
    refused: dict[int, dict[str, Any]] = {
        42: {"member_id": "A", "member_epoch": -3},
        112: JOIN | {"server_assignor": "sticky"},
        25: {"member_id": "B", "member_epoch": 1},
        82: {"member_id": "A", "member_epoch": 2, "group_instance_id": "i"},
        111: JOIN | {"group_instance_id": "i"},
        110: {"member_id": "A", "member_epoch": 9},
        128: JOIN | {"member_id": "B", "subscribed_topic_regex": "(", "regex_error": "missing )"},
    }
    answers = {code: c.sends(ConsumerGroupHeartbeat, **fields) for code, fields in refused.items()}
    assert {code: answer.code for code, answer in answers.items()} == {code: code for code in refused}
    assert all(answer.error_message for answer in answers.values())
    assert answers[128].error_message == "missing )"
