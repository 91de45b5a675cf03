"""Records of the groups topic that are written again, with their present values, under new versions."""

import pytest
from msgspec.structs import replace

from coordinator.base import limits
from coordinator.base.errors import ErrorCode
from coordinator.messages.group_records import GroupRecord, OffsetRecord, Published
from coordinator.messages.requests import RepublishGroup
from streaming.wire.records import decode_request
from tests.coordinator.scenario import Scenario


def written(s: Scenario) -> list[Published]:
    """Return the records that the latest request has written."""
    return [output for output in s.latest if isinstance(output, Published)]


def test_a_group_and_its_offsets_are_written_again_under_new_versions():
    s = Scenario.stable("c1").commit("c1", {("t", 0): 7, ("t", 1): 8}, metadata="m")
    before = {each.key: each.record for each in s.published()}
    version = s.published()[-1].version
    assert version is not None
    group, offset = written(s.at(s.now_ms + 500).republish({"t": [1]}).hears(ErrorCode.NONE, records=2))
    assert isinstance(group.record, GroupRecord)
    assert group.record == replace(before["group", "g"], version=version + 1)
    uncommitted = {"generation_id": -1, "member_id": ""}
    assert isinstance(offset.record, OffsetRecord)
    assert offset.record == replace(before["offset", "g", "t", 1], version=version + 2, **uncommitted)


def test_a_missing_offset_gets_a_tombstone_again():
    s = Scenario.stable("c1").at(500)
    (tombstone,) = written(s.republish({"t": [3]}, group=False).hears(ErrorCode.NONE, records=1))
    assert (tombstone.key, tombstone.record, tombstone.ended_ms) == (("offset", "g", "t", 3), None, 500)
    assert tombstone.version == s.shard.group("g").version


def test_a_partition_that_is_named_twice_is_written_once():
    s = Scenario.stable("c1").commit("c1", {("t", 0): 7}).republish({"t": [0, 0]}, group=False)
    assert len(written(s)) == 1


def test_a_forgotten_group_gets_tombstones_without_a_version():
    """A group that is created later under that name starts at version 1, and is not older than the tombstones."""
    s = Scenario().commit_from_outside("tool", {("t", 0): 7}).delete()
    ended_ms = s.published()[-1].ended_ms
    assert ended_ms is not None
    s.at(s.now_ms + 60_000).republish({"t": [0]}).hears(ErrorCode.NONE, records=2)
    keys = [("group", "g"), ("offset", "g", "t", 0)]
    assert written(s) == [Published("g", key, None, None, ended_ms + 1) for key in keys]
    (begin, *_) = written(s.commit_from_outside("tool", {("t", 0): 9}))
    assert isinstance(begin.record, GroupRecord)
    assert (begin.version, begin.record.since_ms > ended_ms) == (1, True)


def test_tombstones_of_an_unknown_group_are_not_later_than_a_group_that_is_created_after_the_clock_went_back():
    """Two brokers' clocks may differ by the slack, so a later request may have an earlier time."""
    s = Scenario().at(7_000).republish({}).hears(ErrorCode.NONE, records=1)
    s.at(7_500).republish({}).hears(ErrorCode.NONE, records=1)
    slack_ms = s.config.clock_slack_ms
    assert written(s) == [Published("g", ("group", "g"), None, None, 7_000 - 2 * slack_ms)]
    assert s.shard.is_blank
    (begin, *_) = written(s.at(7_500 - slack_ms).commit_from_outside("tool", {("t", 0): 9}))
    assert isinstance(begin.record, GroupRecord)
    assert begin.record.since_ms == 7_500 - slack_ms


def test_republishing_changes_neither_the_group_nor_its_deadlines():
    s = Scenario.stable("c1").commit("c1", {("t", 0): 7})
    before, due_ms = s.shard.group("g"), s.shard.next_deadline_ms
    s.republish({"t": [0, 1]})
    after = s.shard.group("g")
    before.version = after.version
    assert (after, s.shard.next_deadline_ms) == (before, due_ms)


@pytest.mark.parametrize(("offsets", "is_read"), [(limits.REPUBLISHED_OFFSETS_MAX, True), (101, False)])
def test_a_request_writes_a_bounded_number_of_records(offsets: int, is_read: bool):
    """I22: the number of records for each request is bounded."""
    place = b'{"topic":"t","partition":0}'
    value = b'{"kind":"republish_group","request_id":"1","reply_to":"in","group_id":"g","offsets":[%b]}'
    request = decode_request(value % b",".join([place] * offsets))
    assert isinstance(request, RepublishGroup) == is_read
