"""What the commands show of a group under a policy, with a real coordinator and real consumers."""

import re
from collections.abc import Callable

import pytest

from coordinator.base.policies import Policy, Succession
from streaming.administration.policies import set_policies
from streaming.cli.groups import show
from streaming.moments import unix_ms
from streaming.query.coordinator import Coordinator
from streaming.verify import verify
from tests.system.staging import MakeStage, Stage
from tests.system.test_groups_cli import Ran, run, run_on
from tests.system.waiting import HANG_S

__all__ = ["run", "run_on"]


@pytest.fixture
def deployment(stage: MakeStage, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Make a group of two members under succession. On a slow machine too, `describe` gets the coordinator's answer."""
    monkeypatch.setattr(show, "AWAITED_WAIT_S", HANG_S)
    made = stage(2)
    policy = Policy(name=made.group_id, succession=Succession(vacant_ms=120_000))
    set_policies(coordinator.settings, (policy,), unix_ms())
    for client_id in ("c-1", "c-2"):
        made.consumer(client_id=client_id)
    made.until(lambda: made.is_shared_out([0], [1]))
    return made


def test_a_seat_that_passes_on_is_shown_by_each_command(
    deployment: Stage, coordinator: Coordinator, run: Callable[..., Ran]
) -> None:
    """policies.md 3.4: what is held and under which entry, who had a partition when, and how many rebalances began."""
    stage = deployment
    gone = stage.consumers.pop()
    place = f"{stage.topic}-{next(iter(gone.assignment())).partition}"
    gone.close()
    described = run("describe", stage.group_id)
    assert re.search(r"^HELD +for .*at the latest: 1 seat vacant \(c-2-\w+, 1 partition\)$", described.out, re.M), (
        described
    )
    assert re.search(rf"^POLICY +{stage.group_id}$", described.out, re.MULTILINE), described
    assert "the seat of c-2" in run("owner", stage.group_id, place).out
    vacant_ms = unix_ms()

    stage.consumer(client_id="c-3")
    stage.until(lambda: stage.is_shared_out([0], [1]))
    then, now = (
        run("owner", stage.group_id, place, "--at", str(at), "-o", "json").json for at in (vacant_ms, unix_ms())
    )
    assert (then["owner"], then["seat"]["client_id"], then["seat"]["taken_client_id"]) == (None, "c-2", "c-3")
    assert (now["owner"]["client_id"], now["owner"]["how"]) == ("c-3", "took")
    assert now["fencing_token"] == then["seat"]["fencing_token"] > 0
    assert "1 departure became 0 rebalances: 1 seat passed on" in run("why", stage.group_id).out
    assert "HELD" not in run("describe", stage.group_id).out
    assert " seat_taken " in run("timeline", stage.group_id).out
    tried = run("try", stage.group_id, "-o", "json", command="policy").json
    assert tried["recorded"]["seats_passed_on"] == tried["model"]["seats_passed_on"] == 1
    assert tried["under"]["settle"]["seats_passed_on"] == 0
    assert not verify(coordinator.settings, [stage.group_id]).findings
