"""The query, its start and its stop. It reads requests from Kafka, runs the operator, and writes the output topics.

    requests ─> groupBy(shard's key) ─> ShardOperator ─> replies, groups, events

Spark runs a batch when the request topic has new records. Spark checks timeouts only in a batch: when a timeout is due,
the `Alarm` appends a wake record. (Without the alarm, a query with processing-time timeouts runs batches without a
pause, and after a restart it runs none until a row comes.)
"""

import logging
import re
import time
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.kafka import acls, founding, peers, topics
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.fencing import find_floor
from streaming.query.checkpoint.identity import Identity
from streaming.query.checkpoint.lost import refuse_lost
from streaming.query.checkpoint.outdated import refuse_outdated
from streaming.query.checkpoint.replaced import refuse_replaced
from streaming.query.checkpoint.running import local_folder
from streaming.query.dataframe import build
from streaming.query.lease import Lease, LeaseLost
from streaming.query.operator.continuity import LastRecord
from streaming.query.operator.ownership import take_over
from streaming.query.running_query import RunningQuery
from streaming.query.spark import stores
from streaming.query.spark.failures import CAUSES, CONCURRENT, because, explained
from streaming.query.spark.session import check_java, open_session
from streaming.query.spark.stores import located
from streaming.query.standby import await_lease
from streaming.query.watchers.alarm import Alarm
from streaming.query.watchers.log_watch import LogWatch
from streaming.query.watchers.offset_topics import OffsetTopicWatch
from streaming.query.watchers.progress import ProgressLog, Tallies
from streaming.query.watchers.repeats import RepeatWatch
from streaming.query.watchers.settling import TransactionWatch
from streaming.query.watchers.stops import StopWatch
from streaming.query.watchers.trigger_wakeup import TRIGGER_MS, TriggerWakeup

log = logging.getLogger(__name__)

QUERY_NAME = "group-coordinator"

STARTS_MAX = 3
"""How often a driver with the lease starts the query until its first batch, if another driver comes in between."""


class QueryFailed(UserError):
    """The query ended by itself; the text names the cause."""


