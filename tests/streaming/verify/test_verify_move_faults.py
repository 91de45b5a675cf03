"""Each fault of a move between coordinators has its finding; and the report about several coordinators."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.messages.move_requests import AdoptGroup
from streaming.verify.findings import Finding, Kind, Report
from streaming.verify.stays import WRONG_MAX
from streaming.verify.watched import CLOCKS_APART_MS
from tests.streaming.verify.writing import (
    START_MS,
    Writing,
    WritingPair,
    between,
    custody_of,
    found,
    go_back,
    import_from,
    of,
    verify_both,
)
from tests.streaming.views.written import Written


def test_a_group_that_has_not_arrived_is_reported(moved: WritingPair):
    moved.b.topics = {name: [] for name in moved.b.topics}
    (finding,) = between(moved)
    assert (finding.kind, finding.prefix, finding.group_id) == (Kind.NOT_ARRIVED, "A", "g")
    assert "it has moved to B with number" in str(finding)
    assert finding.place.startswith("events-0@")


def test_a_group_that_was_not_released_is_reported(moved: WritingPair):
    moved.a.lose("events", lambda value: value.get("event") in ("group_released", "group_moved"))
    moved.a.at(START_MS + 9_000).commit_from_outside("admin", {("t", 0): 1}, group_id="h")
    assert (Kind.NOT_RELEASED, "B") in found(moved)


def test_an_arrival_with_another_number_is_reported(moved: WritingPair):
    moved.b.alter("events", of("group_arrived"), lambda value: value.update(number=value["number"] - 1))
    assert found(moved) == {(Kind.NOT_RELEASED, "B")}


def test_an_event_after_the_release_is_reported(pair: WritingPair):
    pair.a.at(START_MS + 1_000).release()
    last = pair.a.topics["events"][-1]
    event = b'{"event":"group_emptied","group_id":"g","version":%d,"at_ms":%d,"generation_id":2}'
    later = event % (20, START_MS + 1_100)
    pair.a.topics["events"].append(Written("events", 0, last.offset + 1, START_MS + 1_100, b"g", later, []))
    assert found(pair) == {(Kind.TWO_SERVE, "A")}


@pytest.mark.parametrize("ends", [False, True])
def test_a_commit_after_the_release_is_reported(pair: WritingPair, ends: bool):
    """moving.md 6, "A serves until it is answered"; also if its record has the version of a later tombstone."""
    commit = next(each for each in reversed(pair.a.topics["groups"]) if b'"offset"' in each.key)
    pair.a.at(START_MS + 1_000).release()
    offset = pair.a.topics["groups"][-1].offset + 1
    value = (commit.value or b"").replace(b'"commit_timestamp_ms":%d' % START_MS, b'"commit_timestamp_ms":1001200')
    value = value.replace(b'"version":14', b'"version":16')
    assert value.count(b"1001200") == value.count(b":16") == 1, value
    pair.a.topics["groups"].append(Written("groups", 0, offset, START_MS + 1_200, commit.key, value, []))
    if ends:
        pair.carry_on(START_MS + 1_500)
    assert (Kind.TWO_SERVE, "A") in found(pair)


@pytest.mark.parametrize("ends", [False, True])
def test_a_group_that_is_created_while_another_coordinator_serves_it_is_reported(pair: WritingPair, ends: bool):
    if ends:
        pair.a.leave("c1").leave("c2").at(START_MS + 5_000 + 2 * CLOCKS_APART_MS).delete()
    other = Writing("B", "A").at(START_MS + 5_000)
    other.commit_from_outside("admin", {("t", 0): 1})
    pair.b = other
    (finding,) = between(pair)
    assert (finding.kind, finding.prefix) == (Kind.TWO_SERVE, "B")
    assert "it was created at 1005000, and A served it then" in finding.text


def test_a_source_that_goes_on_after_the_move_is_reported(moved: WritingPair):
    """The custody of the name is B's, and A creates a group of that name."""
    other = Writing("A", "B").at(START_MS + 400_000).commit_from_outside("admin", {("t", 0): 1})
    events, groups = moved.a.topics["events"], moved.a.topics["groups"]
    for mine, theirs in ((events, other.topics["events"]), (groups, other.topics["groups"])):
        mine += [Written(r.topic, 0, mine[-1].offset + 1 + r.offset, r.timestamp, r.key, r.value, r.headers)
                 for r in theirs]  # fmt: skip
    moved.b.at(START_MS + 500_000)
    assert found(moved) == {(Kind.TWO_SERVE, "A")}


