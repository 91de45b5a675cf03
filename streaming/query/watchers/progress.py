"""The progress of a query: a log line for each batch, and the figures since the start."""

import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name for it)

from streaming.moments import monotonic_ms
from streaming.wire.records import Tally

log = logging.getLogger(__name__)

_METRICS = "coordinator"
"""The name under which Spark reports the tallies of a batch."""


class Measured(NamedTuple):
    """What Spark reports about a batch.

    Args:
        parts_ms: The parts of the batch's duration, by Spark's own names.
        state_bytes: The memory of the states in the executors.
    """

    batch_id: int
    duration_ms: int
    parts_ms: dict[str, int]
    state_bytes: int


class BatchFigures(Protocol):
    """One batch in figures. Its text is the line of the log."""

    @property
    def is_idle(self) -> bool:
        """Whether the batch had nothing to handle."""


T = TypeVar("T")
B = TypeVar("B", bound=BatchFigures)


class QueryFigures(ABC, Generic[T, B]):
    """The latest batch of a query, and the sums over all batches since the start. Any thread may read them.

    Args:
        tally_type: The type of the tallies that the tasks of a batch report.
        summed: The figures of a batch that `totals` has.
        topic: The topic of the source whose offsets are the position of the query; None if it reads one topic only.
    """

    def __init__(self, tally_type: type[T], summed: Sequence[str], topic: str | None = None) -> None:
        self._tally_type, self._summed, self._topic = tally_type, summed, topic
        self._lock = threading.Lock()
        self._latest: B | None = None
        self._totals: Counter[str] = Counter()
        self._read_to: dict[int, int] = {}
        self._followers: list[Callable[[Sequence[T]], None]] = []

    def follow(self, follower: Callable[[Sequence[T]], None]) -> None:
        """Call a function with the tallies of every batch. It must not block."""
        self._followers.append(follower)

    @property
    def latest(self) -> B | None:
        with self._lock:
            return self._latest

    @property
    def batches(self) -> int:
        return self.totals["batches"]

    @property
    def totals(self) -> Counter[str]:
        """The number of batches, as `batches`, and the sums of their figures, by the names of these."""
        with self._lock:
            return self._totals.copy()

    @property
    def read_to(self) -> dict[int, int]:
        """By partition of the source, the offset before which all records are handled; empty before the first batch."""
        with self._lock:
            return self._read_to

    def handle(self, progress: dict[str, Any]) -> B:
        """Store the progress of a batch, given as the JSON form of Spark's `StreamingQueryProgress`."""
        row = progress["observedMetrics"].get(_METRICS, {})
        tallies = [msgspec.json.decode(text, type=self._tally_type) for text in row.get("shards", [])]
        for follower in self._followers:
            follower(tallies)
        parts_ms = dict(progress["durationMs"])
        measured = Measured(
            progress["batchId"],
            parts_ms.pop("triggerExecution", 0),
            parts_ms,
            sum(operator["memoryUsedBytes"] for operator in progress.get("stateOperators", [])),
        )
        with self._lock:
            self._latest = batch = self._add(tallies, measured)
            self._totals.update(batches=1, **{name: getattr(batch, name) for name in self._summed})
            self._read_to = read_to(progress, self._topic) or self._read_to
        self._wake_waiting(tallies)
        return batch

    @abstractmethod
    def _add(self, tallies: Sequence[T], measured: Measured) -> B:
        """Add the tallies of a batch, and return the figures of the batch. The caller holds the lock."""

    @abstractmethod
    def _wake_waiting(self, tallies: Sequence[T]) -> None:
        """Set the events of the threads that wait for such a batch."""


def read_to(progress: dict[str, Any], topic: str | None = None) -> dict[int, int]:
    """Return the offsets to which a batch has read a topic of its sources; without a name, their only topic."""
    ends = (end for source in progress.get("sources", []) for end in (source["endOffset"] or {}).items())
    found = (offsets for name, offsets in ends if topic in (None, name))
    return {int(partition): offset for offsets in found for partition, offset in offsets.items()}


