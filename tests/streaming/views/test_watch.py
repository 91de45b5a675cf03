"""Tests of the output topics as lines, without Kafka: wording, escaped control characters, repeats and gaps."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from coordinator.base.states import Phase
from coordinator.messages.events import (
    AccessChanged,
    AccessDenied,
    AnyEvent,
    AssignmentChanged,
    ClockAhead,
    GroupDeleted,
    GroupEmptied,
    Handover,
    LogBroken,
    MemberExpired,
    MemberFenced,
    MemberLeft,
    OffsetsDeleted,
    RebalanceCompleted,
    RebalanceStarted,
    Rejected,
)
from coordinator.messages.group_records import GroupMember, GroupRecord, OffsetRecord, Published
from coordinator.messages.outputs import Output
from streaming.views.api.watching import Fetched, Reader
from streaming.views.sentences.records import _WORDS, Gap, Unreadable, to_line
from streaming.views.state.version_follower import BEYOND_MAX, EVENTS, GROUPS, PATIENCE_MS, VersionFollower
from streaming.views.text import brief, duration, escape, spans
from streaming.wire.records import OutputTopics, Tombstone, to_row

ANA = "ana-2a84c1d0-1111-2222-3333-444455556666"
BO = "bo-cbcd0000-1111-2222-3333-444455556666"
NOW_MS = 1_000_000


# -- words -------------------------------------------------------------------------------------------------------------


def member(member_id: str, **assigned: list[int]) -> GroupMember:
    return GroupMember(member_id=member_id, group_instance_id=None, client_id="c", client_host="/127.0.0.1",
                       session_timeout_ms=1, rebalance_timeout_ms=1, assignment=b"", assigned=assigned)  # fmt: skip


def group(version: int = 1, state: Phase = Phase.STABLE, *members: GroupMember, group_id: str = "g") -> GroupRecord:
    return GroupRecord(group_id=group_id, state=state, since_ms=5, generation_id=3, protocol_type="consumer",
                       protocol_name="range", leader=ANA, subscribed_topics=("t",), members=members,
                       version=version)  # fmt: skip


def offset(version: int, at: int = 7, topic: str = "t") -> OffsetRecord:
    return OffsetRecord(group_id="g", topic=topic, partition=0, offset=at, leader_epoch=-1, metadata="",
                        commit_timestamp_ms=9, expire_timestamp_ms=None, generation_id=3, member_id=ANA,
                        version=version)  # fmt: skip


def event(kind: type[AnyEvent], version: Any = 2, **fields: Any) -> AnyEvent:
    return kind(**{"group_id": "g", "version": version, "at_ms": 6, "generation_id": 3} | fields)


WHO = {"member_id": ANA, "group_instance_id": None, "client_id": "ana", "client_host": "/10.0.0.1"}
BLAMED = {"member_id": ANA, "client_id": "ana", "client_host": "/10.0.0.1"}

TEXTS: list[tuple[Any, str]] = [
    (group(1, Phase.STABLE, member(ANA, t=[0, 1, 2], u=[4]), member(BO)),
     "Stable, generation 3, led by ana-2a84 | ana-2a84: t 0-2, u 4 | bo-cbcd: nothing"),
    (group(1, Phase.PREPARING, member(ANA)), "PreparingRebalance, generation 3, 1 member"),
    (group(1, Phase.EMPTY), "Empty, generation 3, 0 members"),
    (offset(1), "offset 7 committed for t-0 by ana-2a84"),
    (event(RebalanceStarted, cause="member_joined", **BLAMED, reason="subscribed", members=2, joins_until_ms=3_006),
     'rebalance: member joined, ana-2a84 at /10.0.0.1 ("subscribed"); waits for joins, 3.0 s at most'),
    (event(RebalanceCompleted, duration_ms=1_250, joins_ms=800, syncs_ms=450, protocol_name="range", leader=ANA,
           members_before=(ANA,), members_after=(ANA, BO), joined=(BO,), gone=()),
     "rebalanced in 1.2 s (joins 800 ms, plan 450 ms), 2 members; joined bo-cbcd"),
    (event(AssignmentChanged, handovers=tuple(Handover("t", p, b, BO) for p, b in ((1, ANA), (2, ANA), (5, None)))),
     "t 1-2 from ana-2a84 to bo-cbcd; t 5 from nobody to bo-cbcd"),
    (event(MemberLeft, **WHO, reason=None), "ana-2a84 left"),
    (event(MemberExpired, **WHO, why="session_expired", silence_ms=6_000, reason=None),
     "ana-2a84 was dropped: session expired after 6.0 s of silence"),
    (event(MemberExpired, **WHO, why="expelled", silence_ms=None, reason="stuck"),
     'ana-2a84 was dropped: expelled ("stuck")'),
    (event(MemberFenced, **{**WHO, "group_instance_id": "worker-1"}, replaced_by=BO, replaced_by_client_id="bo",
           replaced_by_client_host="/10.0.0.2"),
     "worker-1 moved from /10.0.0.1 to /10.0.0.2: bo-cbcd goes on as worker-1 in place of ana-2a84"),
    (event(OffsetsDeleted, partitions=(("t", 0), ("t", 1))), "2 offsets deleted on request"),
    (event(Rejected, None, group_id=None, partition=3, offset=17, why="the record is not UTF-8"),
     "request 3@17 is not a request: the record is not UTF-8"),
    (event(AccessDenied, None, group_id=None, principal="User:eve", client_id="c", client_host="/10.0.0.1",
           request="offset_commit", operation="READ", resource="TOPIC", names=("a", "b", "c", "d", "e", "f"), why=None),
     "User:eve at /10.0.0.1 was denied offset_commit: READ of topic a, b, c, d, e, ..."),
    (event(AccessDenied, None, group_id=None, principal="User:eve", client_id="c", client_host="", request="heartbeat",
           operation="READ", resource="GROUP", names=("g",), why="its signature is wrong"),
     "User:eve at ? was denied heartbeat: READ of group g (its signature is wrong)"),
    (event(LogBroken, None, group_id=None, partition=3, expected=17, found=20),
     "requests 3@17 to 19 were never handled: the checkpoint was damaged, most likely"),
    (event(LogBroken, None, group_id=None, partition=3, expected=17, found=9),
     "requests 3@9 to 16 came again, and were ignored: the checkpoint was damaged, most likely"),
    (event(ClockAhead, None, group_id=None, partition=3, offset=17, records=2, ahead_ms=3_599_000),
     "2 requests from 3@17 on dated up to 3599000 ms too late: the clock of a broker is wrong, or the coordinator's"),
    (event(LogBroken, None, group_id=None, partition=3, expected=17, found=90, breaks=20),
     "requests 3@17 to 90 have 20 breaks: some were never handled, or came again; the checkpoint was damaged"),
    (event(AccessChanged, None, group_id=None, principal="User:root", client_id="c", client_host="/10.0.0.1",
           partition=3, made_ms=1, rules=2), "shard 3 uses 2 rules of User:root at /10.0.0.1"),
    (event(GroupDeleted, why="no member and no offset left"), "group deleted: no member and no offset left"),
    (Tombstone("g", None, None, 9, 1), "group forgotten"),
    (Tombstone("g", "t", 4, 9, 1), "offset of t-4 forgotten"),
    (Gap("g", 4, 6), "MISSING: versions 4 to 6 of this group were published and are not in the topics"),
    (Unreadable("events-3@17", "Invalid value"), "events-3@17 cannot be read: Invalid value"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "text"), TEXTS, ids=[type(record).__name__ for record, _ in TEXTS])
def test_each_record_has_its_text(record: Any, text: str) -> None:
    assert to_line(record, None).text == text


def test_every_event_has_a_text() -> None:
    """An event without a text would stop `follow` at its first record."""
    assert set(_WORDS) >= {*get_args(AnyEvent), GroupRecord, OffsetRecord}


EVIL = "\x1b]0;pwned\x07\r\n\u202e\u2028[red]"


@pytest.mark.parametrize("field", ["group_id", "member_id", "client_host", "reason", "cause"])
def test_control_characters_in_a_record_are_escaped(field: str) -> None:
    """Any client that may write to the request topic chooses ids."""
    fields = {"cause": "x", **BLAMED, "reason": "", "members": 1, "joins_until_ms": 0}
    line = str(to_line(event(RebalanceStarted, **fields | {field: EVIL}), 0))
    assert line.isprintable()
    assert r"\x1b]0;pwned\x07" in line


def test_words_for_small_values() -> None:
    assert escape("a\tb\x9b") == r"a\tb\x9b"
    assert escape("größe 消费者") == "größe 消费者"
    assert [brief(None), brief("worker-7"), brief(ANA)] == ["nobody", "worker-7", "ana-2a84"]
    assert [spans([]), spans([3]), spans([5, 0, 1, 2])] == ["", "3", "0-2 5"]
    assert [duration(0), duration(999), duration(1_000), duration(300_000)] == ["0 ms", "999 ms", "1.0 s", "5.0 min"]


# -- versions ----------------------------------------------------------------------------------------------------------


class FollowedGroup:
    """A group's versions on a clock that only a test moves; `history` existed before the reading began."""

    def __init__(self, *history: int, events: Iterable[int] = ()) -> None:
        self.versions, self.now_ms = VersionFollower(knows_beginning=False), NOW_MS
        for topic, versions in ((GROUPS, history), (EVENTS, events)):
            for version in versions:
                self.versions.add(topic, version, version, self.now_ms, is_live=False)
        if history:
            self.versions.begin()

    def take(self, *versions: int, after_ms: int = 0, topic: int = GROUPS) -> list[bool]:
        """Return whether each record is new; the records' times grow with their versions."""
        return [self.versions.add(topic, v, after_ms + v, self.now_ms, is_live=True) for v in versions]

    def missing(self, after_ms: int = PATIENCE_MS) -> list[tuple[int, int]]:
        self.now_ms += after_ms
        assert self.versions.is_in_doubt(self.now_ms) or not list(self.versions.give_up(self.now_ms))
        return [(gone.start, gone.stop - 1) for gone in self.versions.give_up(self.now_ms)]


