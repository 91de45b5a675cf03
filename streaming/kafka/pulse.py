"""The state of the brokers, and the number of requests that the query has not handled yet.

The health checks of the query and of a gateway use it.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from streaming.config.settings import Settings
from streaming.kafka.clients import REPEATED_ANSWER_WAIT_S, admin

log = logging.getLogger(__name__)

ASK_EVERY_S = 5.0

BROKERS_SILENT_S = 20.0
"""The time without a response after which brokers are unavailable."""


class Handled(Protocol):
    """The query's progress in the request topic."""

    @property
    def read_to(self) -> Mapping[int, int]:
        """By partition, the offset before which all requests are handled; empty before the first batch."""

    @property
    def batches(self) -> int:
        """The number of batches that have ended since the start."""


class Pulse:
    """A thread that requests the end of the request topic every few seconds, inside a `with` block.

    Args:
        ask: Returns the end offset of each partition; raises the errors of librdkafka.
        tallies: The query's progress, if it runs in this process.
    """

    def __init__(self, ask: Callable[[], Mapping[int, int]], tallies: Handled | None = None) -> None:
        self._ask, self._tallies = ask, tallies
        self._answered_s = self._moved_s = time.monotonic()
        self._has_answered = False
        self._batches = 0
        self.waiting: int | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pulse", daemon=True)

    @classmethod
    def of(cls, settings: Settings, tallies: Handled | None = None) -> Self:
        """Return a pulse for the brokers of these settings."""
        asker = admin(settings, "coordinator-pulse")
        wanted: dict[TopicPartition, Any] = {
            TopicPartition(settings.requests_topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for partition in range(settings.request_partitions)
        }

        def ask() -> dict[int, int]:
            answers = asker.list_offsets(wanted, request_timeout=REPEATED_ANSWER_WAIT_S)
            return {
                asked.partition: answer.result(2 * REPEATED_ANSWER_WAIT_S).offset for asked, answer in answers.items()
            }

        return cls(ask, tallies)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()  # the thread may wait for unavailable brokers; the process does not wait for it

    def brokers_silent_s(self) -> float | None:
        """Return the seconds since the brokers last answered; None if they never have."""
        return time.monotonic() - self._answered_s if self._has_answered else None

    def not_ready_reasons(self) -> Sequence[str]:
        """Return the reasons why a process that needs the brokers is not ready."""
        silent_s = self.brokers_silent_s()
        if silent_s is None:
            return ["no Kafka broker has answered yet"]
        return [f"no Kafka broker has answered for {silent_s:.0f} s"] if silent_s > BROKERS_SILENT_S else []

    def stalled_s(self) -> float:
        """Return the seconds for which the query has ended no batch while requests wait; 0.0 if no request waits."""
        return time.monotonic() - self._moved_s if self.waiting else 0.0

    def look(self) -> None:
        """Send one request to the brokers."""
        try:
            ends = self._ask()
        except (KafkaException, TimeoutError) as error:
            log.warning("the brokers do not return the end of the request topic: %s", error)
            self.waiting, self._moved_s = None, time.monotonic()  # the brokers are unavailable, not the query
            return
        self._answered_s, self._has_answered = time.monotonic(), True
        if self._tallies is None or not (read_to := self._tallies.read_to):
            return
        batches = self._tallies.batches
        self.waiting = sum(max(0, end - read_to.get(partition, 0)) for partition, end in ends.items())
        if not self.waiting or batches != self._batches:
            self._batches, self._moved_s = batches, time.monotonic()

    def _watch(self) -> None:
        while True:
            self.look()
            if self._closing.wait(ASK_EVERY_S):
                return
