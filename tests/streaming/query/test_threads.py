"""Tests of the threads beside the query: work that fails begins again."""

from threading import Event, Thread

import pytest

from streaming.query.watchers import threads
from streaming.query.watchers.threads import await_end, run_forever


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "RETRY_WAIT_S", 0.0)


def test_work_that_fails_begins_again_and_a_repeated_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["no broker", "no broker", "no topic", "no broker"]

    def work() -> None:
        if texts:
            raise OSError(texts.pop(0))

    run_forever(work, "the watch", Event())
    logged = [text.removeprefix("the watch failed, and begins again: ") for text in caplog.messages]
    assert logged == ["no broker", "no topic", "no broker"]


def test_work_that_fails_ends_with_its_thread() -> None:
    closing, began = Event(), 0

    def work() -> None:
        nonlocal began
        began += 1
        if began == 3:
            closing.set()
        raise OSError("no broker")

    run_forever(work, "the watch", closing)
    assert began == 3


def test_work_that_has_ended_is_not_repeated() -> None:
    ended: list[str] = []
    run_forever(lambda: ended.append("once"), "the watch", Event())
    assert ended == ["once"]


def test_stop_does_not_wait_for_a_thread_that_waits_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "END_WAIT_S", 0.01)
    answered = Event()
    thread = Thread(target=answered.wait, daemon=True)
    thread.start()
    await_end(thread)
    assert thread.is_alive()
    answered.set()
    thread.join()
    await_end(thread)
