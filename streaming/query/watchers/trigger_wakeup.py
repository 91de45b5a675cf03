"""The wake-up of the trigger: it makes the query look for new records when there are some, instead of twenty times a
second.

Spark asks the brokers for the ends of the topics before each batch. It repeats the question as often as its trigger's
clock allows. The wake-up replaces this clock by one that stands still, and moves it on when a record arrives. So an
idle query does nothing, and a request does not wait for the next question.

    a record arrives      the query looks at once, unless all that has come are heartbeats: it then looks when none
                          has come for a pause, because those of other clients come at the same moments, and one batch
                          for all costs a fraction. The pause is short if no other one came the last time
    a batch ends          the query looks at once for what has come meanwhile, unless it was a batch of heartbeats
    silence               the query looks every `LOOK_EVERY_S`, whatever the wake-up has missed
    no clock, no broker   the query looks every `TRIGGER_MS`, as without a wake-up: the clock is a private part of Spark

A consumer waits for the records. While a batch runs it reads nothing, so under load it reads one fetch for each batch.

A query waits for a time of its trigger's clock. Spark's own clock that stands still, ManualClock, wakes it 100 times a
second to look at the time. This clock wakes it when the time has changed, so that a query at rest uses no processor.

Source: Spark's ProcessingTimeExecutor and ManualClock.
"""

import logging
import time
from contextlib import closing
from enum import Enum, auto
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.config.settings import Settings
from streaming.kafka.clients import Options, consumer
from streaming.query.spark import janino
from streaming.query.watchers.log_watch import ClockWatch
from streaming.query.watchers.progress import Tallies
from streaming.watcher import Watcher
from streaming.wire.records import HEARTBEAT_BEGIN, HEARTBEATS_BEGIN

log = logging.getLogger(__name__)

# -- the clock of the trigger ------------------------------------------------------------------------------------------


NAME = "BellClock"
SOURCE = f"""
public class {NAME} extends org.apache.spark.util.ManualClock {{
    public synchronized long waitTillTime(long targetMs) throws InterruptedException {{
        while (getTimeMillis() < targetMs) {{
            wait();
        }}
        return getTimeMillis();
    }}
}}
"""


def install_manual_clock(spark: SparkSession, query: StreamingQuery) -> Any:
    """Replace the clock of a query's trigger by one that only its `advance` moves, and return it.

    Args:
        query: It has run a batch.

    Raises:
        Py4JError: This version of Spark has no such clock.
    """
    executor = query._jsq.streamingQuery().triggerExecutor()
    clock = janino.loader_of(spark.sparkContext._jvm, SOURCE).loadClass(NAME).newInstance()
    clock.setTime(executor.clock().getTimeMillis())
    field = executor.getClass().getDeclaredField("clock")
    field.setAccessible(True)
    field.set(executor, clock)
    return clock


TRIGGER_MS = 50
"""The interval of the query's trigger. The clock moves on by as much."""

LOOK_EVERY_S = 3.0
"""How often the query looks for records while none is seen to arrive."""

PAUSE_S = {HEARTBEATS_BEGIN: 0.1, HEARTBEAT_BEGIN: 0.02}
"""How long a record of heartbeats waits for the next one of another client, by its beginning. It needs no response at
once. A record of many comes at a common moment, and so do others."""

LONE_S = 0.002
"""How long a heartbeat waits if the last one was alone."""

TOGETHER_MS = 100
"""Heartbeats whose records are less than this apart have come at one moment."""

GATHER_S = 0.3
"""How long records of heartbeats wait for one another."""

HEARD_MAX = 100
"""How many records of heartbeats wait for one another."""

BATCH_WAIT_S = 1.0
"""How long the wake-up waits for the end of a batch until it listens again."""

CLOSE_EVERY_S = 0.2
"""How often the wake-up checks whether it is closed."""

_OPTIONS: Options = {
    "isolation.level": "read_uncommitted",  # as the query reads
    "fetch.wait.max.ms": 500,
    "fetch.message.max.bytes": 1_024,  # the first record of a partition is enough
    "fetch.queue.backoff.ms": 0,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "auto.offset.reset": "latest",
}


class Heard(Enum):
    """The records that the wake-up has heard while it listened."""

    NOTHING = auto()
    HEARTBEATS = auto()
    REQUEST = auto()


