"""The groups topic. A writer that was paused in a batch may write its batch again, after later batches.

The coordinator (`streaming.query.watchers.repeats`) reads the whole topic, and sends a request for each key whose last
record is such a repeat. At the end the last record of each key must be the newest record that the coordinator wrote.
"""

from collections.abc import Iterable, Iterator
from itertools import count

import msgspec

from coordinator.messages.group_records import Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import RepublishGroup
from streaming.query.watchers.repeats import Repeats
from streaming.wire.newest_records import Order, order_of

Key = tuple[str | int, ...]


class GroupsTopic:
    """The records of the topic by key, and the paused writers."""

    def __init__(self) -> None:
        self._watch = Repeats()
        self._last: dict[Key, Published] = {}
        self._newest: dict[Key, Published] = {}
        self._paused: list[tuple[int, list[Published]]] = []
        self._numbers = count(1)

    def write(self, outputs: Iterable[Output], now_ms: int) -> list[Published]:
        """Append the published records of a batch, and return them."""
        written = [output for output in outputs if isinstance(output, Published)]
        for output in written:
            self._newest[output.key] = output
            self._append(output, now_ms)
        return written

    def pause(self, written: list[Published], until_ms: int) -> None:
        """Schedule a second write of a batch at that time."""
        self._paused.append((until_ms, written))

    def go_on(self, now_ms: int) -> None:
        """Write the batches of writers whose pause has ended."""
        for pause in [pause for pause in self._paused if pause[0] <= now_ms]:
            self._paused.remove(pause)
            for output in pause[1]:
                self._append(output, now_ms)

    def overdue(self, now_ms: int) -> Iterator[RepublishGroup]:
        """Yield the requests for keys whose last record is a repeat."""
        for _, request in self._watch.overdue(now_ms):
            yield msgspec.structs.replace(request, request_id=f"republish-{next(self._numbers)}")

    def wrong(self) -> str | None:
        """Return a message about a paused writer or a key whose last record is not the newest one, or None."""
        if self._paused:
            return "a writer is paused"
        for key, newest in self._newest.items():
            if (last := self._last[key]) != newest:
                return f"the last record of {key} has version {last.version}, the newest has version {newest.version}"
        return None

    def _append(self, output: Published, now_ms: int) -> None:
        self._last[output.key] = output
        self._watch.handle(0, msgspec.json.encode(output.key), _order(output), now_ms)


def _order(output: Published) -> Order | None:
    if output.record is not None:
        return order_of(output.record)
    return None if output.ended_ms is None else Order(output.ended_ms, output.version or 0)
