"""Committed offsets: storing, refused commits, and expiry."""

from typing import Any

import pytest
from msgspec import UNSET

from coordinator.base import limits
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import REMOVED_GROUP_MS
from coordinator.messages.events import CommitRejected, OffsetsExpired
from coordinator.messages.group_records import GroupRecord, OffsetRecord, Published
from coordinator.messages.requests import DeleteGroup, OffsetCommit, OffsetToCommit, Received
from coordinator.state import codec
from tests.coordinator.scenario import Scenario

DAY_MS = 24 * 3_600_000


def fetched(s: Scenario) -> dict[tuple[str, int], int]:
    """Return all committed offsets of a fetch's response."""
    s.fetch("reader")
    return {(f.topic, f.partition): f.offset for f in s.said.partitions}


# -- topic ids ---------------------------------------------------------------------------------------------------------

FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.mark.parametrize(
    ("committed", "asked", "found"),
    [
        (FIRST, FIRST, 5),
        (FIRST, SECOND, -1),
        (FIRST, None, 5),
        (None, SECOND, 5),
        (None, None, 5),
    ],
)
def test_an_offset_belongs_to_the_topic_with_its_id(committed: str | None, asked: str | None, found: int):
    """next-generation.md 6.3: a topic that was made anew has no offset, unless it is fetched or committed by name."""
    s = Scenario().commit_from_outside("tool", {("t", 0): 5}, topic_id=committed)
    s.fetch("reader", {"t": [0, 1]}, topic_id=asked)
    assert [f.offset for f in s.said.partitions] == [found, -1]


def test_an_offset_is_published_with_the_id_of_its_topic():
    for topic_id in (FIRST, None):
        s = Scenario().commit_from_outside("tool", {("t", 0): 5}, topic_id=topic_id)
        record = next(output.record for output in s.latest if getattr(output, "key", ("",))[0] == "offset")
        assert record.topic_id == (topic_id or UNSET)
        s.fetch("reader")
        assert s.said.partitions[0].topic_id == (topic_id or UNSET)


# -- stored offsets ----------------------------------------------------------------------------------------------------


def test_a_commit_is_published_as_it_is_acknowledged():
    """S136, S140: the published offset is the acknowledged one."""
    s = Scenario.stable("c1").at(500).commit("c1", {("t", 3): 7}, metadata="m", leader_epoch=2)
    record, reply = s.latest
    assert record.key == ("offset", "g", "t", 3)
    assert record.record == OffsetRecord(
        group_id="g",
        topic="t",
        partition=3,
        offset=7,
        leader_epoch=2,
        metadata="m",
        commit_timestamp_ms=500,
        expire_timestamp_ms=None,
        generation_id=1,
        member_id=s.ids["c1"],
        version=record.version,
    )
    assert [(p.topic, p.partition, p.code) for p in reply.answer.partitions] == [("t", 3, 0)]


def test_a_fetch_answers_in_the_order_of_the_request():
    """protocol.md 3.7: a partition without an offset has -1 and epoch -1."""
    s = Scenario().commit_from_outside("tool", {("t", 0): 5, ("u", 1): 6}, leader_epoch=9, metadata="m")
    s.fetch("reader", {"u": [1, 0], "t": [0], "v": []})
    assert [(f.topic, f.partition, f.offset, f.leader_epoch, f.metadata, f.code) for f in s.said.partitions] == [
        ("u", 1, 6, 9, "m", 0),
        ("u", 0, -1, -1, "", 0),
        ("t", 0, 5, 9, "m", 0),
    ]


def test_a_fetch_of_no_topics_is_not_a_fetch_of_all():
    """protocol.md 3.7: null is all topics, an empty list is none."""
    s = Scenario().commit_from_outside("tool", {("t", 0): 5}).fetch("reader", {})
    assert s.said.partitions == ()


def test_missing_metadata_is_returned_as_empty():
    """protocol.md 1.3: missing metadata is returned as the empty text."""
    s = Scenario().commit_from_outside("tool", {("t", 0): 5}, metadata=None).fetch("reader")
    assert s.said.partitions[0].metadata == ""


def test_odd_numbers_are_stored_as_given():
    """protocol.md 11: negative offsets, and partitions that the topic may not have."""
    s = Scenario().commit_from_outside("tool", {("t", -1): -7, ("t", 2**31 - 1): 2**63 - 1})
    assert fetched(s) == {("t", -1): -7, ("t", 2**31 - 1): 2**63 - 1}


