"""Tests of a running query without Spark: its new starts after outages, why it ends, and its stop."""

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, StoreUnavailable, TopicMismatch, UserError
from streaming.kafka import topics
from streaming.kafka.brokers import Brokers
from streaming.query import running_query
from streaming.query.coordinator import QueryFailed
from streaming.query.running_query import RunningQuery
from streaming.query.watchers import outages
from streaming.query.watchers.progress import Tallies

EXPIRED = "org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s) for c.replies-3:90000 ms has passed"
ONE_IS_OUT = Brokers("a:1", frozenset({1, 2}), frozenset({3}))


class Run:
    """One run of the query, in place of Spark's. It fails at once with an account, or its batch goes on for ever."""

    def __init__(self, account: str | None = None) -> None:
        self._error = StreamingQueryException(account) if account else None
        self.isActive = account is None
        self.looks = 0

    @property
    def status(self) -> dict[str, bool]:
        self.looks += 1
        return {"isTriggerActive": True}

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False


class Query(RunningQuery):
    """A query whose starts have the outcomes of the test: a run, or an error. It stops at the last one."""

    def __init__(self, *outcomes: Run | Exception) -> None:
        settings = Settings(topic_prefix="c")
        super().__init__(settings, Tallies(), topics.layout(settings), ["other"], QueryFailed)
        self.left, self.attended = list(outcomes), list[Any]()
        self._start_writing = self._next
        self._begin()

    def _next(self) -> Any:
        outcome = self.left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _attend(self, query: Any) -> None:
        self.attended.append(query)
        assert len(self.attended) < 1_000, "the query has to end"
        if not self.left:
            self.ask_to_stop()


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Make one broker of several be out, and nothing pause. Return the topics about which the brokers are asked."""
    asked: list[Any] = []

    def look(_: object, of: object) -> Brokers:
        asked.append(of)
        return ONE_IS_OUT

    monkeypatch.setattr(outages, "check_brokers", look)
    monkeypatch.setattr(outages, "AGAIN_AFTER_S", 0)
    monkeypatch.setattr(running_query, "CHECK_EVERY_S", 0)
    return asked


def test_query_that_fails_at_the_brokers_begins_again(brokers: list[Any]) -> None:
    """They are asked about all topics of the query. Until a batch has ended it is not ready, and says why."""
    query = Query(Run(EXPIRED), last := Run())
    query.wait()
    assert query.attended[-1] is last
    assert brokers == [["other", "c.requests", "c.replies", "c.groups", "c.events", "c.transactions"]]
    (reason,) = query.not_ready_reasons()
    assert reason.endswith(f"s ago: {ONE_IS_OUT.sentence}")
    assert query.silent_s() < 60


@pytest.mark.parametrize("error", [BrokerUnreachable("no broker"), StoreUnavailable("no store")])
def test_start_that_fails_during_an_outage_is_tried_again(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(Run(EXPIRED), error, last := Run())
    query.wait()
    assert query.attended[-1] is last
    assert f"The query could not begin again. {error}" in caplog.messages


def test_other_failure_of_a_new_start_ends_the_query() -> None:
    query = Query(Run(EXPIRED), UserError("wrong"), Run())
    with pytest.raises(UserError, match="wrong"):
        query.wait()


def test_query_that_fails_for_another_reason_ends_with_its_own_error() -> None:
    query = Query(Run("java.lang.OutOfMemoryError: Java heap space"), Run())
    with pytest.raises(QueryFailed):
        query.wait()
    assert len(query.left) == 1


def test_query_ends_with_the_refusal_of_a_watch() -> None:
    query = Query(Run(), Run())
    query._topic_watch.refusal = TopicMismatch("c.groups was deleted and made anew.")
    with pytest.raises(TopicMismatch):
        query.wait()


def test_data_loss_is_that_of_an_altered_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark may fail at a topic that was made anew before the watch has looked at it."""
    query = Query(Run("KAFKA_DATA_LOSS"), Run())

    def check() -> None:
        query._topic_watch.refusal = TopicMismatch("c.requests was deleted and made anew.")

    monkeypatch.setattr(query._topic_watch, "check", check)
    with pytest.raises(TopicMismatch):
        query.wait()


def test_run_that_begins_after_the_stop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop may have seen the run that has failed."""
    query = Query(Run(EXPIRED), last := Run(), Run())
    begin = query._start_writing

    def begin_late() -> Any:
        query.ask_to_stop()
        return begin()

    query._start_writing = begin_late
    query.wait()
    assert not last.isActive


def test_stop_waits_for_the_batch_unless_the_query_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_query, "BATCH_WAIT_S", 0.05)
    for is_abandoned in (False, True):
        query = Query(run := Run())
        if is_abandoned:
            query.abandon()
        query.stop()
        assert query.is_abandoned == is_abandoned
        assert not run.isActive
        assert (run.looks > 1) != is_abandoned
        assert query._store._closing.is_set(), "the threads beside it are stopped"
        assert query._topic_watch._closing.is_set()
