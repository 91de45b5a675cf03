"""Tests of the translation of committed offsets and of the ends of groups."""

import struct

import pytest

from coordinator.messages.events import GroupDeleted
from coordinator.messages.observed_events import ObservationBegan, OffsetsForgotten
from streaming.observe.schemas import Kind
from tests.streaming.observe import vectors as v
from tests.streaming.observe.log import Log, events, groups, offsets, told
from tests.streaming.observe.test_classic import ALL, of_ana_and_bo
from tests.streaming.observe.writing import classic, commit, forgotten, founded, gone, member


def test_last_commit_of_a_partition_in_a_batch_is_published_and_stands_for_all() -> None:
    log = of_ana_and_bo()
    log.append(9_100, commit("g", 0, 1, 9_100), commit("g", 1, 5, 9_100)).append(9_200, commit("g", 0, 2, 9_199))
    assert told(log.read()) == ["=> offset orders/0 2 x2", "=> offset orders/1 5 x1"]
    record = offsets(log.outputs)[0]
    assert (record.commit_timestamp_ms, record.leader_epoch, record.metadata) == (9_199, -1, "")
    assert (record.member_id, record.generation_id, record.expire_timestamp_ms) == (None, None, None)
    assert record.topic_id == "SbK5tH4aQZavfsvIfUE_GQ"


def test_simple_group_has_offsets_and_no_record() -> None:
    """Recorded: two commits by hand; the topic is deleted 0.3 s before the tombstones."""
    log = Log().append(1_000, commit("by-hand", 0, 17, 1_000), commit("by-hand", 1, 4, 1_000))
    assert told(log.read()) == [
        "!! 1000 observation_began from_offset=0",
        "=> offset orders/0 17 x1",
        "=> offset orders/1 4 x1",
    ]
    log.append(2_000, forgotten("by-hand", 0))
    assert told(log.read()) == [
        "=> orders/0 forgotten",
        "!! 2000 offsets_forgotten partitions=orders,0 why=expired or deleted",
    ]


def test_tombstone_replaces_a_commit_of_the_same_batch() -> None:
    log = of_ana_and_bo().append(9_100, commit("g", 0, 1, 9_100)).append(9_200, forgotten("g", 0))
    assert told(log.read())[0] == "=> orders/0 forgotten"
    assert offsets(log.outputs) == []


def test_commit_after_a_tombstone_is_published_after_it() -> None:
    log = of_ana_and_bo().append(9_100, forgotten("g", 0)).append(9_200, commit("g", 0, 1, 9_200))
    outputs = told(log.read())
    assert (outputs[0], outputs[-1]) == ("=> orders/0 forgotten", "=> offset orders/0 1 x1")


@pytest.mark.parametrize(
    ("retention_ms", "at_ms", "why"),
    [
        (60_000, 79_989, "deleted"),
        (60_000, 79_990, "expired, most likely"),
        (None, 79_990, "expired or deleted"),
    ],
)
def test_end_of_a_group_is_judged_by_the_time_since_it_is_empty(retention_ms: int | None, at_ms: int, why: str) -> None:
    """Recorded: an expiry writes the tombstones of all offsets, then the group's; a deletion does the same."""
    log = Log(retention_ms).append(1_000, founded("g", 990)).append(4_000, classic("g", 1, 3_990, member("a", ALL)))
    log.append(9_000, commit("g", 0, 1, 9_000)).append(20_000, classic("g", 2, 19_990))
    log.read()
    log.append(at_ms, forgotten("g", 0), gone(Kind.CLASSIC_GROUP, "g"))
    assert told(log.read()) == [
        "=> orders/0 forgotten",
        f"!! {at_ms} offsets_forgotten partitions=orders,0 why={why}",
        f"!! {at_ms} group_deleted why={why}",
        "=> group forgotten",
    ]


def test_group_without_offsets_may_end_by_itself_at_any_time() -> None:
    log = Log(60_000).append(1_000, founded("g", 990)).append(2_000, gone(Kind.CLASSIC_GROUP, "g"))
    assert events(log.read(), GroupDeleted)[0].why == "no member and no offset left"


def why_forgotten(log: Log, at_ms: int, *, is_read_before: bool = True) -> list[str]:
    if is_read_before:
        log.read()
    log.append(at_ms, forgotten("g", 0), forgotten("g", 1))
    return [each.why for each in events(log.read(), OffsetsForgotten)]


