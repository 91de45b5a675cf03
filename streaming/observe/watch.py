"""A thread that compares the ends of the source with the observer's position.

An open transaction holds back all records of its partition: the last stable offset stands still while the partition
grows. Groups of that partition are then known only up to that offset.
"""

import logging
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException

from streaming.config.settings import Settings
from streaming.config.timeouts import REPEATED_ANSWER_WAIT_S
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.kafka.offsets import OffsetAsker, Offsets
from streaming.kafka.reach import Reach
from streaming.observe.source import CLIENT_ID, Source
from streaming.observe.tally import Observed
from streaming.watcher import Watcher

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0

HELD_BACK_S = 60.0
"""The time after which a last stable offset that does not move is reported. A transaction takes a minute by default."""

Ends = Callable[[], tuple[Offsets, Offsets]]
"""Returns the last stable offsets and the ends of the partitions."""


class SourceWatch(Watcher):
    """The thread. Any thread may read its findings.

    Args:
        ask: Requests the ends; raises KafkaException if no broker answers.
    """

    def __init__(self, ask: Ends, observed: Observed, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__("the check of the source", end_wait_s=0)
        self._ask, self._observed, self._now_s = ask, observed, now_s
        self._stable: dict[int, tuple[int, float]] = {}
        self._reported: set[int] = set()
        self._reach = Reach(now_s=now_s, answered_s=now_s())
        self._ends: dict[int, int] = {}
        self._moved_s, self._batches = now_s(), 0
        self.records_behind: int | None = None
        self.held_back: dict[int, float] = {}

    @classmethod
    def of(cls, settings: Settings, source: Source, observed: Observed) -> "SourceWatch":
        """Return a watch on the brokers of these settings."""
        places = [(SOURCE_TOPIC, partition) for partition in range(source.partitions)]
        of_stable = OffsetAsker(settings, CLIENT_ID, is_stable=True)
        of_all = OffsetAsker(settings, CLIENT_ID)

        def ask() -> tuple[Offsets, Offsets]:
            stable = of_stable.ask(places, wait_s=REPEATED_ANSWER_WAIT_S)
            return stable, of_all.ask(places, wait_s=REPEATED_ANSWER_WAIT_S)

        return cls(ask, observed)

    def not_ready_reasons(self) -> list[str]:
        """Return the reasons why the observer's view is not the brokers'."""
        wrong = self._reach.not_ready_reasons()
        held = {partition: held_s for partition, held_s in self.held_back.items() if held_s >= HELD_BACK_S}
        return wrong + [
            f"a transaction holds partition {partition} of {SOURCE_TOPIC} back for {held_s:.0f} s"
            for partition, held_s in sorted(held.items())
        ]

    def stalled_s(self) -> float:
        """Return the seconds for which no batch has ended while records wait; 0.0 if none wait."""
        return self._now_s() - self._moved_s if self.records_behind else 0.0

    def check(self) -> None:
        """Request the ends once."""
        try:
            of_stable, of_all = self._ask()
        except KafkaException as error:
            log.warning("the brokers do not return the ends of %s: %s", SOURCE_TOPIC, error)
            self.records_behind, self._moved_s = None, self._now_s()
            return
        self._reach.answered(of_stable)
        stable, highest = _by_partition(of_stable), _by_partition(of_all)
        self._compare(stable, highest)
        if read_to := self._observed.read_to:
            batches = self._observed.batches
            self._ends |= stable
            self.records_behind = sum(max(0, end - read_to.get(partition, 0)) for partition, end in self._ends.items())
            nothing_waits = not self.records_behind and not of_stable.unknown
            if nothing_waits or batches != self._batches:
                self._batches, self._moved_s = batches, self._now_s()

    def _compare(self, stable: Mapping[int, int], highest: Mapping[int, int]) -> None:
        """Note for how long each partition is held back, and report it once each time."""
        now_s, held = self._now_s(), dict[int, float]()
        for partition, offset in stable.items():
            if highest.get(partition, offset) <= offset:
                self._stable.pop(partition, None)
                continue
            if (before := self._stable.get(partition)) is None or before[0] != offset:
                self._stable[partition] = before = offset, now_s
            held[partition] = now_s - before[1]
            if held[partition] >= HELD_BACK_S and partition not in self._reported:
                log.warning("a transaction holds partition %d of %s back at %d", partition, SOURCE_TOPIC, offset)
                self._reported.add(partition)
        self._reported &= held.keys()
        self.held_back = held

    def _watch(self) -> None:
        while True:
            self.check()
            if self._closing.wait(LOOK_EVERY_S):
                return


def _by_partition(found: Offsets) -> dict[int, int]:
    return {partition: offset for (_, partition), offset in found.known.items()}
