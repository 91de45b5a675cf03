"""The alarm: it makes Spark run a batch when a timeout of a shard is due.

Spark checks timeouts in batches only, and it runs a batch only when a source has new records. So the alarm appends a
wake record, a `Wake`, to the request partition of the shard that is due. A wake record asks for nothing. While no shard
is due, the alarm writes no record and Spark runs no batch. A shard's time advances with the records of its log, so a
wake record also carries the current time. The alarm measures its waits with a monotonic clock, which no administrator
can set.

    when a shard is due the alarm wakes it, and again once a second until the shard reports a later time
    at the start        every shard counts as due: a shard reports its groups and its next deadline only when woken,
                        and after a restart Spark fires no timeout before a row comes
"""

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaError

from coordinator.messages.requests import Wake
from streaming.config.settings import Settings
from streaming.kafka.clients import producer
from streaming.moments import monotonic_ms, unix_ms
from streaming.query.watchers.progress import Tallies
from streaming.watcher import Watcher
from streaming.wire.records import encode_request

log = logging.getLogger(__name__)

_FINAL = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

AGAIN_MS = 1_000
WAIT_MS_MAX = 60_000
SEND_WAIT_MS = 5_000
"""The longest time that a wake record may take to reach the broker. After this time the producer drops the record; the
alarm has sent the next one by then."""


class Alarm(Watcher):
    """A thread that wakes every shard once, and from then on the shards that are due.

    Args:
        tallies: The tallies in which shards report when they are due.

    `refusal` is Kafka's name of the error that prevents wake records, when a retry cannot succeed; else None.
    """

    def __init__(self, settings: Settings, tallies: Tallies) -> None:
        self._topic, self._shards, self._tallies = settings.requests_topic, settings.request_partitions, tallies
        self._batch_ended = tallies.batch_event()
        super().__init__("the alarm", self._batch_ended.set)
        options = {"linger.ms": 0, "message.timeout.ms": SEND_WAIT_MS, "on_delivery": self._sent}
        self._producer = producer(settings, "coordinator-alarm", options)
        self._signing = settings.signing() if settings.access == "rules" else None
        self.refusal: str | None = None

    def _watch(self) -> None:
        not_reported: dict[int, int | None] = dict.fromkeys(range(self._shards), 0)
        woken_ms: dict[int, int] = {}
        while not self._closing.is_set():
            self._batch_ended.clear()
            now_ms = monotonic_ms()
            due, wait_ms = overdue(not_reported | self._tallies.due_ms, woken_ms, now_ms)
            self._wake(due)
            woken_ms.update(due)
            self._batch_ended.wait(wait_ms / 1_000)

    def _wake(self, shards: Mapping[int, int]) -> None:
        for shard in shards:
            self._producer.produce(self._topic, self._wake_record(), partition=shard)
        self._producer.flush(SEND_WAIT_MS / 1_000)

    def _wake_record(self) -> bytes:
        """Return a wake record with the time of this machine's clock. Shards compare this time with the brokers'."""
        now_ms = unix_ms()
        wake = Wake(now_ms)
        return encode_request(wake) if self._signing is None else self._signing.signed(wake, now_ms)

    def _sent(self, error: KafkaError | None, _: object) -> None:
        if error and error.code() in _FINAL:
            self.refusal = error.name()
        elif error:
            log.warning("a shard that is due could not be woken, and the alarm retries: %s", error.str())


def overdue(due_ms: Mapping[int, int | None], woken_ms: Mapping[int, int], now_ms: int) -> tuple[dict[int, int], int]:
    """Return the shards to wake now, and the time until the next shard is to be woken, in milliseconds.

    Args:
        due_ms: When each shard is due, in milliseconds of a monotonic clock; None if the shard waits for nothing.
        woken_ms: When each shard was last woken.
        now_ms: The current time; the found shards are mapped to it.
    """
    found: dict[int, int] = {}
    wait_ms = WAIT_MS_MAX
    for shard, at_ms in due_ms.items():
        if at_ms is None:
            continue
        last_ms = woken_ms.get(shard, 0)
        next_ms = last_ms + AGAIN_MS if last_ms > at_ms else at_ms + 1
        if next_ms <= now_ms:
            found[shard], next_ms = now_ms, now_ms + AGAIN_MS
        wait_ms = min(wait_ms, next_ms - now_ms)
    return found, wait_ms
