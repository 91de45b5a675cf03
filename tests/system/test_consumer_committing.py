"""The outcomes of a `GroupConsumer`'s offset commits on the real broker and query."""

import signal
from typing import Any

import pytest
from kafka.errors import (
    CommitFailedError,
)

from coordinator.messages.events import CommitRejected
from tests.system.staging import Listener, MakeStage, at, read


class Ends:
    """A callback that records the outcomes of commits."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def __call__(self, offsets: Any, error: Exception | None) -> None:
        self.seen.append((offsets, error))


def test_asynchronous_commits_complete_in_a_later_poll(stage: MakeStage) -> None:
    """S136: callbacks, also the default one, run on the caller's thread in the order of the commits."""
    s = stage(1)
    zero = s.partition(0)
    default, own = Ends(), Ends()
    ana = s.consumer(default_offset_commit_callback=default)
    s.until(lambda: s.is_shared_out([0]))
    futures = [ana.commit_async({zero: at(n)}, own) for n in (3, 4, 5)]
    by_default = ana.commit_async({zero: at(6)})
    assert ana.committed(zero) == 6  # so all four have their responses
    assert (own.seen, default.seen, [future.is_done for future in futures]) == ([], [], [False] * 3)
    ana.poll(0)
    assert own.seen == [({zero: at(n)}, None) for n in (3, 4, 5)]
    assert default.seen == [({zero: at(6)}, None)]
    assert [future.value for future in [*futures, by_default]] == [{zero: at(n)} for n in (3, 4, 5, 6)]


def test_synchronous_commit_completes_the_commits_before_it(stage: MakeStage) -> None:
    """As in Kafka, callbacks run in the order of the commits."""
    s = stage(1)
    zero, ends = s.partition(0), Ends()
    ana = s.consumer()
    s.until(lambda: s.is_shared_out([0]))
    ana.commit_async({zero: at(1)}, ends)
    ana.commit({zero: at(2)})
    assert ends.seen == [({zero: at(1)}, None)]


def test_failed_callback_does_not_stop_other_commits(stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    s = stage(1)
    zero, ends = s.partition(0), Ends()

    def fail(offsets: Any, error: Exception | None) -> None:
        raise ZeroDivisionError

    ana = s.consumer()
    s.until(lambda: s.is_shared_out([0]))
    ana.commit_async({zero: at(1)}, fail)
    ana.commit_async({zero: at(2)}, ends)
    s.until(lambda: ends.seen)
    assert ends.seen == [({zero: at(2)}, None)]
    assert "a commit's callback failed" in caplog.text


def test_commit_of_an_expelled_member_fails(stage: MakeStage) -> None:
    """S136, W21: the error reaches callbacks and callers, and the committed offset does not change."""
    s = stage(1)
    zero, ends, listener = s.partition(0), Ends(), Listener()
    ana = s.consumer(session_timeout_ms=120_000, heartbeat_interval_ms=60_000, listener=listener)
    s.until(lambda: s.is_shared_out([0]))
    ana.commit({zero: at(1)})
    s.expel(ana.member_id)
    future = ana.commit_async({zero: at(2)}, ends)
    s.until(lambda: ends.seen, alone=lambda: ana.poll(20))
    ((offsets, error),) = ends.seen
    assert offsets == {zero: at(2)}
    assert isinstance(error, CommitFailedError)
    assert future.exception is error
    assert ("lost", [0]) in listener.calls
    s.until(lambda: s.is_shared_out([0]))
    s.expel(ana.member_id)
    with pytest.raises(CommitFailedError):
        ana.commit({zero: at(3)})
    with pytest.raises(CommitFailedError):
        ana.commit({zero: at(4)})  # the consumer knows that it is no member
    assert ana.committed(zero) == 1
    assert len(s.requests("offset_commit")) == 3
    assert next(s.published(CommitRejected)).error == "UNKNOWN_MEMBER_ID"


def test_commit_for_a_partition_of_another_member_is_refused(stage: MakeStage) -> None:
    """S139: the client refuses the commit and sends no request."""
    s = stage(2)
    ends = Ends()
    ana, _ = s.consumer(), s.consumer()
    s.until(lambda: s.is_shared_out([0], [1]))
    (others,) = {s.partition(0), s.partition(1)} - ana.assignment()
    with pytest.raises(CommitFailedError, match="This member does not own"):
        ana.commit({others: at(1)})
    future = ana.commit_async({others: at(1)}, ends)
    s.until(lambda: ends.seen)
    assert isinstance(ends.seen[0][1], CommitFailedError)
    assert future.exception is ends.seen[0][1]
    assert ana.committed(others) is None
    assert s.requests("offset_commit") == []


def test_commit_of_a_member_that_expired_while_paused_is_refused(stage: MakeStage) -> None:
    """W21, S13, S139: a member that is expelled while paused gets CommitFailedError for its commit.

    Only the records that it had not committed are read again.
    """
    s = stage(1)
    bo = s.consumer(client_id="bo")
    ana = s.worker(client_id="ana", session_timeout_ms=2_500)
    ana.tells("assigned", s.turn)
    s.until(lambda: s.is_shared_out([]))
    s.produce(*(b"%d" % n for n in range(20)))
    while ana.tells("read", s.turn)[-1] < 19:
        continue
    generation = bo.generation
    ana.signal(signal.SIGSTOP)
    ana.ask_for("commit")
    s.until(lambda: s.is_shared_out([0]), alone=lambda: bo.poll(20, max_records=1) and None)
    bo.seek(s.partition(0), 0)
    assert read(bo, 5) == [b"0", b"1", b"2", b"3", b"4"]
    bo.commit()
    ana.signal(signal.SIGCONT)
    assert ana.tells("refused", s.turn) == "CommitFailedError"
    assert ana.tells("lost", s.turn) == [0]
    rejected = next(s.published(CommitRejected))
    assert (rejected.client_id, rejected.error) == ("ana", "UNKNOWN_MEMBER_ID")
    assert rejected.claimed_generation_id == generation
    assert bo.committed(s.partition(0)) == 5
