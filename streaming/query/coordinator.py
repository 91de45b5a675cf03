"""The query, its start and its stop. It reads requests from Kafka, runs the operator, and writes the output topics.

    requests ─> groupBy(shard's key) ─> ShardOperator ─> replies, groups, events

Spark runs a batch when the request topic has new records. Spark checks timeouts only in a batch: when a timeout is due,
the `Alarm` appends a wake record. (Without the alarm, a query with processing-time timeouts runs batches without a
pause, and after a restart it runs none until a row comes.)
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config.settings import Settings
from streaming.embedded import archive, connector, fetch, find_java
from streaming.errors import Exit, UserError
from streaming.kafka import founding, peers, topics
from streaming.kafka import rights as acls
from streaming.logs import are_json
from streaming.query import checkpoint
from streaming.query.alarm import Alarm
from streaming.query.bell import TRIGGER_MS, Bell
from streaming.query.building import build
from streaming.query.failures import CONCURRENT, because, explained
from streaming.query.fencing import find_floor
from streaming.query.java_process import start_java
from streaming.query.lease import Lease, LeaseLost
from streaming.query.outdated import refuse_outdated
from streaming.query.ownership import take_over
from streaming.query.progress import ProgressLog, Tallies
from streaming.query.repeats import RepeatWatch
from streaming.query.running import Mark, local_folder
from streaming.query.settling import TransactionWatch
from streaming.query.standing_by import await_lease
from streaming.query.topic_watch import TopicWatch

log = logging.getLogger(__name__)

SPARK_LOG = Path(__file__).with_name("log4j2.properties")
QUERY_NAME = "group-coordinator"
CONNECTOR_PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
BATCH_WAIT_S = 60
"""How long a stop waits for the running batch. After this time the stop abandons the batch, and the next start repeats
it."""

CHECK_EVERY_S = 0.5
"""How often the coordinator checks whether its query still runs."""

STARTS_MAX = 3
"""How often a driver with the lease starts the query until its first batch, if another driver comes in between."""

CHECKPOINTING = "org.apache.spark.sql.execution.streaming" + (
    "" if pyspark.__version__.startswith("4.0.") else ".checkpointing"
)
"""The package of Spark's classes that write checkpoints. Spark 4.1 moved them."""

_STORE = "spark.sql.streaming.stateStore"
STATE_STORES = {
    "hdfs": {
        f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    },
    "rocksdb": {
        f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STORE}.checkpointFormatVersion": "2",  # Spark never reads a torn retry as committed state
    },
}

SPARK_CONFIG = {
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # the alarm makes Spark run batches instead
    f"{_STORE}.minDeltasForSnapshot": "100",
    "spark.sql.streaming.pollingDelay": "0ms",  # the bell, or else the trigger, says when a query asks for new records
    # Spark checks retries of stages whose rows differ between attempts. Our rows are ranges of Kafka offsets and do not
    # differ.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableQueryLevelRollbackOnMismatch": "false",
    # Generated code is faster for each row, but generating it takes longer than the few rows of a batch.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",  # has no effect on stateful queries, and logs a warning about that
    "spark.sql.session.timeZone": "UTC",
    # Spark's own expression, and the names of Kafka's secret options
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|keystore[.]key|jaas",
    "spark.speculation": "false",
    "spark.locality.wait": "0s",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.sql.ui.retainedExecutions": "50",
}
"""Spark settings that measurably improve the query. An option of spark-submit, or of its defaults file, overrides
them."""

LOCAL_CONFIG = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.shuffle.compress": "false",  # shuffled data stays in the page cache
    # The defaults start readlink four times for each file of the checkpoint, and add a checksum file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
}
"""Additional Spark settings for a driver and an executor that are one process on one machine."""


COMPILE_LATER = " ".join(
    f"-XX:Tier4{name}={10 * default}"
    for name, default in {
        "InvocationThreshold": 5_000,
        "MinInvocationThreshold": 600,
        "CompileThreshold": 15_000,
        "BackEdgeThreshold": 40_000,
    }.items()
)
"""Java options: code is compiled for speed (by C2) when it was used ten times as often as by default. This compilation
takes much of a start's processor time, and of a coordinator's at rest."""


class ConnectorMissing(UserError):
    """Spark's Kafka connector is missing."""

    exit_code = Exit.NEEDS_A_PERSON


class QueryFailed(UserError):
    """The query ended by itself; the text names the cause."""


