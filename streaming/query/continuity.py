"""Whether a shard's records go on where they ended before: what is new, what came again, and what is missing.

Every two records that follow one another are compared, and the first one with the place that the state remembers. So
the cut of the log into batches makes no difference, up to the bound on events of one batch.
"""

from typing import NamedTuple

from msgspec import structs

from coordinator.outputs import LogBroken

Row = tuple[int, int, bytes | None]
"""A record of the request topic: `offset`, `at_ms` and `value`."""

BREAKS_TOLD_MAX = 32
"""Events that one batch of a shard may give about breaks. A transactional producer leaves a mark in the log with each
commit, and a damaged plan may bring thousands of records again: beyond the bound the last event sums up the rest."""


class Followed(NamedTuple):
    """A batch's records after the comparison.

    Args:
        fresh: The records that were not handled before, in the order of the log.
        breaks: The events about every place where the log does not go on.
        next_offset: Of the first record that is not handled yet; None where no record was ever seen.
    """

    fresh: list[Row]
    breaks: list[LogBroken]
    next_offset: int | None


def follow(shard: int, rows: list[Row], expected: int | None) -> Followed:
    """Compare a batch's records with the place where the log is to go on, and drop those that came before.

    Args:
        rows: In the order of their offsets.
        expected: The first record's offset, from the state; None where the state does not hold one.
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
    """Replace those beyond the bound by one event."""
    if len(breaks) <= BREAKS_TOLD_MAX:
        return breaks
    told, rest = breaks[: BREAKS_TOLD_MAX - 1], breaks[BREAKS_TOLD_MAX - 1 :]
    summed = structs.replace(rest[-1], expected=rest[0].expected, breaks=len(rest))
    return [*told, summed]
