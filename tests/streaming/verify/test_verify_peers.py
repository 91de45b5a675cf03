"""Correct moves between coordinators have no finding, whatever records are gone or repeated."""

import random
from dataclasses import replace
from typing import Any

import pytest

from coordinator.messages.group_records import OffsetRecord
from streaming.verify.findings import Kind
from streaming.verify.stays import SUSPECTS_MAX, GroupStays
from streaming.verify.stays import Written as Place
from streaming.verify.watched import CLOCKS_APART_MS
from tests.coordinator.moving.simulation import Simulation
from tests.streaming.verify.writing import (
    START_MS,
    Writing,
    WritingConsumers,
    WritingPair,
    between,
    custody_of,
    found,
    go_back,
    import_from,
    of,
    verify_both,
)


def test_a_group_that_moves_there_and_back_has_no_finding(moved: WritingPair):
    go_back(moved)
    assert verify_both(moved.a, moved.b) == []
    custody, _ = custody_of(moved.a, moved.b)
    assert (list(custody.findings()), custody.moves, custody.one_in) == ([], 2, 1)


@pytest.mark.parametrize("seed", [*range(15), 150, 156, 162])
def test_random_moves_have_no_finding(seed: int):
    """Groups are deleted, cancelled, sent again and go with slots; then records are compacted, and events expire."""
    run, chance = Simulation(seed, coordinators=WritingPair), random.Random(seed)
    run.run(300)
    sides: Any = run.pair.a, run.pair.b
    assert verify_both(*sides) == []
    for side in sides:
        side.compact(chance.randrange(len(side.topics["groups"]) + 1))
        side.expire(chance.randrange(len(side.topics["events"]) + 1))
    assert verify_both(*sides) == []


def test_moves_are_compared_in_these_runs():
    moves = 0
    for seed in range(10):
        run = Simulation(seed, coordinators=WritingPair)
        run.run(200)
        custody, _ = custody_of(run.pair.a, run.pair.b)  # type: ignore[arg-type]
        assert list(custody.findings()) == []
        moves += custody.moves
    assert moves > 10


@pytest.mark.parametrize(
    "text",
    [
        "T:4\nA 0 -> 2 {0 1 2 3}\nA 2 -> 2",
        "T:2\nA 0 -> 2 {0 1}\n-- 1000\nB 0 -> 3 {}\nA 2 own 0 1 -> 2 {0}\nA 2 own 0 -> 3",
        "T:2\nA 0 -> 2 {0 1}\n-- 1000\nB 0 -> 3 {}\nA 2 own 0 1 -> 2 {0}\nA 2 own 0 -> 3\nB 3 -> 3 {1}",
        "T:4\nA 0 -> 2 {0 1 2 3}\n-- 400\nB 0 -> 2 {}",
    ],
)
def test_groups_of_the_consumer_protocol_have_no_finding(text: str):
    a, b = WritingConsumers("A", "B"), WritingConsumers("B", "A")
    a.plays(text)
    b.counts, b.lives = a.counts, a.lives
    released = a.release()
    b.now_ms = a.now_ms + 500
    answers = b.reads(*released)
    a.now_ms = b.now_ms
    a.reads(*answers)
    custody, found = custody_of(a, b)
    assert (found, list(custody.findings()), custody.moves) == ([], [], 1)


def test_a_rebalance_that_a_target_completes_without_an_assignment_has_no_finding():
    """The event has the highest token of the group, which is the number of the move."""
    a, b = WritingConsumers("A", "B"), WritingConsumers("B", "A")
    a.plays("T:1\nA 0 -> 2 {0}\n-- 1000\nB 0 -> 3 {}")
    b.counts, b.lives = a.counts, a.lives
    released = a.release()
    b.now_ms = a.now_ms + 500
    a.reads(*b.reads(*released))
    b.plays("A 2 -> 3\nB 3 -> 3\n= Stable 3 3")
    assert b.topics["events"][-1].value is not None
    assert verify_both(a, b) == []


def test_a_group_that_rebalances_at_the_target_and_comes_back_has_no_finding(moved: WritingPair):
    """After compaction, the first record of the group at the target is a later one."""
    b = moved.b.at(START_MS + 2_500).leave("c2").join("c1", session_timeout_ms=45_000, rebalance_timeout_ms=40_000)
    b.sync("c1", plan={"c1": {"t": [0, 1]}}).is_("Stable", members="c1")
    go_back(moved)
    assert verify_both(moved.a, moved.b) == []
    moved.b.compact(next(each.offset for each in moved.b.topics["groups"] if each.value is None))
    assert verify_both(moved.a, moved.b) == []
    moved.a.compact()
    assert verify_both(moved.a, moved.b) == []


def test_records_that_are_written_again_have_no_finding(moved: WritingPair):
    """A writer that was paused repeats its records after later ones."""
    go_back(moved)
    for side in (moved.a, moved.b):
        for topic in ("events", "groups"):
            kept = side.topics[topic]
            kept += [replace(each, offset=len(kept) + each.offset) for each in kept[:-1]]
    assert between(moved) == []


