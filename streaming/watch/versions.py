"""What has been seen of a group's numbering: repeats are known, and so is what is missing.

Each group numbers all that it publishes on `groups` and `events`, 1, 2, 3 without a gap. Of two topics a later number
may be read first; one that has not come `PATIENCE_MS` after that is missing. Of what was there before the reading began
some may have been compacted away or expired: only what follows is judged.
"""

import itertools
from collections.abc import Iterator

PATIENCE_MS = 10_000
"""Far longer than the records of one batch are apart."""

VERSIONS_KEPT = 4_096
"""How many of a group's latest versions are remembered, to know a repeat: many times what one batch publishes."""


class Versions:
    """The versions seen of one group. All times are from any clock that never goes back."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # version -> fingerprint of its record
        self._before: dict[int, int] = {}  # the same, from before the group was forgotten and founded anew
        self._missing: dict[int, int] = {}  # version -> when a later one was read
        self._highest = 0

    def take(self, version: int, fingerprint: int, now_ms: int, *, is_history: bool) -> bool:
        """Note a record; tells whether it is new.

        Args:
            fingerprint: Equal for repeats, which are equal byte for byte.
            is_history: It was there before the reading began.
        """
        if fingerprint in (self._seen.get(version), self._before.get(version)):
            return False
        if version in self._seen:
            self.end()
        if is_history:
            self._missing = {v: at_ms for v, at_ms in self._missing.items() if v > version}
        elif self._seen:
            self._missing |= dict.fromkeys(range(self._highest + 1, version), now_ms)
        self._missing.pop(version, None)
        self._seen[version] = fingerprint
        self._highest = max(self._highest, version)
        if len(self._seen) > VERSIONS_KEPT:
            del self._seen[next(iter(self._seen))]
        return True

    def end(self) -> None:
        """Begin anew: the group is forgotten, and one of the same name counts from 1 again."""
        self._before, self._seen, self._missing, self._highest = self._seen, {}, {}, 0

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
