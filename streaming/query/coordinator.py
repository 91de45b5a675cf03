"""The query, its start and its stop. It reads requests from Kafka, runs the operator, and writes the output topics.

    requests ─> groupBy(shard's key) ─> ShardOperator ─> replies, groups, events

Spark runs a batch when the request topic has new records. Spark checks timeouts only in a batch: when a timeout is due,
the `Alarm` appends a wake record. (Without the alarm, a query with processing-time timeouts runs batches without a
pause, and after a restart it runs none until a row comes.)
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, StoreUnavailable, UserError
from streaming.kafka import acls, founding, peers, topics
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.fencing import find_floor
from streaming.query.checkpoint.identity import Identity
from streaming.query.checkpoint.lost import refuse_lost
from streaming.query.checkpoint.outdated import refuse_outdated
from streaming.query.checkpoint.replaced import refuse_replaced
from streaming.query.checkpoint.running import Mark, local_folder
from streaming.query.dataframe import build
from streaming.query.lease import Lease, LeaseLost
from streaming.query.operator.continuity import LastRecord
from streaming.query.operator.ownership import take_over
from streaming.query.spark import stores
from streaming.query.spark.failures import CAUSES, CONCURRENT, OF_THE_LOG, account_of, because, explained, in_full
from streaming.query.spark.folders import located
from streaming.query.spark.session import check_java, open_session
from streaming.query.spark.spark_config import STOP_WAIT_S
from streaming.query.standby import await_lease
from streaming.query.watchers.alarm import Alarm
from streaming.query.watchers.log_watch import LogWatch
from streaming.query.watchers.offset_topics import OffsetTopicWatch
from streaming.query.watchers.outages import Outage
from streaming.query.watchers.progress import ProgressLog, Tallies
from streaming.query.watchers.repeats import RepeatWatch
from streaming.query.watchers.settling import TransactionWatch
from streaming.query.watchers.stops import StopWatch
from streaming.query.watchers.store_watch import StoreWatch
from streaming.query.watchers.topic_watch import TopicWatch
from streaming.query.watchers.trigger_wakeup import TRIGGER_MS, TriggerWakeup

log = logging.getLogger(__name__)

QUERY_NAME = "group-coordinator"
BATCH_WAIT_S = 15
"""How long a stop waits for the running batch. After this time the stop abandons the batch, and the next start repeats
it. With the waits of the other parts, a service ends within 30 s of SIGTERM, whatever the brokers do."""

CHECK_EVERY_S = 0.5
"""How often the coordinator checks whether its query still runs."""

STARTS_MAX = 3
"""How often a driver with the lease starts the query until its first batch, if another driver comes in between."""


class QueryFailed(UserError):
    """The query ended by itself; the text names the cause."""


def await_batch(query: StreamingQuery, deadline_s: float) -> None:
    """Wait for the end of the running batch, until a time of the monotonic clock."""
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        time.sleep(0.002)


def stop_query(query: StreamingQuery) -> None:
    """Stop a query, or abandon it after `STOP_WAIT_S`."""
    try:
        query.stop()
    except (PySparkException, Py4JJavaError) as error:
        log.warning(
            "the query did not stop within %d s, and is abandoned: %s", STOP_WAIT_S, str(error).partition("\n")[0]
        )


class Coordinator:
    """The running query.

    Args:
        report: A callback for plain sentences about the progress of the start.
        java_options: The same argument as that of `open_session`.

    `start` raises any `UserError`; `wait` raises those that it names.
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
        self._begin_again: Callable[[], StreamingQuery]
        self._follow_with_wakeup: Callable[[StreamingQuery], None]
        self._outage = Outage(settings, settings.topics)
        self._active_s: float | None = None
        self._alarm, self._wakeup = Alarm(settings, self.tallies), TriggerWakeup(settings, self.tallies)
        self._topic_watch = TopicWatch(settings, topics.layout(settings))
        self._log_watch = LogWatch(settings, self.tallies)
        self._mark = Mark()
        self._offset_topics = OffsetTopicWatch(settings)
        self._repeats = RepeatWatch(settings, self._offset_topics.handle)
        self.transactions = TransactionWatch(settings, self.tallies)
        self._stopping = threading.Event()
        self._store = StoreWatch(settings, lambda: self.tallies.batches, self._stopping)
        self._stops = StopWatch(settings, self.tallies, self.ask_to_stop)
        self._batch_wait_s: float = BATCH_WAIT_S
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
            self._begin_again = lambda: self._follow(self._begin(spark, identity))
            return self._begin_again()

    def _follow(self, query: StreamingQuery) -> StreamingQuery:
        self._query = query
        self._store.follow(query)
        return query

    def _refuse_lost(self, spark: SparkSession) -> None:
        layout = topics.layout(self.settings)
        with explained(self.settings):
            refuse_lost(spark, self.settings, (layout.groups, layout.events, layout.replies))

    def _begin(self, spark: SparkSession, identity: Identity) -> StreamingQuery:
        settings, driver = self.settings, None if self.lease is None else self.lease.driver
        in_the_log = refuse_replaced(spark, settings, self._stopping)
        self._log_watch.begin_at(in_the_log)
        last_records = {shard: LastRecord(record.offset, record.at_ms) for shard, record in in_the_log.items()}
        return (
            build(spark, settings, identity, driver, self._peer_partitions, last_records)
            .writeStream.queryName(QUERY_NAME)
            .format("kafka")
            .options(**settings.kafka_sink_options())
            .option("checkpointLocation", checkpoint.query_folder(settings))
            .outputMode("append")
            .trigger(processingTime=f"{TRIGGER_MS} milliseconds")
            .start()
        )

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
                self._begin_again()
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
        """Wait until the query is stopped. During outages of brokers or of the store, the query begins again and again.

        Raises:
            QueryFailed: The query ended by itself.
            TopicMismatch: A topic was altered, so that the coordinator must not continue.
            RequestsReplaced: Requests that were handled are no longer in the log.
            LeaseLost: Another driver has taken over.
            StoreUnavailable: The store of the checkpoint has not answered for `checkpoint_wait_ms`.
        """
        if self._query is None:
            return  # asked to stop while it stood by
        while not self._stopping.is_set() and not self._refusal():
            self._active_s = time.monotonic()
            if not self._wakeup.follows(self._query) and self._query.lastProgress is not None:
                self._follow_with_wakeup(self._query)
            if not self._query.isActive and not self._begin_again_if_failed(self._query):
                break
            self._stopping.wait(CHECK_EVERY_S)
        # a process that stops does not ask silent brokers once more
        if failure := self._refusal() if self._stopping.is_set() else self._failure(self._query):
            raise failure
        if self._stops.request is not None:
            self._report(f"Stopped by {self._stops.request[2]} with `coordinator stop`.")

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

    def abandon(self) -> None:
        """Make `wait` return, and `stop` abandon the running batch, since too few brokers are left. Any thread, and a
        signal handler, may call it."""
        self._batch_wait_s = 0.0
        self._stopping.set()

    @property
    def is_abandoned(self) -> bool:
        """Whether nothing waits for brokers any more."""
        return self._batch_wait_s == 0

    def stop(self) -> None:
        """Stop the query between two batches, so that the next start repeats nothing."""
        self._stopping.set()
        self._close_threads()
        query = self._query
        if query is not None and query.isActive:
            is_lost = self.lease is not None and self.lease.refusal is not None
            is_abandoned = is_lost or self._store.refusal is not None
            deadline_s = time.monotonic() + (0 if is_abandoned else self._batch_wait_s)
            await_batch(query, deadline_s)
            stop_query(query)
        self._mark.remove()
        if self.lease is not None:
            self.lease.close(stops_all=self._stops.request is not None)
        self._stops.confirm()

    def _close_threads(self) -> None:
        """Stop the threads beside the query, all at the same time: each of them may wait for brokers."""
        beside = (
            self._store,
            self._alarm,
            self._wakeup,
            self._topic_watch,
            self._log_watch,
            self._repeats,
            self._offset_topics,
            self.transactions,
        )
        with ThreadPoolExecutor(len(beside)) as pool:
            list(pool.map(lambda part: part.close(), beside))

    def _refusal(self) -> UserError | None:
        if self.lease is not None and self.lease.refusal is not None:
            return self.lease.refusal
        if self._alarm.refusal:
            return because(self._alarm.refusal, self.settings, QueryFailed)
        return self._topic_watch.refusal or self._log_watch.refusal or self._store.refusal

    def not_ready_reasons(self) -> list[str]:
        """Return what is wrong with the brokers or with the store, while the query waits for them."""
        return [*self._outage.reasons(self.tallies.batches), *self._store.not_ready_reasons()]

    def _begin_again_if_failed(self, query: StreamingQuery) -> bool:
        """Start the query again if it has failed at the brokers or at the store. Return whether it goes on.

        Raises:
            UserError: Why the query has to end.
        """
        if failure := self._failure(query):
            raise failure
        if query.exception() is None:
            return False
        if not self._outage.pause(self._store, self._stopping):
            return not self._stopping.is_set()
        try:
            with explained(self.settings):
                self._begin_again()
        except (BrokerUnreachable, StoreUnavailable) as error:  # the next look at the failed query tries again
            log.warning("The query could not begin again. %s", error)
        return True

    def _failure(self, query: StreamingQuery) -> UserError | None:
        """Return why the query has to end; None if it runs, or is to begin again."""
        if refusal := self._refusal():
            return refusal
        error = query.exception()
        if not isinstance(error, StreamingQueryException):
            return None
        log.debug("the query's failure in full: %s", in_full(error))
        account = account_of(error)
        if re.search(OF_THE_LOG, account):
            self._topic_watch.check()
            if refusal := self._topic_watch.refusal:
                return refusal
        if self.lease is not None and re.search(CONCURRENT, account):
            return LeaseLost(
                f"Another driver has written to the checkpoint {self.settings.checkpoint}: start this one again,"
                " and it stands by; all drivers of the checkpoint need stand_by."
            )
        return self._store.takes(self._outage.refusal(account, QueryFailed, self.tallies.batches))