def test_an_offset_that_is_reset_at_a_target_with_a_late_clock_has_no_finding(pair: WritingPair):
    """The time of the group stands still, and compaction has removed the copy."""
    pair.a.at(START_MS + 1_000).commit("c1", {("t", 0): 6}).release()
    pair.b.at(START_MS + 500)
    pair.carry()
    pair.b.commit("c1", {("t", 0): 3})
    pair.a.at(START_MS + 2_000)
    assert verify_both(pair.a, pair.b) == []
    pair.b.compact()
    assert verify_both(pair.a, pair.b) == []


def test_an_offset_whose_records_are_gone_has_no_finding(moved: WritingPair):
    kept = moved.b.topics["groups"]
    moved.b.groups_end = len(kept)
    kept[:] = [each for each in kept if b'"t",1]' not in each.key]
    assert between(moved) == []


def test_a_group_in_transit_has_no_finding(pair: WritingPair):
    """moving.md 0, 7: no timeout decides."""
    pair.a.at(START_MS + 1_000).release()
    pair.a.at(START_MS + 10_000_000)
    assert verify_both(pair.a, pair.b) == []


def test_a_refused_group_is_served_again(pair: WritingPair):
    pair.a.at(START_MS + 1_000).release()
    pair.b.at(START_MS + 1_100).cancel(pair.adopt_record())
    pair.carry_on(START_MS + 1_500)
    pair.a.is_("Stable").commit("c1", {("t", 0): 6})
    pair.a.at(START_MS + 2_000).release()
    pair.carry_on(START_MS + 2_500)
    assert verify_both(pair.a, pair.b) == []


def test_a_group_that_ends_at_the_target_may_begin_anew_at_the_source(moved: WritingPair):
    """moving.md 4: the name comes back without a group, and no event announces it."""
    b = moved.b.leave("c1").leave("c2")
    b.at(START_MS + 3_000).delete()
    b.at(START_MS + 4_000).release()
    moved.carry_on(START_MS + 4_500)
    moved.a.at(START_MS + 5_000).commit_from_outside("admin", {("t", 0): 1}).at(START_MS + 6_000).release()
    moved.carry_on(START_MS + 6_500)
    assert verify_both(moved.a, moved.b) == []
    moved.a.compact()
    assert verify_both(moved.a, moved.b) == []


def test_deleted_offsets_have_no_finding(pair: WritingPair):
    pair.a.leave("c1").leave("c2").at(START_MS + 500).delete_offsets("admin", {"t": [0]})
    pair.a.at(START_MS + 1_000).release()
    pair.carry_on(START_MS + 1_500)
    pair.b.at(START_MS + 2_000).delete_offsets("admin", {"t": [1]})
    assert verify_both(pair.a, pair.b) == []


def test_a_name_that_is_imported_has_no_finding(pair: WritingPair):
    """moving.md 7: no coordinator releases it."""
    import_from(pair).commit_from_outside("admin", {("t", 0): 9})
    assert verify_both(pair.a, pair.b) == []


def test_a_group_that_an_operator_took_back_has_no_finding(pair: WritingPair):
    """moving.md 2.6: the target may have adopted it, and does not run again."""
    pair.a.at(START_MS + 1_000).release()
    record = pair.adopt_record()
    pair.b.at(START_MS + 1_100).reads(record)
    pair.a.at(START_MS + 200_000).take_back(record, parts_before=1, target_is_lost=True)
    pair.a.is_("Stable").at(START_MS + 201_000).commit("c1", {("t", 0): 6})
    assert verify_both(pair.a, pair.b) == []


def test_a_target_that_is_not_checked_has_no_finding(moved: WritingPair):
    assert verify_both(moved.a) == []
    assert verify_both(moved.b) == []


def test_the_last_moments_have_no_finding(moved: WritingPair):
    """A batch writes to all topics, but not at the same time."""
    moved.b.lose("events", of("group_arrived"))
    assert found(moved, settling_ms=30_000) == set()


def test_a_source_that_has_written_nothing_since_may_have_died(moved: WritingPair):
    """moving.md 5, 8: the source may have sent the group without having written its events."""
    moved.a.lose("events", lambda value: value.get("event") in ("group_released", "group_moved"))
    moved.a.topics["groups"] = [each for each in moved.a.topics["groups"] if each.value is not None]
    assert found(moved) == set()


@pytest.mark.parametrize("sides", ["a", "b", "ab"])
def test_events_that_have_expired_have_no_finding(moved: WritingPair, sides: str):
    moved.a.at(START_MS + 9_000).commit_from_outside("admin", {("t", 0): 1}, group_id="h")
    for name in sides:
        side = getattr(moved, name)
        side.expire(len(side.topics["events"]))
    assert between(moved) == []
    moved.b.compact()
    assert between(moved) == []


