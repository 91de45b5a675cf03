"""A thread that compares the ends of the source with the observer's position.

An open transaction holds back all records of its partition: the last stable offset stands still while the partition
grows. Groups of that partition are then known only up to that offset.
"""

import logging
import time
from collections.abc import Callable, Mapping

from streaming.config.settings import Settings
from streaming.config.timeouts import REPEATED_ANSWER_WAIT_S
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.kafka.broker_monitor import BrokerMonitor, Handled
from streaming.kafka.offsets import OffsetAsker, Offsets
from streaming.observe.source import CLIENT_ID, Source

log = logging.getLogger(__name__)

HELD_BACK_S = 60.0
"""The time after which a last stable offset that does not move is reported. A transaction takes a minute by default."""

Ends = Callable[[], tuple[Offsets, Offsets]]
"""Returns the last stable offsets and the ends of the partitions."""


class SourceWatch(BrokerMonitor):
    """The thread. Any thread may read its findings. Records after the last stable offset do not count as behind.

    Args:
        ask: Requests the ends; raises KafkaException if no broker answers.
    """

    def __init__(self, ask: Ends, observed: Handled, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(self._ask_for_stable, observed, now_s=now_s, has_answered=True)
        self._ask_for_both = ask
        self._stable: dict[int, tuple[int, float]] = {}
        self._reported: set[int] = set()
        self.held_back: dict[int, float] = {}

    @classmethod
    def of_source(cls, settings: Settings, source: Source, observed: Handled) -> "SourceWatch":
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
        held = {partition: held_s for partition, held_s in self.held_back.items() if held_s >= HELD_BACK_S}
        return super().not_ready_reasons() + [
            f"a transaction holds partition {partition} of {SOURCE_TOPIC} back for {held_s:.0f} s"
            for partition, held_s in sorted(held.items())
        ]

    def _ask_for_stable(self) -> Offsets:
        stable, highest = self._ask_for_both()
        self._compare(stable.by_partition, highest.by_partition)
        return stable

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
