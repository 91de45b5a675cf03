"""Tests of the server assignors, with plans that Kafka's own classes have computed."""

from base64 import urlsafe_b64encode
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.assignors.server import SERVER_ASSIGNORS, GroupSpec, MemberSpec, Targets
from coordinator.assignors.server.order import (
    bucket,
    buckets_after_growth,
    buckets_of_copy,
    id_hash,
    partitions_in_order,
    topics_in_order,
)
from coordinator.base.limits import TOPIC_PARTITIONS_MAX
from tests.coordinator.assignors.server.examples import id_of, spec, targets

MANY = "; ".join(f"m{n}" for n in range(13))

UNIFORM = {
    "U1": ("T1:10", "A; B; C", "A T1 0-2; B T1 3-5; C T1 6-9"),
    "U2": ("T1:3 T2:3", "A; B", "A T1 0-2; B T2 0-2"),
    "U3": ("T1:2", "A; B; C", "A; B T1 0; C T1 1"),
    "U5": ("T1:3", "A has T1 0-2; B", "A T1 0 1; B T1 2"),
    "U6": ("T1:6", "A has T1 0-2; B has T1 3-5; C", "A T1 0 1; B T1 3 4; C T1 2 5"),
    "U7": ("T1:7", "A has T1 0-3; B has T1 4-6; C", "A T1 0-2; B T1 4 5; C T1 3 6"),
    "U8": ("T1:6", "A has T1 0 1; C has T1 4 5", "A T1 0-2; C T1 3-5"),
    "U9": ("T1:6", "A has T1 0 1; B has T1 2 3", "A T1 0 1 4; B T1 2 3 5"),
    "U10": ("T1:2 T2:2 T3:1", "A; B", "A T1 0 1; B T2 0 1 T3 0"),
    "U11": ("T1:4 T2:2", "A has T1 0 1 T2 0; B has T1 2 3 T2 1; C", "A T1 0 1; B T1 2 3; C T2 0 1"),
    "U12": ("T1:3", "A has T1 0 T2 0 1; B has T1 1 2", "A T1 0; B T1 1 2"),
    "U13": ("T1:5", "B has T1 0-4; A; C", "A T1 2; B T1 0 1; C T1 3 4"),
    "U15": ("T1:5", "c-9; c-10; c-11", "c-10 T1 0; c-11 T1 1 2; c-9 T1 3 4"),
    "U16": ("T1:22", "A has T1 8-18; B has T1 0-7; C", "A T1 8-12 16-18; B T1 0-6; C T1 7 13-15 19-21"),
    "U18": ("T1:4", "A; B has T1 0-3", "A T1 2 3; B T1 0 1"),
    "U19": ("T1:13", MANY, "; ".join(f"m{n} T1 {n}" for n in range(10)) + "; m11 T1 10; m10 T1 11; m12 T1 12"),
    "U20": (
        "T1:4",
        "zK5RSZulTW-fTyOYbY66UQ; n9KMGkKoQomKwphUru81Fw; PlbNGDZYQpi0y3QjpiywgQ",
        "n9KMGkKoQomKwphUru81Fw T1 0; zK5RSZulTW-fTyOYbY66UQ T1 1; PlbNGDZYQpi0y3QjpiywgQ T1 2 3",
    ),
    "H1": ("T1:3 T2:3", "A{T1}; B{T1 T2}", "A T1 0-2; B T2 0-2"),
    "H2": ("T1:4 T2:4", "A{T1}; B{T1 T2}; C{T2}", "A T1 0 2; B T1 1 3 T2 3; C T2 0-2"),
    "H3": ("T1:2 T2:3 T3:4", "A{T1 T2}; B{T2 T3}; C{T3}", "A T1 0 1 T2 0 2; B T2 1 T3 0 2; C T3 1 3"),
    "H4": ("T1:6 T2:2", "A{T1} has T1 0-5; B{T1 T2}", "A T1 0-3; B T1 4 5 T2 0 1"),
    "H5": ("T1:3 T2:3", "A{T1} has T1 0 1 T2 0 1; B{T1 T2} has T1 2 T2 2", "A T1 0-2; B T2 0-2"),
    "H7": ("T1:6 T2:2", "A{T1}; B{T1}; C{T1 T2}", "A T1 0 2 4; B T1 1 3 5; C T2 0 1"),
    "H9": ("T1:4 T2:2", "A{T1 T2} has T1 0-3 T2 0 1; B{T1}", "A T1 0 T2 0 1; B T1 1-3"),
    "H10": (
        "T1:6 T2:6",
        "A{T1} has T1 0-5; B{T1 T2}; C{T2} has T2 0-5",
        "A T1 0-2; B T1 3-5 T2 5; C T2 0-4",
    ),
    "H11": (
        "T1:9 T2:21",
        "A{T1} has T1 0-8; B{T1 T2}; C{T2}",
        "A T1 0-8; B T2 0 2 4 6 8 10 12 14 16 18 20; C T2 1 3 5 7 9 11 13 15 17 19",
    ),
    "H12": (
        "T1:2 T2:7 T3:4",
        "A{T1 T2 T3} has T3 0-3; B{T1 T3}; C{T1 T2 T3}",
        "A T2 5 6 T3 0 1; B T1 0 1 T3 2 3; C T2 0-4",
    ),
    "H13": ("T1:6 T2:2", "A{T1 T2} has T2 0 1; B{T2}; C{T1 T2}", "A T1 3-5; B T2 0 1; C T1 0-2"),
    "H14": (
        "T1:5 T2:7 T3:5 T4:3",
        "A{T4} has T4 0-2; B{T1 T2 T4}; C{T2 T3 T4}; D{T4}",
        "A T4 0 1; B T1 0-4 T2 0 2 4 6; C T2 1 3 5 T3 0-4; D T4 2",
    ),
}

