"""The comparison of a shard's records with the offset that the state expects: new, repeated and missing records.

The comparison checks every two consecutive records, and the first record against the offset in the state. So the
division of the log into batches makes no difference, up to the bound on events of one batch.

The log itself may be another one: brokers that elect an unclean leader, or lose power, cut off its end, and append
other records at the same offsets. Then the record that was read last has another time in the log than in the state.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import structs

from coordinator.messages.events import LogBroken

Row = tuple[int, int, bytes | None]
"""A record of the request topic: `offset`, `at_ms` and `value`."""

BREAKS_REPORTED_MAX = 32
"""The maximum number of events about breaks that one batch of a shard may publish. A transactional producer writes a
marker to the log with each commit, and a damaged plan may repeat thousands of records. Beyond the bound, the last event
counts the remaining breaks."""


class LogReplaced(Exception):
    """The log has another record at the offset of a record that the shard has read."""


class LastRecord(NamedTuple):
    """The last record that a shard has read: its offset, and its time in Unix milliseconds."""

    offset: int
    at_ms: int


def last_record(next_offset: int | None, last_ms: int) -> LastRecord | None:
    """Return the last record that a shard has read, from its state; None if it has read none.

    Args:
        next_offset: The offset after that record; None if there is none.
        last_ms: The time of the record.
    """
    return None if next_offset is None else LastRecord(next_offset - 1, last_ms)


def check_last_record(shard: int, read: LastRecord | None, in_the_log: Mapping[int, LastRecord]) -> None:
    """Check that the record that a shard has read last is still in the log.

    Args:
        in_the_log: By shard, a record of the log as it was at the start of the query. A record at another offset than
            that of the last record shows nothing.

    Raises:
        LogReplaced: Another record has its offset.
    """
    found = in_the_log.get(shard)
    if read is not None and found is not None and found.offset == read.offset and found.at_ms != read.at_ms:
        raise LogReplaced(f"partition {shard}, offset {read.offset}: {found.at_ms} in place of {read.at_ms}")


class Followed(NamedTuple):
    """A batch's records after the comparison.

    Args:
        fresh: The records that were not handled before, in the order of the log.
        breaks: The events about every offset at which the log does not continue.
        next_offset: The offset of the first record that is not handled yet; None if the shard never read a record.
    """

    fresh: list[Row]
    breaks: list[LogBroken]
    next_offset: int | None


def follow(shard: int, rows: list[Row], expected: int | None) -> Followed:
    """Compare a batch's records with the expected offset, and drop the records that were handled before.

    Args:
        rows: The records in the order of their offsets.
        expected: The first record's offset, from the state; None if the shard has read no record.
    """
    if expected is not None and [row[0] for row in rows] == list(range(expected, expected + len(rows))):
        return Followed(rows, [], expected + len(rows))
    fresh: list[Row] = []
    breaks: list[LogBroken] = []
    for row in rows:
        offset = row[0]
        if expected is not None and offset != expected:
            breaks.append(_broken(shard, row, expected))
            if offset < expected:
                continue
        fresh.append(row)
        expected = offset + 1
    return Followed(fresh, _bounded(breaks), expected)


def _broken(shard: int, row: Row, expected: int) -> LogBroken:
    offset, at_ms, _ = row
    return LogBroken(
        group_id=None,
        version=None,
        at_ms=at_ms,
        generation_id=None,
        partition=shard,
        expected=expected,
        found=offset,
    )


def _bounded(breaks: list[LogBroken]) -> list[LogBroken]:
    """Replace the events beyond the bound by one event."""
    if len(breaks) <= BREAKS_REPORTED_MAX:
        return breaks
    single, rest = breaks[: BREAKS_REPORTED_MAX - 1], breaks[BREAKS_REPORTED_MAX - 1 :]
    summed = structs.replace(rest[-1], expected=rest[0].expected, breaks=len(rest))
    return [*single, summed]