def open_session(
    settings: Settings, report: Callable[[str], None] | None = None, java_options: str | None = None
) -> SparkSession:
    """Start Spark, or return the session that spark-submit prepared.

    Args:
        java_options: The options that say where Java loads its classes from. The default is the class archive, if one
            exists.

    Raises:
        JavaMissing, JarsUnavailable: Java or Spark's jars are missing.
    """
    find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(QUERY_NAME)
    is_submitted = "SPARK_ENV_LOADED" in os.environ  # Spark's own launch scripts set this variable
    master = settings.master or ("" if is_submitted else "local[2]")
    config = {**(_not_submitted(SPARK_CONFIG) if is_submitted else SPARK_CONFIG), **STATE_STORES[settings.state_store]}
    config["spark.sql.shuffle.partitions"] = str(settings.shuffle_partitions)
    if master:
        builder = builder.master(master)
        config["spark.driver.extraJavaOptions"] = _driver_options(
            archive.using() if java_options is None else java_options
        )
    if master.startswith("local"):
        config |= LOCAL_CONFIG
    if not is_submitted:  # spark-submit gets the connector with --packages or --jars
        needed = {**config, "spark.app.name": QUERY_NAME, "spark.master": master}
        config |= start_java(needed, fetch(connector(), report=report))
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not _has_connector(spark):
        raise ConnectorMissing(
            f"Spark has no Kafka connector: give spark-submit --packages {CONNECTOR_PACKAGE}, or --jars with its jars."
        )
    return spark


def _not_submitted(config: dict[str, str]) -> dict[str, str]:
    """Return the settings that spark-submit and its defaults file do not set, because a session's builder would
    override them."""
    SparkContext._ensure_initialized()
    submitted = SparkConf()
    return {name: value for name, value in config.items() if not submitted.contains(name)}


def _driver_options(java_options: str) -> str:
    level = "warn" if log.isEnabledFor(logging.DEBUG) else "off"
    return (
        f"-Dlog4j2.configurationFile={SPARK_LOG.as_uri()} -Dcoordinator.spark.log={level} "
        f"-Dcoordinator.spark.lines={'json' if are_json() else 'text'} "
        "-XX:+UseParallelGC "  # half the work of the default collector, whose threads run beside the tasks
        f"{COMPILE_LATER} "
        f"{java_options}"
    )


def _has_connector(spark: SparkSession) -> bool:
    try:
        spark.readStream.format("kafka").option("subscribe", "any").option("kafka.bootstrap.servers", "any:1").load()
    except AnalysisException:
        return False
    return True