def test_the_last_of_two_offsets_of_a_partition_counts():
    s = Scenario()
    twice = (OffsetToCommit("t", 0, 5), OffsetToCommit("t", 0, 4))
    s.ask("tool", OffsetCommit, member_id="", offsets=twice).hears(ErrorCode.NONE)
    assert len(s.said.partitions) == 2
    assert fetched(s) == {("t", 0): 4}


def test_a_commit_below_the_stored_offset_is_stored():
    """protocol.md 3.6: the latest commit counts, for example after a seek; an offset is not a high-water mark."""
    s = Scenario.stable("c1").commit("c1", {("t", 0): 10}).commit("c1", {("t", 0): 4}).hears(ErrorCode.NONE)
    assert [(p.partition, p.code) for p in s.said.partitions] == [(0, 0)]
    assert [output.record.offset for output in s.latest if isinstance(output, Published)] == [4]
    assert fetched(s) == {("t", 0): 4}
    s.leave("c1").commit_from_outside("tool", {("t", 0): 3}).hears(ErrorCode.NONE)
    assert fetched(s) == {("t", 0): 3}


def test_offset_zero_is_an_offset():
    """protocol.md 3.7: only a partition without an offset returns -1."""
    s = Scenario.stable("c1").commit("c1", {("t", 0): 5, ("t", 1): 0}).commit("c1", {("t", 0): 0})
    assert [output.record.offset for output in s.latest if isinstance(output, Published)] == [0]
    assert fetched(s) == {("t", 0): 0, ("t", 1): 0}, "in a fetch of all topics"
    s.fetch("reader", {"t": [0, 1, 2]})
    assert [(f.partition, f.offset) for f in s.said.partitions] == [(0, 0), (1, 0), (2, -1)], "in a fetch by name"
    s.leave("c1").delete_offsets("tool", {"t": [1]}).hears(ErrorCode.NONE)
    assert fetched(s) == {("t", 0): 0}


def test_offsets_belong_to_the_group_and_not_to_the_member():
    """S141, S142: B continues from A's commit."""
    s = Scenario.stable("a", "b").commit("a", {("t", 0): 5}).leave("a").join("b").sync("b", plan={"b": {"t": [0]}})
    assert fetched(s) == {("t", 0): 5}


def test_an_empty_commit_changes_nothing():
    """protocol.md 3.6: it is answered without a check of the group or the sender."""
    s = Scenario()
    s.ask("tool", OffsetCommit, member_id="", offsets=()).hears(ErrorCode.NONE, partitions=()).is_gone()
    s = Scenario.stable("c1").at(1_000)
    session = s.group.hot_state.sessions[s.ids["c1"]].deadline_ms
    s.commit("c1", {}).hears(ErrorCode.NONE).commit("made-up", {}, generation_id=9).hears(ErrorCode.NONE)
    assert s.group.hot_state.sessions[s.ids["c1"]].deadline_ms == session
    assert not s.events(CommitRejected)


# -- refused commits ---------------------------------------------------------------------------------------------------

LENGTHS = {
    "ascii at the bound": ("x" * 4096, 0),
    "ascii beyond": ("x" * 4097, 12),
    "umlauts at the bound": ("ü" * 4096, 0),
    "smileys at the bound": ("😀" * 2048, 0),
    "smileys beyond": ("😀" * 2048 + "x", 12),
}


@pytest.mark.parametrize(("metadata", "code"), LENGTHS.values(), ids=LENGTHS)
def test_metadata_is_measured_in_utf16_units(metadata: str, code: int):
    """protocol.md 1.4, S136: the limit counts UTF-16 units."""
    s = Scenario().commit_from_outside("tool", {("t", 0): 5}, metadata=metadata).hears(ErrorCode.NONE)
    assert [p.code for p in s.said.partitions] == [code]


def test_one_partition_may_be_refused_and_the_others_stored():
    """I14, protocol.md 3.6 row 8: partition by partition; the commit still renews the session."""
    s = Scenario.stable("c1", offset_metadata_max_bytes=3).at(1_000)
    offers = (OffsetToCommit("t", 0, 1, metadata="long"), OffsetToCommit("t", 1, 2, metadata="ok"))
    s.ask("c1", OffsetCommit, offsets=offers).hears(ErrorCode.NONE)
    assert [p.code for p in s.said.partitions] == [12, 0]
    assert fetched(s) == {("t", 1): 2}
    assert s.group.hot_state.sessions[s.ids["c1"]].deadline_ms == 11_000


