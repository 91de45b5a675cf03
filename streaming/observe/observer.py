"""The observer's query, its start and its stop. It reads Kafka's own groups, and writes the observer's topics.

    __consumer_offsets, PREFIX.topics ─> groupBy(partition) ─> ObserveOperator ─> PREFIX.groups, PREFIX.events

Spark's Kafka source leaves internal topics out without a message, except with the setting `READS_INTERNAL_TOPICS`. It
holds for a whole session, so the query has a session of its own. With this setting, only `assign` joins no group.
"""

import logging
import time
from collections.abc import Callable

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name for it)

from streaming.config.settings import Settings
from streaming.errors import Exit, UserError
from streaming.kafka import acls, topics
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.observe import identity, source
from streaming.observe.failures import CAUSES
from streaming.observe.naming import Naming
from streaming.observe.operator import INPUT_COLUMNS, STATE_SCHEMA, ObserveOperator, Start
from streaming.observe.source import Source
from streaming.observe.tally import Observed
from streaming.observe.topic_naming import TopicNaming
from streaming.observe.watch import SourceWatch
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.lost import refuse_lost
from streaming.query.checkpoint.outdated import refuse_outdated
from streaming.query.checkpoint.running import local_folder
from streaming.query.dataframe import even_keys, unpacked
from streaming.query.operator.operator import OUTPUT_SCHEMA
from streaming.query.running_query import RunningQuery
from streaming.query.spark import stores
from streaming.query.spark.failures import explained
from streaming.query.spark.session import check_java, open_session
from streaming.query.spark.spark_config import SPARK_CONFIG, fixed, user_config, with_users
from streaming.query.spark.stores import located
from streaming.query.watchers.progress import ProgressLog, observed
from streaming.wire.records import OutputTopics

log = logging.getLogger(__name__)

QUERY_NAME = "group-observer"

READS_INTERNAL_TOPICS = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"

FIRST_BATCH_S = 120
"""The longest wait for the first batch of a source that has records. A source that passes them over gives no batch."""


class NothingRead(UserError):
    """Spark's source does not return the records of the internal topic."""

    exit_code = Exit.NEEDS_A_PERSON


class ObserverFailed(UserError):
    """The observer's query ended by itself; the text names the cause."""


def open_own_session(
    settings: Settings, report: Callable[[str], None] | None, java_options: str | None
) -> SparkSession:
    """Return a session for the query alone, in the Java process that another query may have started already."""
    spark = open_session(settings, report, java_options).newSession()
    # generated code: an observer reads millions of rows at its start
    tuning = {**SPARK_CONFIG, "spark.sql.codegen.factoryMode": "FALLBACK"}
    config = {**with_users(tuning, user_config()), **fixed(settings), READS_INTERNAL_TOPICS: "true"}
    for name, value in config.items():
        if name.startswith("spark.sql.") and spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def build(spark: SparkSession, settings: Settings, found: Source, starts: list[Start]) -> DataFrame:
    """Build the query: from the source topic and the names of topic ids to records for the output topics."""
    is_name = F.col("topic") == settings.topics_topic
    shard = F.get_json_object(F.col("value").cast("string"), "$.shard").cast("int")
    keys = F.array(*map(F.lit, even_keys(spark, found.partitions, settings.shuffle_partitions)))
    numbered = _records(spark, settings, found).select(
        F.when(is_name, shard).otherwise(F.col("partition")).alias("number"),
        is_name.alias("is_name"),
        "offset",
        F.unix_millis("timestamp").alias("at_ms"),
        "key",
        "value",
    )
    assert tuple(numbered.columns) == INPUT_COLUMNS, "the operator reads other columns"
    operator = ObserveOperator(
        topics=OutputTopics("", settings.groups_topic, settings.events_topic, ""),
        partitions=settings.request_partitions,
        starts=starts,
        synced=local_folder(checkpoint.query_folder(settings)) if settings.checkpoint_synced else None,
    )
    translated = (
        numbered.where(F.col("number").between(0, found.partitions - 1))
        .withColumn("shard", keys[F.col("number")])
        .coalesce(settings.shuffle_partitions)
        .groupBy("shard")
        .applyInPandasWithState(operator, OUTPUT_SCHEMA, STATE_SCHEMA, "append", "NoTimeout")
    )
    return unpacked(observed(translated).where("topic is not null"))


