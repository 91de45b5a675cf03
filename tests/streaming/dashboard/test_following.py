"""Tests of the page's two threads, without Kafka: they report every error and continue."""

from collections.abc import Callable
from typing import Any

import pytest

from streaming.config.settings import Settings
from streaming.dashboard import live_reader
from streaming.dashboard.live import LiveViews, Phase, Status
from streaming.dashboard.live_reader import LiveReader
from streaming.errors import BrokerUnreachable


class RecordingLive(LiveViews):
    """A `LiveViews` that keeps the statuses of the reading."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: list[Status] = []

    def set_status(self, status: Status) -> None:
        self.statuses.append(status)
        super().set_status(status)


class Kafka:
    """A stand-in for `Reading` and `EndOffsets`: the first call raises, and the second one stops the thread."""

    def __init__(self, error: Exception, stop: Callable[[], None]) -> None:
        self.errors, self.stop = [error], stop

    def __call__(self, *_: Any, **__: Any) -> "Kafka":
        return self

    def __enter__(self) -> "Kafka":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _answer(self) -> dict[Any, Any]:
        if self.errors:
            raise self.errors.pop()
        self.stop()
        return {}

    def catch_up(self, tell: Any) -> None:
        self._answer()

    def bounds(self, wanted: Any) -> dict[Any, Any]:
        return self._answer()


@pytest.mark.parametrize("thread", ["_read", "_ask_for_ends"])
@pytest.mark.parametrize(
    ("error", "why", "is_logged"),
    [(BrokerUnreachable("No broker."), "No broker.", False), (ValueError("Invalid partition"), "ValueError", True)],
)
def test_an_error_does_not_end_a_thread(
    thread: str, error: Exception, why: str, is_logged: bool, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    live, sentences = RecordingLive(), list[str]()
    follows = LiveReader(Settings(), live, sentences.append)
    kafka = Kafka(error, follows._stopping.set)
    pauses = dict.fromkeys(Phase, 0)
    for name, value in {"ViewReader": kafka, "EndOffsets": kafka, "AGAIN_AFTER_S": 0, "PAUSES_S": pauses}.items():
        monkeypatch.setattr(live_reader, name, value)
    getattr(follows, thread)()
    (unavailable,) = (status for status in live.statuses if status.phase is Phase.AWAY)
    assert why in (unavailable.why or "")
    assert sentences == [unavailable.why]
    assert ("Traceback" in caplog.text) is is_logged
    assert not kafka.errors
    assert follows._stopping.is_set()
