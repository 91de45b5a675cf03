"""Tests of the views of a group under policies that a real shard has written: events and records agree at any time."""

import random
from collections.abc import Iterator

import pytest

from coordinator.base.states import Phase
from coordinator.messages.group_records import GroupRecord
from streaming.views import GroupView
from streaming.views.api import answers
from streaming.views.history.owners import spans_of_owners
from streaming.views.history.vacancies import SeatHistory, hold_now
from streaming.views.sentences.why import why
from streaming.views.state.fields import known
from tests.streaming.views.seated import SeatedTopics, converse_seated, deployed
from tests.streaming.views.test_views import folded, raws

SEEDS = range(40)


def records(world: SeatedTopics) -> Iterator[tuple[GroupRecord, GroupView]]:
    """Yield each record of the group in a phase without a rebalance, and the view of the events before it."""
    views, folded_events = folded(raws(world)), folded(raws(world)).groups["g"].events
    read: dict[int, GroupRecord] = {}
    for raw in (raw for raw in raws(world) if raw.topic == "groups"):
        taken = folded([raw]).groups["g"].record
        if taken is not None:
            read[taken.version] = taken
    assert views.groups["g"].versions.is_waiting is False
    for version, record in sorted(read.items()):
        if record.state is Phase.STABLE:
            view = GroupView("g", 0, record=record)
            for event in folded_events:
                if (event.version or 0) < version:
                    view.add(event, 10**9)
            yield record, view


@pytest.fixture(params=[None, *SEEDS], ids=str)
def world(request: pytest.FixtureRequest) -> SeatedTopics:
    if request.param is None:
        return deployed()
    world = SeatedTopics()
    converse_seated(world, random.Random(request.param), 60)
    return world


def test_the_owners_in_the_events_are_those_in_the_records(world: SeatedTopics) -> None:
    """policies.md 3.4: a seat that falls vacant or is taken changes the owner in both topics."""
    for record, view in records(world):
        owned = {
            (topic, number): member.member_id
            for member in record.members
            for topic, numbers in (member.assigned or {}).items()
            for number in numbers
        }
        spans = {place: each[-1] for place, each in spans_of_owners(view).items()}
        assert {place: span.member_id for place, span in spans.items() if span.to_ms is None} == owned


def test_the_vacant_seats_in_the_events_are_those_in_the_records(world: SeatedTopics) -> None:
    for record, view in records(world):
        hold, history = known(record.hold), SeatHistory(view.events)
        told = (hold.vacant, hold.standing_by, hold.quarantined) if hold else (0, 0, 0)
        assert (len(history.vacant), len(history.standing_by), len(history.quarantined)) == told
        shown = hold_now(view)
        assert (shown is None) == (hold is None)
        if shown is not None and hold is not None:
            assert (len(shown.seats), len(shown.standing_by), len(shown.quarantined)) == told
            assert None not in {each.until_ms for each in (*shown.standing_by, *shown.quarantined)}
            is_held = history.periods[-1].to_ms is None if history.periods else False
            assert is_held == (hold.since_ms is not None)
            assert not is_held or history.periods[-1].from_ms <= (hold.since_ms or 0)


def test_a_deploy_passes_seats_on_without_a_rebalance() -> None:
    """policies.md 3.5: the events of each timeline, in words and as rows."""
    views = folded(raws(deployed()))
    group = views.groups["g"]
    told = answers.timeline(views, group)
    assert [(seat.how or seat.ended, seat.policy) for seat in told.seats] == [
        ("took", "succession"), ("passed", "succession"), ("rebalanced", "succession"), ("adopted", "freeze"),
        (None, "succession"),
    ]  # fmt: skip
    assert [row.held_ms for row in told.rebalances if row.held_ms] == [30_000, 7_100]
    answer = why(group, told.rebalances[1].started_ms)
    assert answer is not None
    assert answer.held is not None
    assert (answer.held.policies, len(answer.held.vacant), answer.spared_by) == (["succession"], 1, None)
    assert answer.seats is not None
    assert (answer.seats.vacated, answer.seats.taken, answer.seats.rebalances) == (3, 2, 1)
    settled = why(group, told.rebalances[-1].started_ms)
    assert {member.standing for member in answers.members(group)} == {None, "quarantined"}
    assert settled is not None
