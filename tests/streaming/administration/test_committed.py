"""Tests of the committed offsets at a past time.

Each test writes a log, compacts it as Kafka may, and compares the answers with those of the whole log.
"""

import random

import msgspec
import pytest

from coordinator.messages.group_records import OffsetRecord
from streaming.administration.committed import NEVER_MS, Past
from streaming.views.history.owners import PartitionKey

Written = tuple[int, int, PartitionKey, OffsetRecord | None]  # offset, time, topic and partition, record
PLACES: list[PartitionKey] = [("t", 0), ("t", 1), ("u", 0)]
NOW_MS = 1_000


def record(group_id: str, place: PartitionKey, offset: int, at_ms: int) -> OffsetRecord:
    return OffsetRecord(group_id=group_id, topic=place[0], partition=place[1], offset=offset, leader_epoch=-1,
                        metadata="", commit_timestamp_ms=at_ms, expire_timestamp_ms=None, generation_id=1, member_id="",
                        version=offset)  # fmt: skip


def past_of(log: list[Written], group_id: str = "g", kept_from_ms: int = NEVER_MS, ends: int = 0) -> Past:
    past = Past(group_id, kept_from_ms)
    for offset, at_ms, (topic, partition), offset_record in log:
        key = msgspec.json.encode(["offset", offset_record.group_id if offset_record else group_id, topic, partition])
        past.add(offset, at_ms, key, None if offset_record is None else msgspec.json.encode(offset_record))
    past.end(ends or (log[-1][0] + 1 if log else 0), NOW_MS)
    return past


def committed(*commits: tuple[int, PartitionKey, int | None]) -> list[Written]:
    """Return a log of commits, each given as time, topic and partition, and offset; None is a tombstone."""
    return [
        (n, at_ms, place, None if offset is None else record("g", place, offset, at_ms))
        for n, (at_ms, place, offset) in enumerate(commits)
    ]


def at(past: Past, place: PartitionKey, at_ms: int) -> int | None:
    found = past.at(place, at_ms)
    return found.offset if found else None


T, U = ("t", 0), ("u", 0)
WHOLE = committed((10, T, 1), (20, U, 5), (30, T, 2), (40, T, None), (50, T, 3))


def test_the_last_commit_before_a_time_is_the_committed_offset() -> None:
    past = past_of(WHOLE)
    assert [at(past, T, at_ms) for at_ms in (9, 10, 29, 30, 39, 40, 49, 50, 999)] == [
        None,
        1,
        1,
        2,
        2,
        None,
        None,
        3,
        3,
    ]
    assert all(past.is_certain(PLACES, at_ms, of_all=True) for at_ms in (0, 10, 35, 99))
    assert past.certain_from_ms(PLACES, of_all=True) == 0


def test_commits_of_other_groups_are_ignored() -> None:
    past = past_of([(0, 10, T, record("h", T, 1, 10)), (1, 20, T, record("g", T, 2, 20))])
    assert [at(past, T, 15), at(past, T, 25)] == [None, 2]
    assert past.places == {T}


def test_a_hole_between_two_commits_makes_the_time_between_them_uncertain() -> None:
    """Compaction has removed the commit of T at 30."""
    past = past_of([each for each in WHOLE if each[0] != 2])
    assert at(past, T, 35) == 1, "the last commit that the log still has"
    certain = {at_ms: past.is_certain([T], at_ms, of_all=False) for at_ms in (10, 29, 39, 40, 50)}
    assert certain == {10: False, 29: False, 39: False, 40: True, 50: True}
    assert past.certain_from_ms([T], of_all=False) == 40


def test_the_last_remaining_commit_is_certain() -> None:
    """U has one commit: the holes after it belong to other partitions."""
    past = past_of([each for each in WHOLE if each[0] not in (0, 2)])
    assert past.is_certain([U], 20, of_all=False)
    assert past.certain_from_ms([U], of_all=False) == 20
    assert not past.is_certain([U], 19, of_all=False)
    assert not past.is_certain([U], 35, of_all=True), "other partitions may have had commits"


def test_no_record_within_the_compaction_lag_can_be_missing() -> None:
    log = [each for each in WHOLE if each[0] != 2]
    assert past_of(log, kept_from_ms=35).is_certain([T], 35, of_all=True)
    assert not past_of(log, kept_from_ms=36).is_certain([T], 35, of_all=True)
    assert past_of(log, kept_from_ms=35).certain_from_ms([T], of_all=True) == 35


def test_a_partition_without_records_is_certain_after_the_last_hole() -> None:
    """The hole may have held its commits and its tombstone."""
    past = past_of([each for each in WHOLE if each[0] != 2])
    assert not past.is_certain([("x", 0)], 39, of_all=False)
    assert past.is_certain([("x", 0)], 40, of_all=False)
    assert past.certain_from_ms([("x", 0)], of_all=False) == 40


def compacted(log: list[Written], chance: random.Random) -> list[Written]:
    """Compact as Kafka may: below a point, remove superseded records, and then some tombstones."""
    clean = chance.randrange(len(log) + 1)
    last = {each[2]: each[0] for each in log[:clean]}
    kept = [each for each in log if each[0] >= clean or each[0] == last[each[2]] or chance.random() < 0.3]
    if chance.random() < 0.5:  # tombstones of an earlier round, if no record that they delete is left
        firsts: dict[PartitionKey, int] = {}
        for each in kept:
            firsts.setdefault(each[2], each[0])
        kept = [e for e in kept if e[3] is not None or e[0] != firsts[e[2]] or e[0] >= clean]
    return kept


@pytest.mark.parametrize("seed", range(300))
def test_a_certain_answer_equals_that_of_the_whole_log(seed: int) -> None:
    """For every seed, each answer marked as certain equals the answer of the log before compaction."""
    chance = random.Random(seed)
    at_ms, commits = 0, []
    for number in range(chance.randrange(2, 25)):
        at_ms += chance.randrange(1, 4)
        commits.append((at_ms, chance.choice(PLACES), chance.choice([number, number, number, None])))
    log = committed(*commits)
    truth, past = past_of(log), past_of(compacted(compacted(log, chance), chance), ends=len(log))
    everything = {(place, t): at(truth, place, t) for place in PLACES for t in range(at_ms + 3)}
    for t in range(at_ms + 3):
        for place in PLACES:
            if past.is_certain([place], t, of_all=False):
                assert at(past, place, t) == everything[place, t], (place, t)
            assert past.is_certain([place], t, of_all=False) or t < past.certain_from_ms([place], of_all=False)
        if past.is_certain(past.places, t, of_all=True):
            there = {place for place in PLACES if everything[place, t] is not None}
            assert {p for p in past.places if at(past, p, t) is not None} == there, t
        else:
            assert t < past.certain_from_ms(past.places, of_all=True)
