"""The present time, and times of records as calendar times where a calendar has them.

A client chooses some of the numbers, such as how long its offsets are kept: they may lie beyond every calendar.
"""

import time
from datetime import UTC, datetime, timedelta, tzinfo

AT_MS_MIN = -62_135_510_400_000
"""The first day of the year 1 that every time zone can write."""

AT_MS_MAX = 253_402_214_400_000
"""The last day that every time zone can write in four digits of a year."""

EPOCH = datetime.fromtimestamp(0, UTC)


def unix_ms() -> int:
    """Return the time of this machine's clock, Unix milliseconds."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return the milliseconds of a clock that is never set back."""
    return time.monotonic_ns() // 1_000_000


def calendar_time(at_ms: int, zone: tzinfo | None = None) -> datetime | None:
    """Return a time as a calendar has it; None where none does, so that the number itself is to be shown.

    Args:
        zone: Where; None for here.
    """
    if not AT_MS_MIN <= at_ms <= AT_MS_MAX:
        return None
    return (EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)
