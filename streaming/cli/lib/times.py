"""Points in time and durations on a command line, and the printed form of a time."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, tzinfo

from streaming.errors import Exit, UserError
from streaming.moments import AT_MS_MAX, EPOCH, calendar_time

NUMBER_MIN = 100_000_000_000
"""Smaller numbers except 0 are refused as times in milliseconds. They are probably seconds, or a date without
dashes."""

FORMS = "ISO 8601 (local time without a zone), HH:MM[:SS[.mmm]] today, Unix milliseconds, 10m ago, -10m, or now"

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PARTS = re.compile(r"(\d{1,15})(ms|[smhdw])", re.ASCII)
_SPAN = rf"(?:{_PARTS.pattern})+"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?")
_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?(?:T(?=\d)(?:(?P<hours>\d{1,8})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,11}(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


class BadTime(UserError):
    """The text is not a time or a duration."""

    exit_code = Exit.USAGE


def read_time(text: str, now_ms: int) -> int:
    """Parse a TIME, and return Unix milliseconds. A time without a zone is local.

    Raises:
        BadTime: The text is not a time.
    """
    wanted = text.strip()
    reader = next((reader for form, reader in _FORMS.items() if re.fullmatch(form, wanted, re.ASCII)), _iso)
    try:
        at_ms = reader(wanted, now_ms)
    except (ValueError, OverflowError, OSError):
        raise BadTime(f"{text!r} is not a time. Write {FORMS}.") from None
    if not 0 <= at_ms <= AT_MS_MAX:
        raise BadTime(f"{text!r} is before 1970 or after 9999.")
    return at_ms


def read_duration(text: str) -> int:
    """Parse a duration in the form of Java's tools, `PnDTnHnMnS`, or as `90m`, and return milliseconds.

    Raises:
        BadTime: The text is not a duration.
    """
    wanted = text.strip()
    if re.fullmatch(_SPAN, wanted, re.ASCII):
        return _span_ms(wanted)
    found = _DURATION.fullmatch(wanted)
    if found is None or not any(found.groupdict().values()):
        raise BadTime(f"{text!r} is not a duration. Write it as PT1H30M, P2D or 90m.")
    return int(
        timedelta(**{unit: float(number) for unit, number in found.groupdict("0").items()}) / timedelta(milliseconds=1)
    )


def read_ago(text: str, now_ms: int) -> int:
    """Parse a duration, and return the time that long ago, in Unix milliseconds.

    Raises:
        BadTime: The text is not a duration, or the time was before 1970.
    """
    if (at_ms := now_ms - read_duration(text)) < 0:
        raise BadTime(f"{text!r} ago was before 1970.")
    return at_ms


def moment(at_ms: int | None, zone: tzinfo | None = None) -> str | None:
    """Return a time in a form that `read_time` parses, with milliseconds, in the given zone or the local one.

    In an hour that a zone repeats, the second one is written with its UTC offset. A time outside the calendar is
    written as its number.
    """
    if at_ms is None:
        return None
    if (at := calendar_time(at_ms, zone)) is None:
        return str(at_ms)
    local = at.replace(tzinfo=None, fold=0)
    return local.isoformat(timespec="milliseconds") if _to_ms(local, zone) == at_ms else instant(at_ms, zone)


def instant(at_ms: int, zone: tzinfo | None = None) -> str:
    """Return a time with its UTC offset, for readers in other zones; its number if the time is outside the calendar."""
    at = calendar_time(at_ms, zone)
    return str(at_ms) if at is None else at.isoformat(timespec="milliseconds")


def _number(text: str, _: int) -> int:
    if 0 < (at_ms := int(text)) < NUMBER_MIN:
        raise BadTime(f"{text} would be {moment(at_ms, UTC)}Z. Write Unix milliseconds, which have 13 digits now.")
    return at_ms


def _iso(text: str, _: int) -> int:
    return _to_ms(datetime.fromisoformat(text))


def _today(text: str, now_ms: int) -> int:
    hours, minutes, seconds, fraction = re.fullmatch(_CLOCK, text).groups(default="0")  # type: ignore[union-attr]
    today = datetime.fromtimestamp(now_ms / 1_000, UTC).astimezone().date()
    clock = time(int(hours), int(minutes), int(seconds), int(fraction.ljust(3, "0")) * 1_000)
    return _to_ms(datetime.combine(today, clock))


def _to_ms(at: datetime, zone: tzinfo | None = None) -> int:
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone) if zone else at.astimezone()
    return (at - EPOCH) // timedelta(milliseconds=1)


def _span_ms(text: str) -> int:
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PARTS.findall(text))


_FORMS: dict[str, Callable[[str, int], int]] = {
    r"now": lambda _, now_ms: now_ms,
    r"\d{1,18}": _number,
    _CLOCK.pattern: _today,
    rf"-{_SPAN}|{_SPAN} +ago": lambda text, now_ms: now_ms - _span_ms(text),
}
"""The forms of a time. A text that matches none of them is parsed as ISO 8601."""
