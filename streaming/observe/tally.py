"""The figures of the observer: of one partition in one batch, and of all partitions since the start."""

import logging
import threading
from collections import Counter
from typing import Any, NamedTuple

import msgspec
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from streaming.kafka.acls import SOURCE_TOPIC
from streaming.observe.state import HashChange

log = logging.getLogger(__name__)

METRICS = "coordinator"
"""The name under which Spark reports the tallies of a batch; see `query.progress.observed`."""

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


class Observed:
    """The figures of the observer since its start. Any thread may read them.

    Every batch with topic ids that have no name sets `names_wanted`. Every batch with changes of metadata hashes, or
    with the topics of a group that has a new epoch, sets `has_topics`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[int, Tally] = {}
        self._latest: Batch | None = None
        self._records: Counter[str] = Counter()
        self._published = 0
        self._batches = 0
        self._duration_ms = 0
        self._read_to: dict[int, int] = {}
        self._reported: set[str] = set()
        self._topics: set[str] = set()
        self.names_wanted = threading.Event()
        self.has_topics = threading.Event()

    @property
    def latest(self) -> Batch | None:
        with self._lock:
            return self._latest

    @property
    def batches(self) -> int:
        with self._lock:
            return self._batches

    @property
    def totals(self) -> tuple[int, int, int]:
        """Batches, their duration in milliseconds, and the records and events that they published."""
        with self._lock:
            return self._batches, self._duration_ms, self._published

    @property
    def records(self) -> dict[str, int]:
        """The records that were read, by their type."""
        with self._lock:
            return dict(self._records)

    @property
    def read_to(self) -> dict[int, int]:
        """By partition of the source, the offset before which all is translated; empty before the first batch."""
        with self._lock:
            return self._read_to

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

    def handle(self, progress: dict[str, Any]) -> Batch:
        """Store the progress of a batch, given as the JSON form of Spark's `StreamingQueryProgress`."""
        row = progress["observedMetrics"].get(METRICS, {})
        tallies = [msgspec.json.decode(text, type=Tally) for text in row.get("shards", [])]
        counted: Counter[str] = Counter()
        for tally in tallies:
            counted.update(tally.records)
        self._report(counted)
        duration_ms = progress["durationMs"].get("triggerExecution", 0)
        published = sum(tally.published for tally in tallies)
        with self._lock:
            self._partitions.update({tally.partition: tally for tally in tallies})
            self._topics.update(*(tally.topics for tally in tallies))
            self._records += counted
            self._published += published
            self._batches += 1
            self._duration_ms += duration_ms
            self._latest = Batch(
                batch_id=progress["batchId"],
                duration_ms=duration_ms,
                records=counted.total(),
                published=published,
                groups=sum(tally.groups for tally in self._partitions.values()),
                members=sum(tally.members for tally in self._partitions.values()),
                unreadable=self._records[UNREADABLE],
                state_bytes=sum(operator["memoryUsedBytes"] for operator in progress.get("stateOperators", [])),
            )
            self._read_to = read_to(progress) or self._read_to
        if any(tally.unnamed for tally in tallies):
            self.names_wanted.set()
        if any(tally.hash_changes or tally.topics for tally in tallies):
            self.has_topics.set()
        return self._latest

    def _report(self, counted: Counter[str]) -> None:
        """Log once that records cannot be read. The events name each."""
        if counted[UNREADABLE] and UNREADABLE not in self._reported:
            self._reported.add(UNREADABLE)
            log.warning(
                "%d records of %s cannot be read; the events topic names each, and none stops the query",
                counted[UNREADABLE],
                SOURCE_TOPIC,
            )


def read_to(progress: dict[str, Any]) -> dict[int, int]:
    """Return the offsets to which a batch has read the source."""
    for source in progress.get("sources", []):
        if found := (source["endOffset"] or {}).get(SOURCE_TOPIC):
            return {int(partition): offset for partition, offset in found.items()}
    return {}


class ProgressLog:
    """A listener that stores the progress of one query, and logs a line for each of its batches that had records.

    A session's listeners may hear all queries of one Java process, so each chooses by the query's name.
    """

    def __init__(self, observed: Observed, query_name: str) -> None:
        self._observed, self._name = observed, query_name

    def attach(self, spark: SparkSession) -> None:
        """Register for the progress of the queries of a session."""
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        wrapper = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        spark._jsparkSession.streams().addListener(wrapper(self))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        if event.name() == self._name:
            log.info("query=%s started run=%s", self._name, event.runId().toString())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = msgspec.json.decode(event.progress().json())
        if progress["name"] != self._name:
            return
        batch = self._observed.handle(progress)
        level = logging.INFO if batch.records else logging.DEBUG
        log.log(level, "batch=%d duration_ms=%d records=%d published=%d groups=%d members=%d", *batch[:6])

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