def test_records_before_the_first_event_that_is_kept_are_no_stay_of_their_own(moved: WritingPair):
    moved.a.expire(len(moved.a.topics["events"]) - 1)
    kept = moved.a.topics["groups"]
    kept[:] = [each if each.value else replace(each, timestamp=each.timestamp + 1) for each in kept]
    custody, found = custody_of(moved.a, moved.b)
    assert (found, list(custody.findings())) == ([], [])
    (stay,) = custody._coordinators["A"].stays["g"].stays
    assert (stay.is_created, stay.left, stay.moved is None) == (False, None, False)


def test_an_arrival_that_has_expired_is_no_creation(pair: WritingPair):
    """The copies of the target have the times at which the source has published them."""
    pair.a.at(START_MS + 3 * CLOCKS_APART_MS).release()
    pair.carry_on(START_MS + 4 * CLOCKS_APART_MS)
    pair.b.commit("c1", {("t", 0): 6}, generation_id=1).expire(1)
    assert between(pair) == []


def test_a_group_whose_end_has_expired_may_begin_anew_elsewhere(pair: WritingPair):
    pair.a.at(START_MS).commit_from_outside("admin", {("t", 0): 1}, group_id="h").delete(group_id="h")
    pair.a.expire(len(pair.a.topics["events"]))
    pair.b = Writing("B", "A").at(START_MS + 5_000)
    pair.b.commit_from_outside("admin", {("t", 0): 1}, group_id="h")
    assert between(pair) == []


def test_an_older_record_at_the_source_is_not_compared(moved: WritingPair):
    """A group is published at a bounded rate, so its state at the release may be newer."""
    moved.b.alter("groups", lambda value: "members" in value, lambda value: value["members"].pop())
    moved.a.alter("groups", lambda value: "members" in value, lambda value: value.update(generation_id=1))
    assert between(moved) == []


def test_a_record_before_an_event_of_a_member_is_not_compared(moved: WritingPair):
    moved.b.alter("groups", lambda value: "members" in value, lambda value: value["members"].pop())
    moved.a.alter("events", of("assignment_changed"), lambda value: value.update(version=14))
    assert between(moved) == []


def test_a_record_before_an_event_of_a_member_is_not_compared_after_a_return(pair: WritingPair):
    """The group is as it was at the refused release, and its record is not written again."""
    pair.a.at(START_MS + 1_000).release()
    pair.b.at(START_MS + 1_100).cancel(pair.adopt_record())
    pair.carry_on(START_MS + 1_500)
    pair.a.at(START_MS + 2_000).release()
    pair.carry_on(START_MS + 2_500)
    pair.b.alter("groups", lambda value: "members" in value, lambda value: value["members"].pop())
    assert [each.kind for each in between(pair)] == [Kind.MOVE_CHANGED]
    pair.a.alter("events", of("assignment_changed"), lambda value: value.update(version=14))
    assert between(pair) == []


def test_offsets_of_a_later_life_are_not_compared(moved: WritingPair):
    """Compaction has removed the tombstones between both lives, and the versions of the later one begin at 1."""
    moved.b.leave("c1").leave("c2").at(START_MS + 3_000).delete().at(START_MS + 4_000).release()
    moved.carry_on(START_MS + 4_500)
    moved.a.at(START_MS + 5_000).commit_from_outside("admin", {("t", 0): 1}).compact()
    assert between(moved) == []


def test_members_of_a_later_stay_are_not_compared(moved: WritingPair):
    go_back(moved).a.compact()
    moved.a.alter("groups", lambda value: "members" in value, lambda value: value["members"].pop())
    assert [(each.kind, each.prefix) for each in between(moved)] == [(Kind.MOVE_CHANGED, "A")]


def test_a_late_repeat_of_a_release_that_is_the_first_event_is_no_transit(moved: WritingPair):
    """The events between the first writing and the repeat have expired."""
    go_back(moved)
    kept = moved.a.topics["events"]
    release = next(each for each in kept if b"group_released" in (each.value or b""))
    moved.a.at(START_MS + 3 * CLOCKS_APART_MS).release()
    last = kept.pop()
    kept += [
        replace(release, offset=last.offset, timestamp=last.timestamp - 1),
        replace(last, offset=last.offset + 1),
    ]
    moved.a.expire(last.offset)
    moved.carry_on(START_MS + 4 * CLOCKS_APART_MS)
    assert between(moved) == []


def test_records_that_wait_for_an_event_are_bounded():
    stays = GroupStays(is_cut=False)
    for version in range(1, SUSPECTS_MAX + 6):
        record = OffsetRecord(
            group_id="g",
            topic="t",
            partition=0,
            offset=version,
            leader_epoch=-1,
            metadata="",
            commit_timestamp_ms=version,
            expire_timestamp_ms=None,
            generation_id=-1,
            member_id="",
            version=version,
        )
        stays.add_record(record, Place(version, version, version, "groups-0@0"))
    assert len(stays.suspects) == SUSPECTS_MAX


def test_records_of_another_life_are_not_compared(moved: WritingPair):
    moved.b.alter("groups", lambda value: value.get("offset") == 8, lambda value: value.update(offset=7))
    moved.b.alter("events", of("group_arrived"), lambda value: value.update(version_before=99))
    assert between(moved) == []
