"""Reading and writing of the bytes that consumers exchange through the coordinator (protocol.md 7.6)."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from coordinator.base.consumer_protocol import (
    Subscription,
    assigned_partitions,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
    write_subscription,
)
from coordinator.messages.requests import Protocol
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
    """S33: the topics of the example subscriptions are read."""
    assert subscribed_topics(metadata) == ["foo"]


def test_example_of_an_assignment():
    """S35: the partitions of the example assignment are read."""
    assert assigned_partitions(ASSIGNMENT_V3) == {"foo": [0, 1]}


@given(topics, st.integers(0, 9), st.binary(max_size=9))
def test_written_assignments_are_read(partitions: dict[str, list[int]], version: int, rest: bytes):
    """S33, S35: the known fields of a higher version are read, extra bytes are ignored."""
    assert assigned_partitions(assignment(partitions, version=version, rest=rest)) == partitions
    assert subscribed_topics(subscription(list(partitions), version=version, rest=rest)) == list(partitions)


@pytest.mark.parametrize("length", range(len(SUBSCRIPTION_V0) - 4))
def test_a_subscription_that_ends_too_soon_is_none(length: int):
    """This includes a subscription that announces more topics than it has (protocol.md 2.3)."""
    assert subscribed_topics(SUBSCRIPTION_V0[:length]) is None


@pytest.mark.parametrize("length", range(1, len(ASSIGNMENT_V3) - 4))
def test_an_assignment_that_ends_too_soon_is_none(length: int):
    assert assigned_partitions(ASSIGNMENT_V3[:length]) is None


def test_user_data_may_be_missing():
    assert subscribed_topics(SUBSCRIPTION_V0[:-4]) == ["foo"]
    assert assigned_partitions(ASSIGNMENT_V3[:-4]) == {"foo": [0, 1]}


def test_no_bytes_are_no_partitions():
    """The assignment of a member that the leader left out is empty (W7)."""
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
def test_hostile_bytes_are_none_and_take_no_memory(data: bytes):
    assert subscribed_topics(data) is None
    assert assigned_partitions(data) is None


def test_hostile_partition_counts_are_none():
    assert assigned_partitions(pack(">hi", 0, 1) + text("t") + pack(">i", 2**31 - 1)) is None
    assert assigned_partitions(pack(">hi", 0, 1) + text("t") + pack(">i", -1)) is None


@given(st.binary(max_size=40))
def test_no_bytes_at_all_raise(data: bytes):
    assert subscribed_topics(data) is None or all(isinstance(t, str) for t in subscribed_topics(data) or ())
    assert assigned_partitions(data) is None or isinstance(assigned_partitions(data), dict)


def test_a_group_with_one_unreadable_subscription_may_read_any_topic():
    """S33; protocol.md 2.3: then the offsets of every topic stay."""
    s = Scenario(delay_ms=3_000, offsets_retention_ms=5_000)
    s.join("a", topics=["t"], session_timeout_ms=60_000)
    s.join("b", protocols_as_they_are=(Protocol("range", b"\x00"),), session_timeout_ms=60_000).until(6_000)
    s.sync("a", plan={}).sync("b").is_("Stable")
    assert s.group.subscribed_topics is None
    s.commit("a", {("elsewhere", 0): 1}).until(30_000).fetch("a")
    assert [f.offset for f in s.said.partitions] == [1]


def test_a_group_of_another_type_reads_no_topics():
    """protocol.md 2.3: a group of another type subscribes to no topics, and no offset expires while it is not Empty."""
    s = Scenario(offsets_retention_ms=5_000).join("a", protocol_type="connect", session_timeout_ms=60_000)
    s.sync("a", plan={"a": b"opaque"}).commit("a", {("t", 0): 1}).until(30_000).fetch("a")
    assert [f.offset for f in s.said.partitions] == [1]
    assert s.group.subscribed_topics is None
    assert not s.group.subscribes("t")


# -- the members' side -------------------------------------------------------------------------------------------------

OWNS_FOO = Subscription(("foo",), None, {"foo": [0, 1]}, 5, None)

subscriptions = st.builds(
    Subscription,
    topics=st.sets(st.text(max_size=9), max_size=4).map(lambda each: tuple(sorted(each))),
    user_data=st.none() | st.binary(max_size=9),
    owned=st.dictionaries(st.text(max_size=9), st.lists(st.integers(0, 2**31 - 1), max_size=4).map(sorted), max_size=4),
    generation_id=st.integers(-1, 2**31 - 1),
    rack_id=st.none() | st.text(max_size=9),
)


def in_version(version: int, subscription: Subscription) -> Subscription:
    """Return the part of a subscription that an older version has."""
    fields = (subscription.topics, subscription.user_data, subscription.owned, subscription.generation_id)
    return Subscription(*fields[: version + 2], *([subscription.rack_id] if version >= 3 else []))


def test_examples_are_written_and_read():
    assert write_subscription(OWNS_FOO) == SUBSCRIPTION_V3
    assert write_subscription(OWNS_FOO, 0) == SUBSCRIPTION_V0
    assert read_subscription(SUBSCRIPTION_V3) == OWNS_FOO
    assert read_subscription(SUBSCRIPTION_V0) == Subscription(("foo",))
    assert write_assignment({"foo": [0, 1]}) == ASSIGNMENT_V3


def test_topics_and_partitions_are_written_in_order():
    """So a member that joins again with the same subscription sends equal bytes."""
    jumbled = Subscription(("b", "a"), None, {"b": [1, 0], "a": [2]})
    assert write_subscription(jumbled) == write_subscription(Subscription(("a", "b"), None, {"a": [2], "b": [0, 1]}))
    assert write_assignment({"b": [1, 0], "a": [2]}) == write_assignment({"a": [2], "b": [0, 1]})


@given(subscriptions, st.integers(0, 3), st.binary(max_size=5))
def test_a_subscription_that_was_written_is_read(subscription: Subscription, version: int, rest: bytes):
    data = write_subscription(subscription, version)
    assert read_subscription(data + rest) == in_version(version, subscription)
    assert subscribed_topics(data) == list(subscription.topics)


@given(subscriptions, st.integers(4, 2**15 - 1), st.binary(max_size=5))
def test_known_fields_of_a_newer_version_are_read(subscription: Subscription, version: int, rest: bytes):
    data = pack(">h", version) + write_subscription(subscription)[2:] + rest
    assert read_subscription(data) == subscription


@given(topics, st.none() | st.binary(max_size=9), st.integers(0, 3))
def test_an_assignment_that_was_written_is_read(
    partitions: dict[str, list[int]], user_data: bytes | None, version: int
):
    read = assigned_partitions(write_assignment(partitions, user_data, version))
    assert read == {topic: sorted(numbers) for topic, numbers in partitions.items()}


@pytest.mark.parametrize("length", range(len(SUBSCRIPTION_V3)))
def test_a_subscription_that_ends_too_soon_raises(length: int):
    with pytest.raises(ValueError, match="ends too early"):
        read_subscription(SUBSCRIPTION_V3[:length])


@pytest.mark.parametrize("data", [*HOSTILE.values(), b"\xff\xff"], ids=[*HOSTILE, "a version below zero"])
def test_hostile_bytes_raise_for_members(data: bytes):
    with pytest.raises(ValueError):  # noqa: PT011  (the messages differ)
        read_subscription(data)


def test_a_topic_that_occurs_twice_has_the_partitions_of_both():
    owned = pack(">i", 2) + 2 * (text("t") + pack(">ii", 1, 0)) + pack(">ih", -1, -1)
    assert read_subscription(subscription(["t"], version=3, rest=pack(">i", -1) + owned)).owned == {"t": [0, 0]}


def test_an_assignment_is_read_with_its_user_data():
    assert read_assignment(ASSIGNMENT_V3) == ({"foo": [0, 1]}, b"")
    assert read_assignment(write_assignment({"foo": [1]}, b"data")) == ({"foo": [1]}, b"data")
    assert read_assignment(b"") == ({}, b"")


@pytest.mark.parametrize("length", range(1, len(ASSIGNMENT_V3)))
def test_an_assignment_that_ends_too_soon_raises(length: int):
    with pytest.raises(ValueError, match="ends too early"):
        read_assignment(ASSIGNMENT_V3[:length])


def test_a_message_names_the_version_or_the_end():
    with pytest.raises(ValueError, match=r"^a version below zero: -1$"):
        read_subscription(b"\xff\xff")
    with pytest.raises(ValueError, match=r"^it ends too early$"):
        read_subscription(b"\0")


@pytest.mark.parametrize("version", [-1, 4])
def test_there_is_no_such_version(version: int):
    with pytest.raises(AssertionError, match=f"^there is no version {version}$"):
        write_subscription(OWNS_FOO, version)
    with pytest.raises(AssertionError, match=f"^there is no version {version}$"):
        write_assignment({}, version=version)


def test_lengths_below_minus_one_are_refused():
    """-1 stands for null. The user data and the rack may be null."""
    with pytest.raises(ValueError, match=r"^a length in it is below zero$"):
        read_subscription(pack(">hii", 0, 0, -2))
    with pytest.raises(ValueError, match="a length in it is below zero"):
        read_subscription(pack(">hiiiih", 3, 0, -1, 0, -1, -2))
    assert read_subscription(pack(">hiiiih", 3, 0, -1, 0, -1, -1)) == Subscription(())
    assert read_subscription(pack(">hiiiih", 3, 0, 0, 0, -1, 0)) == Subscription((), b"", {}, -1, "")


def test_a_count_beyond_the_data_is_named():
    """The count is checked before anything of the list is read."""
    with pytest.raises(ValueError, match=r"^it ends too early: a count is beyond the data$"):
        read_subscription(pack(">hi", 0, 3) + 5 * b"\0")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_count_is_at_most_what_the_data_have_room_for(count: int):
    """Two bytes for an empty name, and six for a topic without partitions."""
    names = pack(">hi", 0, count) + count * pack(">h", 0)
    assert subscribed_topics(names) == [""] * count
    assert subscribed_topics(names[:-1]) is None
    owned = pack(">hi", 0, count) + count * pack(">hi", 0, 0)
    assert assigned_partitions(owned) == {"": []}
    assert assigned_partitions(owned[:-1]) is None


# -- kafka-python ------------------------------------------------------------------------------------------------------


@given(subscriptions, st.integers(0, 3))
def test_subscriptions_are_those_of_kafka_python(subscription: Subscription, version: int):
    """Protocol.md 7.6: each side reads the other's bytes, and both write the same bytes."""
    data = write_subscription(subscription, version)
    theirs = ConsumerProtocolSubscription.decode(data)
    assert theirs.topics == list(subscription.topics)
    assert theirs.user_data == subscription.user_data
    assert theirs.encode() == data
    if version >= 1:
        assert {each.topic: each.partitions for each in theirs.owned_partitions} == subscription.owned
    if version >= 2:
        assert theirs.generation_id == subscription.generation_id
    if version >= 3:
        assert theirs.rack_id == subscription.rack_id


@given(topics, st.none() | st.binary(max_size=9), st.integers(0, 3))
def test_assignments_are_those_of_kafka_python(partitions: dict[str, list[int]], user_data: bytes | None, version: int):
    data = write_assignment(partitions, user_data, version)
    theirs = ConsumerProtocolAssignment.decode(data)
    assert dict(theirs.assigned_partitions) == assigned_partitions(data)
    assert (theirs.user_data, theirs.encode()) == (user_data, data)