def _records(spark: SparkSession, settings: Settings, found: Source) -> DataFrame:
    assigned = {
        SOURCE_TOPIC: list(range(found.partitions)),
        settings.topics_topic: list(range(settings.request_partitions)),
    }
    return (
        spark.readStream.format("kafka")
        .options(**settings.kafka_source_options())
        .option("assign", msgspec.json.encode(assigned).decode())
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", settings.observe_records_per_batch)
        .option("groupIdPrefix", settings.topic_prefix)
        .option("kafka.isolation.level", "read_committed")  # an aborted commit must never be seen
        .option("kafka.fetch.max.wait.ms", "1")
        .load()
    )


class Observer(RunningQuery):
    """The running query of the observer.

    Args:
        settings: The observer's settings; see `Settings.observing`.
        report: A callback for plain sentences about the progress of the start.
        java_options: The same argument as that of `open_session`.

    `start` raises any `UserError`; `wait` raises those that it names.
    """

    def __init__(
        self, settings: Settings, report: Callable[[str], None] | None = None, java_options: str | None = None
    ) -> None:
        self.observed = Observed()
        self.watch: SourceWatch | None = None
        layout = topics.observed_layout(settings)
        super().__init__(settings, self.observed, layout, [SOURCE_TOPIC], ObserverFailed, CAUSES, report)
        self._java_options = java_options

    def start(self) -> None:
        """Check Java, the source, topics, rights and checkpoint, in this order, and start the query.

        It waits for the source topic of a new cluster. It returns without a query if the process stops meanwhile.
        """
        settings = self.settings
        check_java()
        stores.of(settings.checkpoint)
        found = source.await_source(settings, self._report, self._stopping)
        if found is None:
            return
        own = topics.ensure_all(settings, topics.observed_layout(settings), self._report)
        acls.check_acls(settings, acls.Role.OBSERVER)
        self._report("Starting Spark.")
        spark = open_own_session(settings, self._report, self._java_options)
        settings = self.settings = located(spark, settings, CAUSES)
        self._store.start_on(spark, settings)
        ids = topics.topic_ids(settings, own)
        ProgressLog(self.observed, QUERY_NAME).attach(spark)
        work = lambda: self._open(spark, found, own, ids)  # noqa: E731
        if (has_records := self._store.attempt(work, self._refusal)) is None:
            return
        self.watch = SourceWatch.of_source(settings, found, self.observed)
        started = [Naming.of(settings, self.observed), TopicNaming.of(settings, self.observed), self.watch]
        self._beside += started
        for each in started:
            each.start()
        self._topic_watch.start_on(ids)
        self._await_first_batch(has_records=has_records)

    def _open(self, spark: SparkSession, found: Source, own: topics.ObservedTopics, ids: dict[str, str]) -> bool:
        """Start the query on the checkpoint, and return whether its first batch has to have records of the source.

        Args:
            ids: The ids of the observer's topics.
        """
        settings = self.settings
        with explained(settings, CAUSES):
            refuse_lost(spark, settings, (own.groups, own.events))
            stores.check(spark, settings)
            self._mark.set(settings.checkpoint)
            identity.claim(spark, settings, found, ids)
            refuse_outdated(spark, settings)
            planned = identity.planned_to(spark, settings)
            source.refuse_long_absence(settings, planned, time.time_ns() // 1_000_000)
            ends = source.ends(settings, found)
            self._report_distance(sum(ends.values()) - sum(planned.values()))
            starts = identity.record_start(spark, settings, ends, source.retention_ms(settings))
            self._start_writing = lambda: self._write(
                build(spark, settings, found, starts), QUERY_NAME, settings.observe_every_ms
            )
            self._begin()
        return any(ends.values()) and not starts[-1].first_batch

    def _report_distance(self, offsets: int) -> None:
        if offsets > self.settings.observe_records_per_batch:
            self._report(f"Up to {offsets:,} records of {SOURCE_TOPIC} come first; groups are complete after them.")

    def _await_first_batch(self, *, has_records: bool) -> None:
        """Wait until the first batch of a new checkpoint has read the source, if the source has records.

        Without the setting, the first batch reads the other topic alone, or the query stays idle.
        """
        deadline_s = time.monotonic() + FIRST_BATCH_S
        while has_records and not self._stopping.is_set():
            assert self._query is not None
            if self._begin_again_if_failed(self._query):
                deadline_s = time.monotonic() + FIRST_BATCH_S
            self._active_s = time.monotonic()
            is_idle = time.monotonic() > deadline_s and not self._query.status["isTriggerActive"]
            batches = self.observed.batches  # a batch stores both figures: this one is read first
            if self.observed.read_to:
                return
            if is_idle or batches:
                raise NothingRead(
                    f"Spark's Kafka source passes over internal topics: it returns no record of {SOURCE_TOPIC}. The"
                    f" session needs {READS_INTERNAL_TOPICS}=true, which Spark 4.2 has."
                )
            self._stopping.wait(0.05)
