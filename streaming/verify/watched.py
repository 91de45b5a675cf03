"""What was read of one group so far: its position in both topics, its lives, and the findings that wait for the end.

A life of a group is from its creation to its end. An audit judges its versions: those on a topic, and those that are
missing. Some published records may be gone rightly: compaction removes records of the groups topic that have a
successor, and retention removes the oldest events. No other record gets their offsets, so each removed record leaves a
hole in the offsets. A version is missing if more versions are gone than holes exist between its neighbours. The audit
cannot see which group a hole belongs to. So beside holes a loss may go unnoticed, but every reported loss is real.

The audit is not a follower of versions (`streaming.views.state.version_follower`). A follower may begin anywhere and
reads only some groups. So it cannot count holes, and it waits. An audit reads whole partitions afterwards, so it does
not wait, and time would not help it.
"""

import heapq
import math
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

from coordinator.messages.group_records import GroupRecord
from streaming.verify.consumers import ConsumerAudit, Owners
from streaming.verify.findings import Finding
from streaming.verify.offsets import Committed
from streaming.verify.tokens import Tokens
from streaming.views.state.version_follower import EVENTS
from streaming.wire.newest_records import NewestRecords

# -- missing versions --------------------------------------------------------------------------------------------------


BEYOND_MAX = 10_000
"""The number of versions beyond a missing one that are kept before the missing one is reported."""

CLOCKS_APART_MS = 60_000
"""The longest time by which the times of records on two topics may differ from their order."""


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
    """The versions of one life. The records of each topic have to come in order; either topic may be ahead.

    Args:
        before: The group's previous life, if it had one.
    """

    def __init__(self, holes: Holes, before: "VersionAudit | None" = None) -> None:
        self._settled = 0  # every version up to it was seen, rightly removed, or reported
        self._reach = [0, 0]
        may_have_expired = holes.events_from_ms > -math.inf
        first: list[float] = [0, -math.inf if may_have_expired else 0]
        self._removed: list[float] = list(before._removed) if before else first  # when the settled versions were read
        self._beyond: dict[int, _Seen] = {}
        self._order: list[int] = []

    def judge(self, topic: int, version: int, at_ms: int, holes: Holes) -> Iterator[range]:
        """Note a record. Yield the versions that are certainly missing."""
        self._reach[topic] = max(self._reach[topic], version)
        seen = _Seen(topic, holes.removed[topic], at_ms)
        if version <= self._settled:
            self._removed[topic] = max(self._removed[topic], seen.removed)
        elif version not in self._beyond:
            self._beyond[version] = seen
            heapq.heappush(self._order, version)
        yield from self._settle(holes, min(self._reach), at_ms=-math.inf)

    def begin_after(self, version: int) -> None:
        """Note that the group has come from another coordinator, which has published the versions up to this one."""
        self._settled = max(self._settled, version)
        self._beyond = {each: seen for each, seen in self._beyond.items() if each > self._settled}
        self._order = sorted(self._beyond)

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


class ReadPosition(Struct):
    """The reader's position in one topic of a group: the life, the version and the generation.

    A life ends when the group is removed, or when it moves to another coordinator.

    Args:
        first: The first version that was seen of this life.
        removed: How many records were gone from the partition before the group's latest record.
        latest_ms: The group's own time of its latest record.
        ended_ms: When the life ended, if it has; `ended_as` is how many groups had ended by then.
    """

    life: int = 0
    version: int = 0
    first: int = 0
    removed: int = 0
    latest_ms: int = 0
    generation_id: int = -1
    ended_ms: int | None = None
    ended_as: int = 0

    def begin_anew(self, *, is_remembered: bool) -> None:
        self.life, self.version, self.ended_ms = self.life + 1, 0, None
        if not is_remembered:
            self.generation_id = -1


class Watched(Struct):
    """The data of a group that were read so far. Times and versions are kept by life.

    Args:
        is_blurred: Whether the group has ended while records are gone from the topics. Then it is uncertain which lives
            of the two topics belong together and which record repeats which, so versions and generations are no longer
            judged.
        arrived: The lives that began at another coordinator.
        late: By key, the place and the writing time of a last record that is older than a record before it.
    """

    places: tuple[ReadPosition, ReadPosition] = field(default_factory=lambda: (ReadPosition(), ReadPosition()))
    lives: dict[int, VersionAudit] = field(default_factory=dict)
    deleted_ms: dict[int, int] = field(default_factory=dict)
    founded_ms: dict[int, int] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)
    latest: GroupRecord | None = None
    owners: Owners = field(default_factory=Owners)
    is_blurred: bool = False
    committed: dict[tuple[str, int], Committed] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    consumers: ConsumerAudit = field(default_factory=ConsumerAudit)
    newest: NewestRecords = field(default_factory=NewestRecords)
    late: dict[bytes, tuple[str, int]] = field(default_factory=dict)

    def pass_over_an_end(self, topic: int) -> None:
        self.places[topic].begin_anew(is_remembered=False)
        self.is_blurred = True


class Held(NamedTuple):
    """A finding that is reported at the end.

    Args:
        life: The life of the group.
        is_first: Whether the record is the first one of the life in its topic.
    """

    finding: Finding
    life: int
    is_first: bool
