"""The offsets of a reset: its partitions, the new offset of each, and the corrections that were necessary.

`SCENARIOS` is the table, by the names of Kafka's options. This module neither commits offsets nor connects to a broker:
it calls a `Log`.

Source: Kafka, OffsetsUtils and ConsumerGroupCommand.
"""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from streaming.errors import BadReset, NotFound
from streaming.views.state.fields import PartitionKey
from streaming.views.state.lag import Bounds
from streaming.views.text import escape


class NewOffset(NamedTuple):
    """An offset to commit."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Log(Protocol):
    """The partitions and offsets of topics."""

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Return each topic's partitions, without topics that do not exist."""

    def bounds(self, places: Collection[PartitionKey]) -> dict[PartitionKey, Bounds]:
        """Return the bounds of each partition, without partitions that do not exist."""

    def at(self, places: Collection[PartitionKey], at_ms: int) -> dict[PartitionKey, int]:
        """Return the first offset of each partition at or after a time, without partitions that have no such record."""


class Reset(NamedTuple):
    """The offsets of a reset, and notes for the user about them."""

    offsets: dict[PartitionKey, NewOffset]
    notes: list[str]


Committed = Mapping[PartitionKey, int]
Scenario = Callable[[Collection[PartitionKey], Any, Log, Committed], Reset]


# -- partitions --------------------------------------------------------------------------------------------------------


def named(place: PartitionKey) -> str:
    """Return the name of a partition in Kafka's form."""
    return f"{escape(place[0])}-{place[1]}"


def read_topics(
    texts: Iterable[str], partitions_of: Callable[[set[str]], Mapping[str, list[int]]]
) -> list[PartitionKey]:
    """Parse texts of the form `topic` or `topic:0,1`, and return their partitions, which must exist.

    Args:
        partitions_of: Returns the partitions of topics, without topics that do not exist.

    Raises:
        BadReset: A partition is not a number.
        NotFound: A topic or a partition does not exist.
    """
    requested = [_topic_and_partitions(text) for text in texts]
    known = partitions_of({topic for topic, _ in requested})
    places: dict[PartitionKey, None] = {}
    for topic, partitions in requested:
        if topic not in known:
            raise NotFound(f"The topic {escape(topic)} does not exist.")
        for partition in known[topic] if partitions is None else partitions:
            if partition not in known[topic]:
                raise NotFound(f"The partition {named((topic, partition))} does not exist.")
            places[topic, partition] = None
    return list(places)


def _topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    each = numbers.split(",")
    if not topic or not all(number.isascii() and number.isdigit() and len(number) < 10 for number in each):
        raise BadReset(f"{escape(text)} is not TOPIC or TOPIC:PARTITION,PARTITION.")
    return topic, [int(number) for number in each]


def read_plan(text: str, group_id: str) -> dict[PartitionKey, int]:
    """Parse the output of `--export`: `topic,partition,offset`, with or without the group in front. Skip other groups.

    Raises:
        BadReset: A line has another form.
    """
    plan: dict[PartitionKey, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        try:
            *group, topic, partition, offset = row
            if len(group) > 1:
                raise ValueError
            if group in ([], [group_id]):
                plan[topic, int(partition)] = int(offset)
        except ValueError:
            raise BadReset(
                f"Line {number} of the plan is not topic,partition,offset or group,topic,partition,offset."
            ) from None
    return plan


# -- new offsets -------------------------------------------------------------------------------------------------------


def clip(wanted: Mapping[PartitionKey, NewOffset], log: Log) -> Reset:
    """Replace each offset outside its partition by the nearest offset inside.

    Raises:
        NotFound: A partition does not exist.
    """
    bounds, notes, offsets = _bounds(wanted, log), [], {}
    for place, new in wanted.items():
        begin, end = bounds[place].begin, bounds[place].end
        inside = max(begin, min(new.offset, end))
        if inside != new.offset:
            which = "higher than latest" if new.offset > end else "lower than earliest"
            notes.append(
                f"New offset ({new.offset}) is {which} offset for topic partition {named(place)}."
                f" Value will be set to {inside}."
            )
        offsets[place] = new._replace(offset=inside)
    return Reset(offsets, notes)


def _bounds(places: Collection[PartitionKey], log: Log) -> dict[PartitionKey, Bounds]:
    bounds = log.bounds(places)
    if missing := [place for place in places if place not in bounds]:
        raise NotFound(f"These partitions do not exist: {', '.join(map(named, missing))}.")
    return bounds


def _earliest(places: Collection[PartitionKey], _: Any, log: Log, __: Committed) -> Reset:
    return Reset({place: NewOffset(each.begin) for place, each in _bounds(places, log).items()}, [])


def _latest(places: Collection[PartitionKey], _: Any, log: Log, __: Committed) -> Reset:
    return Reset({place: NewOffset(each.end) for place, each in _bounds(places, log).items()}, [])


def _current(places: Collection[PartitionKey], _: Any, log: Log, committed: Committed) -> Reset:
    """Return the committed offsets. A partition without one gets the end offset, as in Kafka's tool."""
    ends = _bounds(places, log)
    return Reset({place: NewOffset(committed.get(place, ends[place].end)) for place in places}, [])


def _offset(places: Collection[PartitionKey], offset: int, log: Log, _: Committed) -> Reset:
    return clip({place: NewOffset(offset) for place in places}, log)


def _shift(places: Collection[PartitionKey], by: int, log: Log, committed: Committed) -> Reset:
    for place in places:
        if place not in committed:
            why = "since there is no current committed offset"
            raise BadReset(f"Cannot shift offset for partition {named(place)} {why}.")
    return clip({place: NewOffset(committed[place] + by) for place in places}, log)


def _time(places: Collection[PartitionKey], at_ms: int, log: Log, _: Committed) -> Reset:
    """Return the first offsets at or after a time. A partition without such a record gets the end offset, as in Kafka's
    tool."""
    ends, found = _bounds(places, log), log.at(places, at_ms)
    notes = [
        f"Partition {p} from topic {escape(t)} has no record since then. Falling back to latest known offset."
        for t, p in places
        if (t, p) not in found
    ]
    return Reset({place: NewOffset(found.get(place, ends[place].end)) for place in places}, notes)


def _plan(_: Collection[PartitionKey], plan: Mapping[PartitionKey, int], log: Log, __: Committed) -> Reset:
    return clip({place: NewOffset(offset) for place, offset in plan.items()}, log)


SCENARIOS: dict[str, Scenario] = {
    # option         function
    "to-earliest": _earliest,
    "to-latest": _latest,
    "to-current": _current,
    "to-offset": _offset,
    "shift-by": _shift,
    "to-datetime": _time,
    "by-duration": _time,
    "from-file": _plan,
}
"""The function of each option. Both times are given as Unix milliseconds."""


def exported(offsets: Mapping[PartitionKey, NewOffset]) -> str:
    """Return offsets as a plan for `--from-file`, in Kafka's form."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for (topic, partition), new in sorted(offsets.items()):
        writer.writerow([topic, partition, new.offset])
    return written.getvalue()
