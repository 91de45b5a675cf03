"""Tests of a consumer's commits and offset fetches: sent requests, and results."""

import logging
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import CommitFailedError, KafkaTimeoutError
from kafka.structs import OffsetAndMetadata

from coordinator.base.errors import ErrorCode
from coordinator.member.effects import CommitEnded, Effect, FetchEnded
from coordinator.messages.requests import OffsetToCommit, TopicPartitions
from coordinator.messages.responses import FetchedOffset
from streaming.client import committing
from streaming.client.committing import Commits

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = {
    "group_id": "g",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "default_offset_commit_callback": lambda offsets, error: None,
}
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


class Reading:
    """A consumer's partitions and positions, set by the test."""

    def __init__(self) -> None:
        self.owned = self.unplaced = frozenset[TopicPartition]()
        self.had: dict[TopicPartition, OffsetAndMetadata] = {}
        self.started: dict[TopicPartition, int] = {}

    def own(self, partitions: frozenset[TopicPartition]) -> None:
        self.unplaced, self.owned = partitions - self.owned, partitions

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self.had

    def start(self, committed: dict[TopicPartition, int]) -> None:
        self.started |= committed
        self.unplaced -= committed.keys()


class Driver:
    """A STABLE member that keeps its sent requests, and returns the effects that a test has put in `effects`."""

    def __init__(self) -> None:
        self.member = self
        self.may_commit = True
        self.sent: list[Any] = []
        self.effects: list[Effect] = []

    def commit(self, offsets: tuple[OffsetToCommit, ...]) -> str:
        return self.fetch(offsets)

    def fetch(self, topics: Any) -> str:
        self.sent.append(topics)
        return f"{len(self.sent)}"

    def ended(self, ticket: str, wait_s: float) -> Effect | None:
        return next((effect for effect in self.effects if getattr(effect, "ticket", None) == ticket), None)

    def take_ended(self) -> list[Effect]:
        taken, self.effects = self.effects, []
        return taken


class Stage:
    """Commits with a reading, a driver and a clock that the test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0
        monkeypatch.setattr(committing, "monotonic_ms", lambda: self.now_ms)
        self.reading, self.driver = Reading(), Driver()
        made: Any = Commits
        self.commits: Commits = made(self.driver, self.reading, GROUP)


@pytest.fixture
def s(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_an_automatic_commit_is_sent_once_in_an_interval_with_changed_positions(s: Stage) -> None:
    s.commits.keep_owned(frozenset({P0, P1}))
    s.driver.sent.clear()
    s.reading.had = {P0: at(5)}
    s.now_ms = 4_999
    s.commits.commit_if_due()
    assert s.driver.sent == []
    s.now_ms = 5_000
    s.commits.commit_if_due()
    s.commits.commit_if_due()
    assert s.driver.sent == [(OffsetToCommit("t", 0, 5, -1, ""),)]
    s.reading.had = {P0: at(5), P1: at(7)}
    s.now_ms = 10_000
    s.commits.commit_if_due()
    assert s.driver.sent[1:] == [(OffsetToCommit("t", 1, 7, -1, ""),)], "P0 has not moved"


def test_no_automatic_commit_is_sent_in_a_rebalance(s: Stage) -> None:
    s.reading.had = {P0: at(5)}
    s.driver.may_commit = False
    s.now_ms = 60_000
    s.commits.commit_if_due()
    assert s.driver.sent == []


def test_an_automatic_commit_that_failed_is_logged_and_sent_again(s: Stage, caplog: pytest.LogCaptureFixture) -> None:
    s.reading.had = {P0: at(5)}
    s.commits.commit_automatically()
    with caplog.at_level(logging.WARNING):
        s.commits.hear(CommitEnded("1", UNKNOWN.number, UNKNOWN.name))
    assert "group g: offsets were not committed: UNKNOWN_MEMBER_ID" in caplog.text
    s.commits.commit_automatically()
    assert s.driver.sent[0] == s.driver.sent[1]


def test_a_commit_raises_its_error_after_callbacks_of_earlier_commits(s: Stage) -> None:
    s.reading.owned, callback_calls = frozenset({P0}), list[Any]()
    future = s.commits.commit_async({P0: at(1)}, lambda offsets, error: callback_calls.append((offsets, error)))
    s.driver.effects = [CommitEnded("1", 0, "NONE"), CommitEnded("2", UNKNOWN.number, UNKNOWN.name)]
    with pytest.raises(CommitFailedError, match="UNKNOWN_MEMBER_ID"):
        s.commits.commit({P0: at(2)}, 10)
    assert callback_calls == [({P0: at(1)}, None)]
    assert future.succeeded()


def test_an_offset_of_another_members_partition_is_not_sent(s: Stage) -> None:
    s.commits.keep_owned(frozenset({P0}))
    s.driver.sent.clear()
    with pytest.raises(CommitFailedError, match="This member does not own t 1"):
        s.commits.commit({P1: at(1)}, 10)
    assert s.commits.commit_async({P1: at(1)}, None).failed()
    assert s.driver.sent == []


def test_commits_without_a_response_fail_when_the_consumer_closes(s: Stage) -> None:
    s.reading.owned = frozenset({P0})
    future = s.commits.commit_async({P0: at(1)}, None)
    s.commits.close()
    assert isinstance(future.exception, KafkaTimeoutError)


def test_new_partitions_start_at_the_offsets_that_are_fetched_for_them(s: Stage) -> None:
    s.commits.keep_owned(frozenset({P0, P1}))
    assert s.driver.sent == [(TopicPartitions("t", (0, 1)),)]
    s.commits.fetch_if_unplaced()
    assert len(s.driver.sent) == 1, "the fetch is under way"
    found = (FetchedOffset("t", 0, 5), FetchedOffset("t", 1, -1))
    s.commits.hear(FetchEnded("1", 0, "NONE", found))
    assert s.reading.started == {P0: 5, P1: -1}


def test_offsets_are_fetched_again_after_a_timeout(s: Stage) -> None:
    s.commits.keep_owned(frozenset({P0}))
    with pytest.raises(KafkaTimeoutError):
        s.commits.place_readers(10)
    s.commits.fetch_if_unplaced()
    assert len(s.driver.sent) == 2
