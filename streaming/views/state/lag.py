"""Both ends of the logs of groups' partitions, read from the brokers, and what follows for a committed offset.

Retention deletes the beginning of a log. An offset below it still counts the records that are gone, though nobody can
read them. So two numbers are told apart:

    lag            the records that the group has not committed, and can read
    gone unread    the records below the log's start that the group has not committed: nobody can read them any more

A committed offset may also be beyond the log's end: the topic was made anew, or a client has committed a wrong offset.
The lag of such a partition is negative, as in Kafka's own tool. In a sum it counts as 0, so that it hides no lag of
another partition.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException

from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable
from streaming.kafka.brokers import unreachable
from streaming.kafka.offsets import EARLIEST, LATEST, OffsetAsker, Offsets, Why
from streaming.views.state.fields import PartitionKey
from streaming.views.state.group import GroupView

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""The topic names that Kafka allows. Groups may commit any name, and librdkafka waits for its timeout for any other
name.
"""

PARTITIONS = range(2**31)
"""The partition numbers that Kafka allows. Groups may commit any number, and librdkafka rejects a negative one."""


class Bounds(NamedTuple):
    """The first offset of a partition's log, and the offset behind its last record.

    Args:
        beyond: The highest committed offset, if it is beyond the end and was known before the end was read; else 0. A
            higher one is newer than the end, which may have moved since.
    """

    begin: int
    end: int
    beyond: int = 0


class Committed(NamedTuple):
    """The lowest and the highest committed offset of a partition, of several groups."""

    lowest: int
    highest: int


Ends = Mapping[PartitionKey, Bounds]
"""Both ends of the log of each partition."""


def places(groups: Iterable[GroupView]) -> set[PartitionKey]:
    """Return the partitions that groups have committed, own or share."""
    return {place for group in groups for place in (*group.committed(), *group.owned(), *group.shared())}


def committed_offsets(groups: Iterable[GroupView]) -> dict[PartitionKey, Committed | None]:
    """Return the partitions that groups have committed or own, with the lowest and the highest committed offset; None
    without one."""
    found: dict[PartitionKey, Committed | None] = {}
    for group in groups:
        for place in (*group.owned(), *group.shared()):
            found.setdefault(place, None)
        for place, committed in group.committed().items():
            at, known = committed.offset, found.get(place)
            found[place] = Committed(min(known.lowest, at), max(known.highest, at)) if known else Committed(at, at)
    return found


def lag(log: Bounds | None, committed: int | None) -> int | None:
    """Return the number of records in a log that a group has not committed; None if an offset is unknown.

    It is negative if the committed offset is beyond the end of the log.
    """
    if log is None or committed is None or committed < 0:
        return None
    if log.end < committed:
        return log.end - committed if committed <= log.beyond else 0
    return log.end - max(log.begin, committed)


def total_lag(lags: Iterable[int]) -> int:
    """Return the sum of lags. A negative one counts as 0."""
    return sum(max(0, each) for each in lags)


def lags(group: GroupView, ends: Ends) -> dict[PartitionKey, int | None]:
    """Return the lag of each partition that a group has committed, or in which a share group has a position."""
    if group.share_offsets:
        return {place: position.lag for place, position in group.share_offsets.items()}
    return {place: lag(ends.get(place), offset.offset) for place, offset in group.committed().items()}


def gone_unread(log: Bounds | None, committed: int | None) -> int | None:
    """Return the number of records below a log's start that a group has not committed; None if an offset is unknown."""
    return None if log is None or committed is None or committed < 0 else max(0, min(log.begin, log.end) - committed)


class EndOffsets:
    """A reader of offsets from the brokers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._asker = OffsetAsker(settings, "coordinator-lag")

    def of(self, wanted: Iterable[PartitionKey], at_ms: int = LATEST) -> dict[PartitionKey, int]:
        """Return the end offset of each partition, or its offset at another time. Partitions that do not exist are
        omitted.

        A partition without a leader has no known end, so it is omitted too. For another time that would read as if no
        such offset existed, so an error is raised instead.

        Args:
            at_ms: Unix milliseconds, or `offsets.EARLIEST`.

        Raises:
            BrokerUnreachable: no broker answers; or, for another time, the leader of one partition does not answer.
        """
        found = self._ask(wanted, at_ms)
        unknown = sorted(place for place, why in found.unknown.items() if why not in (Why.ABSENT, Why.DENIED))
        if at_ms != LATEST and unknown:
            raise BrokerUnreachable("The leader of {}-{} does not answer: try again.".format(*unknown[0]))
        return dict(found.known)

    def _ask(self, wanted: Iterable[PartitionKey], at_ms: int) -> Offsets:
        try:
            return self._asker.ask(filter(_is_possible, wanted), at_ms)
        except KafkaException as error:
            raise unreachable(self._settings, error.args[0].str()) from error

    def bounds(self, wanted: Mapping[PartitionKey, Committed | None]) -> dict[PartitionKey, Bounds]:
        """Return both ends of the log of each partition. Partitions without a known end are omitted.

        Args:
            wanted: The committed offsets of each partition; None without one. The beginning of a log is 0 in the result
                if no committed offset is before its end, because it makes no difference then.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        ends = self.of(wanted)
        behind = [place for place, end in ends.items() if (at := wanted[place]) is not None and 0 <= at.lowest < end]
        begins = self._ask(behind, EARLIEST).known
        beyond = {place: at.highest for place, end in ends.items() if (at := wanted[place]) and at.highest > end}
        return {place: Bounds(begins.get(place, 0), end, beyond.get(place, 0)) for place, end in ends.items()}

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Return the partitions of each topic. Topics that do not exist are omitted.

        Raises:
            BrokerUnreachable: no broker answers.
        """
        try:
            known = self._asker.metadata().topics
        except KafkaException as error:
            raise unreachable(self._settings, error.args[0].str()) from error
        return {topic: sorted(known[topic].partitions) for topic in topics if topic in known and not known[topic].error}


def _is_possible(place: PartitionKey) -> bool:
    topic, partition = place
    return partition in PARTITIONS and _LEGAL.fullmatch(topic) is not None
