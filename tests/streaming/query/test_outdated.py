"""Tests of the check that a checkpoint is the newest one."""

from collections.abc import Iterator

import pytest

from streaming.errors import BrokerUnreachable
from streaming.kafka.reader import Record, TopicUnread
from streaming.query.checkpoint.outdated import first_later


def events(times_ms: list[int], *, is_whole: bool = True) -> Iterator[Record]:
    """Yield events as a reader does that reaches the topic's end, or that runs out of time before it."""
    for offset, at_ms in enumerate(times_ms):
        yield Record("events", 0, offset, at_ms, b"", b'{"at_ms":%d}' % at_ms)
    if not is_whole:
        raise TopicUnread("events could not be read to its end within 60 s.")


def test_a_later_event_is_found_after_any_number_of_earlier_ones() -> None:
    assert first_later(events([*[99] * 20_000, 101]), 100) == 101


def test_a_topic_that_is_not_read_to_its_end_is_an_error() -> None:
    assert first_later(events([99, 100]), 100) is None
    with pytest.raises(BrokerUnreachable, match="it is unknown whether this is the newest checkpoint"):
        first_later(events([99, 100], is_whole=False), 100)


def test_a_value_that_is_not_an_event_is_ignored() -> None:
    unreadable = Record("events", 0, 0, 101, b"", b"{")
    assert first_later(iter([unreadable]), 100) is None
