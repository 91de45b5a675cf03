"""What has been seen of a group's numbering: repeats are known, and so is what is missing.

Each group numbers all that it publishes on `groups` and `events`, 1, 2, 3 without a gap, and each topic keeps its
order. So a number that both topics have gone past will not come any more. Of what was there before the reading began
some may have been compacted away or expired; gaps are only called from there on.
"""

import itertools
from collections.abc import Iterator

TOPICS = ("groups", "events")

VERSIONS_KEPT = 4_096
"""How many of a group's latest versions are remembered, to know a repeat: many times what one batch publishes."""


class _Numbering:
    """The versions seen of a group, from its founding until it is forgotten."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}  # version -> fingerprint of its record
        self.latest: dict[str, int] = {}  # topic -> its latest version
        self.judged = 0  # up to here all is seen, called missing, or from before the reading began


class Versions:
    """What has been seen of one group. A group that is forgotten and founded anew counts from 1 again."""

    def __init__(self) -> None:
        self._ages: dict[str, int] = {}  # topic -> how often the numbering has begun anew there
        self._numberings = {0: _Numbering()}

    def take(self, topic: str, version: int, fingerprint: int, *, is_history: bool) -> Iterator[tuple[int, int]] | None:
        """Note a record.

        Args:
            topic: Which of the two topics it was read from, in that topic's order.
            fingerprint: Equal for repeats, which are equal byte for byte.
            is_history: It was there before the reading began.

        Returns:
            None for a repeat; otherwise the versions that are now known to be missing, first and last of each run.
        """
        if any(numbering.seen.get(version) == fingerprint for numbering in self._numberings.values()):
            return None
        numbering = self._numbering(topic, version)
        if is_history or not numbering.seen:
            numbering.judged = max(numbering.judged, version)
        numbering.seen[version], numbering.latest[topic] = fingerprint, version
        if len(numbering.seen) > VERSIONS_KEPT:
            del numbering.seen[next(iter(numbering.seen))]
        return _gaps(numbering)

    def _numbering(self, topic: str, version: int) -> _Numbering:
        age = self._ages.setdefault(topic, 0)
        if version <= self._numberings[age].latest.get(topic, 0):
            age = self._ages[topic] = age + 1
            self._numberings = {a: n for a, n in self._numberings.items() if a >= age - 1}
        return self._numberings.setdefault(age, _Numbering())


def _gaps(numbering: _Numbering) -> Iterator[tuple[int, int]]:
    """Tell what both topics have gone past without showing it; each version is judged once."""
    past = min(numbering.latest.values()) if len(numbering.latest) == len(TOPICS) else 0
    missing = [v for v in range(numbering.judged + 1, past) if v not in numbering.seen]
    numbering.judged = max(numbering.judged, past)
    for _, run in itertools.groupby(enumerate(missing), key=lambda pair: pair[1] - pair[0]):
        versions = [version for _, version in run]
        yield versions[0], versions[-1]
