"""Whether the brokers answer a process: its health checks and the dashboard take the decision from here.

Brokers answer if one of them returns the metadata. A partition is reached if its leader returns its end. A leader may
move, so a partition counts as out of reach only after `SILENT_S`, which is longer than the brokers' own session
(broker.session.timeout.ms, 9 s by default) and the election after it.
"""

import time
from collections.abc import Callable, Mapping

from streaming.kafka.brokers import listed
from streaming.kafka.offsets import Offsets, TopicAndPartition, Why

SILENT_S = 20.0
"""The time without a response after which brokers, or the leader of a partition, count as unavailable."""


class Reach:
    """The brokers' answers over time. One thread notes them, and any thread may read.

    Args:
        tolerated: The share of partitions that may be out of reach, 0 to 1, before the process is not ready.
        answered_s: When a broker answered before, by `now_s`; None if none did.
    """

    def __init__(
        self,
        tolerated: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
        answered_s: float | None = None,
    ) -> None:
        self._tolerated, self._now_s, self._answered_s = tolerated, now_s, answered_s
        self._partitions = 0
        self._out: Mapping[TopicAndPartition, tuple[float, str]] = {}

    def answered(self, found: Offsets) -> None:
        """Note what the brokers have returned."""
        now_s = self._now_s()
        self._answered_s = now_s
        self._partitions = len(found.known) + len(found.unknown)
        known = self._out
        self._out = {place: (known.get(place, (now_s,))[0], _reason(found, place)) for place in found.unknown}

    def silent_s(self) -> float | None:
        """Return the seconds since a broker last answered; None if none has answered yet."""
        return None if self._answered_s is None else self._now_s() - self._answered_s

    def not_ready_reasons(self) -> list[str]:
        """Return the reasons why a process that needs the brokers is not ready, as sentences without a full stop."""
        silent_s = self.silent_s()
        if silent_s is None:
            return ["no Kafka broker has answered yet"]
        if silent_s > SILENT_S:
            return [f"no Kafka broker has answered for {silent_s:.0f} s"]
        now_s = self._now_s()
        out = {place: reason for place, (since_s, reason) in self._out.items() if now_s - since_s > SILENT_S}
        if not out or len(out) < self._tolerated * self._partitions:
            return []
        by_reason: dict[str, list[TopicAndPartition]] = {}
        for place, reason in sorted(out.items()):
            by_reason.setdefault(reason, []).append(place)
        return [f"{_named(places)} cannot be reached: {reason}" for reason, places in by_reason.items()]


def _named(places: list[TopicAndPartition]) -> str:
    numbers = ", ".join(str(partition) for _, partition in places)
    return f"partition{'s' if len(places) > 1 else ''} {numbers} of {places[0][0]}"


def _reason(found: Offsets, place: TopicAndPartition) -> str:
    why = found.unknown[place]
    if why is not Why.SILENT:
        return str(why.value)
    others = sorted(found.answering)
    rest = f" ({listed(others)} {'do' if len(others) > 1 else 'does'})" if others else ""
    return f"its leader, broker {found.leaders[place]}, does not answer{rest}"
