"""The only follower of versions: it finds the records of a group that are repeats, and the versions that are missing.

A group numbers its records on `groups` and `events` together, 1, 2, 3 without a gap. Each topic has its versions in
order, and a group's own time never goes back. After a crash a batch is written again: lower versions come again, at
times that were seen. A group that was forgotten and founded again counts from 1 again, at a later time. This is another
life of the group. A group that comes from another coordinator goes on counting.

Time decides which versions are missing. Records that existed before the reading began may have holes, because of
compaction and retention. Of later records, a version that has not come `PATIENCE_MS` after a higher one is missing.
`coordinator verify` reads whole topics and does not wait: there `streaming.verify.watched` decides by the holes in
the offsets.
"""

from collections.abc import Iterator
from itertools import count

from msgspec import Struct, field

GROUPS, EVENTS = 0, 1
"""The two topics."""

PATIENCE_MS = 10_000
"""Far longer than the time between the records of one batch."""

BEYOND_MAX = 4_096
"""The number of kept versions beyond a missing one. With more of them, the missing one is given up."""

_NEVER_REACHED = 1 << 62
_UNKNOWN = -1


class _Life(Struct):
    """The versions of one life: all up to `settled` have come or been reported.

    Args:
        settled: `_UNKNOWN` before the first version, if earlier ones do not count as missing.
        beyond: Higher versions, with the times at which they were read.
    """

    settled: int = 0
    beyond: dict[int, int] = field(default_factory=dict)

    def add(self, version: int, now_ms: int) -> None:
        if self.settled == _UNKNOWN or (version == self.settled + 1 and not self.beyond):
            self.settled = version
        elif version > self.settled:
            self.beyond[version] = now_ms
            self._settle()

    def begin_after(self, version: int) -> None:
        self.settled = max(self.settled, version)
        self.beyond = {each: read_ms for each, read_ms in self.beyond.items() if each > self.settled}

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


class _Topic(Struct):
    """The position in one topic: the life, its beginning, and the last version and time in it.

    Args:
        at_latest: The versions that have come with the time `latest_ms`.
        began_ms: The beginning of the life or an earlier time, but after all read records of the life before.
        at_beginning: The versions of the life before with the time at which this one began.
        ended_ms: New records from this time on are of another life; None if this life has not ended.
    """

    life: int = 0
    began_ms: int = 0
    highest: int = 0
    latest_ms: int = 0
    at_latest: list[int] = field(default_factory=list)
    at_beginning: list[int] = field(default_factory=list)
    ended_ms: int | None = None

    def has_seen(self, version: int, at_ms: int) -> bool:
        """Return whether a record of this life or of the one before comes again."""
        if version <= self.highest:
            return at_ms < self.latest_ms or (at_ms == self.latest_ms and version in self.at_latest)
        return at_ms < self.began_ms or (at_ms == self.began_ms and version in self.at_beginning)

    def advance(self, version: int, at_ms: int, *, is_midway: bool) -> None:
        """Handle a new record. After an end, or with a version below the last one, it begins another life.

        Args:
            is_midway: Reading may have begun within a batch. Then a lower version of the same time is of this batch,
                and was written before the position at which reading began.
        """
        has_ended = self.ended_ms is not None and at_ms >= self.ended_ms
        if is_midway and not has_ended and version <= self.highest and at_ms == self.latest_ms:
            self.at_latest.append(version)
            return
        if has_ended or version <= self.highest:
            self.at_beginning = self.at_latest if at_ms == self.latest_ms else []
            # the first records of the life may be missing, and may come again with higher versions
            began_ms = min(at_ms, self.latest_ms + 1)
            self.life, self.began_ms, self.at_latest, self.ended_ms = self.life + 1, began_ms, [], None
        self.highest = version
        if at_ms > self.latest_ms:
            self.latest_ms, self.at_latest = at_ms, []
        if at_ms == self.latest_ms:
            self.at_latest.append(version)


