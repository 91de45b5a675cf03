"""Which topics of offsets are reported: from the records of the groups topic, and the brokers' answers."""

import pytest

from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.group_records import OffsetRecord
from coordinator.messages.requests import OffsetTopic
from streaming.query.watchers import offset_topics as module
from streaming.query.watchers.offset_topics import WatchedTopics

A, B = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def record(topic_id: str | None, committed_ms: int = 1, group_id: str = "g", topic: str = "t") -> OffsetRecord:
    return OffsetRecord(
        group_id=group_id, topic=topic, partition=0, offset=5, leader_epoch=-1, metadata="",
        commit_timestamp_ms=committed_ms, expire_timestamp_ms=None, generation_id=-1, member_id="", version=1,
        topic_id=topic_id or "",
    )  # fmt: skip


def look(watched: WatchedTopics, current_id: str | None, topic: str = "t") -> list[tuple[str, OffsetTopic]]:
    return list(watched.compare({topic}, {topic: TopicFact(topic, current_id, 1 if current_id else 0)}))


@pytest.mark.parametrize("current_id", [None, B])
def test_a_topic_that_is_gone_is_reported_after_two_equal_answers(current_id: str | None):
    """One broker may be behind the others: it does not know a new topic yet, or still knows an old one."""
    watched = WatchedTopics()
    watched.handle(record(A, 7))
    assert look(watched, current_id) == []
    assert look(watched, current_id) == [("g", OffsetTopic("t", A, current_id, 7))]
    assert look(watched, A) == []
    assert look(watched, current_id) == [], "the last answer was another one"


@pytest.mark.parametrize(("topic_id", "current_id"), [(A, A), (NO_TOPIC, None)])
def test_a_topic_that_has_not_changed_is_not_reported(topic_id: str, current_id: str | None):
    watched = WatchedTopics()
    watched.handle(record(topic_id))
    assert [look(watched, current_id) for _ in range(3)] == [[], [], []]


def test_a_topic_about_which_the_brokers_say_nothing_is_not_reported():
    """As one that this process may not describe."""
    watched = WatchedTopics()
    watched.handle(record(A))
    assert [list(watched.compare({"t"}, {})) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("current_id", [None, B])
def test_offsets_without_an_id_are_reported_too(current_id: str | None):
    watched = WatchedTopics()
    watched.handle(record(None, 7))
    assert look(watched, current_id) == []
    assert look(watched, current_id) == [("g", OffsetTopic("t", None, current_id, 7))]


def test_a_report_is_about_commits_that_were_read_before_the_brokers_were_asked():
    """A commit between the two looks may be for a topic that was made in between."""
    watched = WatchedTopics()
    watched.handle(record(None, 7))
    look(watched, None)
    watched.handle(record(None, 9))
    assert look(watched, None) == [("g", OffsetTopic("t", None, None, 7))]
    assert look(watched, None) == [("g", OffsetTopic("t", None, None, 9))]


def test_a_report_is_repeated_until_the_brokers_have_it():
    watched = WatchedTopics()
    watched.handle(record(A, 7))
    watched.handle(record(A, 8, "h"))
    look(watched, None)
    reports = look(watched, None)
    assert [group_id for group_id, _ in reports] == ["g", "h"]
    assert look(watched, None) == reports
    watched.reported("g", [reports[0][1]])
    assert look(watched, None) == reports[1:]
    watched.handle(record(A, 9, "h"))
    watched.reported("h", [reports[1][1]])
    look(watched, None)
    assert look(watched, None) == [("h", OffsetTopic("t", A, None, 9))], "it has committed again meanwhile"
    watched.reported("h", [OffsetTopic("t", A, None, 9)])
    assert (look(watched, None), watched.names) == ([], set())


def test_the_watched_topics_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ENTRIES_MAX", 2)
    watched = WatchedTopics()
    for number, topic in enumerate("abab"):
        watched.handle(record(A, number, topic=topic))
    assert watched.names == {"a", "b"}
    watched.handle(record(A, 1, "h", "c"))
    assert watched.names == {"b", "c"}
