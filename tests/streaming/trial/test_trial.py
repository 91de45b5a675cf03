"""Tests of trials: the replay is exact, and the model predicts what a group does under other policies."""

import random
from typing import Any

import pytest
from msgspec import structs

from coordinator.base.policies import Policy, Quarantine, Settle, Succession
from coordinator.messages.events import AnyEvent, RebalanceStarted
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import Received, SetPolicies, Unreadable, Wake
from streaming.errors import NotFound
from streaming.trial.recording import Recording, find_start, part_of_group, seed
from streaming.trial.replaying import difference, replay
from streaming.trial.trials import Trial, TrialDiffers, run_trial
from streaming.wire.records import decode_request
from tests.streaming.views.seated import S, SeatedTopics, converse_seated, deployed
from tests.streaming.views.test_views import folded, raws
from tests.streaming.views.written import CONFIG

SEEDS = range(40)
MEMBERS = 6


def recorded(world: SeatedTopics) -> Recording:
    """Return what the topics of a world have of its group."""
    requests: list[Any] = [Received(r.offset, r.timestamp, decode_request(r.value)) for r in world.requests]
    return Recording("g", requests, folded(raws(world)).groups["g"].events, CONFIG, world.now_ms)


# -- the replay --------------------------------------------------------------------------------------------------------


def kinds(events: list[AnyEvent]) -> list[tuple[str, int]]:
    return [(type(event).__name__, event.at_ms) for event in events if event.group_id]


@pytest.mark.parametrize("number", [None, *SEEDS], ids=str)
def test_the_recorded_requests_give_the_same_events_once_more(number: int | None) -> None:
    """policies.md 4, run 1: with another secret, so that all member ids are others."""
    if number is None:
        world = deployed()
    else:
        world = SeatedTopics()
        converse_seated(world, random.Random(number), 60)
    recording = recorded(world)
    start = find_start(recording, 0)
    after = [event for event in recording.events if event.at_ms > start.at_ms]
    assert kinds(replay(recording, start, seed(recording, start))) == kinds(after)


def test_heartbeats_in_records_of_many_groups_belong_to_the_recording() -> None:
    """Gateways and our own client write them so. Without them, the replay expires the members."""
    recording = recorded(deployed())
    start = find_start(recording, 0)

    def together(received: Received) -> Received:
        if not isinstance(received.request, Heartbeat):
            return received
        stranger = structs.replace(received.request, group_id="h", request_id="other", member_id="m")
        many = Heartbeats.of([stranger, received.request], request_id="many", reply_to="gateway")
        return structs.replace(received, request=many)

    log = [together(each) for each in recording.requests]
    found = [structs.replace(each, request=part_of_group(each.request, "g")) for each in log]
    gathered = [each.request for each in found if isinstance(each.request, Heartbeats)]
    assert {each.groups for each in gathered} == {("g",)}
    after = [event for event in recording.events if event.at_ms > start.at_ms]
    whole = recording._replace(requests=found)
    assert kinds(replay(whole, start, seed(whole, start))) == kinds(after)
    without = recording._replace(requests=[e for e in found if not isinstance(e.request, Heartbeats)])
    assert kinds(replay(without, start, seed(without, start))) != kinds(after)


def test_other_records_of_the_shard_do_not_belong_to_the_recording() -> None:
    beat = Heartbeat(request_id="r", reply_to="in", group_id="h", generation_id=1, member_id="m")
    uneven = structs.replace(Heartbeats.of([beat], request_id="r", reply_to="in"), groups=())
    policies = SetPolicies(request_id="r", reply_to="in", made_ms=1, policies=())
    others = (beat, Heartbeats.of([beat], request_id="r", reply_to="in"), uneven, Wake(), Unreadable("no"))
    assert [part_of_group(each, "g") for each in others] == [None] * 5
    assert (part_of_group(beat, "h"), part_of_group(policies, "g")) == (beat, policies)


def test_a_trial_begins_with_a_whole_rebalance() -> None:
    """policies.md 4: from then on the group is known whole."""
    recording = recorded(deployed())
    later = find_start(recording, recording.events[0].at_ms + 60 * S)
    assert later.at_ms > find_start(recording, 0).at_ms
    with pytest.raises(NotFound, match="contains no whole rebalance of g in this time"):
        find_start(recording, recording.until_ms)
    cut = recording._replace(requests=[each for each in recording.requests if each.at_ms > later.at_ms])
    assert find_start(cut, 0).at_ms > later.at_ms


def test_a_trial_stops_where_the_replay_differs() -> None:
    """policies.md 4: the coordinator had other settings, or was unavailable."""
    recording = recorded(deployed())
    asked = next(e for e in recording.requests if type(e.request).__name__ == "RebalanceGroup")
    lost = [each for each in recording.requests if each is not asked]
    with pytest.raises(TrialDiffers, match=r"rebalance \d is recorded as operator at \d+, and was replayed as"):
        run_trial(recording._replace(requests=lost), 0, {})
    begun = [event for event in recording.events if isinstance(event, RebalanceStarted)]
    assert difference(begun, begun) is None
    told = f"{len(begun)} rebalances are recorded, and {len(begun) - 1} were replayed"
    assert difference(begun, begun[:-1]) == told


