"""`coordinator checkpoint replan`: it replaces the plan of a batch in which a real query was killed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.testing

from streaming.cli.main import app
from streaming.config.settings import Settings
from streaming.errors import InUse, NoCheckpoint, UserError
from streaming.query.checkpoint.replan import NothingPlanned
from tests.system.conftest import Service
from tests.system.replaying import RequestLog, assert_as_if_undisturbed, await_taken, newest, written
from tests.system.test_replay import TASKS, Failpoints, await_stop, state_versions
from tests.system.test_replay import failpoints as failpoints
from tests.system.test_replay import settings as settings
from tests.system.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("coordinator")]  # it has a Spark session, which all share


def replan(folder: str, *flags: str) -> str:
    """Run the command in this process, which has a Spark session, and return its output."""
    arguments = ["checkpoint", "replan", folder, *flags]
    return typer.testing.CliRunner().invoke(app, arguments, catch_exceptions=False).stdout


def refused(folder: str, *flags: str) -> UserError:
    with pytest.raises(UserError) as error:
        replan(folder, *flags)
    return error.value


def plan_files(folder: str) -> set[str]:
    return {file.name for file in (Path(folder) / "query" / "offsets").iterdir() if file.name.isdigit()}


@pytest.mark.nightly
def test_first_batch_that_was_killed_in_its_tasks_is_split(
    settings: Settings, run_service: Callable[..., Service], failpoints: Failpoints
) -> None:
    """F3: some outputs of the batch are written. Spark requires an empty folder for the state of the first batch."""
    cut_smaller(settings, run_service, failpoints, "yielded", "0,1,2,3", len(TASKS), finished=-1)


@pytest.mark.nightly
def test_batch_that_was_killed_between_two_tasks_is_split(
    settings: Settings, run_service: Callable[..., Service], failpoints: Failpoints
) -> None:
    """F4: one task has written all its outputs and its state."""
    cut_smaller(settings, run_service, failpoints, "called", "0", 1)


def cut_smaller(
    settings: Settings,
    run_service: Callable[..., Service],
    failpoints: Failpoints,
    point: str,
    shards: str,
    stops: int,
    finished: int | None = None,
) -> None:
    """I17: outputs of the killed batch are written again with equal bytes, and its state is replaced.

    Args:
        finished: The batch before the one that is killed. Without it, batches are run first.
    """
    requests = RequestLog(settings, groups=2)
    if finished is None:
        service = run_service(settings.topic_prefix, group_initial_rebalance_delay_ms=0)
        service.await_ready()
        requests.append(silent=0)
        await_taken(service)
        service.stop()
        assert isinstance(refused(settings.checkpoint), NothingPlanned)
        finished = newest(service, "commits")

    requests.append(silent=0)
    place = failpoints.plan("SIGSTOP", point, shards)
    service = run_service(settings.topic_prefix, group_initial_rebalance_delay_ms=0)
    before = len(written(settings))
    await_stop(service, place, shards=stops)
    if stops == 1:
        wait_until(lambda: finished + 2 in state_versions(service, 1), account=lambda: service.log)
        wait_until(lambda: len(written(settings)) > before)
    assert isinstance(refused(settings.checkpoint), InUse)
    service.kill()
    failpoints.forget()
    stuck = newest(service, "offsets")
    assert stuck == finished + 1

    before = plan_files(settings.checkpoint)
    assert str(stuck) in replan(settings.checkpoint, "--dry-run")
    assert plan_files(settings.checkpoint) == before
    told = replan(settings.checkpoint)
    assert f"Batch {stuck} is planned anew" in told
    assert plan_files(settings.checkpoint) == before - {str(stuck)}
    assert (Path(settings.checkpoint) / "replanned" / f"{stuck}.1").read_text().startswith("v1\n")
    assert isinstance(refused(settings.checkpoint), NothingPlanned)

    service = run_service(settings.topic_prefix, group_initial_rebalance_delay_ms=0, max_requests_per_batch=5)
    service.await_ready()
    await_taken(service)
    requests.append(silent=0)
    await_taken(service)
    assert newest(service, "commits") > stuck + 1, "the batch was split into several"
    assert stuck + 1 in state_versions(service, 0)
    service.stop()
    assert_as_if_undisturbed(settings)


def test_replan_refuses_an_ambiguous_checkpoint(settings: Settings, tmp_path: Path) -> None:
    assert isinstance(refused(str(tmp_path / "nowhere")), NoCheckpoint)
    folder = Path(settings.checkpoint)
    for kind, numbers in {"offsets": (0, 1, 2), "commits": (0,)}.items():
        (folder / "query" / kind).mkdir(parents=True)
        for number in numbers:
            (folder / "query" / kind / str(number)).write_text("v1\n")
    assert "plans of 2 batches" in str(refused(settings.checkpoint))
    (folder / "query" / "offsets" / "2").unlink()
    shutil.copy(folder / "query" / "offsets" / "1", tmp_path / "1")
    assert "1.1" in replan(settings.checkpoint)
    shutil.copy(tmp_path / "1", folder / "query" / "offsets" / "1")
    assert "1.2" in replan(settings.checkpoint), "an earlier plan is never replaced"
    assert sorted(file.name for file in (folder / "replanned").iterdir()) == ["1.1", "1.2"]
