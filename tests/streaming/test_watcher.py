"""Tests of the base of all watches: work that fails begins again, and a stop ends it."""

from collections.abc import Callable
from threading import Event

import pytest

from streaming import watcher
from streaming.watcher import END_WAIT_S, Watcher
from tests.system.waiting import HANG_S


class Watch(Watcher):
    """A watch whose work is a function of the test, which gets the event of the stop."""

    def __init__(
        self, work: Callable[[Event], object], interrupt: Callable[[], None] = lambda: None, end_wait_s: float = HANG_S
    ) -> None:
        super().__init__("the watch", interrupt, end_wait_s)
        self._work = work

    def _watch(self) -> None:
        self._work(self._closing)

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def await_end(self) -> None:
        self._thread.join(HANG_S)
        assert self.has_ended


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "RETRY_WAIT_S", 0.0)


def test_work_that_fails_begins_again_and_a_repeated_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["no broker", "no broker", "no topic", "no broker"]

    def work(_: Event) -> None:
        if texts:
            raise OSError(texts.pop(0))

    watch = Watch(work)
    watch.start()
    watch.await_end()
    logged = [text.removeprefix("the watch failed, and begins again: ") for text in caplog.messages]
    assert logged == ["no broker", "no topic", "no broker"]


def test_work_that_fails_ends_with_its_thread() -> None:
    began: list[str] = []

    def work(closing: Event) -> None:
        began.append("again")
        if len(began) == 3:
            closing.set()
        raise OSError("no broker")

    watch = Watch(work)
    watch.start()
    watch.await_end()
    assert len(began) == 3


def test_work_that_has_ended_is_not_repeated() -> None:
    ended: list[str] = []
    watch = Watch(lambda _: ended.append("once"))
    watch.start()
    watch.await_end()
    watch.close()
    assert ended == ["once"]


def test_block_starts_the_work_and_waits_for_its_end() -> None:
    with Watch(lambda closing: closing.wait(HANG_S)) as watch:
        assert not watch.has_ended
    assert watch.has_ended


def test_stop_interrupts_a_wait_of_the_work() -> None:
    """The event of the work's own wait comes after that of the stop, which the work then sees."""
    waited_for, seen = Event(), list[bool]()

    def work(closing: Event) -> None:
        waited_for.wait(HANG_S)
        seen.append(closing.is_set())

    watch = Watch(work, waited_for.set)
    watch.start()
    watch.close()
    assert seen == [True]


@pytest.mark.parametrize("end_wait_s", [0, 0.01])
def test_stop_does_not_wait_for_a_thread_that_waits_for_brokers(end_wait_s: float) -> None:
    answered = Event()
    watch = Watch(lambda _: answered.wait(HANG_S), end_wait_s=end_wait_s)
    watch.start()
    watch.close()
    assert not watch.has_ended
    answered.set()
    watch.await_end()


def test_watch_that_was_not_started_can_be_stopped() -> None:
    Watch(lambda _: None, end_wait_s=END_WAIT_S).close()