RANGE = {
    "R2": ("T1:3 T2:3", "A; B", "A T1 0 1 T2 0 1; B T1 2 T2 2"),
    "R3": ("T1:3 T2:4", "A{T1 T2}; B{T2}; C{T1 T2}", "A T1 0 1 T2 0 1; B T2 2; C T1 2 T2 3"),
    "R4": ("T1:3", "C3(i1); C1; C2(i0)", "C2 T1 0; C3 T1 1; C1 T1 2"),
    "R5": ("T1:2 T2:1", "A; B; C", "A T1 0 T2 0; B T1 1; C"),
    "R6": ("T1:6", "A has T1 0-2; B has T1 3-5; AA", "A T1 0 1; AA T1 2 3; B T1 4 5"),
    "R7": ("T1:4 T2:2 T3:3", "A{T1 T3}; B{T1 T2}; C{T2 T3}", "A T1 0 1 T3 0 1; B T1 2 3 T2 0; C T2 1 T3 2"),
    "R8": ("T1:4", "b; B; a(x)", "a T1 0 1; B T1 2; b T1 3"),
    "R9": ("T1:3", "C2(i1); C3(i0); C1", "C3 T1 0; C2 T1 1; C1 T1 2"),
}


@pytest.mark.parametrize(("topics", "members", "plan"), UNIFORM.values(), ids=UNIFORM)
def test_uniform(topics: str, members: str, plan: str):
    """next-generation.md 4.5: the plans of Kafka's class."""
    assert SERVER_ASSIGNORS["uniform"](spec(topics, members)) == targets(plan)


@pytest.mark.parametrize(("topics", "members", "plan"), RANGE.values(), ids=RANGE)
def test_range(topics: str, members: str, plan: str):
    """next-generation.md 4.5: the plans of Kafka's class."""
    assert SERVER_ASSIGNORS["range"](spec(topics, members)) == targets(plan)


def test_topics_in_the_order_of_a_hash_table():
    """next-generation.md 4.5, U17: the buckets of topic ids decide, not the topic names."""
    ids = {"X": "3wnq2sl6SHq0iDMWIqFsBg", "Y": "aTk7Vsl_SjmG1MeOWJYjBQ"}
    plan = SERVER_ASSIGNORS["uniform"](spec("X:2 Y:2", "A; B", ids))
    assert plan == targets("A Y 0 1; B X 0 1", ids)


@pytest.mark.parametrize(("entries", "grown", "copied"), [(0, 16, 16), (12, 16, 32), (13, 32, 32), (24, 32, 64)])
def test_sizes_of_hash_tables(entries: int, grown: int, copied: int):
    """A table that grows doubles above three quarters; a copy has room for a third more entries at once."""
    assert (buckets_after_growth(entries), buckets_of_copy(entries)) == (grown, copied)


def test_partitions_in_the_order_of_a_hash_table():
    """Numbers beyond the size of the table come before smaller ones."""
    assert partitions_in_order([]) == []
    assert partitions_in_order([3, 0, 2]) == [0, 2, 3]
    assert partitions_in_order([18, 17, 16, 8, 1]) == [16, 1, 17, 18, 8]
    assert partitions_in_order([1, 16]) == [16, 1]


def test_hash_of_a_topic_id():
    """Java's `Uuid.hashCode`: both halves, and both halves of these, by exclusive or."""
    topic_id = urlsafe_b64encode(pack(">iiii", 0x0F, 0x33, 0x55, -1)).rstrip(b"=").decode()
    assert id_hash(topic_id) == (0x0F ^ 0x33 ^ 0x55 ^ 0xFFFF_FFFF)


def test_topics_of_one_bucket_are_sorted_by_name():
    """A topic that is gone has no name any more."""
    one, other = id_of("T1"), id_of("T17")
    assert topics_in_order([one, other], {one: "b", other: "a"}, 16) == [other, one]
    assert topics_in_order([one, other], {one: "A"}, 16) == [other, one]


