"""The topics that observed groups subscribe to, as they were and as they are, and which of them a changed hash means.

A group's metadata hash is recomputed with the metadata of now, and then with one to three topics as they may have been:
as they were seen before, not there, or with fewer partitions. A hash of 64 bits that fits is no coincidence.

Kafka writes the hash with each group epoch since 4.1 (KIP-1101). A group whose hash is unchanged has no changed topic.
The bytes that are hashed, with numbers in little-endian order and a text as its UTF-16 code units and their number:

    topic    0x00, the two halves of its id, name, partition count, and for each partition its number and the sorted
             racks of its replicas, each as the length of the text and the text
    group    the hash of each subscribed topic that exists, in the order of names; 0 without such a topic

Source: Kafka's org.apache.kafka.coordinator.group.Utils (computeTopicHash, computeGroupHash); HashSink of hash4j.
"""

import struct
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from coordinator.messages.observed_events import TopicChange
from streaming.observe.inference import topic_change
from streaming.observe.state import HashChange

# -- the metadata hash -------------------------------------------------------------------------------------------------


NO_TOPICS = 0
"""The hash of a group without a topic."""

Racks = Sequence[Sequence[str]]
"""By partition, the racks of its replicas, with repeats; brokers without a rack are left out."""

_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")


def topic_hash(topic_id: str, name: str, racks: Racks) -> int:
    """Return the hash of a topic, a signed number of 64 bits.

    Args:
        topic_id: As Kafka prints it.
        racks: An entry for each partition.

    Raises:
        ValueError: The id is not the text of 16 bytes.
    """
    return _hashed(_head(topic_id, name) + _INT.pack(len(racks)) + b"".join(_partitions(racks)))


def hashes_by_count(topic_id: str, name: str, racks: Racks) -> Iterator[tuple[int, int]]:
    """Yield the partition count and the hash of a topic as it was with fewer partitions, the largest count first.

    Raises:
        ValueError: The id is not the text of 16 bytes.
    """
    head, parts = _head(topic_id, name), list(_partitions(racks))
    for count in range(len(parts) - 1, 0, -1):
        yield count, _hashed(head + _INT.pack(count) + b"".join(parts[:count]))


def group_hash(topics: Iterable[int]) -> int:
    """Return the hash of a group, a signed number of 64 bits.

    Args:
        topics: The hashes of the subscribed topics that exist, in the order of their names.
    """
    data = b"".join(map(_LONG.pack, topics))
    return _hashed(data) if data else NO_TOPICS


def _head(topic_id: str, name: str) -> bytes:
    data = urlsafe_b64decode(topic_id + "==")
    if len(data) != 16:
        raise ValueError(f"{topic_id!r} is not the id of a topic")
    return b"\0" + data[7::-1] + data[:7:-1] + _text(name)


def _partitions(racks: Iterable[Iterable[str]]) -> Iterator[bytes]:
    for number, each in enumerate(racks):
        yield _INT.pack(number) + b"".join(_INT.pack(_length(rack)) + _text(rack) for rack in sorted(each))


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + _INT.pack(_length(text))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _hashed(data: bytes) -> int:
    return int(_LONG.unpack(struct.pack("<Q", xxh3_64_intdigest(data)))[0])


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
