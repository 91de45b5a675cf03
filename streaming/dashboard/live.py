"""The views as the page sees them: one thread feeds them, others ask, and what changes is told on.

Whoever brings records holds `lock` while the views change, then tells of each by `note`. Answers are JSON, made under
the same lock; what many ask for at the same time is made once.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from msgspec import Struct

from coordinator.outputs import AnyEvent, Event
from streaming.dashboard.feed import Change, Feed
from streaming.views import GroupView, Raw, Views
from streaming.views import answers as say
from streaming.views.fold import Told
from streaming.views.group import Place
from streaming.views.lag import Ends, places
from streaming.views.why import why

OVERVIEW_KEPT_S = 0.2
ANSWERS_KEPT = 64


class Phase(StrEnum):
    """How far the reading is."""

    CATCHING_UP = "catching up"
    LIVE = "live"
    AWAY = "reconnecting"


class Status(Struct, frozen=True):
    """How the reading is: `read` of about `of` records while it catches up, and why it is away."""

    phase: Phase
    read: int = 0
    of: int = 0
    why: str | None = None


class NotYet(Exception):
    """There is nothing to show before the first catching up is over."""


class NoSuchGroup(Exception):
    """No group of that id is known, nor was one lately."""


class Live:
    """The views, the ends of groups' partitions, and how the reading is; `has_begun` once it has caught up.

    Args:
        now_ms: The time that is shown, Unix milliseconds.
        feed: Where changes are noted.
    """

    def __init__(
        self,
        views: Views | None = None,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        feed: Feed | None = None,
    ) -> None:
        self.views = views or Views()
        self.lock = threading.RLock()
        self.status = Status(Phase.CATCHING_UP)
        self.is_closed = False
        self._now_ms = now_ms
        self._feed = feed or Feed()
        self._ends: dict[Place, int] = {}
        self.has_begun = False
        self._overview: tuple[float, int, bytes] | None = None
        self._kept: dict[tuple[str, str, Any], tuple[int, bytes]] = {}

    # -- fed -----------------------------------------------------------------------------------------------------------

    def take(self, raw: Raw) -> None:
        """Fold a record and tell of it."""
        with self.lock:
            if (told := self.views.take(raw, time.monotonic_ns() // 1_000_000)) is not None:
                self.note(told)

    def note(self, told: Told) -> None:
        """Tell of a record that the views have taken."""
        if told.group_id is not None:
            with self.lock:
                self._feed.add(told.group_id, told if isinstance(told, Event) else None)

    def look_for_changes_of_lag(self, ends: Ends) -> None:
        """Go by these ends from now on; groups whose lag they change are told of."""
        with self.lock:
            moved = {place for place, end in ends.items() if self._ends.get(place) != end}
            self._ends = dict(ends)
            for group in self.views.present():
                if not moved.isdisjoint(places([group])):
                    self._feed.add(group.group_id)

    @contextmanager
    def look(self) -> Iterator[tuple[Views, Ends]]:
        """Have the views and the ends stand still for a while."""
        with self.lock:
            yield self.views, self._ends

    def wanted_ends(self) -> set[Place]:
        """Say of which partitions the ends are worth asking for."""
        with self.lock:
            return places(self.views.present())

    def say(self, status: Status) -> None:
        """Go on in another state; after catching up, everybody looks at everything anew."""
        with self.lock:
            if status.phase is Phase.LIVE and self.status.phase is Phase.CATCHING_UP:
                self.has_begun = True
                self._overview = None
                self._kept.clear()
                self._feed.renew()
            self.status = status

    def close(self) -> None:
        """Have everybody that follows go."""
        self.is_closed = True

    # -- followed ------------------------------------------------------------------------------------------------------

    def since(self, cursor: str) -> list[Change] | None:
        """Return what came after a cursor; None where everything is to be looked at anew."""
        with self.lock:
            return self._feed.since(cursor)

    def cursor_of_overview(self) -> str:
        """Name the change up to which an overview that is asked for from now on reaches at least."""
        with self.lock:
            return self._feed.cursor(self._overview[1] if self._overview else self._feed.number)

    @property
    def alarms(self) -> int:
        """How many alarms there are."""
        return len(self.views.alarms)

    # -- asked ---------------------------------------------------------------------------------------------------------

    def overview(self) -> bytes:
        """Say all groups. Raises `NotYet`."""
        with self.lock:
            self._begun()
            if self._overview is None or time.monotonic() - self._overview[0] > OVERVIEW_KEPT_S:
                written = say.to_json(say.overview(self.views, self._ends, self._now_ms()))
                self._overview = time.monotonic(), self._feed.number, written
            return self._overview[2]

    def summaries(self, group_ids: Collection[str]) -> list[bytes]:
        """Say these groups, each in a line; those that are gone are Dead."""
        with self.lock:
            return [self._summary(self.views.groups[each]) for each in group_ids if each in self.views.groups]

    def detail(self, group_id: str) -> bytes:
        """Say all of a group. Raises `NotYet`, `NoSuchGroup`."""
        with self.lock:
            group = self._group(group_id)
            return self._once("detail", group, None, lambda: say.detail(group, self._ends, self._now_ms()))

    def timeline(self, group_id: str, from_ms: int | None = None, to_ms: int | None = None) -> bytes:
        """Tell what a group has lived through. Raises `NotYet`, `NoSuchGroup`."""
        with self.lock:
            group = self._group(group_id)
            asked = from_ms, to_ms
            return self._once("timeline", group, asked, lambda: say.timeline(self.views, group, from_ms, to_ms))

    def why(self, group_id: str, at_ms: int | None = None) -> bytes:
        """Explain a group's latest rebalance, or the latest by a moment; null where there was none.

        Raises `NotYet`, `NoSuchGroup`.
        """
        with self.lock:
            return say.to_json(why(self._group(group_id), at_ms))

    def owner(self, group_id: str, topic: str, partition: int, at_ms: int | None = None) -> bytes:
        """Say whose a partition is, or was at a moment. Raises `NotYet`, `NoSuchGroup`."""
        with self.lock:
            at_ms = self._now_ms() if at_ms is None else at_ms
            return say.to_json(say.owner(self.views, self._group(group_id), topic, partition, at_ms))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begun(self) -> None:
        if not self.has_begun:
            raise NotYet

    def _group(self, group_id: str) -> GroupView:
        self._begun()
        if (group := self.views.groups.get(group_id)) is None:
            raise NoSuchGroup
        return group

    def _summary(self, group: GroupView) -> bytes:
        return self._once("summary", group, None, lambda: say.summary(group, self._ends, self._now_ms()))

    def _once(self, what: str, group: GroupView, asked: Any, answer: Callable[[], Any]) -> bytes:
        """Make an answer unless it was made since anything has changed."""
        key = what, group.group_id, asked
        number, written = self._kept.pop(key, (-1, b""))
        if number != self._feed.number:
            number, written = self._feed.number, say.to_json(answer())
        self._kept[key] = number, written
        while len(self._kept) > ANSWERS_KEPT:
            del self._kept[next(iter(self._kept))]
        return written


def to_row(event: AnyEvent) -> bytes:
    """Write an event, and what it says in words."""
    return say.to_json(say.event_row(event))
