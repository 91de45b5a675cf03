"""A running query: it begins again after outages of the brokers and of the store, and stops between two batches."""

import logging
import re
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, StoreUnavailable, UserError
from streaming.kafka import topics
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.running import Mark
from streaming.query.spark.failures import CAUSES, OF_THE_LOG, Causes, account_of, explained, in_full, innermost
from streaming.query.spark.spark_config import STOP_WAIT_S
from streaming.query.watchers.outages import Outage
from streaming.query.watchers.progress import QueryFigures
from streaming.query.watchers.store_watch import StoreWatch
from streaming.query.watchers.topic_watch import TopicWatch
from streaming.watcher import Watcher

log = logging.getLogger(__name__)

BATCH_WAIT_S = 15
"""How long a stop waits for the running batch. After this time the stop abandons the batch, and the next start repeats
it. With the waits of the other parts, a service ends within 30 s of SIGTERM, whatever the brokers do."""

CHECK_EVERY_S = 0.5
"""How often it is checked whether the query still runs."""


JAVA_GONE = (ConnectionError, Py4JNetworkError)
"""The errors of a call of Spark whose Java process has ended."""

JAVA_ENDED = "Spark's Java process has ended, as when a machine lacks memory. The next start continues where it ended."


def await_batch(query: StreamingQuery, deadline_s: float) -> None:
    """Wait for the end of the running batch, until a time of the monotonic clock."""
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        time.sleep(0.002)


def stop_query(query: StreamingQuery) -> None:
    """Stop a query, or abandon it after `STOP_WAIT_S`."""
    try:
        query.stop()
    except (PySparkException, Py4JJavaError) as error:
        why = innermost(account_of(error))
        log.warning("the query did not stop within %d s, and is abandoned: %s", STOP_WAIT_S, why)


class RunningQuery:
    """A query with the threads beside it. The subclass starts them.

    Args:
        figures: The figures of the query's batches.
        layout: The topics of its own that the query reads and writes.
        read: The other topics that the query reads.
        failed: The error of a query that has ended by itself.
        causes: The table of the query's failures.
        report: A callback for plain sentences about the progress of the start.
    """

    def __init__(
        self,
        settings: Settings,
        figures: QueryFigures[Any, Any],
        layout: topics.Topics | topics.ObservedTopics,
        read: Collection[str],
        failed: type[UserError],
        causes: Causes = CAUSES,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.settings, self._figures, self._failed, self._causes = settings, figures, failed, causes
        self._report = report or (lambda _: None)
        self._query: StreamingQuery | None = None
        self._start_writing: Callable[[], StreamingQuery]
        self._active_s: float | None = None
        self._batch_wait_s: float = BATCH_WAIT_S
        self._mark, self._stopping = Mark(), threading.Event()
        self._outage = Outage(settings, [*read, *(topic.name for topic in layout)], causes)
        self._topic_watch = TopicWatch(settings, layout)
        self._store = StoreWatch(settings, lambda: figures.batches, self._stopping, causes)
        self._beside: list[Watcher] = [self._store, self._topic_watch]

    # -- the query -----------------------------------------------------------------------------------------------------

    def _write(self, frame: DataFrame, name: str, every_ms: int) -> StreamingQuery:
        """Start the query that writes the rows of a frame to the topics that they name."""
        return (
            frame.writeStream.queryName(name)
            .format("kafka")
            .options(**self.settings.kafka_sink_options())
            .option("checkpointLocation", checkpoint.query_folder(self.settings))
            .outputMode("append")
            .trigger(processingTime=f"{every_ms} milliseconds")
            .start()
        )

    def _begin(self) -> StreamingQuery:
        """Start the query on its checkpoint, the first time or again."""
        self._query = query = self._start_writing()
        self._store.follow(query)
        return query

    def wait(self) -> None:
        """Wait until the query is stopped. During outages of brokers or of the store, the query begins again and again.

        Return at once without a query, if the process was to stop during its start.

        Raises:
            QueryFailed: The coordinator's query ended by itself.
            ObserverFailed: The observer's query ended by itself.
            TopicMismatch: A topic was altered, so that the query must not continue.
            RequestsReplaced: Requests that were handled are no longer in the log.
            LeaseLost: Another driver has taken over.
            StoreUnavailable: The store of the checkpoint has not answered for `checkpoint_wait_ms`.
        """
        if self._query is None:
            return
        try:
            self._await_end(self._query)
        except JAVA_GONE as error:
            raise self._failed(JAVA_ENDED) from error

    def _await_end(self, query: StreamingQuery) -> None:
        while not self._stopping.is_set() and not self._refusal():
            self._active_s = time.monotonic()
            self._attend(query)
            if not query.isActive and not self._begin_again_if_failed(query):
                break
            query = self._query or query  # it may have begun again
            self._stopping.wait(CHECK_EVERY_S)
        # a process that stops does not ask silent brokers once more
        if failure := self._refusal() if self._stopping.is_set() else self._failure(query):
            raise failure

    def _attend(self, query: StreamingQuery) -> None:
        """Run what has to follow the query regularly."""

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
            with explained(self.settings, self._causes):
                again = self._begin()
        except (BrokerUnreachable, StoreUnavailable) as error:  # the next look at the failed query tries again
            log.warning("The query could not begin again. %s", error)
            return True
        if self._stopping.is_set():  # `stop` may have seen the query that has failed
            again.stop()
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
        if refusal := self._refusal_of(account):
            return refusal
        return self._store.takes(self._outage.refusal(account, self._failed, self._figures.batches))

    def _refusal(self) -> UserError | None:
        """Return why the query has to end, as far as the threads beside it have found out; else None."""
        return self._topic_watch.refusal or self._store.refusal

    def _refusal_of(self, account: str) -> UserError | None:
        """Return the error for a failure of this query alone; None for one of the table of causes."""
        return None

    # -- its health ----------------------------------------------------------------------------------------------------

    def not_ready_reasons(self) -> list[str]:
        """Return what is wrong with the brokers or with the store, while the query waits for them."""
        return [*self._outage.reasons(self._figures.batches), *self._store.not_ready_reasons()]

    def silent_s(self) -> float:
        """Return the seconds since Spark last reported that the query is active; 0 during the start. It calls nothing
        that can block."""
        return time.monotonic() - self._active_s if self._active_s else 0.0

    # -- its end -------------------------------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """Make `start` and `wait` return. A signal handler may call it."""
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
        with ThreadPoolExecutor(len(self._beside)) as pool:  # at the same time: each of them may wait for brokers
            list(pool.map(lambda part: part.close(), self._beside))
        query = self._query
        with suppress(*JAVA_GONE):
            if query is not None and query.isActive:
                await_batch(query, time.monotonic() + (self._batch_wait_s if self._may_end_batch() else 0))
                stop_query(query)
        self._mark.remove()

    def _may_end_batch(self) -> bool:
        """Return whether the running batch can end, and may."""
        return self._store.refusal is None
