"""A driver that stands by: all of it is ready, and it touches no checkpoint before it holds the lease.

When the lease comes, the query starts on the checkpoint within about a second, because the same query has run before:
on records of the lease topic, with a checkpoint of its own that is deleted, and without output. So Java has loaded and
compiled the classes of source, operator, state store and sink, and Python workers have imported the operator.
"""

import json
import logging
import secrets
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own name for it)
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config.settings import Settings
from streaming.query.checkpoint.identity import Identity
from streaming.query.dataframe import answered
from streaming.query.lease import Lease
from streaming.query.spark.spark_config import is_local_master

log = logging.getLogger(__name__)

FREE_WAIT_S = 0.5
"""How long a start waits for a lease that no driver holds. After it, the start warms up."""

QUERY_NAME = "group-coordinator-warm-up"
BATCHES, RECORDS_A_BATCH = 8, 4
LOOK_S = 0.2


class WarmUp(AbstractContextManager["WarmUp"]):
    """A short run of the query on records of the lease topic. It ends by itself, or with the block.

    Args:
        newest: The offset of the newest record of the lease topic.
    """

    def __init__(self, spark: SparkSession, settings: Settings, newest: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="coordinator-warm-up-", ignore_cleanup_errors=True)
        self._query: StreamingQuery | None = None
        if is_local_master(spark.sparkContext.master or ""):  # other masters' executors may not see the folder
            try:
                self._query = _start(spark, settings, newest, self._folder.name)
            except (PySparkException, Py4JError) as error:
                log.warning("the warm-up failed, so a take-over may take longer: %s", error)

    @property
    def is_over(self) -> bool:
        return self._query is None or not self._query.isActive

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._query is not None and self._query.isActive:
            self._query.stop()
        self._folder.cleanup()


def await_lease(
    spark: SparkSession,
    settings: Settings,
    lease: Lease,
    stopping: threading.Event,
    report: Callable[[str], None],
) -> bool:
    """Wait until this driver holds the lease. Warm up if another driver holds it now.

    Returns:
        False if the process is to stop instead.
    """
    lease.claim_when_free()
    if lease.held.wait(FREE_WAIT_S):
        return True
    with WarmUp(spark, settings, lease.newest) as warm_up:
        is_reported = False
        while not lease.held.wait(LOOK_S) and not stopping.is_set():
            if not is_reported and warm_up.is_over and (holder := lease.holder) is not None:
                report(f"Standing by: a driver on {holder.host} holds the lease.")
                lease.is_standing_by = is_reported = True
        lease.is_standing_by = False
    if lease.held.is_set():
        report("Taking over: this driver holds the lease.")
    return lease.held.is_set()


def _start(spark: SparkSession, settings: Settings, newest: int, folder: str) -> StreamingQuery:
    first = max(0, newest + 1 - BATCHES * RECORDS_A_BATCH)
    records = (
        spark.readStream.format("kafka")
        .options(**settings.kafka_source_options())
        .option("subscribe", settings.lease_topic)
        .option("startingOffsets", json.dumps({settings.lease_topic: {"0": first}}))
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", RECORDS_A_BATCH)
        .option("kafka.fetch.max.wait.ms", "1")
        .load()
        .withColumn("partition", (F.col("offset") % settings.request_partitions).cast("int"))
    )
    identity = Identity(
        secret=secrets.token_hex(32),
        topic_ids={},
        request_partitions=settings.request_partitions,
        shuffle_partitions=settings.shuffle_partitions,
        state_store=settings.state_store,
    )
    is_never_true = F.length("topic") == 0  # a constant would remove the operator from the plan
    return (
        answered(spark, settings, identity, records)
        .where(is_never_true)
        .writeStream.queryName(QUERY_NAME)
        .format("kafka")
        .options(**settings.kafka_sink_options())
        .option("checkpointLocation", Path(folder).as_uri())
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