class Coordinator(RunningQuery):
    """The running query of the coordinator.

    Args:
        report: A callback for plain sentences about the progress of the start.
        java_options: The same argument as that of `open_session`.

    `start` raises any `UserError`; `wait` raises those that it names.
    """

    def __init__(
        self, settings: Settings, report: Callable[[str], None] | None = None, java_options: str | None = None
    ) -> None:
        self.tallies = Tallies()
        super().__init__(settings, self.tallies, topics.layout(settings), (), QueryFailed, report=report)
        self._java_options = java_options
        self._peer_partitions: dict[str, int] = {}
        self._follow_with_wakeup: Callable[[StreamingQuery], None]
        self._alarm, self._wakeup = Alarm(settings, self.tallies), TriggerWakeup(settings, self.tallies)
        self._log_watch = LogWatch(settings, self.tallies)
        self._offset_topics = OffsetTopicWatch(settings)
        self._repeats = RepeatWatch(settings, self._offset_topics.handle)
        self.transactions = TransactionWatch(settings, self.tallies)
        self._beside += (
            self._alarm,
            self._wakeup,
            self._log_watch,
            self._repeats,
            self._offset_topics,
            self.transactions,
        )
        self._stops = StopWatch(settings, self.tallies, self.ask_to_stop)
        self.lease = Lease(settings, self.ask_to_stop) if settings.stand_by else None

    def start(self) -> None:
        """Check Java, jars, broker, topics and checkpoint, in this order, and start the query.

        With the setting `stand_by`, wait for the lease before the checkpoint is opened. If the process is to stop
        meanwhile, return without a query.
        """
        settings = self.settings
        check_java()
        stores.of(settings.checkpoint)
        topics.ensure(settings, self._report)
        self._peer_partitions = peers.check(settings)
        if settings.is_founder:
            topics.ensure_all(settings, topics.directory_layout(settings), self._report)
        if self.lease is not None:
            topics.ensure_all(settings, topics.lease_layout(settings), self._report)
        acls.check_acls(settings, acls.Role.COORDINATOR)
        if settings.is_founder:
            founding.ensure(settings)
        if self.lease is not None:
            self.lease.start()
        self._report("Starting Spark.")
        spark = open_session(settings, self._report, self._java_options)
        settings = self.settings = located(spark, settings, CAUSES)
        self._store.start_on(spark, settings)
        if self.lease is not None:  # a driver that could not take over does not stand by
            self._store.attempt(lambda: self._refuse_lost(spark), self._refusal)
        if self.lease is None or await_lease(spark, settings, self.lease, self._stopping, self._report):
            self._start_query(spark)

    def _start_query(self, spark: SparkSession) -> None:
        settings = self.settings
        ids = topics.topic_ids(settings)
        self._stops.begin()
        held = {name: ids[name] for name in (settings.requests_topic, settings.groups_topic, settings.events_topic)}
        ProgressLog(self.tallies, QUERY_NAME).attach(spark)
        self._follow_with_wakeup = lambda query: self._wakeup.follow(spark, query)
        if self._store.attempt(lambda: self._open(spark, held), self._refusal) is None:
            return
        self._alarm.start()
        self._topic_watch.start_on(held)
        self._await_first_batch()
        assert self._query is not None
        self._follow_with_wakeup(self._query)
        self._log_watch.start_on(spark, settings)
        self._repeats.start()
        self._offset_topics.start()
        self.transactions.start()

    def _open(self, spark: SparkSession, held: dict[str, str]) -> StreamingQuery:
        """Start the query on the checkpoint.

        Args:
            held: The ids of the topics whose records the checkpoint continues.
        """
        settings = self.settings
        self._refuse_lost(spark)
        with explained(settings):
            stores.check(spark, settings)
            self._mark.set(settings.checkpoint)
            if self.lease is not None and (folder := local_folder(settings.checkpoint)) is not None:
                take_over(folder, self.lease.driver)
            identity = checkpoint.claim(spark, settings, held, lambda: find_floor(settings, self._report))
            refuse_outdated(spark, settings)
            self._start_writing = lambda: self._start_on(spark, identity)
            return self._begin()

    def _refuse_lost(self, spark: SparkSession) -> None:
        layout = topics.layout(self.settings)
        with explained(self.settings):
            refuse_lost(spark, self.settings, (layout.groups, layout.events, layout.replies))

    def _start_on(self, spark: SparkSession, identity: Identity) -> StreamingQuery:
        settings, driver = self.settings, None if self.lease is None else self.lease.driver
        in_the_log = refuse_replaced(spark, settings, self._stopping)
        self._log_watch.begin_at(in_the_log)
        last_records = {shard: LastRecord(record.offset, record.at_ms) for shard, record in in_the_log.items()}
        frame = build(spark, settings, identity, driver, self._peer_partitions, last_records)
        return self._write(frame, QUERY_NAME, TRIGGER_MS)

    def _await_first_batch(self) -> None:
        """Wait for the first batch. The former holder of the lease may have planned a batch after its loss, which its
        tasks refuse: then start the query again."""
        for _ in range(STARTS_MAX - 1):
            try:
                return self._await_batch()
            except LeaseLost:
                if self._refusal() is not None:
                    raise
            log.warning("the former holder of the lease has planned a batch: the query is started again")
            with explained(self.settings):
                self._begin()
        return self._await_batch()

    def _await_batch(self) -> None:
        while not self._stopping.is_set():
            assert self._query is not None
            if self._query.lastProgress is not None:
                return
            self._begin_again_if_failed(self._query)
            self._active_s = time.monotonic()
            self._stopping.wait(0.05)

    def wait(self) -> None:
        super().wait()
        if self._stops.request is not None:
            self._report(f"Stopped by {self._stops.request[2]} with `coordinator stop`.")

    def _attend(self, query: StreamingQuery) -> None:
        if not self._wakeup.follows(query) and query.lastProgress is not None:
            self._follow_with_wakeup(query)

    @property
    def is_serving(self) -> bool:
        """Whether the query was started. It is not while the driver stands by."""
        return self._query is not None

    @property
    def is_standing_by(self) -> bool:
        """Whether the driver is ready, and waits for the lease that another driver holds."""
        return self.lease is not None and self.lease.is_standing_by

    def stop(self) -> None:
        super().stop()
        if self.lease is not None:
            self.lease.close(stops_all=self._stops.request is not None)
        self._stops.confirm()

    def _may_end_batch(self) -> bool:
        return super()._may_end_batch() and (self.lease is None or self.lease.refusal is None)

    def _refusal(self) -> UserError | None:
        if self.lease is not None and self.lease.refusal is not None:
            return self.lease.refusal
        if self._alarm.refusal:
            return because(self._alarm.refusal, self.settings, QueryFailed)
        return super()._refusal() or self._log_watch.refusal

    def _refusal_of(self, account: str) -> UserError | None:
        if self.lease is None or not re.search(CONCURRENT, account):
            return None
        return LeaseLost(
            f"Another driver has written to the checkpoint {self.settings.checkpoint}: start this one again,"
            " and it stands by; all drivers of the checkpoint need stand_by."
        )