def test_a_source_that_serves_on_after_an_import_is_reported(pair: WritingPair):
    import_from(pair)
    pair.a.at(START_MS + 5_000 + 2 * CLOCKS_APART_MS).commit_from_outside("admin", {("u", 0): 6})
    assert found(pair) == {(Kind.TWO_SERVE, "B")}


@pytest.mark.parametrize("later_ms", [1_000, 2 * CLOCKS_APART_MS])
def test_a_lost_target_that_runs_again_is_reported(pair: WritingPair, later_ms: int):
    pair.a.at(START_MS + 1_000).release()
    record = pair.adopt_record()
    pair.a.at(START_MS + 20_000).take_back(record, parts_before=1, target_is_lost=True)
    pair.b.at(START_MS + 20_000 + later_ms).reads(record)
    pair.b.ids, pair.b.generations = pair.a.ids, pair.a.generations
    pair.b.commit("c1", {("t", 0): 6})
    assert found(pair) == ({(Kind.TWO_SERVE, "A")} if later_ms > CLOCKS_APART_MS else set())


def test_a_refusal_after_an_adoption_is_reported(pair: WritingPair):
    """moving.md 6, VerdictsAreFinal."""
    pair.a.at(START_MS + 1_000).release()
    record = pair.adopt_record()
    assert isinstance(record, AdoptGroup)
    pair.b.at(START_MS + 1_100).reads(record)
    pair.a.at(START_MS + 1_200).take_back(record, parts_before=0)
    pair.a.alter("events", of("group_taken_back"), lambda value: value.update(reason="busy"))
    assert found(pair) == {(Kind.TWO_SERVE, "A")}


@pytest.mark.parametrize(("generation_id", "kind"), [(1, Kind.GENERATION_FELL), (3, Kind.MOVE_CHANGED)])
def test_another_generation_at_the_target_is_reported(moved: WritingPair, generation_id: int, kind: Kind):
    moved.b.alter("events", of("group_arrived"), lambda value: value.update(generation_id=generation_id))
    assert (kind, "B") in found(moved)


def test_a_release_with_an_old_number_is_reported(moved: WritingPair):
    go_back(moved)
    moved.b.alter("events", of("group_released"), lambda value: value.update(number=1))
    assert (Kind.TOKEN_FELL, "B") in found(moved)


def test_a_token_below_the_number_of_the_move_is_reported(moved: WritingPair):
    b = moved.b.at(START_MS + 3_000)
    b.join("c1", session_timeout_ms=45_000, rebalance_timeout_ms=40_000)
    b.join("c2", session_timeout_ms=45_000, rebalance_timeout_ms=40_000)
    b.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}})
    assert verify_both(moved.a, moved.b) == []
    b.alter("events", of("rebalance_completed"), lambda value: value.update(fencing_token=7))
    assert (Kind.TOKEN_FELL, "B") in found(moved)


def test_an_offset_that_is_lower_at_the_target_is_reported(moved: WritingPair):
    is_copy = lambda value: value.get("offset") == 8  # noqa: E731
    moved.b.alter("groups", is_copy, lambda value: value.update(offset=7))
    (finding,) = between(moved)
    assert (finding.kind, finding.prefix) == (Kind.COMMIT_LOST, "B")
    assert "8 is committed for t-1, and has arrived as 7, as A published before the move" in finding.text


def test_an_offset_that_has_not_arrived_is_reported(pair: WritingPair):
    pair.a.at(START_MS + 1_000).release()
    pair.carry_on(START_MS + 1_500)
    pair.b.lose("groups", lambda value: value.get("offset") == 8)
    (finding,) = between(pair)
    assert (finding.kind, finding.prefix) == (Kind.COMMIT_LOST, "B")
    assert "8 is committed for t-1, and has not arrived" in finding.text