def test_only_a_repeat_is_dropped() -> None:
    """Design 9: a repeated batch of Spark writes equal bytes."""
    assert FollowedGroup().take(1, 2, 3, 2, 3, 4) == [True, True, True, False, False, True]


def test_versions_may_come_in_any_order_within_the_time_limit() -> None:
    followed = FollowedGroup(1)
    assert followed.take(5) + followed.take(2, 3, topic=EVENTS) == [True] * 3
    assert followed.missing(PATIENCE_MS - 1) == []
    followed.take(4, topic=EVENTS)
    assert followed.missing() == []


def test_a_missing_version_is_reported_once() -> None:
    followed = FollowedGroup(1)
    followed.take(2, 6, 9)
    assert followed.missing() == [(3, 5), (7, 8)]
    assert followed.missing() == []


def test_versions_from_before_the_reading_are_not_reported_as_missing() -> None:
    """Compaction and retention may remove records."""
    assert FollowedGroup(4, 9).missing() == []
    followed = FollowedGroup(4, events=[10])
    followed.take(12)
    assert followed.missing() == [(11, 11)]


def test_versions_before_the_first_record_are_not_reported_as_missing() -> None:
    followed = FollowedGroup()
    assert followed.take(7) + followed.take(5, 8, topic=EVENTS) == [True] * 3
    assert followed.missing() == []


