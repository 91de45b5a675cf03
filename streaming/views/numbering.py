"""A group's version numbers as a reader meets them: which records are repeats, and which are missing.

A group numbers all that it publishes on `groups` and `events` together, 1, 2, 3 without a gap; each topic has its
numbers in order, and a group's own time never goes back. After a crash a batch is written once more: lower numbers come
again, at times that were seen. A group that was forgotten and founded anew counts from 1 again, at a later time: that
is another life of it.

What was there before the reading began may rightly have holes, by compaction and retention; of what follows, a number
that has not come `PATIENCE_MS` after a higher one is missing.
"""

from collections.abc import Iterator
from itertools import count

from msgspec import Struct, field

GROUPS, EVENTS = 0, 1
"""The two topics."""

PATIENCE_MS = 10_000
"""Far longer than the records of one batch are apart."""

BEYOND_MAX = 4_096
"""How many numbers beyond one that has not come are kept; with more of them, that one is given up."""


_NEVER_REACHED = 1 << 62


class _Life(Struct):
    """The numbers of one life: all up to `settled` have come or been told; `beyond` says when higher ones were read.

    Args:
        doubtful: Of those beyond, tombstones of an older coordinator: they tell no time, and may repeat some of the
            life before.
    """

    settled: int = 0
    beyond: dict[int, int] = field(default_factory=dict)
    doubtful: list[int] = field(default_factory=list)

    def take(self, version: int, now_ms: int) -> None:
        if version == self.settled + 1 and not self.beyond:
            self.settled = version
        elif version > self.settled:
            self.beyond[version] = now_ms
            self._settle()

    def take_doubtful(self, version: int, now_ms: int) -> None:
        self.take(version, now_ms)
        if version in self.beyond:
            self.doubtful.append(version)

    def forget_doubtful(self) -> None:
        for version in self.doubtful:
            self.beyond.pop(version, None)
        self.doubtful = []

    def give_up(self, until_ms: float) -> Iterator[range]:
        while self.beyond and (min(self.beyond.values()) <= until_ms or len(self.beyond) > BEYOND_MAX):
            first = min(self.beyond)
            yield range(self.settled + 1, first)
            self.settled = first - 1
            self._settle()

    def _settle(self) -> None:
        for version in count(self.settled + 1):
            if self.beyond.pop(version, None) is None:
                return
            self.settled = version


class Place(Struct):
    """Where one topic is: in which life, since when, and at which number and time of it.

    Args:
        at_latest: The numbers that have come with the time `latest_ms`.
        began_ms: When the life began, or earlier, but after all that was read of the life before.
        at_beginning: Of the life before, those with the time at which this one began.
        ended_ms: What is new from that time on is of another life; None where nothing has ended this one.
    """

    life: int = 0
    began_ms: int = 0
    highest: int = 0
    latest_ms: int = 0
    at_latest: list[int] = field(default_factory=list)
    at_beginning: list[int] = field(default_factory=list)
    ended_ms: int | None = None

    def has_seen(self, version: int, at_ms: int) -> bool:
        """Tell whether a record of this or the life before comes again."""
        if version <= self.highest:
            return at_ms < self.latest_ms or (at_ms == self.latest_ms and version in self.at_latest)
        return at_ms < self.began_ms or (at_ms == self.began_ms and version in self.at_beginning)

    def go_on(self, version: int, at_ms: int) -> None:
        """Take a new record; after an end, or where its number is lower than the last one's, it begins another life."""
        has_ended = self.ended_ms is not None and at_ms >= self.ended_ms
        if has_ended or version <= self.highest:
            self.at_beginning = self.at_latest if at_ms == self.latest_ms else []
            # its first records may be gone, and may come again under higher versions
            began_ms = min(at_ms, self.latest_ms + 1)
            self.life, self.began_ms, self.at_latest, self.ended_ms = self.life + 1, began_ms, [], None
        self.highest = version
        if at_ms > self.latest_ms:
            self.latest_ms, self.at_latest = at_ms, []
        if at_ms == self.latest_ms:
            self.at_latest.append(version)


class Numbering(Struct):
    """What has been seen of one group's numbers; of what is missing, only since `begin`."""

    places: tuple[Place, Place] = field(default_factory=lambda: (Place(), Place()))
    lives: dict[int, _Life] = field(default_factory=dict)

    def begin(self) -> None:
        """Be strict from now on: all that was there is read.

        Where one topic has yet to tell of an end, or of what came after it, the other is a life ahead; what is left of
        the one before is not judged.
        """
        groups, events = self.places
        has_ended = events.ended_ms is not None
        groups_lead = (groups.latest_ms if has_ended else groups.began_ms) > events.latest_ms
        events_lead = events.began_ms > groups.latest_ms
        groups.life, events.life = int(groups_lead), int(events_lead)
        if events_lead:
            groups.ended_ms = events.began_ms
        else:
            groups.ended_ms = events.latest_ms + 1 if has_ended and not groups_lead else None
        self.lives = {0: _Life(max(groups.highest, events.highest))}
        if groups_lead or events_lead:
            self.lives = {0: _Life(_NEVER_REACHED), 1: _Life((groups if groups_lead else events).highest)}

    def take(
        self, topic: int, version: int, at_ms: int, now_ms: int, *, is_live: bool, ends_life: bool = False
    ) -> bool:
        """Note a record; tells whether it is new.

        Args:
            at_ms: The group's own time of it.
            now_ms: The reader's time, from any clock that never goes back.
            is_live: All that was there when the reading began is read.
            ends_life: It is the topic's last of the group.
        """
        place = self.places[topic]
        if place.has_seen(version, at_ms):
            if topic == GROUPS:
                self._life(place).forget_doubtful()
            return False
        before = place.life
        place.go_on(version, at_ms)
        place.ended_ms = at_ms if ends_life else place.ended_ms
        if is_live:
            self._life(place).take(version, now_ms)
        if place.life != before:
            behind = min(each.life for each in self.places)
            self.lives = {number: life for number, life in self.lives.items() if number >= behind}
        return True

    def take_tombstone(self, version: int, now_ms: int) -> None:
        """Note a tombstone that does not tell its time."""
        self._life(self.places[GROUPS]).take_doubtful(version, now_ms)

    @property
    def is_waiting(self) -> bool:
        """Whether a number has not come though a higher one has."""
        return any(life.beyond for life in self.lives.values())

    def give_up(self, now_ms: int) -> Iterator[range]:
        """Tell what has been missing for too long; each number is told once."""
        for life in self.lives.values():
            yield from life.give_up(now_ms - PATIENCE_MS)

    def _life(self, place: Place) -> _Life:
        return self.lives.setdefault(place.life, _Life())
