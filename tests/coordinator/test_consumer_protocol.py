"""Reading what consumers send each other through the coordinator (protocol.md 7.6)."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.consumer_protocol import assigned_partitions, subscribed_topics
from coordinator.requests import Protocol
from tests.coordinator.scenario import Scenario
from tests.coordinator.wire import assignment, subscription, text

SUBSCRIPTION_V3 = bytes.fromhex(
    "0003 00000001 0003666f6f ffffffff 00000001 0003666f6f 00000002 00000000 00000001 00000005 ffff"
)
SUBSCRIPTION_V0 = bytes.fromhex("0000 00000001 0003666f6f ffffffff")
ASSIGNMENT_V3 = bytes.fromhex("0003 00000001 0003666f6f 00000002 00000000 00000001 ffffffff")

topics = st.dictionaries(st.text(max_size=20), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), max_size=5)


@pytest.mark.parametrize("metadata", [SUBSCRIPTION_V0, SUBSCRIPTION_V3], ids=["v0", "v3"])
def test_examples_of_subscriptions(metadata: bytes):
    """S33."""
    assert subscribed_topics(metadata) == ["foo"]


def test_example_of_an_assignment():
    """S35."""
    assert assigned_partitions(ASSIGNMENT_V3) == {"foo": [0, 1]}


@given(topics, st.integers(0, 9), st.binary(max_size=9))
def test_whatever_is_written_is_read(partitions: dict[str, list[int]], version: int, rest: bytes):
    """S33, S35: a higher version is read as far as it is known, extra bytes are ignored."""
    assert assigned_partitions(assignment(partitions, version=version, rest=rest)) == partitions
    assert subscribed_topics(subscription(list(partitions), version=version, rest=rest)) == list(partitions)


@pytest.mark.parametrize("length", range(len(SUBSCRIPTION_V0) - 4))
def test_a_subscription_that_ends_too_soon_is_none(length: int):
    """Also one that announces more topics than it has bytes, which Kafka never answers (protocol.md 2.3)."""
    assert subscribed_topics(SUBSCRIPTION_V0[:length]) is None


@pytest.mark.parametrize("length", range(1, len(ASSIGNMENT_V3) - 4))
def test_an_assignment_that_ends_too_soon_is_none(length: int):
    assert assigned_partitions(ASSIGNMENT_V3[:length]) is None


def test_user_data_may_be_missing():
    assert subscribed_topics(SUBSCRIPTION_V0[:-4]) == ["foo"]
    assert assigned_partitions(ASSIGNMENT_V3[:-4]) == {"foo": [0, 1]}


def test_no_bytes_are_no_partitions():
    """What a member has that the plan left out (W7)."""
    assert assigned_partitions(b"") == {}


HOSTILE = {
    "two thousand million topics": pack(">hi", 0, 2**31 - 1),
    "a count below zero": pack(">hi", 0, -1),
    "a length below zero": pack(">hih", 0, 1, -1),
    "a length beyond the data": pack(">hih", 0, 1, 2**15 - 1) + b"x",
    "not UTF-8": pack(">hih", 0, 1, 2) + b"\xff\xfe" + pack(">i", 0),
    "half a surrogate pair": pack(">hih", 0, 1, 3) + b"\xed\xa0\xbd" + pack(">i", 0),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_none_and_cost_nothing(data: bytes):
    assert subscribed_topics(data) is None
    assert assigned_partitions(data) is None


def test_hostile_partition_counts_are_none():
    assert assigned_partitions(pack(">hi", 0, 1) + text("t") + pack(">i", 2**31 - 1)) is None
    assert assigned_partitions(pack(">hi", 0, 1) + text("t") + pack(">i", -1)) is None


@given(st.binary(max_size=40))
def test_no_bytes_at_all_raise(data: bytes):
    assert subscribed_topics(data) is None or all(isinstance(t, str) for t in subscribed_topics(data) or ())
    assert assigned_partitions(data) is None or isinstance(assigned_partitions(data), dict)


def test_a_group_with_one_unreadable_subscription_may_be_reading_anything():
    """S33; protocol.md 2.3: then the offsets of every topic are kept."""
    s = Scenario(delay_ms=3_000, offsets_retention_ms=5_000)
    s.join("a", topics=["t"], session_timeout_ms=60_000)
    s.join("b", protocols_as_they_are=(Protocol("range", b"\x00"),), session_timeout_ms=60_000).until(6_000)
    s.sync("a", plan={}).sync("b").is_("Stable")
    assert s.group.subscribed_topics is None
    s.commit("a", {("elsewhere", 0): 1}).until(30_000).fetch("a")
    assert [f.offset for f in s.said.partitions] == [1]


def test_a_group_of_another_type_reads_no_topics():
    """protocol.md 2.3: "none" with another type is none subscribed, and nothing expires while it is not Empty."""
    s = Scenario(offsets_retention_ms=5_000).join("a", protocol_type="connect", session_timeout_ms=60_000)
    s.sync("a", plan={"a": b"opaque"}).commit("a", {("t", 0): 1}).until(30_000).fetch("a")
    assert [f.offset for f in s.said.partitions] == [1]
    assert s.group.subscribed_topics is None
    assert not s.group.subscribes("t")