def test_the_versions_of_a_new_group_begin_at_one() -> None:
    followed = FollowedGroup()
    followed.take(1, 2)
    followed.versions.add(GROUPS, 3, 3, followed.now_ms, is_live=True, ends_life=True)
    assert followed.take(3) == [False], "a repeat of the old group's record is still a repeat"
    assert followed.take(1, 2, after_ms=99) == [True, True]
    assert followed.take(1, 2, 3) == [False] * 3
    assert followed.missing() == []


def test_the_same_version_at_a_later_time_belongs_to_a_new_group() -> None:
    followed = FollowedGroup()
    followed.take(1, 2, 3)
    assert followed.take(1, after_ms=99) == [True]
    followed.take(4, after_ms=99)
    assert followed.missing() == [(2, 3)]


def test_a_late_repeat_is_dropped() -> None:
    """This includes a record from before the reading began; memory does not grow."""
    followed = FollowedGroup()
    followed.take(*range(10, 10_000))
    assert followed.take(10, 2, 9_000) == [False] * 3


def test_a_topic_may_begin_a_groups_life_before_the_other_topic() -> None:
    """The reading began while a batch was written: one topic still has the end of the earlier life."""
    followed = FollowedGroup()
    assert followed.take(1, 2, after_ms=99) == [True, True]
    followed.versions.add(EVENTS, 20, 90, followed.now_ms, is_live=True)
    followed.versions.add(EVENTS, 22, 91, followed.now_ms, is_live=True, ends_life=True)
    assert followed.missing() == []
    assert followed.take(3, after_ms=99, topic=EVENTS) + followed.take(6, after_ms=99) == [True, True]
    assert followed.missing() == [(4, 5)]


