"""A query that has failed at the brokers: whether it begins again, or ends and why. The brokers' answers are given."""

import pytest

from streaming.config.settings import Settings
from streaming.errors import Exit
from streaming.kafka.brokers import Brokers
from streaming.query.coordinator import QueryFailed
from streaming.query.watchers import outages
from streaming.query.watchers.outages import Outage

EXPIRED = "org.apache.kafka.common.errors.TimeoutException: Expiring 1 record(s) for c.replies-3:90000 ms has passed"
NOT_ENOUGH = "org.apache.kafka.common.errors.NotEnoughReplicasException: Messages are rejected"

WELL = Brokers("a:1", frozenset({1, 2, 3}))
ONE_IS_OUT = Brokers("a:1", frozenset({1, 2}), frozenset({3}))
NONE = Brokers("a:1", error="refused")
WITHOUT_TOPIC = Brokers("a:1", frozenset({1, 2, 3}), missing=("c.replies",))


class Query:
    """An outage whose brokers answer as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outage, self.looks = Outage(Settings(topic_prefix="c"), ["c.replies"]), 0
        self._monkeypatch = monkeypatch

    def fails(self, account: str, brokers: Brokers, batches: int = 0) -> QueryFailed | None:
        def look(_kafka: object, topics: object) -> Brokers:
            assert topics == ["c.replies"]
            self.looks += 1
            return brokers

        self._monkeypatch.setattr(outages, "check_brokers", look)
        refusal = self.outage.refusal(account, QueryFailed, batches)
        assert refusal is None or isinstance(refusal, QueryFailed)
        return refusal


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(monkeypatch)


@pytest.mark.parametrize("account", [EXPIRED, NOT_ENOUGH])
def test_query_begins_again_for_as_long_as_some_brokers_answer(query: Query, account: str) -> None:
    for _ in range(5):
        assert query.fails(account, ONE_IS_OUT, batches=7) is None
    (reason,) = query.outage.reasons(7)
    assert reason.endswith(f" s ago: {ONE_IS_OUT.sentence}"), "it is not ready, and says why"
    assert query.outage.reasons(8) == [], "a batch has ended"


def test_query_ends_if_no_broker_answers_for_as_long_as_it_waits(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr("streaming.query.watchers.outages.time.monotonic", lambda: now_s[0])
    wait_s = Settings().broker_wait_ms / 1_000
    assert query.fails(EXPIRED, NONE) is None
    now_s[0] += wait_s - 1
    assert query.fails(EXPIRED, NONE) is None
    assert query.fails(EXPIRED, ONE_IS_OUT) is None, "the silence is over"
    now_s[0] += 1
    assert query.fails(EXPIRED, NONE) is None
    now_s[0] += wait_s
    failure = query.fails(EXPIRED, NONE)
    assert failure is not None
    assert failure.exit_code == Exit.FAILED
    assert str(failure).startswith("No Kafka broker answers at a:1 (refused)")


def test_query_ends_if_a_topic_is_missing_since_a_start_creates_it(query: Query) -> None:
    failure = query.fails(EXPIRED, WITHOUT_TOPIC)
    assert str(failure) == "The brokers have no topic c.replies: start the coordinator again, which creates it."


def test_fault_that_has_passed_by_the_time_of_the_look_ends_no_query(query: Query) -> None:
    """An attempt that began during the outage may fail after it, because replicas were not in sync early enough."""
    for _ in range(3):
        assert query.fails(EXPIRED, ONE_IS_OUT, batches=4) is None
        assert query.fails(EXPIRED, WELL, batches=4) is None


def test_query_without_a_fault_of_the_brokers_begins_again_once_for_each_batch(query: Query) -> None:
    """What Spark's executors cannot reach, the driver may reach: such a query must not fail for ever in silence."""
    assert query.fails(EXPIRED, WELL, batches=0) is None
    failure = query.fails(EXPIRED, WELL, batches=0)
    assert str(failure).startswith("The brokers did not take a record for c.replies-3 within broker_wait_ms")
    assert query.fails(EXPIRED, WELL, batches=1) is None


@pytest.mark.parametrize(
    "account",
    [
        "CorruptState: cut short\nCaused by: java.util.concurrent.TimeoutException",
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized. TimeoutException",
        "java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_other_failures_end_the_query_and_ask_nobody(query: Query, account: str) -> None:
    assert query.fails(account, ONE_IS_OUT) is not None
    assert query.looks == 0