class TriggerWakeup(Watcher):
    """A thread that makes a query look for new records.

    Args:
        tallies: The figures of the query, which tell where a batch has ended.
    """

    def __init__(self, settings: Settings, tallies: Tallies) -> None:
        self._settings, self._tallies = settings, tallies
        self._batch_ended = tallies.batch_event()
        super().__init__("the wake-up", self._batch_ended.set)
        self._clock: Any = None
        self._query: StreamingQuery | None = None
        self._bursts = BurstDetector()
        self._clocks = ClockWatch(settings.requests_topic, settings.clock_slack_ms)

    def follow(self, spark: SparkSession, query: StreamingQuery) -> None:
        """Replace the clock of a query that has run a batch, and start the thread if it is the first query.

        Without such a clock in this version of Spark, the query keeps its own.
        """
        self._query = query
        try:
            self._clock = install_manual_clock(spark, query)
        except Py4JError as error:
            log.warning("the clock of this Spark cannot be moved; the query looks every %d ms: %s", TRIGGER_MS, error)
            return
        if not self._thread.is_alive():
            self.start()

    def follows(self, query: StreamingQuery) -> bool:
        """Return whether this is the last query that the wake-up was given."""
        return query is self._query

    def _watch(self) -> None:
        try:
            self._follow()
        except Exception:
            self._fire()  # the clock stands still: before the next attempt nothing else makes the query look
            raise

    def _follow(self) -> None:
        with closing(consumer(self._settings, "coordinator-bell", _OPTIONS)) as listener:
            while not self._closing.is_set():
                self._batch_ended.clear()
                heard = self._listen(listener)
                self._fire()
                if heard is not Heard.NOTHING:
                    self._batch_ended.wait(BATCH_WAIT_S)
                if heard is Heard.REQUEST:
                    self._fire()

    def _listen(self, listener: Consumer) -> Heard:
        """Wait for a while for records that the query has not read."""
        topic, read_to = self._settings.requests_topic, self._tallies.read_to
        listener.assign([TopicPartition(topic, partition, offset) for partition, offset in read_to.items()])
        began_s = time.monotonic()
        message = self._next(listener, LOOK_EVERY_S)
        if message is None:
            return Heard.NOTHING
        if message.error():
            self._closing.wait(TRIGGER_MS / 1_000)
            return Heard.NOTHING
        self._clocks.heard(message.partition() or 0, message.timestamp()[1], time.monotonic() - began_s)
        until_s, heard = time.monotonic() + GATHER_S, 1
        while message is not None and (pause_s := self._wait_s(message)) and heard < HEARD_MAX:
            message = self._next(listener, min(pause_s, until_s - time.monotonic()))
            heard += 1
        listener.unassign()
        return Heard.HEARTBEATS if message is None or _pause_s(message) else Heard.REQUEST

    def _wait_s(self, message: Message) -> float:
        """Return how long a record waits for another one; 0 if it is no record of heartbeats."""
        pause_s = _pause_s(message)
        if pause_s and not self._bursts.joins(message.timestamp()[1]):
            return min(pause_s, LONE_S)
        return pause_s

    def _next(self, listener: Consumer, wait_s: float) -> Message | None:
        """Return the next message; None after a time or when the wake-up is closed."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0 and not self._closing.is_set():
            if (message := listener.poll(min(left_s, CLOSE_EVERY_S))) is not None:
                return message
        return None

    def _fire(self) -> None:
        if not self._closing.is_set():
            self._clock.advance(TRIGGER_MS)


class BurstDetector:
    """Whether heartbeats come alone or several at one moment."""

    def __init__(self) -> None:
        self._latest_ms, self._together, self._was_burst = 0, 0, True

    def joins(self, at_ms: int) -> bool:
        """Add a heartbeat's record. Return whether others come with it, or came at the moment before.

        Args:
            at_ms: The time at which the broker appended it.
        """
        if at_ms - self._latest_ms < TOGETHER_MS:
            self._together += 1
        else:
            self._was_burst, self._together = self._together != 1, 1
        self._latest_ms = at_ms
        return self._was_burst or self._together > 1


def _pause_s(message: Message) -> float:
    """Return the pause for which a record waits if others come with it; 0 if it is no record of heartbeats."""
    value = message.value()
    return next(
        (pause_s for begin, pause_s in PAUSE_S.items() if isinstance(value, bytes) and value.startswith(begin)), 0
    )
