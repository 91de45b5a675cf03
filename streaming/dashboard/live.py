"""The views for the dashboard: one thread updates them, other threads query them, and changes are published.

A thread that reads records holds `lock` while the views change, then publishes each record by `publish`. Answers are
JSON. An answer about one group is made from a copy, so that reading does not wait for it. An answer that several
browsers request at the same time is made once.

A group may have moved from another coordinator whose groups the dashboard shows: its history, the cause of its last
rebalance and the owners of its partitions are answered from the views of both.

The latest changes are numbered, so that a reader that was disconnected can catch up. A reader keeps the number of the
last change that it received, as `EPOCH-NUMBER`. All readers share one list, so a slow reader delays no other reader and
needs no memory. If the list no longer reaches back to its number, it must load everything again. The same holds for a
number of another epoch: one of another process, or from before a gap.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from coordinator.base.states import GroupType
from coordinator.messages.events import AnyEvent
from coordinator.messages.fields import Event
from streaming.kafka.offsets import ShareOffsets
from streaming.moments import monotonic_ms, unix_ms
from streaming.views import Raw, Views
from streaming.views.api import answers as say
from streaming.views.api.fold import PublishedRecord
from streaming.views.api.lives import Life, joined, named_by
from streaming.views.api.rows import GroupSummary
from streaming.views.sentences.why import why
from streaming.views.state.fields import PartitionKey
from streaming.views.state.lag import Bounds, Committed, Ends, committed_offsets, places

# -- the latest changes ------------------------------------------------------------------------------------------------


CHANGES_MAX = 20_000
"""Some minutes of a busy coordinator, in a few megabytes."""


class Change(NamedTuple):
    """A change of a group, with its event, if it has one."""

    cursor: str
    group_id: str
    event: AnyEvent | None


class Feed:
    """The latest changes. It has no lock of its own.

    Args:
        changes_max: The number of kept changes.
    """

    def __init__(self, changes_max: int = CHANGES_MAX) -> None:
        self.epoch = secrets.token_hex(4)
        self.number = 0
        self._latest: deque[Change] = deque(maxlen=changes_max)

    def add(self, group_id: str, event: AnyEvent | None = None) -> None:
        """Add a change."""
        self.number += 1
        self._latest.append(Change(self.cursor(self.number), group_id, event))

    def renew(self) -> None:
        """Start another epoch, since the changes in between are unknown."""
        self.epoch = secrets.token_hex(4)
        self._latest.clear()

    def since(self, cursor: str) -> list[Change] | None:
        """Return the changes after a cursor; None if they are no longer known."""
        epoch, _, told = cursor.partition("-")
        if epoch != self.epoch or not (told.isascii() and told.isdigit() and len(told) < 20):
            return None
        missed = self.number - int(told)
        if not 0 <= missed <= len(self._latest):
            return None
        return list(islice(reversed(self._latest), missed))[::-1]

    def cursor(self, number: int) -> str:
        """Return the cursor of a change of this epoch."""
        return f"{self.epoch}-{number}"


OVERVIEW_KEPT_S = 0.2
ANSWERS_KEPT = 64
ANSWERS_KEPT_BYTES = 32 << 20
"""The limit for all cached answers together. A single answer that is larger is not cached."""

TIMELINE_WEIGHT_MAX = 4_000
"""The weight of the history in one answer, some megabytes. Earlier history can be requested with an earlier end."""


class Phase(StrEnum):
    """The state of reading."""

    CATCHING_UP = "catching up"
    LIVE = "live"
    AWAY = "reconnecting"


class Status(Struct, frozen=True):
    """The state of reading: `read` of about `of` records during catching up, and the reason of an outage."""

    phase: Phase
    read: int = 0
    of: int = 0
    why: str | None = None


class NotYet(Exception):
    """Nothing can be shown before the existing records are read for the first time."""


class NoSuchGroup(Exception):
    """No group of that id is known, not even a recently deleted one."""


class LiveViews:
    """The views, the end offsets, and the state of reading. `has_begun` is set once the existing records are read.

    `peers` has the views of all coordinators that exchange groups, by prefix; none without others.

    Args:
        now_ms: Returns the time to show, Unix milliseconds.
        feed: Receives the changes.
    """

    def __init__(
        self,
        views: Views | None = None,
        *,
        now_ms: Callable[[], int] = unix_ms,
        feed: Feed | None = None,
    ) -> None:
        self.views = views or Views()
        self.lock = threading.RLock()
        self.status = Status(Phase.CATCHING_UP)
        self.is_closed = False
        self.peers: Mapping[str, LiveViews] = {}
        self._now_ms = now_ms
        self._feed = feed or Feed()
        self._ends: dict[PartitionKey, Bounds] = {}
        self.has_begun = False
        self._overview: tuple[float, int, bytes] | None = None
        self._making = threading.Lock()
        self._kept: dict[tuple[str, str, Any], tuple[str, bytes]] = {}

    # -- updates -------------------------------------------------------------------------------------------------------

    def handle(self, raw: Raw) -> None:
        """Fold a record and publish it."""
        with self.lock:
            if (record := self.views.fold(raw, monotonic_ms())) is not None:
                self.publish(record)

    def publish(self, record: PublishedRecord) -> None:
        """Publish a record that the views have folded."""
        if record.group_id is not None:
            with self.lock:
                self._feed.add(record.group_id, record if isinstance(record, Event) else None)

    def publish_lag_changes(self, ends: Ends, positions: ShareOffsets) -> None:
        """Store new ends of logs and new positions of share groups, and publish each group whose lag they change."""
        with self.lock:
            for group_id, of_group in positions.items():
                if (group := self.views.groups.get(group_id)) is not None and group.share_offsets != of_group:
                    group.share_offsets = of_group
                    self._feed.add(group_id)
            moved = {place for place, end in ends.items() if self._ends.get(place) != end}
            self._ends = dict(ends)
            for group in self.views.present():
                if not moved.isdisjoint(places([group])):
                    self._feed.add(group.group_id)

    @contextmanager
    def snapshot(self) -> Iterator[tuple[Views, Ends]]:
        """Return a context manager in which the views and the end offsets do not change."""
        with self.lock:
            yield self.views, self._ends

    def wanted_ends(self) -> dict[PartitionKey, Committed | None]:
        """Return the partitions whose logs' ends are needed, with the committed offsets of each."""
        with self.lock:
            return committed_offsets(self.views.present())

    def share_groups(self) -> list[str]:
        """Return the share groups, whose positions no topic has."""
        with self.lock:
            return [group.group_id for group in self.views.present() if group.type is GroupType.SHARE]

    def set_status(self, status: Status) -> None:
        """Set the state of reading. After catching up, every browser loads everything again."""
        with self.lock:
            was, self.status = self.status.phase, status
            if status.phase is Phase.LIVE and was is Phase.CATCHING_UP:
                self.has_begun = True
                self._overview = None
                self._kept.clear()
                self._feed.renew()

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True

    # -- changes -------------------------------------------------------------------------------------------------------

    def since(self, cursor: str) -> list[Change] | None:
        """Return the changes after a cursor; None if everything must be loaded again."""
        with self.lock:
            return self._feed.since(cursor)

    def cursor_of_overview(self) -> str:
        """Return the cursor of the last change that an overview requested from now on contains at least."""
        with self.lock:
            return self._feed.cursor(self._overview[1] if self._overview else self._feed.number)

    @property
    def alarms_told(self) -> int:
        """The number of alarms since the start."""
        return self.views.alarms_told

    # -- answers -------------------------------------------------------------------------------------------------------

    def overview(self) -> bytes:
        """Return all groups. Raises `NotYet`."""
        with self.lock:
            self._begun()
            if self._overview is None or time.monotonic() - self._overview[0] > OVERVIEW_KEPT_S:
                written = say.to_json(say.overview(self.views, self._ends, self._now_ms()))
                self._overview = time.monotonic(), self._feed.number, written
            return self._overview[2]

    def summaries(self, group_ids: Collection[str]) -> list[bytes]:
        """Return one line about each of these groups. A deleted group is Dead."""
        told = []
        for group_id in group_ids:
            with suppress(NoSuchGroup):
                told.append(self._once("summary", group_id, None, self._summary))
        return told

    def detail(self, group_id: str) -> bytes:
        """Return all that is known of a group. Raises `NotYet`, `NoSuchGroup`."""
        return self._once("detail", group_id, None, lambda life: say.detail(life.group, self._ends, self._now_ms()))

    def timeline(self, group_id: str, from_ms: int | None = None, to_ms: int | None = None) -> bytes:
        """Return a group's history, the latest part of a long one. Raises `NotYet`, `NoSuchGroup`."""
        return self._once(
            "timeline",
            group_id,
            (from_ms, to_ms),
            lambda life: say.timeline(*self._whole(life), from_ms, to_ms, TIMELINE_WEIGHT_MAX),
            self._cursors,
        )

    def why(self, group_id: str, at_ms: int | None = None) -> bytes:
        """Return the explanation of a group's last rebalance, or the last before a moment; null without a rebalance.

        Raises `NotYet`, `NoSuchGroup`.
        """
        return say.to_json(why(self._whole(self._copied(group_id)).group, at_ms))

    def owner(self, group_id: str, topic: str, partition: int, at_ms: int | None = None) -> bytes:
        """Return the owner of a partition now, or at a moment. Raises `NotYet`, `NoSuchGroup`."""
        now_ms = self._now_ms()
        whole = self._whole(self._copied(group_id))
        return say.to_json(say.owner(*whole, topic, partition, now_ms if at_ms is None else at_ms, now_ms))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _begun(self) -> None:
        if not self.has_begun:
            raise NotYet

    def _copied(self, group_id: str) -> Life:
        """Return a copy of a group with its latest change."""
        with self.lock:
            self._begun()
            if (group := self.views.groups.get(group_id)) is None:
                raise NoSuchGroup
            offsets = {topic: dict(each) for topic, each in group.offsets.items()}
            moving = replace(group.waiting_partitions)
            return Life(
                self.views, replace(group, events=list(group.events), offsets=offsets, waiting_partitions=moving)
            )

    def _whole(self, life: Life) -> Life:
        """Return a group with its history at each other coordinator that its moves name, as far as it is known here."""
        lives, seen, named = [life], [self], named_by(life.group)
        while named:
            peer = self.peers.get(named.pop(0))
            if peer is None or peer in seen:
                continue
            seen.append(peer)
            with suppress(NotYet, NoSuchGroup):
                lives.append(peer._copied(life.group.group_id))
                named += named_by(lives[-1].group)
        return joined(lives)

    def _summary(self, life: Life) -> GroupSummary:
        return say.summary(life.group, self._ends, self._now_ms())

    def _cursor(self) -> str:
        with self.lock:
            return self._feed.cursor(self._feed.number)

    def _cursors(self) -> str:
        """Return the cursors of the latest changes here and at the others. No two locks are held at once."""
        return " ".join([self._cursor(), *(peer._cursor() for peer in self.peers.values())])

    def _once(
        self,
        what: str,
        group_id: str,
        arguments: Any,
        answer: Callable[[Life], Any],
        cursor_now: Callable[[], str] | None = None,
    ) -> bytes:
        """Return an answer about a group; make it only if anything has changed since it was last made.

        Args:
            cursor_now: Returns the cursor of the latest change on which the answer depends; of one here by default.
        """
        key = what, group_id, arguments
        with self._making:
            with self.lock:
                cursor, written = self._kept.pop(key, ("", b""))
            if cursor != (now := (cursor_now or self._cursor)()):
                cursor, written = now, say.to_json(answer(self._copied(group_id)))
            with self.lock:
                self._store(key, cursor, written)
            return written

    def _store(self, key: tuple[str, str, Any], cursor: str, written: bytes) -> None:
        self._kept[key] = cursor, written
        while len(self._kept) > ANSWERS_KEPT or sum(len(each) for _, each in self._kept.values()) > ANSWERS_KEPT_BYTES:
            del self._kept[next(iter(self._kept))]


def to_row(event: AnyEvent) -> bytes:
    """Return an event with its description in words."""
    return say.to_json(say.event_row(event))
