"""The topics that observed groups subscribe to, as they were and as they are, and which of them a changed hash means.

A group's metadata hash is recomputed with the metadata of now, and then with one to three topics as they may have been:
as they were seen before, not there, or with fewer partitions. A hash of 64 bits that fits is no coincidence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from typing import NamedTuple

from coordinator.messages.observed_events import TopicChange
from streaming.observe.inference import topic_change
from streaming.observe.metadata_hash import Racks, group_hash, hashes_by_count, topic_hash
from streaming.observe.state import HashChange

SEEN_MAX = 8
"""The former contents of a topic that are kept, the latest ones."""

CHANGED_MAX = 3
"""The topics that a search takes to be other than in the metadata of now, at the same time."""

TRIES_MAX = 20_000
"""The hashes that one pass of a search computes, in a group of up to a hundred topics."""

HASHED_MAX = 2_000_000
"""The topics in the hashes of one pass: a larger group gets fewer tries."""

COUNTS_MAX = 1_000
"""The lower partition counts of a topic that a search tries, the highest ones."""


class Fact(NamedTuple):
    """A topic at some time: all that belongs to its hash."""

    topic_id: str
    partitions: int
    hash: int


class Described(NamedTuple):
    """A topic as the brokers describe it."""

    topic_id: str
    racks: Racks


Facts = dict[str, Fact | None]
"""Topics by name; None for one that does not exist."""


class TopicHistory:
    """What is known of topics. It belongs to one thread."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Fact | None]] = {}
        self._described: dict[str, Described] = {}
        self.version = 0
        """A number that rises when anything new is known."""

    @property
    def names(self) -> list[str]:
        """The topics of which anything is known."""
        return list(self._seen)

    def seen(self, name: str) -> list[Fact | None]:
        """Return a topic as it was and is, the latest last; None stands for a time at which it did not exist."""
        return self._seen.get(name, [])

    def restore(self, name: str, seen: Sequence[Fact | None]) -> None:
        """Add what an earlier process has seen of a topic."""
        self._seen[name] = list(seen)[-SEEN_MAX:]
        self.version += 1

    def record(self, name: str, described: Described | None) -> bool:
        """Note a topic as it is now, None if it does not exist. Return whether it is other than it was.

        Raises:
            ValueError: Its id is none.
        """
        self._described.pop(name, None)
        fact = None
        if described is not None:
            self._described[name] = described
            fact = Fact(described.topic_id, len(described.racks), topic_hash(described.topic_id, name, described.racks))
        seen = self._seen.setdefault(name, [])
        if seen and seen[-1] == fact:
            return False
        self._seen[name] = [*(each for each in seen if each != fact), fact][-SEEN_MAX:]
        self.version += 1
        return True

    def explain(self, change: HashChange) -> tuple[TopicChange, ...] | None:
        """Return the changed topics of a group's hash, of those that it subscribed to before and since.

        None if no recomputation gives both hashes; then it is not known which topics have changed.
        """
        now = self._fit(change.hash, {name: self._latest(name) for name in change.topics})
        if now is None:
            return None
        before = self._fit(
            change.hash_before, {name: now.get(name, self._latest(name)) for name in change.topics_before}
        )
        if before is None:
            return None
        both = [name for name in change.topics_before if name in now]
        return tuple(each for name in both if (each := topic_change(name, before[name], now[name])) is not None)

    def _latest(self, name: str) -> Fact | None:
        seen = self.seen(name)
        return seen[-1] if seen else None

    def _fit(self, wanted: int, base: Facts) -> Facts | None:
        """Return the topics that give a hash: those of `base`, or some of them as they may have been otherwise."""
        names = sorted(base)
        as_seen = {
            name: [fact for fact in dict.fromkeys([*reversed(self.seen(name)), None]) if fact != base[name]]
            for name in names
        }
        found = self._search(wanted, names, base, as_seen)
        if found is None:
            counted = {name: as_seen[name] + list(self._with_fewer_partitions(name)) for name in names}
            found = self._search(wanted, names, base, counted)
        return found

    @staticmethod
    def _search(wanted: int, names: list[str], base: Facts, others: Mapping[str, list[Fact | None]]) -> Facts | None:
        tries = min(TRIES_MAX, HASHED_MAX // max(1, len(names)))
        for facts in islice(_candidates(names, base, others), tries):
            if group_hash(fact.hash for fact in facts.values() if fact is not None) == wanted:
                return facts
        return None

    def _with_fewer_partitions(self, name: str) -> Iterator[Fact]:
        described = self._described.get(name)
        if described is not None:
            counts = hashes_by_count(described.topic_id, name, described.racks)
            yield from (Fact(described.topic_id, count, number) for count, number in islice(counts, COUNTS_MAX))


def _candidates(names: list[str], base: Facts, others: Mapping[str, list[Fact | None]]) -> Iterator[Facts]:
    """Yield the topics as they are, then with one of them as it may have been, and so on to `CHANGED_MAX` of them."""
    for changed in range(CHANGED_MAX + 1):
        for chosen in combinations(names, changed):
            yield from (_with(base, names, chosen, facts) for facts in product(*(others[name] for name in chosen)))


def _with(base: Facts, names: Iterable[str], chosen: Iterable[str], facts: Iterable[Fact | None]) -> Facts:
    replaced = dict(zip(chosen, facts, strict=True))
    return {name: replaced[name] if name in replaced else base[name] for name in names}
