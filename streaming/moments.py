"""The current time, and times of records as calendar times, if the calendar has them.

A client chooses some of the numbers, for example how long its offsets are kept. Such times may be outside the calendar.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo

AT_MS_MIN = -62_135_424_000_000
"""The first day of the year 1 that every time zone can write, and read. Python 3.13 looks a day back for that."""

AT_MS_MAX = 253_402_128_000_000
"""The last day that every time zone can write in four digits of a year, and read. Python 3.13 looks a day ahead."""

EPOCH = datetime.fromtimestamp(0, UTC)


def unix_ms() -> int:
    """Return the time of this machine's clock, Unix milliseconds."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return the milliseconds of a clock that is never set back."""
    return _clock()


def _machine_ms() -> int:
    return time.monotonic_ns() // 1_000_000


_clock = _machine_ms


@contextmanager
def clock_replaced(clock: Callable[[], int]) -> Iterator[None]:
    """Replace the clock of `monotonic_ms` in this process while the block runs, for tests that move the time.

    Args:
        clock: Returns milliseconds, never fewer than before.
    """
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


def calendar_time(at_ms: int, zone: tzinfo | None = None) -> datetime | None:
    """Return a time as a calendar time; None if it is outside the calendar, so that its number is displayed.

    Args:
        zone: The time zone; None is the local one.
    """
    if not AT_MS_MIN <= at_ms <= AT_MS_MAX:
        return None
    return (EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)