def test_a_topic_may_begin_a_groups_life_after_the_other_topic() -> None:
    followed = FollowedGroup()
    followed.take(20)
    assert followed.take(2, after_ms=99, topic=EVENTS) == [True]
    followed.versions.add(GROUPS, 22, 91, followed.now_ms, is_live=True, ends_life=True)
    assert followed.missing() == []
    assert followed.take(1, 3, 5, after_ms=99) == [True] * 3
    assert followed.missing() == [(4, 4)]


def test_a_repeat_from_before_the_reading_does_not_begin_a_new_life() -> None:
    followed = FollowedGroup()
    at_ms = NOW_MS
    taken = [followed.versions.add(EVENTS, v, at_ms, followed.now_ms, is_live=True) for v in (30, 29, 30)]
    assert taken == [True, True, False]
    assert [followed.versions.add(GROUPS, v, at_ms, followed.now_ms, is_live=True) for v in (31, 32)] == [True, True]
    assert followed.versions.add(EVENTS, 33, at_ms + 1, followed.now_ms, is_live=True)
    assert followed.missing() == []


def test_a_version_is_reported_missing_after_too_many_later_ones() -> None:
    """The memory for versions is bounded."""
    followed = FollowedGroup(1)
    followed.take(*range(3, BEYOND_MAX + 4))
    assert list(followed.versions.give_up(followed.now_ms)) == [range(2, 3)]


# -- reading -----------------------------------------------------------------------------------------------------------