class Batch(NamedTuple):
    """One batch in figures.

    Args:
        answered: The number of responses that the batch wrote.
        oldest_ms: How long the oldest request had waited when the batch was planned; 0 without requests.
        heartbeats: The number of heartbeats among the requests.
        parts_ms: The parts of the batch's duration that Spark reports, by Spark's own names.
        state_bytes: The memory of the shards' states in the executors.
    """

    batch_id: int
    duration_ms: int
    requests: int
    answered: int
    oldest_ms: int
    groups: int
    members: int
    heartbeats: int
    parts_ms: dict[str, int]
    state_bytes: int

    @property
    def is_idle(self) -> bool:
        return not self.requests

    def __str__(self) -> str:
        return "batch={} duration_ms={} requests={} answered={} oldest_ms={} groups={} members={}".format(*self)


class Tallies(QueryFigures[Tally, Batch]):
    """The figures of the coordinator's query, with the latest tally of each shard."""

    def __init__(self) -> None:
        super().__init__(Tally, ("duration_ms", "requests", "answered", "heartbeats"))
        self._shards: dict[int, Tally] = {}
        self._due_ms: dict[int, int | None] = {}
        self._parts_ms: Counter[str] = Counter()
        self._batch_events: list[threading.Event] = []

    def batch_event(self) -> threading.Event:
        """Return a new event that every batch sets. The only thread that waits for it clears it."""
        self._batch_events.append(event := threading.Event())
        return event

    @property
    def parts_ms(self) -> Counter[str]:
        """The sums of the parts of the batches' durations, by Spark's own names."""
        with self._lock:
            return self._parts_ms.copy()

    @property
    def shards(self) -> dict[int, tuple[int, int]]:
        """Groups and members of each shard that was called since the start."""
        with self._lock:
            return {shard: (tally.groups, tally.members) for shard, tally in self._shards.items()}

    @property
    def settled(self) -> dict[int, tuple[str, int]]:
        """By shard that was called since the start, the id of the transactions topic, and the place before which all
        transactions are settled."""
        with self._lock:
            return {shard: tally.settled for shard, tally in self._shards.items()}

    @property
    def due_ms(self) -> dict[int, int | None]:
        """The next time at which a timeout of each shard is due, by this machine's monotonic clock."""
        with self._lock:
            return dict(self._due_ms)

    def _add(self, tallies: Sequence[Tally], measured: Measured) -> Batch:
        self._shards.update({s.shard: s for s in tallies})
        planned_ms = monotonic_ms() - measured.duration_ms
        self._due_ms.update({s.shard: None if s.due_in_ms is None else planned_ms + s.due_in_ms for s in tallies})
        self._parts_ms.update(measured.parts_ms)
        return Batch(
            batch_id=measured.batch_id,
            duration_ms=measured.duration_ms,
            requests=sum(s.requests for s in tallies),
            answered=sum(s.answered for s in tallies),
            oldest_ms=max((s.oldest_ms for s in tallies), default=0),
            groups=sum(s.groups for s in self._shards.values()),
            members=sum(s.members for s in self._shards.values()),
            heartbeats=sum(s.heartbeats for s in tallies),
            parts_ms=measured.parts_ms,
            state_bytes=measured.state_bytes,
        )

    def _wake_waiting(self, tallies: Sequence[Tally]) -> None:
        for event in self._batch_events:
            event.set()


def observed(answered: DataFrame) -> DataFrame:
    """Make Spark report the tallies in the operator's output with every batch."""
    return answered.observe(_METRICS, F.collect_list("tally").alias("shards"))


class ProgressLog:
    """A listener that stores the progress of one query, and logs a line for each of its batches that was not idle.

    A session's listeners may hear all queries of one Java process, so each chooses by the query's name. Spark's JVM
    calls it, and it reads a batch's progress as one JSON text. pyspark's own `StreamingQueryListener` asks the JVM for
    every figure separately, which costs half as much as a small batch.
    """

    def __init__(self, figures: QueryFigures[Any, Any], query_name: str) -> None:
        self._figures, self._name, self._run = figures, query_name, ""

    def attach(self, spark: SparkSession) -> None:
        """Register for the progress of the queries of a session."""
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        wrapper = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        spark._jsparkSession.streams().addListener(wrapper(self))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        if event.name() == self._name:
            self._run = event.runId().toString()
            log.info("query=%s started run=%s", self._name, self._run)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = msgspec.json.decode(event.progress().json())
        if progress["name"] == self._name:
            batch = self._figures.handle(progress)
            log.log(logging.DEBUG if batch.is_idle else logging.INFO, "%s", batch)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        if event.runId().toString() == self._run:
            log.info("query ended run=%s", self._run)

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
