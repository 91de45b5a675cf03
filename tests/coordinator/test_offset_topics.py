"""Offsets of a topic that was deleted or made anew: reports drop them, and bind those without an id (R1)."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.messages.events import OffsetsDropped
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.group_records import OffsetRecord, Published
from coordinator.messages.requests import OffsetTopic
from coordinator.shard.shard import Shard
from tests.coordinator.scenario import Scenario
from tests.coordinator.test_offsets import fetched

A, B = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
NOW_MS = 1_000_000


def gone(topic_id: str | None = A, current_id: str | None = None, committed_ms: int = NOW_MS) -> OffsetTopic:
    return OffsetTopic("t", topic_id, current_id, committed_ms)


def committed(topic_id: str | None, **fields: object) -> Scenario:
    """Return a group with two offsets of topic t, and one of another topic with the same id."""
    s = Scenario(**fields).at(NOW_MS)
    return s.commit_from_outside("tool", {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}, topic_id=topic_id)


@pytest.mark.parametrize("current_id", [None, B])
def test_offsets_of_a_topic_that_is_gone_are_dropped(current_id: str | None):
    """R1: deleted, or made anew. One event has all partitions, after their tombstones."""
    s = committed(A).topics(gone(A, current_id)).hears(ErrorCode.NONE, dropped=2, bound=0)
    *tombstones, event = s.latest[:3]
    assert [(t.key, t.record) for t in tombstones] == [(("offset", "g", "t", p), None) for p in (0, 1)]
    assert isinstance(event, OffsetsDropped)
    told = event.topic_id, event.current_id, event.partitions
    assert told == (A, current_id, (("t", 0), ("t", 1)))
    assert fetched(s) == {("u", 0): 7}
    s.topics(gone(A, current_id)).hears(ErrorCode.NONE, dropped=0, bound=0)


@pytest.mark.parametrize("report", [gone(B), gone(A, A), gone(None), gone(A, committed_ms=NOW_MS - 1), gone(None, B)])
def test_other_offsets_stay(report: OffsetTopic):
    """Those of a later topic, those of a topic that exists, and those that were committed after the report."""
    s = committed(A).topics(report).hears(ErrorCode.NONE, dropped=0, bound=0)
    assert fetched(s) == {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}


def test_a_report_that_comes_late_leaves_the_commits_of_the_later_topic():
    """The log has a commit for the new topic before the report that the old one is gone."""
    s = committed(A).commit_from_outside("tool", {("t", 0): 1}, topic_id=B)
    s.topics(gone(A, B)).hears(ErrorCode.NONE, dropped=1, bound=0)
    assert fetched(s) == {("t", 0): 1, ("u", 0): 7}


def test_an_offset_without_an_id_is_bound_to_the_topic_of_its_name():
    """From then on it is dropped with its topic. Its record has the id as well."""
    s = committed(None).topics(gone(None, B)).hears(ErrorCode.NONE, dropped=0, bound=2)
    records = [o.record for o in s.latest if isinstance(o, Published) and isinstance(o.record, OffsetRecord)]
    assert [(record.partition, record.topic_id, record.offset) for record in records] == [(0, B, 5), (1, B, 6)]
    assert fetched(s.topics(gone(B)).hears(ErrorCode.NONE, dropped=2)) == {("u", 0): 7}


def test_an_offset_without_an_id_whose_topic_is_missing_is_kept_from_later_topics():
    """A group may distribute other things than partitions, so the offset stays."""
    s = committed(None).topics(gone(None, None, NOW_MS - 1)).hears(ErrorCode.NONE, dropped=0, bound=0)
    s.topics(gone(None)).hears(ErrorCode.NONE, dropped=0, bound=2)
    assert fetched(s) == {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}
    s.fetch("reader", {"t": [0]}, topic_id=B)
    assert [f.offset for f in s.said.partitions] == [-1]
    assert fetched(s.topics(gone(NO_TOPIC, B)).hears(ErrorCode.NONE, dropped=2)) == {("u", 0): 7}


def test_the_offsets_of_a_group_with_members_are_dropped_too():
    """Kafka asks no subscription either: the members' offsets are of a topic that does not exist."""
    s = Scenario.stable("c1").at(NOW_MS).commit("c1", {("t", 0): 5}, topic_id=A)
    s.topics(gone()).hears(ErrorCode.NONE, dropped=1).is_("Stable")
    assert fetched(s) == {}


def test_an_empty_group_without_offsets_ends_as_after_a_deletion():
    s = Scenario(empty_group_retention_ms=60_000).at(NOW_MS).commit_from_outside("tool", {("t", 0): 5}, topic_id=A)
    s.topics(gone()).hears(ErrorCode.NONE, dropped=1).is_("Empty")
    s.until(NOW_MS + 60_000).is_gone()


def test_a_report_about_a_missing_group_changes_nothing():
    Scenario().at(NOW_MS).topics(gone()).hears(ErrorCode.NONE, dropped=0, bound=0).is_gone()


def test_a_replay_gives_the_same_bytes_and_an_unbound_state_can_be_read():
    """Old states have offsets without an id. Their bytes are read, and a report binds them."""
    s = committed(None)
    read = Shard(0, 1, s.shard.secret, s.shard.config, s.shard.to_bytes())
    s.shard = read
    s.topics(gone(None, B)).hears(ErrorCode.NONE, bound=2)
    again = committed(None).topics(gone(None, B)).hears(ErrorCode.NONE, bound=2)
    assert s.shard.to_bytes() == again.shard.to_bytes()