class KafkaRecord(NamedTuple):
    """The part of kafka-python's ConsumerRecord that the reader uses."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int = 1_000
    partition: int = 0
    offset: int = 0


def fetched(output: Output, timestamp_ms: int = 1_000) -> Fetched:
    """Return the Kafka record that the query would write."""
    row = to_row(output, OutputTopics("replies", "groups", "events", "requests"), 0)
    return Fetched(row.topic, KafkaRecord(row.topic, row.key, row.value, row.headers or [], timestamp_ms))


def published(record: GroupRecord | OffsetRecord) -> Published:
    key = ("group", "g") if isinstance(record, GroupRecord) else ("offset", "g", record.topic, record.partition)
    return Published("g", key, record, record.version)


def read(reader: Reader, *records: Fetched) -> list[tuple[str | None, str]]:
    return [(line.group_id, type(line.record).__name__) for line in reader.read(records, NOW_MS)]


def test_records_of_both_topics_are_sorted_by_time_of_writing() -> None:
    records: Iterable[Fetched] = (
        fetched(published(group(2))),
        fetched(published(offset(4))),
        fetched(event(GroupEmptied, 1), timestamp_ms=999),
        fetched(event(MemberLeft, 3, **WHO, reason=None)),
    )
    reader = Reader()
    assert read(reader, *records) == [("g", n) for n in ("GroupEmptied", "GroupRecord", "MemberLeft", "OffsetRecord")]
    assert read(reader, *records) == [], "every record is a repeat"


def test_a_tombstone_has_its_version_in_a_header_and_ends_the_numbering() -> None:
    reader = Reader()
    ended = fetched(Published("g", ("group", "g"), None, 2, 6))
    anew = fetched(published(msgspec.structs.replace(group(1, Phase.EMPTY), since_ms=7)))
    assert read(reader, fetched(published(group(1))), ended) == [("g", "GroupRecord"), ("g", "Tombstone")]
    assert read(reader, ended, anew) == [("g", "GroupRecord")]
    line = next(reader.read([fetched(Published("g", ("offset", "g", "t", 4), None, 2, 7))], NOW_MS))
    assert (line.text, line.at_ms) == ("offset of t-4 forgotten", 1_000)


def test_a_tombstone_without_a_time_is_unreadable() -> None:
    """No coordinator writes one."""
    line = next(Reader().read([fetched(Published("g", ("group", "g"), None, 2))], NOW_MS))
    assert isinstance(line.record, Unreadable)
    assert "a tombstone has no header at_ms" in line.text


def test_only_the_selected_groups_are_shown() -> None:
    other = event(MemberLeft, 1, **WHO, reason=None, group_id="h")
    without_group = event(Rejected, None, group_id=None, partition=0, offset=0, why="x")
    records = [fetched(o) for o in (published(group(1)), other, without_group)]
    assert read(Reader(groups={"h"}), *records) == [("h", "MemberLeft")]
    assert len(read(Reader(), *records)) == 3


def test_a_gap_is_reported_after_the_time_limit() -> None:
    reader = Reader()
    read(reader, fetched(published(offset(1))), fetched(published(offset(4, at=8))))
    assert not reader.is_in_doubt(NOW_MS + PATIENCE_MS - 1)
    assert reader.is_in_doubt(NOW_MS + PATIENCE_MS)
    assert [line.record for line in reader.missing(NOW_MS + PATIENCE_MS)] == [Gap("g", 2, 3)]
    assert not reader.is_in_doubt(NOW_MS + 10 * PATIENCE_MS)


@pytest.mark.parametrize("topic", ["groups", "events"])
@pytest.mark.parametrize("value", [b"{}", b"\xff", b'{"event":"of a later version"}', None])
def test_a_record_of_an_unknown_format_is_shown_as_unreadable(topic: str, value: bytes | None) -> None:
    record = KafkaRecord(topic, b"no key of ours", value, [], partition=3, offset=17)
    (line,) = Reader().read([Fetched(topic, record)], NOW_MS)
    assert isinstance(line.record, Unreadable)
    assert line.text.startswith(f"{topic}-3@17 cannot be read: ")


def test_a_line_has_the_time_of_its_event() -> None:
    lines = list(Reader().read([fetched(published(group(1))), fetched(published(offset(3)))], NOW_MS))
    assert [line.at_ms for line in lines] == [5, 9]
    assert str(to_line(GroupEmptied(group_id="g", version=1, at_ms=0, generation_id=1), None)) == (
        "--:--:--.---  g  the last member is gone"
    )


@pytest.mark.parametrize(("record", "text"), TEXTS, ids=[type(record).__name__ for record, _ in TEXTS])
def test_each_line_can_be_written_as_json(record: Any, text: str) -> None:
    written = to_line(record, 6).in_json()
    assert written.isascii()
    assert "\n" not in written
    parsed = json.loads(written)
    assert (parsed["at_ms"], parsed["text"]) == (6, text)
    assert parsed["record"]
    assert parsed["fields"]