# -- the model ---------------------------------------------------------------------------------------------------------


def rolled(policy: Policy | None, *, surges: bool, **fields: Any) -> SeatedTopics:
    """Return a group whose members were replaced one by one, under a policy or none."""
    world = SeatedTopics()
    if policy is not None:
        world.policies(policy)
    world.start(*(f"c{number}" for number in range(MEMBERS)), **fields)
    world.wait(10 * S)
    world.rebalance()
    world.wait(10 * S)
    for number in range(MEMBERS):
        if surges:
            world.start(f"d{number}", **fields)
            world.wait(5 * S)
            world.stop(f"c{number}")
        else:
            world.stop(f"c{number}")
            world.wait(3 * S)
            world.start(f"d{number}", **fields)
        world.wait(7 * S)
    world.wait(100 * S)
    return world


def near(predicted: float, real: float, by: float) -> bool:
    return abs(predicted - real) <= max(by, 0.1 * real)


@pytest.mark.parametrize("surges", [False, True], ids=["leave first", "surge first"])
@pytest.mark.parametrize("fields", [{}, {"require_known_member_id": True}], ids=["one join", "two joins"])
def test_a_deploy_under_a_policy_is_predicted(surges: bool, fields: dict[str, Any]) -> None:
    """Issue 22: a group lives through a deploy twice; predicted rebalances are within a tenth, or one."""
    policy = Policy(name="g", succession=Succession())
    trial = run_trial(recorded(rolled(None, surges=surges, **fields)), 0, {"F": (policy,)})
    assert trial.fits
    assert trial.recorded.total == 1 + 2 * MEMBERS
    assert near(trial.model.unowned_s, trial.recorded.unowned_s, 1)
    predicted = trial.under["F"]
    real = run_trial(recorded(rolled(policy, surges=surges, **fields)), 0, {}).recorded
    assert near(predicted.total, real.total, 1)
    assert predicted.seats_passed_on == real.seats_passed_on == MEMBERS
    assert near(predicted.unowned_s, real.unowned_s, 2)
    assert near(predicted.seat_wait_max_ms or 0, real.seat_wait_max_ms or 0, 500)


def test_a_settled_scale_out_is_predicted() -> None:
    def scaled_out(*policies: Policy) -> SeatedTopics:
        world = SeatedTopics()
        world.policies(*policies)
        world.start("c1", "c2")
        world.rebalance()
        world.wait(10 * S)
        for number in range(4):
            world.start(f"n{number}")
            world.wait(2 * S)
        world.wait(20 * S)
        return world

    policy = Policy(name="g", settle=Settle())
    trial = run_trial(recorded(scaled_out()), 0, {"F": (policy,)})
    real = run_trial(recorded(scaled_out(policy)), 0, {}).recorded
    assert (trial.recorded.total, trial.under["F"].total, real.total) == (5, 2, 2)
    assert trial.under["F"].delayed == real.delayed == 4


def test_a_crash_loop_is_predicted() -> None:
    def looping(*policies: Policy) -> SeatedTopics:
        world = SeatedTopics()
        world.policies(*policies)
        world.start("c1", "c2")
        world.rebalance()
        for number in range(6):
            world.start(f"f{number}", client_host="/f")
            world.wait(4 * S)
            world.kill(f"f{number}")
            world.wait(16 * S)
        return world

    policy = Policy(name="g", quarantine=Quarantine())
    trial = run_trial(recorded(looping()), 0, {"F": (policy,)})
    real = run_trial(recorded(looping(policy)), 0, {}).recorded
    assert near(trial.under["F"].total, real.total, 1)
    assert near(trial.under["F"].quarantines, real.quarantines, 1)
    assert 0 < trial.under["F"].total < trial.recorded.total


def test_the_model_fits_most_lives() -> None:
    """policies.md 4, run 2: random clients, which die while they join and leave at once, under policies that change."""
    trials: list[Trial] = []
    for number in SEEDS:
        world = SeatedTopics()
        converse_seated(world, random.Random(number), 60)
        trials.append(run_trial(recorded(world), 0, {}))
    assert sum(trial.fits for trial in trials) >= 0.75 * len(trials)
    assert near(sum(trial.model.total for trial in trials), sum(trial.recorded.total for trial in trials), 0)


def test_without_a_file_each_policy_is_tried() -> None:
    """policies.md 4."""
    world = rolled(None, surges=False)
    trial = run_trial(recorded(world), 0)
    assert list(trial.under) == ["succession", "settle", "freeze", "quarantine", "all but freeze"]
    assert trial.under["succession"].total < trial.under["quarantine"].total == trial.recorded.total
    assert trial.under["freeze"].total <= 1
