"""What has been seen of a group's numbering: repeats are known, and so is what is missing.

Each group numbers all that it publishes on `groups` and `events`, 1, 2, 3 without a gap. Of two topics a later number
may be read first; one that has not come `PATIENCE_MS` after that is missing. Of what was there before the reading began
some may have been compacted away or expired: only what follows is judged.
"""

import itertools
from collections.abc import Iterator

from streaming.views.numbering import PATIENCE_MS, Place


class Versions:
    """The versions seen of one group. All times are from any clock that never goes back."""

    def __init__(self) -> None:
        self._places = Place(), Place()  # what is a repeat on either topic
        self._began_ms = 0  # of the group's life: the first time that was seen of it
        self._missing: dict[int, int] = {}  # version -> when a later one was read
        self._highest = 0

    def take(
        self, topic: int, version: int, at_ms: int | None, now_ms: int, *, is_history: bool, ends_life: bool = False
    ) -> bool:
        """Note a record; tells whether it is new, which no repeat is, however late it comes.

        Args:
            topic: `GROUPS` or `EVENTS`, of which each has its versions in order.
            at_ms: The group's own time of it; None for a tombstone that does not tell.
            is_history: It was there before the reading began.
            ends_life: It is the topic's last of the group.
        """
        place = self._places[topic]
        own_ms = place.latest_ms if at_ms is None else at_ms
        if place.has_seen(version, own_ms) or (at_ms is None and version <= place.highest):
            return False
        life, latest_ms = place.life, place.latest_ms
        place.go_on(version, own_ms)
        place.ended_ms = own_ms if ends_life else place.ended_ms
        follows_the_other = latest_ms < self._began_ms <= own_ms
        if place.life != life and own_ms > self._began_ms and not follows_the_other:
            self._began_ms, self._missing, self._highest = own_ms, {}, 0
        if own_ms < self._began_ms:
            return True  # the other topic has begun the next life, or this one later
        if is_history:
            self._missing = {v: at_ms for v, at_ms in self._missing.items() if v > version}
        elif self._highest:
            self._missing |= dict.fromkeys(range(self._highest + 1, version), now_ms)
        self._missing.pop(version, None)
        self._highest = max(self._highest, version)
        return True

    def is_in_doubt(self, now_ms: int) -> bool:
        """Tell whether something has been missing for too long."""
        return any(at_ms + PATIENCE_MS <= now_ms for at_ms in self._missing.values())

    def give_up(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """Tell what has been missing for too long, as runs from first to last; each is told once."""
        lost = sorted(v for v, at_ms in self._missing.items() if at_ms + PATIENCE_MS <= now_ms)
        self._missing = {v: at_ms for v, at_ms in self._missing.items() if v not in lost}
        for _, run in itertools.groupby(enumerate(lost), key=lambda pair: pair[1] - pair[0]):
            versions = [version for _, version in run]
            yield versions[0], versions[-1]
