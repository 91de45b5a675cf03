"""The one follower of versions: which records of a group are repeats, and which versions have not come.

A group numbers all that it publishes on `groups` and `events` together, 1, 2, 3 without a gap; each topic has its
versions in order, and a group's own time never goes back. After a crash a batch is written once more: lower versions
come again, at times that were seen. A group that was forgotten and founded anew counts from 1 again, at a later time:
that is another life of it.

Time decides what is missing. Records that existed before the reading began may rightly have holes, by compaction and
retention; of the records that follow, a version that has not come `PATIENCE_MS` after a higher one is missing.
`coordinator verify` has topics that are read whole, and no time to wait: there `streaming.verify.version_audit` decides
by the holes in the offsets.
"""

from collections.abc import Iterator
from itertools import count

from msgspec import Struct, field

GROUPS, EVENTS = 0, 1
"""The two topics."""

PATIENCE_MS = 10_000
"""Far longer than the records of one batch are apart."""

BEYOND_MAX = 4_096
"""How many versions beyond one that has not come are kept; with more of them, that one is given up."""

_NEVER_REACHED = 1 << 62
_UNKNOWN = -1


class _Life(Struct):
    """The versions of one life: all up to `settled` have come or been reported.

    Args:
        settled: `_UNKNOWN` before the first version, where earlier ones are not missed.
        beyond: Higher versions, and when they were read.
        doubtful: Those among them that are tombstones of an older coordinator: these show no time, and may repeat
            tombstones of the life before.
    """

    settled: int = 0
    beyond: dict[int, int] = field(default_factory=dict)
    doubtful: list[int] = field(default_factory=list)

    def take(self, version: int, now_ms: int) -> None:
        if self.settled == _UNKNOWN or (version == self.settled + 1 and not self.beyond):
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


class _Topic(Struct):
    """How far one topic is read: to which life, since when, and to which version and time of it.

    Args:
        undated: The highest version of a tombstone of this life that shows no time.
        at_latest: The versions that have come with the time `latest_ms`.
        began_ms: When the life began, or earlier, but after all that was read of the life before.
        at_beginning: Of the life before, those with the time at which this one began.
        ended_ms: What is new from that time on is of another life; None where nothing has ended this one.
    """

    life: int = 0
    began_ms: int = 0
    highest: int = 0
    undated: int = 0
    latest_ms: int = 0
    at_latest: list[int] = field(default_factory=list)
    at_beginning: list[int] = field(default_factory=list)
    ended_ms: int | None = None

    def has_seen(self, version: int, at_ms: int) -> bool:
        """Return whether a record of this life or of the one before comes again."""
        if version <= self.highest:
            return at_ms < self.latest_ms or (at_ms == self.latest_ms and version in self.at_latest)
        return at_ms < self.began_ms or (at_ms == self.began_ms and version in self.at_beginning)

    def go_on(self, version: int, at_ms: int, *, is_midway: bool) -> None:
        """Take a new record. After an end, or with a version below the last one's, it begins another life.

        Args:
            is_midway: Reading may have begun in mid-batch: a lower version of the same time is of this batch, and was
                written before the place where reading began.
        """
        has_ended = self.ended_ms is not None and at_ms >= self.ended_ms
        if is_midway and not has_ended and version <= self.highest and at_ms == self.latest_ms:
            self.at_latest.append(version)
            return
        if has_ended or version <= self.highest:
            self.at_beginning = self.at_latest if at_ms == self.latest_ms else []
            # its first records may be gone, and may come again under higher versions
            began_ms = min(at_ms, self.latest_ms + 1)
            self.life, self.began_ms, self.at_latest, self.ended_ms = self.life + 1, began_ms, [], None
            self.undated = 0
        self.highest = version
        if at_ms > self.latest_ms:
            self.latest_ms, self.at_latest = at_ms, []
        if at_ms == self.latest_ms:
            self.at_latest.append(version)


class VersionFollower(Struct):
    """The versions seen of one group. A version can be missing only since `begin`, or if nothing existed before.

    Args:
        knows_beginning: False where reading may begin in mid-topic: of each life, versions before the first one that
            comes are not missed.
    """

    topics: tuple[_Topic, _Topic] = field(default_factory=lambda: (_Topic(), _Topic()))
    lives: dict[int, _Life] = field(default_factory=dict)
    knows_beginning: bool = True

    def begin(self) -> None:
        """Miss versions from now on: all records are read that existed when the reading began.

        Where one topic has not yet shown an end, or the records after it, the other topic is a life ahead; the rest of
        the life before is not judged.
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

    def take(
        self, topic: int, version: int, at_ms: int | None, now_ms: int, *, is_live: bool, ends_life: bool = False
    ) -> bool:
        """Note a record; return whether it is new.

        Args:
            topic: `GROUPS` or `EVENTS`.
            at_ms: The group's own time of it; None for a tombstone that shows none.
            now_ms: The reader's time, from any clock that never goes back.
            is_live: It came after the records that existed when the reading began.
            ends_life: It is the topic's last one of the group.
        """
        place = self.topics[topic]
        if at_ms is None:
            return self._take_undated(place, version, now_ms, is_live=is_live)
        if place.has_seen(version, at_ms):
            if topic == GROUPS:
                self._life(place).forget_doubtful()
            return False
        before, latest_ms, is_first = place.life, place.latest_ms, not place.highest
        place.go_on(version, at_ms, is_midway=not self.knows_beginning)
        place.ended_ms = at_ms if ends_life else place.ended_ms
        if not self.knows_beginning and (is_first or place.life != before):
            self._align(place, self.topics[1 - topic], latest_ms, is_first=is_first)
        if is_live:
            self._life(place).take(version, now_ms)
        if place.life != before:
            behind = min(each.life for each in self.topics)
            self.lives = {number: life for number, life in self.lives.items() if number >= behind}
        return True

    def _take_undated(self, place: _Topic, version: int, now_ms: int, *, is_live: bool) -> bool:
        is_new = version > max(place.highest, place.undated)
        place.undated = max(place.undated, version)
        if is_live:
            self._life(place).take_doubtful(version, now_ms)
        return is_new

    def _align(self, place: _Topic, other: _Topic, before_ms: int, *, is_first: bool) -> None:
        """Find out in which life a topic is, by its time, where it was not read from its beginning.

        Args:
            before_ms: The time of the topic's record before.
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
        if is_first and place.life != other.life:  # records of the older life may stand before the place where we began
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
