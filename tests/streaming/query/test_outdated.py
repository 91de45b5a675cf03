"""Whether a checkpoint is the newest one is never taken for granted."""

from collections.abc import Iterator

import pytest

from streaming.errors import BrokerUnreachable
from streaming.kafka.reader import Record, TopicUnread
from streaming.query.outdated import first_later


def events(times_ms: list[int], *, is_whole: bool = True) -> Iterator[Record]:
    """Yield events one by one, as a reader does that comes to the topic's end, or runs out of time before."""
    for offset, at_ms in enumerate(times_ms):
        yield Record("events", 0, offset, at_ms, b"", b'{"at_ms":%d}' % at_ms)
    if not is_whole:
        raise TopicUnread("events could not be read to its end within 60 s.")


def test_a_later_event_is_found_behind_any_number_of_earlier_ones() -> None:
    assert first_later(events([*[99] * 20_000, 101]), 100) == 101


def test_nothing_later_is_said_only_when_all_is_read() -> None:
    assert first_later(events([99, 100]), 100) is None
    with pytest.raises(BrokerUnreachable, match="it is unknown whether this is the newest checkpoint"):
        first_later(events([99, 100], is_whole=False), 100)


def test_a_value_that_is_no_event_is_passed_over() -> None:
    unreadable = Record("events", 0, 0, 101, b"", b"{")
    assert first_later(iter([unreadable]), 100) is None
