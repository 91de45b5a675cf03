"""`verify` and the views on the topics of a group that moves between two coordinators, there and back."""

from typing import Any

import pytest

from coordinator.messages.move_events import GroupArrived
from streaming.verify.findings import Kind
from streaming.views.history.owners import spans_of_owners
from tests.streaming.verify.writing import Writing, WritingPair
from tests.streaming.views.written import Written


@pytest.fixture
def pair() -> WritingPair:
    pair = WritingPair(Writing("A", "B"), Writing("B", "A", slots="none"))
    a = pair.a.at(1_000)
    for name in ("c1", "c2", "c1"):
        a.join(name, session_timeout_ms=45_000, rebalance_timeout_ms=40_000)
    a.sync("c1", plan={"c1": {"t": [0]}, "c2": {"t": [1]}}).sync("c2").is_("Stable")
    a.commit("c1", {("t", 0): 5})
    pair.know()
    return pair


def moved_there_and_back(pair: WritingPair) -> WritingPair:
    pair.a.at(2_000).release()
    pair.b.at(2_500)
    pair.a.at(3_000)
    pair.carry()
    pair.b.at(4_000).commit("c2", {("t", 1): 6})
    pair.b.at(5_000).release()
    pair.a.at(6_000)
    pair.carry()
    pair.a.commit("c1", {("t", 0): 7})
    return pair


def test_the_topics_of_both_coordinators_are_right(pair: WritingPair) -> None:
    moved_there_and_back(pair)
    assert (pair.a.verify(), pair.b.verify()) == ([], [])


def test_an_empty_group_keeps_its_generation(pair: WritingPair) -> None:
    pair.a.leave("c1").leave("c2").is_("Empty")
    moved = pair.a.at(2_000).release()
    pair.b.at(2_500)
    pair.carry()
    pair.b.at(5_000).release()
    pair.carry()
    assert moved.group.phase.value == "Empty"
    assert (pair.a.verify(), pair.b.verify()) == ([], [])


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_lost_record_after_the_arrival_is_missing(pair: WritingPair, side: str) -> None:
    at: Any = getattr(moved_there_and_back(pair), side)
    (arrived,) = at.events(GroupArrived)
    lost = next(r for r in at.topics["groups"] if b'"version":%d' % (arrived.version + 1) in (r.value or b""))
    at.topics["groups"].remove(lost)
    at.topics["groups"] = [
        Written(r.topic, 0, offset, r.timestamp, r.key, r.value, r.headers)
        for offset, r in enumerate(at.topics["groups"])
    ]
    assert [kind for kind, _ in at.verify()] == [Kind.MISSING]
    assert list(at.views().missing(at.now_ms + 60_000, 0)) != []


def test_the_views_find_no_gap_and_the_owners_know_of_the_move(pair: WritingPair) -> None:
    moved_there_and_back(pair)
    for side in (pair.a, pair.b):
        assert list(side.views().missing(side.now_ms + 60_000, 0)) == []
    at_a, at_b = (side.views().groups["g"] for side in (pair.a, pair.b))
    assert (at_a.is_there, at_b.is_there) == (True, False)
    ends = {span.because for each in spans_of_owners(at_a).values() for span in each}
    assert ends == {"group moved to B", None}
