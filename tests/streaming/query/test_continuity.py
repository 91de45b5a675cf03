"""Tests of breaks in a shard's log: each break is reported, and the division into batches makes no difference."""

import random
from collections import defaultdict
from itertools import pairwise

import pytest

from coordinator.base.config import Config
from coordinator.base.hashing import shard_of
from coordinator.messages.events import LogBroken
from coordinator.messages.requests import OffsetCommit, OffsetToCommit
from streaming.query.operator.continuity import BREAKS_REPORTED_MAX, Row, follow
from streaming.query.operator.operator import ShardOperator
from streaming.wire.records import OutputTopics, encode_request
from tests.streaming.query.fake_spark import FakeSpark

SHARD = 3


def rows(*offsets: int) -> list[Row]:
    return [(offset, 1_000 + offset, b"%d" % offset) for offset in offsets]


def breaks(events: list[LogBroken]) -> list[tuple[int, int]]:
    assert all(event.breaks == 1 for event in events)
    return [(event.expected, event.found) for event in events]


def test_records_without_a_break_pass_unchanged() -> None:
    followed = follow(SHARD, rows(4, 5, 6), 4)
    assert followed == (rows(4, 5, 6), [], 7)


def test_a_batch_without_records_keeps_the_next_offset() -> None:
    assert follow(SHARD, [], 4) == ([], [], 4)
    assert follow(SHARD, [], None) == ([], [], None)


def test_gaps_inside_a_batch_and_between_batches_are_reported() -> None:
    followed = follow(SHARD, rows(4, 5, 9, 12), 2)
    assert breaks(followed.breaks) == [(2, 4), (6, 9), (10, 12)]
    assert [event.at_ms for event in followed.breaks] == [1_004, 1_009, 1_012]
    assert {event.partition for event in followed.breaks} == {SHARD}
    assert (followed.fresh, followed.next_offset) == (rows(4, 5, 9, 12), 13)


def test_a_state_without_a_next_offset_accepts_any_first_record() -> None:
    followed = follow(SHARD, rows(7, 9), None)
    assert breaks(followed.breaks) == [(8, 9)]


def test_repeated_records_are_dropped_at_any_position() -> None:
    followed = follow(SHARD, [*rows(2, 3, 4), *rows(4, 5)], 3)
    assert followed.fresh == rows(3, 4, 5)
    assert breaks(followed.breaks) == [(3, 2), (5, 4)]
    assert followed.next_offset == 6


def test_a_batch_of_repeats_does_not_lower_the_next_offset() -> None:
    followed = follow(SHARD, rows(1, 2), 9)
    assert (followed.fresh, followed.next_offset) == ([], 9)
    assert breaks(followed.breaks) == [(9, 1), (9, 2)]


@pytest.mark.parametrize("more", [0, 1, 500])
def test_reported_breaks_of_a_batch_are_bounded_and_the_rest_is_summed_up(more: int) -> None:
    """A producer's transactions leave a marker for every commit: a batch may have as many breaks as records."""
    offsets = range(1, 2 * (BREAKS_REPORTED_MAX + more), 2)
    *reported, last = follow(SHARD, rows(*offsets), 0).breaks
    assert len(reported) == BREAKS_REPORTED_MAX - 1
    assert breaks(reported) == [(offset - 1, offset) for offset in offsets][: BREAKS_REPORTED_MAX - 1]
    assert (last.expected, last.found, last.breaks) == (
        2 * (BREAKS_REPORTED_MAX - 1) + 1 - 1, offsets[-1], more + 1,
    ) if more else (last.breaks == 1)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_log_with_gaps_gives_the_same_outputs_for_any_batches(seed: int) -> None:
    """I17, for each key: Kafka keeps no order between two keys."""
    chance = random.Random(seed)
    offsets = sorted(chance.sample(range(60), 25))
    log = [(offset, commit(offset)) for offset in offsets]
    whole = run([log])
    cuts = sorted(chance.sample(range(1, 25), chance.randrange(1, 8)))
    pieces = [log[a:b] for a, b in zip([0, *cuts], [*cuts, 25], strict=True)]
    assert run(pieces) == whole
    assert run([[row] for row in log]) == whole
    assert sum(b'"log_broken"' in value for value in whole[b""]) == sum(b - a > 1 for a, b in pairwise(offsets)), (
        "every gap is reported"
    )


def commit(offset: int) -> bytes:
    return encode_request(
        OffsetCommit(
            request_id=str(offset),
            reply_to="inbox",
            group_id="g",
            generation_id=-1,
            member_id="",
            offsets=(OffsetToCommit("t", 0, offset),),
        )
    )


def run(batches: list[list[tuple[int, bytes]]]) -> dict[bytes, list[bytes]]:
    """Return the records that a query of these batches writes under each key, in order."""
    home = shard_of("g", 1)
    spark = FakeSpark(ShardOperator(1, b"a secret of some length", Config(), OutputTopics("r", "g", "e", "q")))
    written: dict[bytes, list[bytes]] = defaultdict(list)
    for batch in batches:
        out = spark.batch(1_000, [(home, offset, 900 + offset, value) for offset, value in batch])
        for _, row in out[out["topic"].notna()].iterrows():
            written[row["key"]].append(row["value"] if row["value"] is None else bytes(row["value"]))
    return dict(written)
