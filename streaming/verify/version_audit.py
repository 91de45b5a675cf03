"""One life of a group, from its founding to its end: which of its versions are on a topic, and which are missing.

Of what a group published some may rightly be gone: compaction takes records of the groups topic that have a successor,
retention takes the oldest events. Neither leaves its place to others, so a hole in the offsets tells of each record
that was taken. A version is missing where more are gone than there are holes between its neighbours; that a hole was
another group's cannot be seen, so beside holes a loss may go unnoticed, but what is told is one.

This is no follower of versions (`streaming.views.version_follower`). A follower may begin anywhere and sees some groups
only, so it cannot count holes: it waits. An audit reads partitions whole and after the fact, so it need not wait, and
time would tell it nothing.
"""

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

from streaming.views.version_follower import EVENTS

BEYOND_MAX = 10_000
"""How many versions beyond a missing one are kept before that one is given up."""

CLOCKS_APART_MS = 60_000
"""How far the times of records on two topics may differ from their order."""


class Holes(NamedTuple):
    """The records that are gone from one partition of both topics.

    Args:
        removed: By topic, how many records are gone before the current read position.
        events_from_ms: Events before this time may have expired; minus infinity if none has.
    """

    removed: tuple[int, int]
    events_from_ms: float


class _Seen(NamedTuple):
    topic: int
    removed: int
    at_ms: int


class VersionAudit:
    """The versions of one life. Each topic's are to be shown in order; which topic is ahead of the other is free.

    Args:
        before: The group's previous life, if it had one.
    """

    def __init__(self, holes: Holes, before: "VersionAudit | None" = None) -> None:
        self._settled = 0  # up to it every version is seen, rightly gone, or told
        self._reach = [0, 0]
        may_have_expired = holes.events_from_ms > -math.inf
        first: list[float] = [0, -math.inf if may_have_expired else 0]
        self._removed: list[float] = list(before._removed) if before else first  # when the settled versions were read
        self._beyond: dict[int, _Seen] = {}
        self._order: list[int] = []

    def take(self, topic: int, version: int, at_ms: int, holes: Holes) -> Iterator[range]:
        """Note a record. Yield the versions that are certainly missing."""
        self._reach[topic] = max(self._reach[topic], version)
        seen = _Seen(topic, holes.removed[topic], at_ms)
        if version <= self._settled:
            self._removed[topic] = max(self._removed[topic], seen.removed)
        elif version not in self._beyond:
            self._beyond[version] = seen
            heapq.heappush(self._order, version)
        yield from self._settle(holes, min(self._reach), at_ms=-math.inf)

    def end(self, holes: Holes, at_ms: float) -> Iterator[range]:
        """Yield the missing versions before the records written by `at_ms`. Later records may still be on their way."""
        yield from self._settle(holes, -1, at_ms)

    def _settle(self, holes: Holes, reach: int, at_ms: float) -> Iterator[range]:
        while self._order:
            version = self._order[0]
            gone = range(self._settled + 1, version)
            if len(gone) > self._holes_since(holes):
                is_over = version <= reach or self._beyond[version].at_ms <= at_ms
                if not is_over and len(self._beyond) <= BEYOND_MAX:
                    return
                yield gone
            heapq.heappop(self._order)
            self._advance(version, self._beyond.pop(version), holes)

    def _holes_since(self, holes: Holes) -> float:
        return sum(holes.removed) - sum(self._removed)

    def _advance(self, version: int, seen: _Seen, holes: Holes) -> None:
        self._settled = version
        self._removed[seen.topic] = max(self._removed[seen.topic], seen.removed)
        if self._removed[EVENTS] == -math.inf and seen.at_ms > holes.events_from_ms + CLOCKS_APART_MS:
            self._removed[EVENTS] = 0  # events that the group has published since then cannot have expired