@pytest.mark.parametrize("is_read_before", [True, False])
@pytest.mark.parametrize(
    ("retention_ms", "at_ms", "why"),
    [(60_000, 69_000, "deleted"), (60_000, 71_000, "expired or deleted"), (None, 12_000, "expired or deleted")],
)
def test_offset_that_was_committed_lately_was_deleted(
    retention_ms: int | None, at_ms: int, why: str, *, is_read_before: bool
) -> None:
    """Recorded: a topic is deleted 10 s after a commit, with a retention of 7 days. The time of the oldest commit
    counts, in seconds."""
    log = Log(retention_ms).append(10_200, commit("g", 0, 1, 10_200)).append(15_000, commit("g", 1, 1, 15_000))
    assert why_forgotten(log, at_ms, is_read_before=is_read_before) == [why]


def test_commit_that_was_not_read_tells_nothing() -> None:
    log = Log(60_000).append(10_200, commit("g", 0, 1, 10_200))
    assert why_forgotten(log, 12_000) == ["expired or deleted"]


@pytest.mark.parametrize(("at_ms", "why"), [(79_989, "deleted"), (79_990, "expired or deleted")])
def test_offsets_of_a_classic_group_expire_after_its_last_member(at_ms: int, why: str) -> None:
    """Not after their commits: an offset that was set just before may expire, and an old one does not."""
    log = Log(60_000).append(1_000, founded("g", 990)).append(4_000, classic("g", 1, 3_990, member("a", ALL)))
    log.append(9_000, commit("g", 0, 1, 9_000)).append(20_000, classic("g", 2, 19_990))
    log.append(70_000, commit("g", 1, 1, 70_000))
    assert why_forgotten(log, at_ms) == [why]


def test_commit_with_a_time_of_its_own_may_have_expired() -> None:
    """Version 1 of the record, which old clients cause."""
    key, _ = commit("g", 0, 1, 10_000)
    value = struct.pack(">hqhqq", 1, 5, 0, 10_000, 10_500)
    log = Log(60_000).append(10_000, (key, value), commit("g", 1, 1, 10_000))
    assert why_forgotten(log, 11_000) == ["expired or deleted"]


def test_group_that_is_founded_again_has_versions_from_1() -> None:
    log = Log().append(1_000, founded("g", 990)).append(2_000, gone(Kind.CLASSIC_GROUP, "g"))
    log.append(3_000, founded("g", 2_990))
    log.read()
    assert [each.version for each in events(log.outputs, ObservationBegan)] == [1, 1]
    assert [record.version for record in groups(log.outputs)] == [2, 2]


@pytest.mark.parametrize("at_ms", [1_500, 2_000])
def test_group_that_is_founded_again_is_later_than_the_deleted_one(at_ms: int) -> None:
    """Readers tell the two by their times. The clock of another broker may be behind."""
    log = Log().append(1_000, founded("g", 990)).append(2_000, gone(Kind.CLASSIC_GROUP, "g"))
    log.read()
    log.append(at_ms, founded("g", at_ms - 10))
    assert [each.at_ms for each in events(log.read())] == [2_001]
    assert groups(log.outputs)[-1].since_ms == 2_001


def test_deleted_group_stays_deleted() -> None:
    """Further tombstones of a group that was deleted say nothing, in the same batch and in the next one."""
    log = Log().append(1_000, founded("g", 990))
    log.read()
    log.append(2_000, gone(Kind.CLASSIC_GROUP, "g")).append(3_000, gone(Kind.CLASSIC_GROUP, "g"), forgotten("g", 0))
    assert len(events(log.read(), GroupDeleted)) == 1
    log.append(4_000, gone(Kind.CLASSIC_GROUP, "g"))
    assert log.read() == []


@pytest.mark.parametrize("tombstone", [tuple(v.GROUP_TOMBSTONE), tuple(v.OFFSET_TOMBSTONE), tuple(v.MEMBER_TOMBSTONE)])
def test_tombstone_of_an_unknown_group_says_nothing(tombstone: tuple[bytes, None]) -> None:
    log = Log().append(1_000, tombstone)
    assert log.read() == []
    assert log.partition is not None
    assert log.partition.stored.groups == {}
