"""The figures of the observer: of one partition in one batch, and of all partitions since the start."""

import logging
import threading
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from streaming.kafka.acls import SOURCE_TOPIC
from streaming.observe.state import HashChange
from streaming.query.watchers.progress import Measured, QueryFigures

log = logging.getLogger(__name__)

UNREADABLE = "unreadable"
"""The count of records that could not be read; all others are counted by the number of their type."""


class Tally(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one partition of the source in one batch.

    Args:
        groups, members: The number of groups and members of the partition.
        records: The records of the batch, by their type.
        published: The number of records and events that were published.
        unnamed: Topic ids without a name; at most as many as one batch asks for.
        unnamed_total: The number of topic ids without a name.
        hash_changes: Changes of metadata hashes whose topics are not named yet.
        topics: The topics to which groups with a new epoch subscribe.
    """

    partition: int
    groups: int
    members: int
    records: dict[str, int]
    published: int
    unnamed: list[str]
    unnamed_total: int
    hash_changes: list[HashChange] = []
    topics: list[str] = []

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


class Batch(NamedTuple):
    """One batch in figures."""

    batch_id: int
    duration_ms: int
    records: int
    published: int
    groups: int
    members: int
    unreadable: int
    state_bytes: int

    @property
    def is_idle(self) -> bool:
        return not self.records

    def __str__(self) -> str:
        return "batch={} duration_ms={} records={} published={} groups={} members={}".format(*self)


class Observed(QueryFigures[Tally, Batch]):
    """The figures of the observer since its start.

    Every batch with topic ids that have no name sets `names_wanted`. Every batch with changes of metadata hashes, or
    with the topics of a group that has a new epoch, sets `has_topics`.
    """

    def __init__(self) -> None:
        super().__init__(Tally, ("duration_ms", "published"), SOURCE_TOPIC)
        self._partitions: dict[int, Tally] = {}
        self._records: Counter[str] = Counter()
        self._topics: set[str] = set()
        self.names_wanted = threading.Event()
        self.has_topics = threading.Event()

    @property
    def records(self) -> dict[str, int]:
        """The records that were read, by their type."""
        with self._lock:
            return dict(self._records)

    @property
    def unnamed(self) -> dict[int, list[str]]:
        """By partition of the source, topic ids that have no name."""
        with self._lock:
            return {partition: tally.unnamed for partition, tally in self._partitions.items() if tally.unnamed}

    @property
    def unnamed_total(self) -> int:
        with self._lock:
            return sum(tally.unnamed_total for tally in self._partitions.values())

    @property
    def hash_changes(self) -> dict[int, list[HashChange]]:
        """By partition of the source, changes of metadata hashes whose topics are not named."""
        with self._lock:
            return {number: tally.hash_changes for number, tally in self._partitions.items() if tally.hash_changes}

    def new_topics(self) -> set[str]:
        """Return the topics of groups with new epochs since the last call."""
        with self._lock:
            found, self._topics = self._topics, set()
            return found

    def _add(self, tallies: Sequence[Tally], measured: Measured) -> Batch:
        counted: Counter[str] = Counter()
        for tally in tallies:
            counted.update(tally.records)
        if counted[UNREADABLE] and not self._records[UNREADABLE]:
            log.warning(
                "%d records of %s cannot be read; the events topic names each, and none stops the query",
                counted[UNREADABLE],
                SOURCE_TOPIC,
            )
        self._records.update(counted)
        self._partitions.update({tally.partition: tally for tally in tallies})
        self._topics.update(*(tally.topics for tally in tallies))
        return Batch(
            batch_id=measured.batch_id,
            duration_ms=measured.duration_ms,
            records=counted.total(),
            published=sum(tally.published for tally in tallies),
            groups=sum(tally.groups for tally in self._partitions.values()),
            members=sum(tally.members for tally in self._partitions.values()),
            unreadable=self._records[UNREADABLE],
            state_bytes=measured.state_bytes,
        )

    def _wake_waiting(self, tallies: Sequence[Tally]) -> None:
        if any(tally.unnamed for tally in tallies):
            self.names_wanted.set()
        if any(tally.hash_changes or tally.topics for tally in tallies):
            self.has_topics.set()
