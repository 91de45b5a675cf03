"""What offsets a reset comes to: which partitions, where each is to go, and what had to be corrected on the way.

`SCENARIOS` is the table, by the names of Kafka's options. Nothing here commits anything, or talks to a broker: a `Log`
is asked.

Source: Kafka, OffsetsUtils and ConsumerGroupCommand.
"""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from streaming.errors import BadReset, NotFound
from streaming.views.group import Place
from streaming.views.words import escape


class Bounds(NamedTuple):
    """Where a partition's log begins, and the offset behind its last record."""

    begin: int
    end: int


class NewOffset(NamedTuple):
    """What is to be committed."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Log(Protocol):
    """The partitions that offsets are of."""

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Return each topic's partitions; topics that are not there are left out."""

    def bounds(self, places: Collection[Place]) -> dict[Place, Bounds]:
        """Return where each partition begins and ends; those that are not there are left out."""

    def at(self, places: Collection[Place], at_ms: int) -> dict[Place, int]:
        """Return the first offset of each partition at or after a time; left out where there is none."""


class Reset(NamedTuple):
    """A reset to be shown or made, and what is to be said about it."""

    offsets: dict[Place, NewOffset]
    notes: list[str]


Committed = Mapping[Place, int]
Scenario = Callable[[Collection[Place], Any, Log, Committed], Reset]


# -- which partitions --------------------------------------------------------------------------------------------------


def named(place: Place) -> str:
    """Write a partition as Kafka does."""
    return f"{escape(place[0])}-{place[1]}"


def read_topics(texts: Iterable[str], partitions_of: Callable[[set[str]], Mapping[str, list[int]]]) -> list[Place]:
    """Read `topic` or `topic:0,1`, as often as given: the partitions that are meant, which have to be there.

    Args:
        partitions_of: Finds the partitions of topics; those that are not there are left out.

    Raises:
        BadReset: a partition is no number.
        NotFound: there is no such topic or partition.
    """
    asked = [_topic_and_partitions(text) for text in texts]
    known = partitions_of({topic for topic, _ in asked})
    places: dict[Place, None] = {}
    for topic, partitions in asked:
        if topic not in known:
            raise NotFound(f"There is no topic {escape(topic)}.")
        for partition in known[topic] if partitions is None else partitions:
            if partition not in known[topic]:
                raise NotFound(f"There is no partition {named((topic, partition))}.")
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


def read_plan(text: str, group_id: str) -> dict[Place, int]:
    """Read what `--export` wrote: `topic,partition,offset`, or with the group in front; other groups' are left out.

    Raises:
        BadReset: a line is neither.
    """
    plan: dict[Place, int] = {}
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


# -- where to ----------------------------------------------------------------------------------------------------------


def clip(wanted: Mapping[Place, NewOffset], log: Log) -> Reset:
    """Move offsets that a partition does not have to the nearest that it has.

    Raises:
        NotFound: there is no such partition.
    """
    bounds, notes, offsets = _bounds(wanted, log), [], {}
    for place, new in wanted.items():
        begin, end = bounds[place]
        inside = max(begin, min(new.offset, end))
        if inside != new.offset:
            which = "higher than latest" if new.offset > end else "lower than earliest"
            notes.append(
                f"New offset ({new.offset}) is {which} offset for topic partition {named(place)}."
                f" Value will be set to {inside}."
            )
        offsets[place] = new._replace(offset=inside)
    return Reset(offsets, notes)


def _bounds(places: Collection[Place], log: Log) -> dict[Place, Bounds]:
    bounds = log.bounds(places)
    if missing := [place for place in places if place not in bounds]:
        raise NotFound(f"There is no partition {', '.join(map(named, missing))}.")
    return bounds


def _earliest(places: Collection[Place], _: Any, log: Log, __: Committed) -> Reset:
    return Reset({place: NewOffset(each.begin) for place, each in _bounds(places, log).items()}, [])


def _latest(places: Collection[Place], _: Any, log: Log, __: Committed) -> Reset:
    return Reset({place: NewOffset(each.end) for place, each in _bounds(places, log).items()}, [])


def _current(places: Collection[Place], _: Any, log: Log, committed: Committed) -> Reset:
    """Where nothing is committed, the end, as in Kafka's tool."""
    ends = _bounds(places, log)
    return Reset({place: NewOffset(committed.get(place, ends[place].end)) for place in places}, [])


def _offset(places: Collection[Place], offset: int, log: Log, _: Committed) -> Reset:
    return clip({place: NewOffset(offset) for place in places}, log)


def _shift(places: Collection[Place], by: int, log: Log, committed: Committed) -> Reset:
    for place in places:
        if place not in committed:
            why = "since there is no current committed offset"
            raise BadReset(f"Cannot shift offset for partition {named(place)} {why}.")
    return clip({place: NewOffset(committed[place] + by) for place in places}, log)


def _time(places: Collection[Place], at_ms: int, log: Log, _: Committed) -> Reset:
    """Where no record is as young, the end, as in Kafka's tool."""
    ends, found = _bounds(places, log), log.at(places, at_ms)
    notes = [
        f"Partition {p} from topic {escape(t)} has no record since then. Falling back to latest known offset."
        for t, p in places
        if (t, p) not in found
    ]
    return Reset({place: NewOffset(found.get(place, ends[place].end)) for place in places}, notes)


def _plan(_: Collection[Place], plan: Mapping[Place, int], log: Log, __: Committed) -> Reset:
    return clip({place: NewOffset(offset) for place, offset in plan.items()}, log)


SCENARIOS: dict[str, Scenario] = {
    # option         where to
    "to-earliest": _earliest,
    "to-latest": _latest,
    "to-current": _current,
    "to-offset": _offset,
    "shift-by": _shift,
    "to-datetime": _time,
    "by-duration": _time,
    "from-file": _plan,
}
"""What each option asks for; both times are given as Unix milliseconds."""


def exported(offsets: Mapping[Place, NewOffset], group_id: str | None = None) -> str:
    """Write offsets as a plan for `--from-file`, in Kafka's form; with the group in front where one is given."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for (topic, partition), new in sorted(offsets.items()):
        writer.writerow([*([group_id] if group_id is not None else []), topic, partition, new.offset])
    return written.getvalue()
