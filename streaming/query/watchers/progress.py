"""The progress of the query: a log line for each batch, and the latest figures."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name for it)

from streaming.moments import monotonic_ms
from streaming.wire.records import Tally

log = logging.getLogger(__name__)

_METRICS = "coordinator"


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


class Totals(NamedTuple):
    """The sums over all batches since the start."""

    batches: int = 0
    duration_ms: int = 0
    requests: int = 0
    answered: int = 0
    heartbeats: int = 0
    parts_ms: Mapping[str, int] = MappingProxyType({})

    def with_batch(self, batch: Batch) -> "Totals":
        """Return the totals with one more batch."""
        return Totals(
            self.batches + 1,
            self.duration_ms + batch.duration_ms,
            self.requests + batch.requests,
            self.answered + batch.answered,
            self.heartbeats + batch.heartbeats,
            {**self.parts_ms, **{part: self.parts_ms.get(part, 0) + ms for part, ms in batch.parts_ms.items()}},
        )


class Tallies:
    """The latest figures of each shard, and the latest batch. Any thread may read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shards: dict[int, Tally] = {}
        self._due_ms: dict[int, int | None] = {}
        self._latest: Batch | None = None
        self._totals = Totals()
        self._read_to: dict[int, int] = {}
        self._batch_events: list[threading.Event] = []
        self._followers: list[Callable[[Sequence[Tally]], None]] = []

    def batch_event(self) -> threading.Event:
        """Return a new event that every batch sets. The only thread that waits for it clears it."""
        self._batch_events.append(event := threading.Event())
        return event

    def follow(self, follower: Callable[[Sequence[Tally]], None]) -> None:
        """Call a function with the tallies of every batch. It must not block."""
        self._followers.append(follower)

    @property
    def latest(self) -> Batch | None:
        with self._lock:
            return self._latest

    @property
    def totals(self) -> Totals:
        with self._lock:
            return self._totals

    @property
    def batches(self) -> int:
        return self.totals.batches

    @property
    def read_to(self) -> dict[int, int]:
        """By partition of the request topic, the offset before which all requests are handled; empty before the first
        batch."""
        with self._lock:
            return self._read_to

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

    def handle(self, progress: dict[str, Any]) -> Batch:
        """Store the progress of a batch, given as the JSON form of Spark's `StreamingQueryProgress`."""
        row = progress["observedMetrics"].get(_METRICS, {})
        shards = [msgspec.json.decode(text, type=Tally) for text in row.get("shards", [])]
        for follower in self._followers:
            follower(shards)
        with self._lock:
            self._shards.update({s.shard: s for s in shards})
            planned_ms = monotonic_ms() - progress["durationMs"].get("triggerExecution", 0)
            self._due_ms.update({s.shard: None if s.due_in_ms is None else planned_ms + s.due_in_ms for s in shards})
            self._latest = Batch(
                batch_id=progress["batchId"],
                duration_ms=progress["durationMs"].get("triggerExecution", 0),
                requests=sum(s.requests for s in shards),
                answered=sum(s.answered for s in shards),
                oldest_ms=max((s.oldest_ms for s in shards), default=0),
                groups=sum(s.groups for s in self._shards.values()),
                members=sum(s.members for s in self._shards.values()),
                heartbeats=sum(s.heartbeats for s in shards),
                parts_ms={part: took for part, took in progress["durationMs"].items() if part != "triggerExecution"},
                state_bytes=sum(operator["memoryUsedBytes"] for operator in progress.get("stateOperators", [])),
            )
            self._totals = self._totals.with_batch(self._latest)
            self._read_to = _read_to(progress)
            for event in self._batch_events:
                event.set()
            return self._latest


def _read_to(progress: dict[str, Any]) -> dict[int, int]:
    """Return the offsets to which a batch has read. Its only source has one topic."""
    ends = (topic for source in progress.get("sources", []) for topic in (source["endOffset"] or {}).values())
    return {int(partition): offset for topic in ends for partition, offset in topic.items()}


def observed(answered: DataFrame) -> DataFrame:
    """Make Spark report the tallies in the operator's output with every batch."""
    return answered.observe(_METRICS, F.collect_list("tally").alias("shards"))


class ProgressLog:
    """A listener that logs a line for each batch of one query that handled requests.

    Spark's JVM calls it, and it reads a batch's progress as one JSON text. pyspark's own `StreamingQueryListener` asks
    the JVM for every figure separately, which costs half as much as a small batch.
    """

    def __init__(self, tallies: Tallies, query_name: str) -> None:
        self._tallies, self._name = tallies, query_name

    def attach(self, spark: SparkSession) -> None:
        """Register for the progress of the queries of a session."""
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        wrapper = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        spark._jsparkSession.streams().addListener(wrapper(self))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        log.info("query=%s started run=%s", event.name(), event.runId().toString())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = msgspec.json.decode(event.progress().json())
        if progress["name"] != self._name:
            return  # another query runs in the same Java process
        batch = self._tallies.handle(progress)
        level = logging.INFO if batch.requests else logging.DEBUG
        log.log(
            level,
            "batch=%d duration_ms=%d requests=%d answered=%d oldest_ms=%d groups=%d members=%d",
            *batch[:7],
        )

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        log.info("query ended run=%s", event.runId().toString())

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
