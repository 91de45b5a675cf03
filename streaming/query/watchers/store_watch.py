"""Outages of the checkpoint's store: the query waits for their end, in its process and for `checkpoint_wait_ms`.

    a batch takes longer than `PATIENCE_S`   a thread asks the store once a second, until a batch has ended
    the store does not answer                the process is not ready, until a batch has ended
    the query fails at the store             it begins again as soon as the store answers
    a start, or a take-over                  waits for the store in the same way
    `checkpoint_wait_ms` without an answer   the process ends, and its supervisor starts it again. Another driver may
                                             reach the store meanwhile

A refusal is an answer: a missing right, a missing bucket, a damaged file or another driver end the query at once.

A checkpoint on a file system of this machine has no such outages.

The thread asks by a small read, with a client of its own that soon gives up. The clients that write the checkpoint try
each request again, some for minutes and more and more rarely. So nothing can be learned from them during an outage, and
its end is noticed late.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config.settings import Settings
from streaming.errors import StoreUnavailable, UserError
from streaming.query.checkpoint.running import local_folder
from streaming.query.spark.failures import CAUSES, SAFE_MODE, Causes, SparkRefused, account_of, because, unavailable
from streaming.watcher import Watcher

log = logging.getLogger(__name__)

# -- the probe ---------------------------------------------------------------------------------------------------------


HDFS = "org.apache.hadoop.hdfs.DistributedFileSystem"

FILE = "identity.json"
"""A small file of each checkpoint. If it is missing, the answer of the store says so."""

CLIENT = {
    # HDFS
    "ipc.client.connect.timeout": "3000",
    "ipc.client.connect.max.retries": "1",
    "ipc.client.connect.max.retries.on.timeouts": "0",
    "ipc.client.rpc-timeout.ms": "3000",
    "dfs.client.failover.sleep.max.millis": "1000",
    "dfs.client.retry.window.base": "100",
    "dfs.client.socket-timeout": "3000",
    # S3
    "fs.s3a.attempts.maximum": "1",
    "fs.s3a.retry.limit": "1",
    "fs.s3a.retry.interval": "100ms",
    "fs.s3a.retry.throttle.limit": "1",
    "fs.s3a.connection.establish.timeout": "3s",
    "fs.s3a.connection.timeout": "3s",
}
"""The settings of the client, in Hadoop's names: it tries once or twice, and waits some seconds."""


class StoreProbe:
    """A client for the store of a checkpoint. One thread uses it.

    Args:
        settings: The settings with the whole address of the checkpoint.
        causes: The table of the query's failures.
    """

    def __init__(self, spark: SparkSession, settings: Settings, causes: Causes) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._settings, self._causes = settings, causes
        self._hadoop = jvm.org.apache.hadoop
        self._configuration = self._hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        for name, value in CLIENT.items():
            self._configuration.set(name, value)
        self._file = self._hadoop.fs.Path(settings.checkpoint, FILE)
        self._files: Any = None

    def _open(self) -> None:
        """Make the client, which sends nothing."""
        self._files = self._hadoop.fs.FileSystem.newInstance(self._file.toUri(), self._configuration)

    def prepare(self) -> None:
        """Make the client, which takes some seconds for S3. If that fails, `ask` finds out why."""
        with suppress(Py4JJavaError):
            self._open()

    def ask(self) -> StoreUnavailable | None:
        """Return why the store does not answer, or takes no writes; None if it does. Any refusal is an answer."""
        try:
            return self._check()
        except Py4JJavaError as error:
            return self._unavailable(account_of(error))

    def _check(self) -> StoreUnavailable | None:
        if self._files is None:
            self._open()
        if self._files.getClass().getName() == HDFS and self._files.isInSafeMode():
            return self._unavailable(SAFE_MODE)
        stream = self._files.open(self._file)
        try:
            stream.readAllBytes()
        finally:
            stream.close()
        return None

    def _unavailable(self, account: str) -> StoreUnavailable | None:
        found = because(account, self._settings, SparkRefused, self._causes)
        return found if isinstance(found, StoreUnavailable) else None

    def close(self) -> None:
        """Close the connections."""
        files, self._files = self._files, None
        if files is not None:
            with suppress(Py4JError):  # the store is away, or Java is
                files.close()


