"""Whether a checkpoint is the newest one is never taken for granted."""

from types import SimpleNamespace
from typing import Any

import pytest

from streaming.errors import BrokerUnreachable
from streaming.query import outdated


class Consumer:
    """Gives events one by one, at most as many as there are."""

    def __init__(self, times_ms: list[int], end: int) -> None:
        self.times_ms, self.end, self.at = times_ms, end, 0

    def position(self, place: str) -> int:
        return self.at

    def poll(self, timeout_ms: int) -> dict[str, list[Any]]:
        given = self.times_ms[self.at : self.at + 500]
        self.at += len(given)
        return {"events-0": [SimpleNamespace(value=b'{"at_ms":%d}' % at_ms) for at_ms in given]}

    def look(self) -> int | None:
        return outdated._read(self, {"events-0": self.end}, 100)


def test_a_later_event_is_found_behind_any_number_of_earlier_ones() -> None:
    assert Consumer([*[99] * 20_000, 101], 20_001).look() == 101


def test_nothing_later_is_said_only_when_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Consumer([99, 100], 2).look() is None
    monkeypatch.setattr(outdated, "LOOK_S_MAX", 0.05)
    with pytest.raises(BrokerUnreachable, match="nobody can say whether this is the newest checkpoint"):
        Consumer([99, 100], 3).look()