def test_an_offset_that_was_deleted_and_committed_again_is_compared(pair: WritingPair):
    """The source has not written the tombstones of the move yet."""
    pair.a.leave("c1").leave("c2").at(START_MS + 500).delete_offsets("admin", {"t": [0]})
    pair.a.commit_from_outside("admin", {("t", 0): 4}).at(START_MS + 1_000).release()
    pair.b.at(START_MS + 1_500).reads(pair.adopt_record())
    assert verify_both(pair.a, pair.b) == []
    pair.b.alter("groups", lambda value: value.get("offset") == 4, lambda value: value.update(offset=3))
    assert found(pair) == {(Kind.COMMIT_LOST, "B")}


def test_an_offset_whose_copy_has_become_another_one_is_reported(pair: WritingPair):
    """All copies are there, though other records of the topic are gone."""
    pair.a.at(START_MS + 1_000).release()
    pair.carry_on(START_MS + 1_500)
    pair.b.alter("groups", lambda value: value.get("offset") == 8, lambda value: value.update(partition=5))
    kept = pair.b.topics["groups"]
    kept[:] = [replace(each, offset=each.offset + 1) for each in kept]
    assert found(pair) == {(Kind.COMMIT_LOST, "B")}


def test_a_state_that_a_move_has_changed_is_reported(moved: WritingPair):
    moved.b.alter("groups", lambda value: "members" in value, lambda value: value.update(state="Empty"))
    assert found(moved) == {(Kind.MOVE_CHANGED, "B")}


def test_an_assignment_that_a_move_has_changed_is_reported(moved: WritingPair):
    def change(value: dict[str, Any]) -> None:
        value["members"][0]["assigned"] = {"t": [3]}

    moved.b.alter("groups", lambda value: "members" in value, change)
    (finding,) = between(moved)
    assert (finding.kind, finding.prefix) == (Kind.MOVE_CHANGED, "B")
    assert "the move has changed the assignments of c1-" in finding.text


def test_a_member_that_a_move_has_lost_is_reported(moved: WritingPair):
    moved.b.alter("groups", lambda value: "members" in value, lambda value: value["members"].pop())
    assert found(moved) == {(Kind.MOVE_CHANGED, "B")}


# -- bounds and the report ---------------------------------------------------------------------------------------------


def test_of_too_many_groups_a_part_is_followed_at_all_coordinators():
    sides = Writing("A", "B"), Writing("B", "A", slots="none")
    for number in range(64):
        sides[0].at(START_MS + number).commit_from_outside("admin", {("t", 0): 1}, group_id=f"g{number}")
    custody, found = custody_of(*sides, entries_max=20)
    kept = [name for at in custody._coordinators.values() for name in at.stays]
    assert (found, list(custody.findings())) == ([], [])
    assert custody.one_in in (4, 8, 16)
    assert 0 < len(kept) <= 20
    assert all(custody.is_followed(name) for name in kept)


def test_findings_about_one_group_are_bounded(pair: WritingPair):
    pair.a.at(START_MS + 1_000).release()
    kept = pair.a.topics["events"]
    event = b'{"event":"group_emptied","group_id":"g","version":%d,"at_ms":%d,"generation_id":2}'
    for number in range(WRONG_MAX + 5):
        at_ms = START_MS + 1_100 + number
        kept.append(Written("events", 0, len(kept), at_ms, b"g", event % (20 + number, at_ms), []))
    assert len(between(pair)) == WRONG_MAX


def test_a_report_about_several_coordinators_names_the_coordinator():
    report, alone = Report(is_observed=True), Report(records=7, groups=1, requests=2, commits=3)
    alone.add(Finding(Kind.MISSING, "g", "events-0@1", "version 7 is in no topic"))
    report.add_all(alone, "A\x1b")
    report.moves, report.followed_one_in = 2, 4
    text = str(report)
    assert r"missing: A\x1b: g: version 7 is in no topic (events-0@1)" in text
    assert "both ends of 2 moves were compared (of one in 4 groups; name groups to compare theirs)" in text
    assert report.to_json()["findings"][0]["prefix"] == "A\x1b"


def test_a_report_about_one_coordinator_has_no_new_field():
    report = Report(records=7)
    report.add(Finding(Kind.MISSING, "g", "events-0@1", "version 7 is in no topic"))
    told = report.to_json()
    assert set(told) == {"findings", "counts", "records", "groups", "requests", "commits", "corrected", "is_observed"}
    assert set(told["findings"][0]) == {"kind", "group_id", "place", "text"}
