"""Tests of the checks of groups of the consumer protocol: correct topics have no finding, broken ones have one."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coordinator.messages.requests import LeaveGroup, Leaving
from streaming.verify.findings import Kind
from tests.streaming.verify.test_verify import judge, kinds
from tests.streaming.views.consumers import ConsumerTopics, converse_consumers, life

SEEDS = range(40)


@pytest.fixture(params=SEEDS)
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


@pytest.fixture
def world(chance: random.Random) -> ConsumerTopics:
    """A group of the consumer protocol whose batches are cut short and repeated."""
    world = ConsumerTopics(chance=chance, T=4, U=2)
    converse_consumers(world, chance, 60)
    return world


# -- correct topics ----------------------------------------------------------------------------------------------------


def test_a_correct_life_has_no_finding() -> None:
    """next-generation.md 10.9, 1 to 5: two members, a revocation, a pattern, a classic member and an expiry."""
    assert judge(life()) == []


def test_correct_topics_have_no_finding(world: ConsumerTopics) -> None:
    """next-generation.md 10.9: members of both protocols, and groups that are converted, deleted and created again."""
    assert judge(world) == []


def test_compaction_and_retention_cause_no_finding(world: ConsumerTopics, chance: random.Random) -> None:
    """I8: superseded records and the oldest events may be gone."""
    world.compact(chance.randrange(len(world.topics["groups"])))
    world.expire("events", chance.randrange(len(world.topics["events"])))
    assert judge(world) == []


# -- errors ------------------------------------------------------------------------------------------------------------


def alter(world: ConsumerTopics, topic: str, is_wanted: Callable[[Any], Any], change: Callable[[Any], None]) -> None:
    """Change the content of the first record that is wanted."""
    records = world.topics[topic]
    for index, record in enumerate(records):
        value = json.loads(record.value or b"{}")
        if is_wanted(value):
            change(value)
            records[index] = replace(record, value=json.dumps(value).encode())
            return
    raise AssertionError("no such record")


def member_of(record: Any, member_id: str) -> Any:
    return next(member for member in record["members"] if member["member_id"] == member_id)


def in_state(state: str, epoch: int) -> Callable[[Any], bool]:
    """Return a function that finds a group's record."""
    return lambda r: "members" in r and (r["state"], r["generation_id"]) == (state, epoch)


STABLE_3, RECONCILING_3 = in_state("Stable", 3), in_state("Reconciling", 3)


def is_revoking(record: Any) -> bool:
    return RECONCILING_3(record) and bool(member_of(record, "ana")["revoking"])


def gives_up(event: Any) -> bool:
    return event.get("event") == "assignment_changed" and any(each["after"] is None for each in event["handovers"])


def set_in(member_id: str, **fields: Any) -> Callable[[Any], None]:
    """Return a change of one member."""
    return lambda record: member_of(record, member_id).update(fields)


AHEAD_AND_FELL, UNCOVERED = {Kind.EPOCH_AHEAD, Kind.GENERATION_FELL}, {Kind.NOT_COVERED, Kind.TARGET_MISSED}

BROKEN = [
    # a record                        which is changed                                  has the findings
    ("groups", is_revoking,           set_in("bo", assigned={"T": [2]}),                {Kind.TWO_OWNERS}),
    ("groups", RECONCILING_3,         set_in("bo", assigned={"T": [3]}),                {Kind.TWO_OWNERS}),
    ("events", gives_up,              lambda e: e.update(handovers=[]),                 {Kind.NOT_FREE}),
    ("groups", STABLE_3,              set_in("ana", member_epoch=4),                    AHEAD_AND_FELL),
    ("groups", STABLE_3,              lambda r: r.update(assignment_epoch=4),           {Kind.EPOCH_AHEAD}),
    ("groups", STABLE_3,              lambda r: r.update(assignment_epoch=2),           AHEAD_AND_FELL),
    ("groups", STABLE_3,              lambda r: r.update(generation_id=9),              {Kind.GENERATION_FELL}),
    ("groups", STABLE_3,              set_in("bo", member_epoch=2),                     {Kind.GENERATION_FELL}),
    ("groups", STABLE_3,              set_in("bo", target={"T": [2]}, assigned={"T": [2]}), {Kind.NOT_COVERED}),
    ("groups", STABLE_3,              set_in("bo", target={"T": [1, 2, 3]}),            UNCOVERED),
    ("groups", STABLE_3,              set_in("ana", target={"T": [1]}, assigned={"T": [1]}), {Kind.NOT_COVERED}),
    ("groups", STABLE_3,              set_in("bo", subscribed_topics=["V"]),            {Kind.NOT_COVERED}),
    ("events", lambda e: e.get("partitions") == 6, lambda e: e.update(partitions=5),    {Kind.NOT_COVERED}),
    ("groups", STABLE_3,              set_in("bo", assigned={"T": [3]}),                {Kind.TARGET_MISSED}),
    ("groups", STABLE_3,              set_in("bo", assigned={"T": [3]}, revoking={"T": [2]}), {Kind.TARGET_MISSED}),
    ("groups", STABLE_3,              set_in("bo", fencing_token=1),                    {Kind.TOKEN_FELL}),
]  # fmt: skip


@pytest.mark.parametrize(("topic", "is_wanted", "change", "expected"), BROKEN)
def test_a_broken_promise_is_reported(
    topic: str, is_wanted: Callable[[Any], Any], change: Callable[[Any], None], expected: set[Kind]
) -> None:
    """next-generation.md 10.9: each promise, broken in one record of a correct life."""
    world = life()
    alter(world, topic, is_wanted, change)
    assert kinds(judge(world)) == expected


def test_a_lost_event_is_reported_once() -> None:
    """I8: an event that is missing is no second finding about the owners."""
    for index in (3, 7, 8):
        world = life()
        world.lose("events", index)
        assert kinds(judge(world)) == {Kind.MISSING}


@pytest.mark.parametrize("protocols", [("consumer", "classic"), ("classic", "consumer")])
def test_an_empty_group_counts_anew_in_its_other_protocol(protocols: tuple[str, str]) -> None:
    """next-generation.md 13.3: epochs and generations begin again; that is no finding."""
    world = ConsumerTopics(T=2)
    for protocol in protocols * 2:
        if protocol == "consumer":
            for name in ("ana", "bo", "cy"):
                world.join(name, "T")
            world.commit("cy", "T", 0, 1)
            for name in ("ana", "bo", "cy"):
                world.leave(name)
        else:
            world.join_classic("", "T")
            world.passes(1_000)
            world.ask(LeaveGroup, "g", members=tuple(Leaving(each.member_id) for each in world.records[-1].members))
        world.passes(20_000)
    assert len({record.type for record in world.records}) == 2
    assert judge(world) == []
