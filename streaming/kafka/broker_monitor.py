"""The state of the brokers, and the number of records that a query has not handled yet.

The health checks of the queries and of a gateway use it.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol, Self

from confluent_kafka import KafkaException

from streaming.config.settings import Settings
from streaming.config.timeouts import REPEATED_ANSWER_WAIT_S
from streaming.kafka.offsets import OffsetAsker, Offsets
from streaming.kafka.reach import Reach
from streaming.watcher import Watcher

log = logging.getLogger(__name__)

ASK_EVERY_S = 5.0


class Handled(Protocol):
    """A query's progress in its source."""

    @property
    def read_to(self) -> Mapping[int, int]:
        """By partition, the offset before which all records are handled; empty before the first batch."""

    @property
    def batches(self) -> int:
        """The number of batches that have ended since the start."""


class BrokerMonitor(Watcher):
    """A thread that requests the ends of a query's source every few seconds.

    Args:
        ask: Returns the ends of all partitions of the source; raises KafkaException if no broker answers.
        tallies: The query's progress, if it runs in this process.
        tolerated: The share of partitions that may be out of reach, 0 to 1, before the process is not ready.
        has_answered: Whether a broker has answered just before.
    """

    def __init__(
        self,
        ask: Callable[[], Offsets],
        tallies: Handled | None = None,
        tolerated: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
        *,
        has_answered: bool = False,
    ) -> None:
        super().__init__("the check of the brokers", end_wait_s=0)
        self._ask, self._tallies, self._now_s = ask, tallies, now_s
        self._reach = Reach(tolerated, now_s, now_s() if has_answered else None)
        self._moved_s, self._batches = now_s(), 0
        self._ends: dict[int, int] = {}
        self.records_behind: int | None = None
        """The number of records that wait: of a partition out of reach, at least those that were there before."""

    @classmethod
    def of(cls, settings: Settings, tallies: Handled | None = None, tolerated: float = 0.0) -> Self:
        """Return a monitor of the request topic at the brokers of these settings."""
        asker = OffsetAsker(settings, "coordinator-pulse")
        return cls(lambda: asker.ask_all(settings.requests_topic, REPEATED_ANSWER_WAIT_S), tallies, tolerated)

    def not_ready_reasons(self) -> list[str]:
        """Return the reasons why a process that needs the brokers is not ready."""
        return self._reach.not_ready_reasons()

    def stalled_s(self) -> float:
        """Return the seconds for which the query has ended no batch while records wait; 0.0 if no record waits.

        The time begins while a partition is out of reach, if records wait as soon as it is reached again.
        """
        return self._now_s() - self._moved_s if self.records_behind else 0.0

    def check(self) -> None:
        """Send one request to the brokers."""
        try:
            found = self._ask()
        except KafkaException as error:
            log.warning("the brokers do not return the ends of what the query reads: %s", error)
            self.records_behind, self._moved_s = None, self._now_s()  # the brokers are unavailable, not the query
            return
        self._reach.answered(found)
        self._ends |= found.by_partition
        if self._tallies is None or not (read_to := self._tallies.read_to):
            return
        batches = self._tallies.batches
        self.records_behind = sum(max(0, end - read_to.get(partition, 0)) for partition, end in self._ends.items())
        nothing_waits = not self.records_behind and not found.unknown  # of a partition out of reach nobody knows
        if nothing_waits or batches != self._batches:
            self._batches, self._moved_s = batches, self._now_s()

    def _watch(self) -> None:
        while True:
            self.check()
            if self._closing.wait(ASK_EVERY_S):
                return