class Coordinator:
    """The running query.

    Args:
        report: A callback for plain sentences about the progress of the start.
        java_options: The same argument as that of `open_session`.

    `start` raises any `UserError`; `wait` raises `QueryFailed`, `TopicMismatch` or `LeaseLost`.
    """

    def __init__(
        self, settings: Settings, report: Callable[[str], None] | None = None, java_options: str | None = None
    ) -> None:
        self.settings = settings
        self.tallies = Tallies()
        self._report = report or (lambda _: None)
        self._java_options = java_options
        self._peer_partitions: dict[str, int] = {}
        self._query: StreamingQuery | None = None
        self._active_s: float | None = None
        self._alarm, self._bell = Alarm(settings, self.tallies), Bell(settings, self.tallies)
        self._topic_watch = TopicWatch(settings)
        self._mark = Mark()
        self._repeats = RepeatWatch(settings)
        self.transactions = TransactionWatch(settings, self.tallies)
        self._stopping = threading.Event()
        self.lease = Lease(settings) if settings.stand_by else None

    def start(self) -> None:
        """Check Java, jars, broker, topics and checkpoint, in this order, and start the query.

        With the setting `stand_by`, wait for the lease before the checkpoint is opened. If the process is to stop
        meanwhile, return without a query.
        """
        settings = self.settings
        find_java()
        topics.ensure(settings, self._report)
        self._peer_partitions = peers.check(settings)
        if settings.is_founder:
            topics.ensure_all(settings, topics.directory_layout(settings), self._report)
        if self.lease is not None:
            topics.ensure_all(settings, topics.lease_layout(settings), self._report)
        acls.see_rights(settings, acls.Role.COORDINATOR)
        if settings.is_founder:
            founding.ensure(settings)
        if self.lease is not None:
            self.lease.start()
        self._report("Starting Spark.")
        spark = open_session(settings, self._report, self._java_options)
        if self.lease is None or await_lease(spark, settings, self.lease, self._stopping, self._report):
            self._start_query(spark)

    def _start_query(self, spark: SparkSession) -> None:
        settings = self.settings
        ids = topics.topic_ids(settings)
        self._mark.set(settings.checkpoint)
        if self.lease is not None and (folder := local_folder(settings.checkpoint)) is not None:
            take_over(folder, self.lease.driver)
        held = (settings.requests_topic, settings.groups_topic, settings.events_topic)
        ProgressLog(self.tallies, QUERY_NAME).attach(spark)
        with explained(settings):
            identity = checkpoint.claim(
                spark, settings, {name: ids[name] for name in held}, lambda: find_floor(settings, self._report)
            )
            refuse_outdated(spark, settings)
            self._query = self._begin(spark, identity)
        self._alarm.start()
        self._topic_watch.start()
        self._await_first_batch(spark, identity)
        self._bell.start(spark, self._query)
        self._repeats.start()
        self.transactions.start()

    def _begin(self, spark: SparkSession, identity: checkpoint.Identity) -> StreamingQuery:
        settings, driver = self.settings, None if self.lease is None else self.lease.driver
        return (
            build(spark, settings, identity, driver, self._peer_partitions)
            .writeStream.queryName(QUERY_NAME)
            .format("kafka")
            .options(**settings.kafka_sink_options())
            .option("checkpointLocation", checkpoint.query_folder(settings))
            .outputMode("append")
            .trigger(processingTime=f"{TRIGGER_MS} milliseconds")
            .start()
        )

    def _await_first_batch(self, spark: SparkSession, identity: checkpoint.Identity) -> None:
        """Wait for the first batch. The former holder of the lease may have planned a batch after its loss, which its
        tasks refuse: then start the query again."""
        for _ in range(STARTS_MAX - 1):
            assert self._query is not None
            try:
                return self._await_batch(self._query)
            except LeaseLost:
                if self._refusal() is not None:
                    raise
            log.warning("the former holder of the lease has planned a batch: the query is started again")
            with explained(self.settings):
                self._query = self._begin(spark, identity)
        assert self._query is not None
        return self._await_batch(self._query)

    def _await_batch(self, query: StreamingQuery) -> None:
        while query.lastProgress is None and not self._stopping.is_set():
            self._raise_if_failed(query)
            self._active_s = time.monotonic()
            self._stopping.wait(0.05)
        self._raise_if_failed(query)

    def wait(self) -> None:
        """Wait until the query is stopped.

        Raises:
            QueryFailed: The query ended by itself.
            TopicMismatch: A topic was altered, so that the coordinator must not continue.
            LeaseLost: Another driver has taken over.
        """
        if self._query is None:
            return  # asked to stop while it stood by
        while self._query.isActive and not self._stopping.is_set() and not self._refusal():
            self._active_s = time.monotonic()
            self._stopping.wait(CHECK_EVERY_S)
        self._raise_if_failed(self._query)

    @property
    def is_serving(self) -> bool:
        """Whether the query was started. It is not while the driver stands by."""
        return self._query is not None

    @property
    def is_standing_by(self) -> bool:
        """Whether the driver is ready, and waits for the lease that another driver holds."""
        return self.lease is not None and self.lease.is_standing_by

    def silent_s(self) -> float:
        """Return the seconds since Spark last reported that the query is active; 0 during the start. It calls nothing
        that can block."""
        return time.monotonic() - self._active_s if self._active_s else 0.0

    def ask_to_stop(self) -> None:
        """Make `wait` return. A signal handler may call it."""
        self._stopping.set()

    def stop(self) -> None:
        """Stop the query between two batches, so that the next start repeats nothing."""
        self._stopping.set()
        self._alarm.close()
        self._bell.close()
        self._topic_watch.close()
        self._repeats.close()
        self.transactions.close()
        query = self._query
        if query is not None and query.isActive:
            is_lost = self.lease is not None and self.lease.refusal is not None
            deadline = time.monotonic() + (0 if is_lost else BATCH_WAIT_S)
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                time.sleep(0.002)
            query.stop()
        self._mark.remove()
        if self.lease is not None:
            self.lease.close()

    def _refusal(self) -> UserError | None:
        if self.lease is not None and self.lease.refusal is not None:
            return self.lease.refusal
        if self._alarm.refusal:
            return because(self._alarm.refusal, self.settings, QueryFailed)
        return self._topic_watch.refusal

    def _raise_if_failed(self, query: StreamingQuery) -> None:
        if refusal := self._refusal():
            raise refusal
        error = query.exception()
        if isinstance(error, StreamingQueryException):
            log.debug("the query's failure in full", exc_info=error)
            if self.lease is not None and re.search(CONCURRENT, str(error)):
                raise LeaseLost(
                    f"Another driver has written to the checkpoint {self.settings.checkpoint}: start this one again,"
                    " and it stands by; all drivers of the checkpoint need stand_by."
                ) from error
            raise because(str(error), self.settings, QueryFailed) from error
