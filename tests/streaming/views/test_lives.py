"""Tests of the one history of a group that moves between two coordinators, there and back."""

from typing import Any

import pytest

from coordinator.messages.move_events import GroupMoved
from streaming.views.api import answers
from streaming.views.api.lives import Life, joined, named_by
from streaming.views.history.owners import spans_of_owners
from streaming.views.sentences.why import why
from tests.coordinator.moving.pair import Pair
from tests.streaming.verify.test_verify_moves import moved_there_and_back
from tests.streaming.verify.test_verify_moves import pair as pair
from tests.streaming.views.test_metrics import scraped

THERE = [("group_released", 2_000), ("group_moved", 3_000), ("group_arrived", 2_500)]
BACK = [("group_released", 5_000), ("group_moved", 5_000), ("group_arrived", 6_000)]


def lives(pair: Pair) -> list[Life]:
    sides: list[Any] = [pair.a, pair.b]
    return [Life(views := side.views(), views.groups["g"]) for side in sides]


def owners(pair: Pair, life: Life, partition: int) -> list[tuple[str, int | None, str | None]]:
    """Return the names of a partition's owners, with the end of each period and its reason."""
    spans = spans_of_owners(life.group)["t", partition]
    return [(pair.a.names[span.member_id], span.to_ms, span.because) for span in spans]


def test_the_events_name_the_other_coordinator_once(pair: Pair) -> None:
    at_a, at_b = lives(moved_there_and_back(pair))
    assert (named_by(at_a.group), named_by(at_b.group)) == (["B"], ["A"])


@pytest.mark.parametrize("first", [0, 1])
def test_the_history_has_the_events_of_both_in_the_order_of_the_moves(pair: Pair, first: int) -> None:
    both = lives(moved_there_and_back(pair))
    whole = joined([both[first], both[1 - first]])
    told = [(str(event.__struct_config__.tag), event.at_ms) for event in whole.group.events]
    begin = told.index(THERE[0])
    assert told[begin:] == [*THERE, *BACK]
    assert len(answers.timeline(*whole).rebalances) == len(answers.timeline(*both[0]).rebalances)
    assert (whole.views, whole.group.record) == (both[0].views, both[0].group.record)


def test_the_metrics_of_all_coordinators_have_a_group_once(pair: Pair) -> None:
    """A sum over the coordinators follows the group: at the one that it has left, it has no metrics."""
    found = []
    for move in (pair.know, pair.a.at(2_000).release, pair.b.at(4_000).release):
        move()
        pair.b.at(4_000)
        pair.carry()
        figures = [scraped(side.views(), {}) for side in (pair.a, pair.b)]
        found.append([each.get(("groupcoord_group_members", "g")) for each in figures])
    assert found == [[2, None], [None, 2], [2, None]]


def test_a_history_without_moves_is_unchanged(pair: Pair) -> None:
    (life, _) = lives(moved_there_and_back(pair))
    assert joined([life]) is life


def test_an_owner_goes_on_at_the_other_coordinator(pair: Pair) -> None:
    """S10: the topics of B alone do not show the owner, because nothing changed there."""
    whole = joined(lives(moved_there_and_back(pair)))
    for partition, name in enumerate(("c1", "c2")):
        told = owners(pair, whole, partition)
        assert told == [(name, 2_500, "group moved to B"), (name, 6_000, "group moved to A"), (name, None, None)]
        for at_ms in (1_500, 4_500, 6_500):
            owner = answers.owner(*whole, "t", partition, at_ms).owner
            assert owner is not None
            assert pair.a.names[owner.member_id] == name


def test_a_partition_has_an_owner_all_the_time_although_the_clocks_differ(pair: Pair) -> None:
    """The clock of A is seven seconds behind when it writes that the group has moved."""
    pair.a.at(2_000).release()
    pair.b.at(9_000)
    pair.carry()
    (at_a, at_b) = lives(pair)
    moved = [event.at_ms for event in at_a.group.events if isinstance(event, GroupMoved)]
    spans = spans_of_owners(joined([at_a, at_b]).group)["t", 0]
    assert (moved, [(span.from_ms, span.to_ms) for span in spans]) == ([2_000], [(1_000, 9_000), (9_000, None)])


def test_an_owner_that_has_left_at_the_other_coordinator_does_not_come_back(pair: Pair) -> None:
    """The topics of A alone would have to guess: they do not go on with the owners at the release."""
    pair.a.at(2_000).release()
    pair.b.at(2_500)
    pair.carry()
    pair.b.at(4_000).leave("c2")
    pair.b.at(5_000).release()
    pair.a.at(6_000)
    pair.carry()
    at_a, at_b = lives(pair)
    assert [end for *_, end in owners(pair, at_a, 1)] == ["group moved to B"]
    assert owners(pair, joined([at_a, at_b]), 1)[-1] == ("c2", 4_000, "left")


def test_the_last_rebalance_of_all_coordinators_is_explained(pair: Pair) -> None:
    pair.a.at(2_000).release()
    pair.b.at(2_500)
    pair.carry()
    before = why(joined(lives(pair)).group)
    pair.b.at(9_000).leave("c2")
    after = why(joined(lives(pair)).group)
    assert before is not None
    assert after is not None
    assert (before.cause, before.at_ms < 2_000) == ("member_joined", True)
    assert (after.cause, after.at_ms) == ("member_left", 9_000)
