"""Tests of the parts of the benchmark of big groups that need no broker."""

from coordinator.base.consumer_protocol import assigned_partitions
from coordinator.messages.responses import JoinedMember, JoinGroupAnswer
from tests.benchmarks.big_group import PARTITIONS_EACH, SIZES, Planner, core_alone_us
from tests.benchmarks.meanings import MEANINGS
from tests.benchmarks.members import METADATA, TOPIC


def joined(*member_ids: str) -> Planner:
    """Return a member whose response to a join lists these members."""
    member = Planner("big", 0)
    members = tuple(JoinedMember(member_id, None, METADATA) for member_id in member_ids)
    member.take(JoinGroupAnswer(request_id="1", generation_id=1, leader="a", member_id="a", members=members))
    return member


def test_leader_assigns_each_partition_to_one_member() -> None:
    assignments = joined("a", "b", "c").assignments()
    partitions = {each.member_id: (assigned_partitions(each.assignment) or {})[TOPIC.decode()] for each in assignments}
    assert partitions == {"a": [0, 1], "b": [2, 3], "c": [4, 5]}
    assert PARTITIONS_EACH == 2


def test_follower_sends_no_assignments() -> None:
    assert joined().assignments() == ()


def test_core_alone_goes_through_every_part() -> None:
    """The join round of a group ends, and so does the benchmark."""
    parts_us = core_alone_us(10)
    assert parts_us.keys() == {"join", "joined", "sync", "heartbeat", "leave", "expire"}
    assert all(us > 0 for us in parts_us.values())


def test_each_size_has_meanings() -> None:
    names = {f"{name}_{figure}" for name in SIZES.values() for figure in ("s", "batch_max_ms", "batches")}
    assert names <= MEANINGS.keys()
