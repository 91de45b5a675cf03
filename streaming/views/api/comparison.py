"""One group of two coordinators, side by side: this one, and Kafka's own, as it was observed.

A group that moves from one coordinator to the other is in both for a while.
"""

from msgspec import Struct

from streaming.views.api import answers
from streaming.views.api.rows import GroupSummary, OffsetRow
from streaming.views.state.fields import PartitionKey
from streaming.views.state.group import GroupView
from streaming.views.state.lag import Ends


class ComparedPartition(Struct, kw_only=True):
    """A partition that the group owns or has committed, in both coordinators.

    Args:
        offset, kafkas_offset: The committed offsets here and at Kafka's coordinator; null without one.
        ahead: How many records the offset here is ahead of the other one; below 0 if it is behind; null if one is
            missing.
        member_id, kafkas_member_id: The owners; null without one.
    """

    topic: str
    partition: int
    offset: int | None
    kafkas_offset: int | None
    ahead: int | None
    member_id: str | None
    kafkas_member_id: str | None


class Comparison(Struct, kw_only=True):
    """A group in both coordinators. A summary is null where the group does not exist."""

    group_id: str
    here: GroupSummary | None
    kafka: GroupSummary | None
    partitions: list[ComparedPartition]


def compare(group_id: str, here: GroupView | None, kafka: GroupView | None, ends: Ends, now_ms: int) -> Comparison:
    """Return one group of both coordinators, side by side.

    Args:
        here, kafka: The group in each coordinator; None if it has none of that id.
    """
    ours, theirs = _offsets(here, ends), _offsets(kafka, ends)
    return Comparison(
        group_id=group_id,
        here=answers.summary(here, ends, now_ms) if here is not None else None,
        kafka=answers.summary(kafka, ends, now_ms) if kafka is not None else None,
        partitions=[_compared(place, ours.get(place), theirs.get(place)) for place in sorted(ours.keys() | theirs)],
    )


def _offsets(group: GroupView | None, ends: Ends) -> dict[PartitionKey, OffsetRow]:
    return {(row.topic, row.partition): row for row in (answers.offsets(group, ends) if group is not None else ())}


def _compared(place: PartitionKey, ours: OffsetRow | None, theirs: OffsetRow | None) -> ComparedPartition:
    offset = ours.committed_offset if ours is not None else None
    kafkas_offset = theirs.committed_offset if theirs is not None else None
    return ComparedPartition(
        topic=place[0],
        partition=place[1],
        offset=offset,
        kafkas_offset=kafkas_offset,
        ahead=None if offset is None or kafkas_offset is None else offset - kafkas_offset,
        member_id=ours.member_id if ours is not None else None,
        kafkas_member_id=theirs.member_id if theirs is not None else None,
    )
