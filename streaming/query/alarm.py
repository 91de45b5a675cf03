"""The alarm: has Spark run a batch when time alone is to change a group.

Spark looks at timeouts in batches only, and runs a batch only where there is something to read. So the alarm appends a
record that asks nothing, a `Wake`, to the request partition of the shard that is due. Where nothing is due nothing
runs, and a coordinator at rest rests. A shard's time passes by its log, so the record also says that the log was read
so far. Waits are measured by a clock that nobody sets.

    when a shard is due it is woken, and again once a second until it has said that it is due later
    at the start        every shard is due: only when woken does it say what it holds and when it is due, and after a
                        restart Spark fires no timeout before a row comes
"""

import logging
import threading
from collections.abc import Mapping

from confluent_kafka import KafkaError

from coordinator.requests import Wake
from streaming.config.settings import Settings
from streaming.kafka.clients import producer
from streaming.moments import monotonic_ms, unix_ms
from streaming.query.progress import Tallies
from streaming.wire.records import encode_request

log = logging.getLogger(__name__)

_FINAL = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

AGAIN_MS = 1_000
WAIT_MS_MAX = 60_000
SEND_WAIT_MS = 5_000
"""How long a record may be on its way before it is given up: by then the next one is."""


class Alarm:
    """Wakes shards that are due, from a thread of its own.

    Args:
        tallies: Where shards say when they are due.

    `refusal` is Kafka's name for why nobody can be woken, where trying again is no use; else None.
    """

    def __init__(self, settings: Settings, tallies: Tallies) -> None:
        self._topic, self._shards, self._tallies = settings.requests_topic, settings.request_partitions, tallies
        options = {"linger.ms": 0, "message.timeout.ms": SEND_WAIT_MS, "on_delivery": self._sent}
        self._producer = producer(settings, "coordinator-alarm", options)
        self._signing = settings.signing() if settings.access == "rules" else None
        self.refusal: str | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="alarm", daemon=True)

    def start(self) -> None:
        """Wake every shard, and from now on those that are due."""
        self._thread.start()

    def close(self) -> None:
        """Wake nobody any more."""
        self._closing.set()
        self._tallies.changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        unheard_of: dict[int, int | None] = dict.fromkeys(range(self._shards), 0)
        woken_ms: dict[int, int] = {}
        while not self._closing.is_set():
            self._tallies.changed.clear()
            now_ms = monotonic_ms()
            due, wait_ms = overdue(unheard_of | self._tallies.due_ms, woken_ms, now_ms)
            self._wake(due)
            woken_ms.update(due)
            self._tallies.changed.wait(wait_ms / 1_000)

    def _wake(self, shards: Mapping[int, int]) -> None:
        for shard in shards:
            self._producer.produce(self._topic, self._wake_record(), partition=shard)
        self._producer.flush(SEND_WAIT_MS / 1_000)

    def _wake_record(self) -> bytes:
        """Return a record that says what this machine's clock shows, by which shards know it from the brokers'."""
        now_ms = unix_ms()
        wake = Wake(now_ms)
        return encode_request(wake) if self._signing is None else self._signing.signed(wake, now_ms)

    def _sent(self, error: KafkaError | None, _: object) -> None:
        if error and error.code() in _FINAL:
            self.refusal = error.name()
        elif error:
            log.warning("a shard that is due could not be woken and is tried again: %s", error.str())


def overdue(due_ms: Mapping[int, int | None], woken_ms: Mapping[int, int], now_ms: int) -> tuple[dict[int, int], int]:
    """Find the shards to be woken, and how long there will be no other.

    Args:
        due_ms: When each shard is due, milliseconds of a monotonic clock; None where it waits for nothing.
        woken_ms: When each was woken last.
        now_ms: Now; it is what the found shards are mapped to.
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