def test_range_sorts_members_as_java_sorts_strings():
    """By UTF-16 units: a character beyond the first plane comes before U+FFFD. Half a pair is sorted too."""
    member_ids = "\ufffd", "\U00010000", "\ud800"
    members = [MemberSpec(each, None, frozenset([id_of("T1")])) for each in member_ids]
    plan = SERVER_ASSIGNORS["range"](GroupSpec(members, {id_of("T1"): 3}, {}, True, 1))
    assert [plan[each][id_of("T1")] for each in member_ids] == [[2], [1], [0]]


def test_high_bits_count_in_a_bucket():
    assert bucket(0x0003_0001, 16) == 2


@pytest.mark.parametrize("name", SERVER_ASSIGNORS)
def test_members_without_topics_get_nothing(name: str):
    assign = SERVER_ASSIGNORS[name]
    assert assign(GroupSpec([], {}, {}, True, 0)) == {}
    assert assign(GroupSpec([MemberSpec("A", None, frozenset())], {}, {}, True, 0)) == {"A": {}}
    mixed = [MemberSpec("A", None, frozenset()), MemberSpec("B", None, frozenset([id_of("T1")]))]
    assert assign(GroupSpec(mixed, {id_of("T1"): 2}, {}, False, 0)) == {"A": {}, "B": {id_of("T1"): [0, 1]}}


@st.composite
def specs(drawn: st.DrawFn) -> GroupSpec:
    """Return a group after some plan; since then members left and joined and subscriptions changed."""
    topics = [f"T{n}" for n in range(1, drawn(st.integers(1, 5)) + 1)]
    counts = {id_of(topic): drawn(st.integers(1, 20)) for topic in topics}
    ids = [f"m{n}" for n in range(drawn(st.integers(1, 14)))]
    is_homogeneous = drawn(st.booleans())
    chosen = frozenset(counts)
    before: Targets = {member_id: {} for member_id in ids}
    for topic_id, count in counts.items():
        for number in range(count):
            holder = drawn(st.sampled_from([*ids, None]))
            if holder is not None:
                before[holder].setdefault(topic_id, []).append(number)
    members = [
        MemberSpec(
            member_id,
            None,
            chosen if is_homogeneous else drawn(st.frozensets(st.sampled_from(list(counts)))),
            before[member_id],
        )
        for member_id in ids
    ]
    names = {id_of(topic): topic for topic in topics}
    return GroupSpec(members, counts, names, is_homogeneous, len(chosen))


@given(specs(), st.sampled_from(list(SERVER_ASSIGNORS)))
def test_every_partition_has_one_subscriber(spec: GroupSpec, name: str):
    """next-generation.md 10.9, 5: each partition of a subscribed topic is in one target, of a subscriber."""
    plan = SERVER_ASSIGNORS[name](spec)
    assert list(plan) == [member.member_id for member in spec.members]
    topic_ids = {topic_id for member in spec.members for topic_id in member.topic_ids}
    given = [(topic_id, n) for target in plan.values() for topic_id, numbers in target.items() for n in numbers]
    assert sorted(given) == sorted((topic_id, n) for topic_id in topic_ids for n in range(spec.partitions[topic_id]))
    assert all(set(plan[m.member_id]) <= m.topic_ids for m in spec.members)
    assert all(numbers == sorted(numbers) != [] for target in plan.values() for numbers in target.values())


@given(specs())
def test_uniform_sizes_differ_by_one_at_most(spec: GroupSpec):
    """next-generation.md 10.9, 5: if all members have the same subscription."""
    if spec.is_homogeneous:
        sizes = [sum(map(len, target.values())) for target in SERVER_ASSIGNORS["uniform"](spec).values()]
        assert max(sizes) - min(sizes) <= 1


@given(specs())
def test_a_plan_that_is_level_stays(spec: GroupSpec):
    """A second plan over the first one moves nothing, if all members have the same subscription."""
    if spec.is_homogeneous:
        plan = SERVER_ASSIGNORS["uniform"](spec)
        members = [MemberSpec(m.member_id, None, m.topic_ids, plan[m.member_id]) for m in spec.members]
        again = GroupSpec(members, spec.partitions, spec.names, True, spec.names_subscribed)
        assert SERVER_ASSIGNORS["uniform"](again) == plan


def test_the_largest_topic_is_levelled_in_linear_time():
    """Each of 50,000 moves looked through the partitions of its owner: 33 s."""
    count, (first, second) = TOPIC_PARTITIONS_MAX, (id_of("T1"), id_of("T2"))
    members = [
        MemberSpec("A", None, frozenset([first]), {first: list(range(count))}),
        MemberSpec("B", None, frozenset([first, second])),
    ]
    plan = SERVER_ASSIGNORS["uniform"](GroupSpec(members, {first: count, second: 1}, {}, False, 2))
    assert [len(plan["A"][first]), len(plan["B"][first]), len(plan["B"][second])] == [count // 2 + 1, count // 2 - 1, 1]
