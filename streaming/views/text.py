"""Texts of ids, times, durations and partitions, for sentences that people read.

Clients choose ids, so every character that could move a cursor or hide text is shown escaped.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from coordinator.base.connect_protocol import Work
from streaming.moments import calendar_time


def escape(text: str) -> str:
    """Return text with each non-printable character as Python writes it: `\\x1b`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def capital(text: str, first_words: tuple[str, ...]) -> str:
    """Return a part of a sentence with a capital, if it begins with some of these words. Else it begins with a name."""
    return f"{text[0].upper()}{text[1:]}" if text.startswith(first_words) else text


def clock(at_ms: int | None) -> str:
    """Return the local time of day, to the millisecond; the number itself if it is outside the calendar."""
    if at_ms is None:
        return "--:--:--.---"
    at = calendar_time(at_ms)
    return str(at_ms) if at is None else at.strftime("%H:%M:%S.%f")[:-3]


def clock_after(at_ms: int | None, from_ms: int) -> str:
    """Return the local time of day, with the date in front if it is not the date of another time."""
    at, begin = (None if each is None else calendar_time(each) for each in (at_ms, from_ms))
    day = f"{at:%Y-%m-%d} " if at is not None and begin is not None and at.date() != begin.date() else ""
    return f"{day}{clock(at_ms)}"


def duration(wait_ms: int) -> str:
    """Return a duration with its unit."""
    if wait_ms < 1_000:
        return f"{wait_ms} ms"
    return f"{wait_ms / 1_000:.1f} s" if wait_ms < 60_000 else f"{wait_ms / 60_000:.1f} min"


_BARE_ID = re.compile(r"[A-Za-z0-9+/_-]{22}")
"""A member id of the consumer protocol, which is random and has no client id in it."""

_CLIENT_IDS: ContextVar[Mapping[str, str]] = ContextVar("client ids", default=MappingProxyType({}))
"""The client ids of the members whose names are written, by member id."""


@contextmanager
def naming(client_ids: Mapping[str, str]) -> Iterator[None]:
    """Return a context manager in which short names of members have these client ids, if their ids have none."""
    before = _CLIENT_IDS.set(client_ids)
    try:
        yield
    finally:
        _CLIENT_IDS.reset(before)


def is_bare(member_id: str) -> bool:
    """Return whether a member id has no client id in it."""
    return _BARE_ID.fullmatch(member_id) is not None


_SUFFIX = re.compile(r"-([0-9a-f]{4})[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?=-|\Z)")
"""A random part of a member id. The ids of Kafka Streams have two: the process's, and the member's at the end."""


def brief(member_id: str | None) -> str:
    """Return a short name of a member: its client id, and enough of the rest to distinguish it."""
    if member_id is None:
        return "nobody"
    if (client_id := _CLIENT_IDS.get().get(member_id)) and is_bare(member_id):
        return escape(f"{client_id}-{member_id[:4]}")
    return escape(_SUFFIX.sub(r"-\1", member_id))


def spans(numbers: Collection[int]) -> str:
    """Return numbers as runs: `0-2 5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def in_partitions(assigned: Mapping[str, Collection[int]]) -> str:
    """Return partitions by topic as text: `orders 0-2 5, payments 1`."""
    return escape(by_topic(assigned)) or "nothing"


def by_topic(assigned: Mapping[str, Collection[int]]) -> str:
    """Return partitions by topic as text that is not escaped; "" if there are none."""
    return ", ".join(f"{topic} {spans(each)}" for topic, each in sorted(assigned.items()) if each)


def work_in_words(work: Work) -> str:
    """Return the connectors and tasks of a worker of Kafka Connect as text."""
    connectors = f"connectors {escape(', '.join(work.connectors))}" if work.connectors else ""
    tasks = f"tasks {escape(by_topic(work.tasks))}" if work.tasks else ""
    return "; ".join(filter(None, (connectors, tasks))) or "nothing"


def counted(number: int, what: str) -> str:
    """Return a number of things, such as `1 member` or `2 members`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


_GIVEN_ID = re.compile(r"(need to re-join with the given member-id): .*", re.DOTALL)
"""The reason of each first join of a Java client. It repeats the whole member id."""


def reason_in_short(reason: str | None) -> str:
    """Return a member's own reason without the member id that the client's standard reason repeats; "" without one."""
    return escape(_GIVEN_ID.sub(r"\1", reason)) if reason else ""


def is_standard(reason: str | None) -> bool:
    """Return whether a reason says nothing but that the member joins for the first time, or is missing."""
    return not reason or _GIVEN_ID.fullmatch(reason) is not None


def in_quotes(reason: str | None) -> str:
    """Return a reason as an appendix in quotes; "" without one."""
    return f' ("{reason_in_short(reason)}")' if reason else ""


def names(member_ids: Collection[str]) -> str:
    """Return the short names of members."""
    return ", ".join(map(brief, member_ids)) or "nobody"


def plain(name: str) -> str:
    """Return the name of a cause, a reason or a state as words."""
    return escape(name).replace("_", " ")