T = TypeVar("T")

LOOK_EVERY_S = 0.5
"""How often the thread looks how long the batch has been running."""

ASK_EVERY_S = 1.0
"""The pause between two questions to the store, and before the query begins again."""

PATIENCE_S = 2.0
"""The duration of a batch after which the store is asked. Most batches are shorter, so the store is rarely asked."""

ANSWER_WAIT_S = 5.0
"""The longest wait for an answer of the store. After it, the store counts as one that does not answer."""

START_LOOK_S = 0.05
"""How often a start looks whether the store has answered."""


class Silence:
    """The time for which the store has not answered. Any thread may use it.

    Args:
        wait_s: The longest wait for the store.
        on_silence: The sentence about a store that leaves a question without any answer.
        batches: Returns the number of batches that have ended.
        now_s: A clock that never goes back.
    """

    def __init__(
        self,
        wait_s: float,
        on_silence: StoreUnavailable,
        batches: Callable[[], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wait_s, self._on_silence, self._ended, self._now_s = wait_s, on_silence, batches, now_s
        self._lock = threading.RLock()
        self._asked_s: float | None = None
        self._is_answering = False
        self._why: StoreUnavailable | None = None
        self._batches, self._since_s, self._has_failed = -1, 0.0, False

    def asks(self) -> None:
        """Note that the store is asked now."""
        with self._lock:
            self._asked_s = self._now_s()

    def hears(self, why: StoreUnavailable | None, *, is_batch_waiting: bool = True) -> None:
        """Note the answer: why the store does not serve, or None if it does.

        Args:
            is_batch_waiting: Whether a batch is running, which may still wait for the store.
        """
        with self._lock:
            asked_s, self._asked_s = self._asked_s, None
            self._is_answering = why is None
            if why is not None:
                self._begin(why, self._now_s() if asked_s is None else asked_s)
            elif not self._has_failed:
                self._since_s = self._now_s()
                self._why = self._why if is_batch_waiting else None

    def fails(self, why: StoreUnavailable) -> None:
        """Note that work has failed at the store. Then an answer proves nothing: only the end of a batch does."""
        with self._lock:
            self._begin(why, self._now_s())
            self._has_failed = True

    @property
    def is_answering(self) -> bool:
        """Whether the store has answered the last question, as far as it has had the time for that."""
        with self._lock:
            self._log_silence()
            return self._is_answering

    @property
    def outage(self) -> StoreUnavailable | None:
        """Why the store does not serve, until a batch has ended; None without an outage."""
        with self._lock:
            self._log_silence()
            return self._latest()

    @property
    def refusal(self) -> StoreUnavailable | None:
        """Why the query has to end, because it has waited for the store for long enough; else None."""
        with self._lock:
            is_out = self.outage is not None and (self._has_failed or not self._is_answering)
            return self._why if is_out and self._now_s() - self._since_s >= self._wait_s else None

    def _latest(self) -> StoreUnavailable | None:
        if self._ended() > self._batches:
            self._why, self._has_failed = None, False
        return self._why

    def _log_silence(self) -> None:
        if self._asked_s is not None and self._now_s() - self._asked_s > ANSWER_WAIT_S:
            self._is_answering = False
            self._begin(self._on_silence, self._asked_s)

    def _begin(self, why: StoreUnavailable, since_s: float) -> None:
        """Note an outage, or what is known of the one that lasts."""
        if self._latest() is None:
            self._since_s = since_s
            log.warning("%s The query waits for it, for %d s at most.", why, self._wait_s)
        self._why, self._batches = why, self._ended()


class StoreWatch(Watcher):
    """A thread that asks the store of the checkpoint, and the work that waits for it.

    Args:
        batches: Returns the number of batches that have ended.
        stopping: The event that ends all waits.
        causes: The table of the query's failures.

    `is_waited_for` is True if the query has failed at the store, and not for another reason since.
    """

    def __init__(
        self, settings: Settings, batches: Callable[[], int], stopping: threading.Event, causes: Causes = CAUSES
    ) -> None:
        super().__init__("the check of the checkpoint's store", end_wait_s=0)
        self._batches, self._stopping, self._causes = batches, stopping, causes
        unanswered = unavailable(settings, f"no response for {ANSWER_WAIT_S:.0f} s")
        self._silence = Silence(settings.checkpoint_wait_ms / 1_000, unanswered, batches)
        self.is_waited_for = False
        self._probe: StoreProbe | None = None
        self._query: StreamingQuery | None = None
        self._ended, self._begun_s = -1, 0.0

    def start_on(self, spark: SparkSession, settings: Settings) -> None:
        """Start the thread, unless the checkpoint is on a file system of this machine.

        Args:
            settings: The settings with the whole address of the checkpoint.
        """
        if local_folder(settings.checkpoint) is not None:
            return
        self._probe = StoreProbe(spark, settings, self._causes)
        self.start()

    def follow(self, query: StreamingQuery) -> None:
        """Watch the batches of this query from now on."""
        self._query = query

    @property
    def is_answering(self) -> bool:
        """Whether the store answers."""
        return self._probe is None or self._silence.is_answering

    @property
    def refusal(self) -> StoreUnavailable | None:
        """The reason why the query must end, else None."""
        return self._silence.refusal

    def not_ready_reasons(self) -> list[str]:
        """Return why batches do not end, while the store does not answer, and until a batch has ended after that."""
        outage = self._silence.outage
        return [] if outage is None else [str(outage)]

    def takes(self, failure: UserError | None) -> UserError | None:
        """Return the failure that ends the query: None if it has failed at the store, for which it has to wait."""
        self.is_waited_for = isinstance(failure, StoreUnavailable)
        if not isinstance(failure, StoreUnavailable):
            return failure
        self._silence.fails(failure)
        return self.refusal

    def is_back(self) -> bool:
        """Wait for `ASK_EVERY_S`, and return whether a query that has failed at the store may begin again."""
        if self._stopping.wait(ASK_EVERY_S) or not self.is_answering:
            return False
        log.warning("The checkpoint's store answers. The query begins again.")
        return True

    def attempt(self, work: Callable[[], T], refusal: Callable[[], UserError | None]) -> T | None:
        """Run work of a start that uses the store, once it answers. Run it again if the store does not answer it.

        Args:
            refusal: Returns why the process has to end; else None.

        Returns:
            What the work returns; None if the process is to stop instead.

        Raises:
            UserError: Why the process has to end.
        """
        while not self._stopping.is_set():
            if (why := refusal()) is not None:
                raise why
            if not self.is_answering:
                self._stopping.wait(START_LOOK_S)
                continue
            try:
                return work()
            except StoreUnavailable as error:
                self._silence.fails(error)
                self._stopping.wait(ASK_EVERY_S)
        return None

    def _watch(self) -> None:
        probe = self._probe
        assert probe is not None
        try:
            probe.prepare()
            while not self._closing.is_set():
                is_running = self._is_batch_running()
                if self._is_in_doubt():
                    self._silence.asks()
                    self._silence.hears(probe.ask(), is_batch_waiting=is_running)
                self._closing.wait(LOOK_EVERY_S if self._silence.outage is None else ASK_EVERY_S)
        finally:
            probe.close()

    def _is_batch_running(self) -> bool:
        """Return whether a batch is running. Note since when."""
        query, ended = self._query, self._batches()
        is_running = query is not None and query.isActive and bool(query.status["isTriggerActive"])
        if not is_running or ended != self._ended:
            self._ended, self._begun_s = ended, time.monotonic()
        return is_running

    def _is_in_doubt(self) -> bool:
        """Return whether the store is to be asked: at first, in an outage, and while a batch takes long."""
        is_long = time.monotonic() - self._begun_s >= PATIENCE_S
        return is_long or not self._silence.is_answering or self._silence.outage is not None
