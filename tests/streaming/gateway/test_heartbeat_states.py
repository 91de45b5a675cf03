"""The table of a heartbeat's states: every pair of state and event, with a row or without one."""

import re
from itertools import product

import pytest

from coordinator.base.errors import IllegalMove
from streaming.gateway.members.heartbeat_protocols import PendingHeartbeat
from streaming.gateway.members.heartbeat_scheduler import _STEPS, HeartbeatScheduler
from streaming.gateway.members.heartbeat_states import HOLDS, TABLE, Action, Event, State
from tests.streaming.gateway.parts import slot_of
from tests.streaming.gateway.serving_bench import ServingBench

TIMED = {State.NEW, State.BLOCKED, State.GATHERED, State.SENT, State.REPEATED, *HOLDS}
"""The states whose time may be over: the client would give up, or the hold ends."""

MAY_WAIT = {State.GATHERED, State.LATE, *HOLDS}
"""The states of the one heartbeat that the next request of the client ends the wait of. `LATE` follows `GATHERED`."""


@pytest.mark.parametrize(("state", "event"), [*product(State, Event)], ids=lambda each: each.name.lower())
def test_every_pair_has_a_row_or_raises(state: State, event: Event):
    if row := TABLE.get((state, event)):
        method, after = _STEPS[state, event]
        assert (method, after) == (vars(HeartbeatScheduler)[f"_{row[0].name.lower()}"], row[1])
    else:
        heartbeats = ServingBench().heartbeats
        heartbeat = PendingHeartbeat(slot_of(68), heartbeats.consumer, state)
        with pytest.raises(IllegalMove, match=rf"a heartbeat in {state.name} when {re.escape(event.value)}"):
            heartbeats._apply(heartbeat, event)
        assert heartbeat.state is state


def test_every_state_is_reached_and_all_but_the_last_are_left():
    moves = [(before, after) for (before, event), (_, after) in TABLE.items() if event is not Event.CLOSED]
    assert {State.NEW, *(after for _, after in moves)} == set(State)
    assert {before for before, after in moves if before is not after} == set(State) - {State.DONE}


@pytest.mark.parametrize(
    ("event", "states"),
    [
        (Event.TIMER, TIMED),
        (Event.OTHER_REQUEST, MAY_WAIT),
        (Event.ASSIGNMENT_NOTICE, MAY_WAIT),
        (Event.REBALANCE_NOTICE, {State.GATHERED, State.HELD}),
        (Event.ANSWER, set(State) - {State.NEW, State.OVERDUE, State.BLOCKED, State.STORED, State.HELD}),
        (Event.CLOSED, set(State)),
    ],
    ids=lambda each: each.name.lower() if isinstance(each, Event) else "",
)
def test_an_event_from_outside_has_a_row_in_each_state_in_which_it_can_come(event: Event, states: set[State]):
    assert {state for state, each in TABLE if each is event} == states


def test_an_answer_has_a_row_for_each_of_its_classes():
    classes = {
        Action.CLASSIFY: {Event.LACKS_FACTS, Event.UNCHANGED, Event.CHANGED},
        Action.COMPARE: {Event.FAILED, Event.UNCHANGED, Event.CHANGED},
    }
    for action, after in TABLE.values():
        assert {event for state, event in TABLE if state is after} >= classes.get(action, set())


def test_every_event_and_every_action_is_used():
    assert {event for _, event in TABLE} == set(Event)
    assert {action for action, _ in TABLE.values()} == set(Action)