class VersionFollower(Struct):
    """The versions seen of one group. A version can be missing only since `begin`, or if nothing existed before.

    Args:
        knows_beginning: False if reading may begin within a topic: versions of a life before the first one that comes
            do not count as missing.
    """

    topics: tuple[_Topic, _Topic] = field(default_factory=lambda: (_Topic(), _Topic()))
    lives: dict[int, _Life] = field(default_factory=dict)
    knows_beginning: bool = True

    def begin(self) -> None:
        """Report missing versions from now on: all records that existed when the reading began are read.

        If one topic has not shown an end yet, or the records after it, the other topic is a life ahead. Then the rest
        of the life before is not checked.
        """
        groups, events = self.topics
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

    def add(
        self,
        topic: int,
        version: int,
        at_ms: int,
        now_ms: int,
        *,
        is_live: bool,
        ends_life: bool = False,
        begins_after: int | None = None,
    ) -> bool:
        """Store a record's version. Return whether the record is new.

        Args:
            topic: `GROUPS` or `EVENTS`.
            at_ms: The group's time in the record.
            now_ms: The reader's time, from any monotonic clock.
            is_live: The record came after those that existed when the reading began.
            ends_life: The record is the topic's last one of the group.
            begins_after: The last version that another coordinator has published, if the group has come from there.
        """
        place = self.topics[topic]
        if place.has_seen(version, at_ms):
            return False
        self._advance(topic, version, at_ms)
        place.ended_ms = at_ms if ends_life else place.ended_ms
        if begins_after is not None:
            self._life(place).begin_after(begins_after)
        if is_live:
            self._life(place).add(version, now_ms)
        return True

    def _advance(self, topic: int, version: int, at_ms: int) -> None:
        """Handle a new record of a topic, and drop the lives that both topics have passed."""
        place = self.topics[topic]
        before, latest_ms, is_first = place.life, place.latest_ms, not place.highest
        place.advance(version, at_ms, is_midway=not self.knows_beginning)
        if not self.knows_beginning and (is_first or place.life != before):
            self._align(place, self.topics[1 - topic], latest_ms, is_first=is_first)
        if place.life != before:
            behind = min(each.life for each in self.topics)
            self.lives = {number: life for number, life in self.lives.items() if number >= behind}

    def _align(self, place: _Topic, other: _Topic, before_ms: int, *, is_first: bool) -> None:
        """Set the life of a topic that was not read from its beginning, by the topic's time.

        Args:
            before_ms: The time of the topic's previous record.
        """
        if not other.highest:
            return
        is_older = place.highest > other.highest and place.latest_ms < other.latest_ms
        is_newer = place.highest <= other.highest and place.latest_ms > other.latest_ms
        if place.latest_ms < other.began_ms or (is_first and is_older):
            place.life = other.life - 1
        elif before_ms < other.began_ms or (is_first and not is_newer):
            place.life = other.life
        elif is_first:
            place.life = other.life + 1
        if is_first and place.life != other.life:  # records of the older life may be before the start position
            self.lives[min(place.life, other.life)] = _Life(_NEVER_REACHED)

    @property
    def is_waiting(self) -> bool:
        """Whether a version has not come although a higher one has."""
        return any(life.beyond for life in self.lives.values())

    def is_in_doubt(self, now_ms: int) -> bool:
        """Return whether a version has been missing for too long."""
        return any(read_ms + PATIENCE_MS <= now_ms for life in self.lives.values() for read_ms in life.beyond.values())

    def give_up(self, now_ms: int) -> Iterator[range]:
        """Yield the versions that have been missing for too long, each once."""
        for life in self.lives.values():
            yield from life.give_up(now_ms - PATIENCE_MS)

    def _life(self, place: _Topic) -> _Life:
        return self.lives.setdefault(place.life, _Life(0 if self.knows_beginning else _UNKNOWN))