REFUSED: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "a stranger": ({"member_id": "made-up"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "an older generation": ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
    "a newer generation": ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
    "a stranger of another generation": ({"member_id": "x", "generation_id": 9}, ErrorCode.UNKNOWN_MEMBER_ID),
    "a tool": ({"member_id": "", "generation_id": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    "a member without a generation": ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
}


@pytest.mark.parametrize(("fields", "error"), REFUSED.values(), ids=REFUSED)
def test_a_refused_commit_changes_nothing_and_is_recorded(fields: dict[str, Any], error: ErrorCode):
    """S143, I14: every partition gets the error, and an event has the sender."""
    s = Scenario.stable("c1").commit("c1", {("t", 0): 5}).commit("c1", {("t", 0): 9, ("t", 1): 9}, **fields)
    s.hears(error)
    assert [(p.partition, p.error) for p in s.said.partitions] == [(0, error.name), (1, error.name)]
    (rejected,) = s.events(CommitRejected)
    claimed = fields.get("generation_id", 1)
    assert (rejected.error, rejected.claimed_generation_id, rejected.partitions) == (error.name, claimed, 2)
    assert (rejected.client_id, rejected.client_host, rejected.generation_id) == ("c1", "/c1.example", 1)
    assert fetched(s) == {("t", 0): 5}


# -- expiry (protocol.md 4.6) ------------------------------------------------------------------------------------------


def test_in_a_simple_group_each_offset_expires_by_its_own_commit():
    """S54, I15: the retention counts from the commit."""
    s = Scenario(offsets_retention_ms=DAY_MS).commit_from_outside("tool", {("t", 0): 1})
    s.until(1_000).commit_from_outside("tool", {("t", 1): 2})
    assert fetched(s.until(DAY_MS - 1)) == {("t", 0): 1, ("t", 1): 2}
    assert fetched(s.until(DAY_MS)) == {("t", 1): 2}
    s.until(DAY_MS + 1_000).is_gone()


def test_another_commit_restarts_the_retention():
    """I15: the retention counts from the last commit."""
    s = Scenario(offsets_retention_ms=DAY_MS).commit_from_outside("tool", {("t", 0): 1})
    s.until(DAY_MS - 1).commit_from_outside("tool", {("t", 0): 2})
    assert fetched(s.until(2 * DAY_MS - 2)) == {("t", 0): 2}
    s.until(2 * DAY_MS - 1).is_gone()


def test_in_an_emptied_group_all_offsets_expire_together():
    """S46, I15: the retention counts from when the group became Empty."""
    s = Scenario.stable("c1", offsets_retention_ms=DAY_MS).commit("c1", {("t", 0): 1}).at(9_000).leave("c1")
    assert fetched(s.until(9_000 + DAY_MS - 1)) == {("t", 0): 1}
    s.until(9_000 + DAY_MS).is_gone()


def test_a_group_with_members_again_keeps_its_offsets():
    """S46, I15: the retention starts again when the group becomes Empty again."""
    s = Scenario.stable("c1", offsets_retention_ms=DAY_MS, session_timeout_ms=1_800_000)
    s.commit("c1", {("t", 0): 1}).leave("c1").until(DAY_MS - 1)
    s.join("c2", session_timeout_ms=1_800_000).sync("c2", plan={})
    s.until(DAY_MS + 60_000).leave("c2")
    assert fetched(s.until(2 * DAY_MS + 59_999)) == {("t", 0): 1}
    s.until(2 * DAY_MS + 60_000).is_gone()


@pytest.mark.parametrize("phase", ["PreparingRebalance", "CompletingRebalance"])
def test_no_offset_expires_during_a_rebalance(phase: str):
    """protocol.md 4.6, "anything else": not even offsets of unread topics, or offsets with a retention of their own."""
    joining = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1_800_000}
    s = Scenario.stable("c1", "c2", offsets_retention_ms=1_000, **joining)
    s.commit("c1", {("unread", 0): 1}).commit("c1", {("unread", 1): 1}, retention_ms=500).join("c1", **joining)
    if phase == "CompletingRebalance":
        s.join("c2", topics=["u"], **joining)
    assert fetched(s.until(100_000).is_(phase)) == {("unread", 0): 1, ("unread", 1): 1}


def test_in_a_stable_group_only_offsets_of_unsubscribed_topics_expire():
    """S33, I15: t is subscribed, unread is not."""
    s = Scenario.stable("c1", offsets_retention_ms=10_000, session_timeout_ms=1_800_000)
    s.commit("c1", {("t", 0): 1, ("unread", 0): 2})
    assert fetched(s.until(9_999)) == {("t", 0): 1, ("unread", 0): 2}
    assert fetched(s.until(10_000)) == {("t", 0): 1}
    s.is_("Stable")


def test_an_offset_may_have_a_retention_of_its_own():
    """protocol.md 1.3, 4.6: OffsetCommit v2 to v4."""
    s = Scenario.stable("c1", offsets_retention_ms=DAY_MS).commit("c1", {("t", 0): 1}, retention_ms=2_000)
    s.commit("c1", {("t", 1): 1}, retention_ms=3 * DAY_MS).leave("c1")
    assert fetched(s.until(1_999)) == {("t", 0): 1, ("t", 1): 1}
    assert fetched(s.until(2_000)) == {("t", 1): 1}
    assert fetched(s.until(3 * DAY_MS - 1)) == {("t", 1): 1}
    s.until(3 * DAY_MS).is_gone()


def test_a_retention_of_zero_ends_at_once():
    Scenario().commit_from_outside("tool", {("t", 0): 1}, retention_ms=0).hears(ErrorCode.NONE).is_gone()


def test_a_very_long_retention_does_no_harm():
    now_ms = 1_700_000_000_000
    s = Scenario().at(now_ms).commit_from_outside("tool", {("t", 0): 1}, retention_ms=2**63 - 1)
    assert fetched(s.until(now_ms + 100 * 365 * DAY_MS)) == {("t", 0): 1}


def test_expiry_publishes_tombstones_and_events():
    """S54: a tombstone for each partition, one event, then the group's own end."""
    s = Scenario(offsets_retention_ms=1_000).commit_from_outside("tool", {("t", 0): 1, ("u", 5): 2}).until(1_000)
    *tombstones, expired, deleted, group = s.latest
    assert [(t.key, t.record) for t in tombstones] == [(("offset", "g", "t", 0), None), (("offset", "g", "u", 5), None)]
    assert isinstance(expired, OffsetsExpired)
    assert (expired.partitions, expired.at_ms) == ((("t", 0), ("u", 5)), 1_000)
    assert (group.key, group.record, group.version) == (("group", "g"), None, deleted.version + 1)


def test_an_empty_group_without_offsets_stays_for_ten_minutes():
    """S54; protocol.md 4.6: until the next expiry run, every ten minutes."""
    s = Scenario.stable("c1", empty_group_retention_ms=60_000).at(5_000).leave("c1")
    s.until(64_999).is_("Empty").until(65_000).is_gone()


def test_a_group_that_only_refused_a_commit_is_forgotten_too():
    """I22: the metadata was too large, no offset was stored, and the group never had a member."""
    s = Scenario(offset_metadata_max_bytes=1).commit_from_outside("tool", {("t", 0): 1}, metadata="long")
    s.is_("Empty").until(600_000).is_gone()


def test_a_group_that_is_created_again_keeps_only_its_generation():
    """I2: ids of the earlier group are unknown, and no generation repeats."""
    s = Scenario.stable("c1", offsets_retention_ms=1_000).commit("c1", {("t", 0): 1}).leave("c1").until(600_000)
    s.is_gone().heartbeat("c1").hears(ErrorCode.UNKNOWN_MEMBER_ID).commit("c1", {("t", 0): 1})
    s.hears(ErrorCode.GROUP_ID_NOT_FOUND)
    s.join("c2").is_("CompletingRebalance", generation=3)
    s.heartbeat("c1", generation_id=1).hears(ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("way", ["deleted", "expired", "deleted twice"])
def test_no_generation_repeats_for_any_way_of_removal(way: str):
    """I2: this includes a group that was created again without members, and a state that was encoded and decoded."""
    s = Scenario.stable("c1", empty_group_retention_ms=60_000).leave("c1").is_("Empty", generation=2)
    s = s.until(60_000).is_gone() if way == "expired" else s.delete().is_gone()
    if way == "deleted twice":
        s.commit_from_outside("tool", {("t", 0): 0}).is_("Empty", generation=2).delete().is_gone()
    s.join("c2").is_("CompletingRebalance", generation=3)


def test_a_tombstone_is_kept_for_a_day():
    """I22: a tombstone is removed when its group is created again, or when its time is over, and not earlier."""
    s = Scenario.stable("c1").leave("c1").delete().hears(ErrorCode.NONE).is_gone()
    assert not s.shard.is_blank
    assert s.shard.next_deadline_ms == REMOVED_GROUP_MS
    s.until(REMOVED_GROUP_MS - 1)
    assert not s.shard.is_blank
    s.until(REMOVED_GROUP_MS)
    assert s.shard.is_blank
    assert s.shard.next_deadline_ms is None


def test_the_tombstone_of_a_group_without_a_generation_is_kept_for_minutes():
    s = Scenario().commit_from_outside("tool", {("t", 0): 1}).delete().is_gone()
    ended_ms = s.now_ms
    assert not s.until(ended_ms + limits.ENDED_MS - 1).shard.is_blank
    assert s.until(ended_ms + limits.ENDED_MS).shard.is_blank


def test_each_tombstone_is_kept_for_its_own_time():
    """I2, I22: each of two tombstones has its own time."""
    s = Scenario.stable("c1").leave("c1").delete().is_gone()
    other = {"reply_to": "inbox", "group_id": "h"}
    founds = OffsetCommit(request_id="1", **other, offsets=(OffsetToCommit("t", 0, 1),))
    log = [Received(n, s.now_ms, each) for n, each in enumerate((founds, DeleteGroup(request_id="2", **other)), 1_000)]
    s.shard.step(log, s.now_ms)
    until_ms = s.now_ms + limits.ENDED_MS
    assert s.shard.next_deadline_ms == until_ms
    assert s.until(until_ms).shard.next_deadline_ms == REMOVED_GROUP_MS
    s.join("c2").is_("CompletingRebalance", generation=3)


def test_a_group_that_is_created_again_has_a_later_time():
    """Versions start again at 1. A reader distinguishes the two groups by time, even if old records are repeated."""
    for s in (Scenario().commit_from_outside("tool", {("t", 0): 1}), Scenario().join("c").leave("c")):
        s.delete().hears(ErrorCode.NONE)
        ended_ms = s.published()[-1].ended_ms
        s.commit_from_outside("tool", {("t", 0): 1})
        begin = s.published()[-2].record
        assert ended_ms is not None
        assert isinstance(begin, GroupRecord)
        assert (begin.version, begin.since_ms) == (1, ended_ms + 1)


def test_the_oldest_of_too_many_tombstones_are_dropped(monkeypatch: pytest.MonkeyPatch):
    """I22: REMOVED_GROUPS_MAX and one beyond."""
    monkeypatch.setattr("coordinator.state.store.REMOVED_GROUPS_MAX", 2)
    s = Scenario()
    for name in ("g1", "g2", "g3"):
        s.group_id = name
        s.join(f"of-{name}").leave(f"of-{name}").delete().hears(ErrorCode.NONE)
    removed_groups = codec.decode_shard(s.shard.to_bytes()).removed_groups
    assert {name: removed.generation_id for name, removed in removed_groups.items()} == {"g2": 2, "g3": 2}


def test_one_group_may_have_a_retention_of_its_own():
    """Protocol.md 4.6: an operator's setting for a group applies only to that group."""
    s = Scenario(offsets_retention_ms=DAY_MS, offsets_retention_by_group_ms={"short": 1_000})
    for group_id in ("short", "long"):
        s.group_id = group_id
        s.commit_from_outside("tool", {("t", 0): 1})
    s.until(999)
    assert s.shard.group_ids == ("short", "long")
    s.until(1_000)
    assert s.shard.group_ids == ("long",)


def test_metadata_is_measured_as_java_does():
    """protocol.md 1.4: in UTF-16 units; the last character that takes one of them is U+FFFF."""
    s = Scenario(offset_metadata_max_bytes=1)
    for text, error in {"\uffff": "NONE", "\U00010000": "OFFSET_METADATA_TOO_LARGE"}.items():
        s.commit_from_outside("tool", {("t", 0): 1}, metadata=text)
        assert [p.error for p in s.said.partitions] == [error]
