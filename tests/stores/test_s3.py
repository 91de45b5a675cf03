"""A coordinator whose checkpoint is on an object store: its requests, its stops, its kills, and writes that fail."""

import re
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from streaming.config.settings import Settings
from streaming.errors import Exit
from tests.stores.objects import Objects
from tests.stores.proxy import Proxy, Request, every, none
from tests.system.conftest import Service, batches
from tests.system.replaying import RequestLog, assert_as_if_undisturbed, await_taken, last_words, newest
from tests.system.test_replay import (
    Failpoints,
    Run,
    errors,
    failed_with_a_worker,
    freeze,
    killed_after_its_commit,
    killed_after_its_plan,
    killed_between_two_tasks,
    killed_in_its_tasks,
    recovered,
    thaw,
)
from tests.system.test_replay import failpoints as failpoints
from tests.system.test_sentences import run as command
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long

BATCHES = 6
REQUESTS_MAX = 12

POINTS = (
    killed_after_its_plan,
    killed_in_its_tasks,
    killed_between_two_tasks,
    failed_with_a_worker,
    killed_after_its_commit,
)


def requests_of_batches(seen: list[Request]) -> list[list[Request]]:
    """Divide the requests at the commits of the batches. The first part ends with the first commit."""
    parts: list[list[Request]] = [[]]
    for request in seen:
        parts[-1].append(request)
        if request.kind == "PUT" and "/commits/" in request.key:
            parts.append([])
    return parts[:-1]


def test_a_batch_takes_few_requests_and_each_plan_is_written_once(run: Run, settings: Settings, proxy: Proxy) -> None:
    log = RequestLog(settings)
    service = run()
    service.await_ready()
    for _ in range(BATCHES):
        log.append(silent=0)
        await_taken(service)
    assert service.stop() == 0, service.log
    assert batches(service.checkpoint, "offsets") == batches(service.checkpoint, "commits"), "no batch is repeated"
    counted = [len(part) for part in requests_of_batches(proxy.seen)[2:]]
    print(f"requests of each batch: {counted}", *requests_of_batches(proxy.seen)[-1], sep="\n")
    assert statistics.median(counted) <= REQUESTS_MAX
    notes = [r for r in proxy.seen if r.kind == "PUT" and re.search(r"/(offsets|commits)/\d+$", r.key)]
    assert all(note.is_conditional for note in notes)
    assert len({note.key for note in notes}) == len(notes)
    assert_as_if_undisturbed(settings)


@pytest.mark.nightly
@pytest.mark.parametrize("dies", POINTS)
def test_batch_that_is_killed_writes_the_same_output(
    run: Run, settings: Settings, failpoints: Failpoints, dies: Callable[[Run, Failpoints, int], None]
) -> None:
    """As `test_replay`: a batch and its recovery, with outputs that are equal to the byte."""
    log = RequestLog(settings)
    log.append()
    service = run()
    service.await_ready()
    await_taken(service)
    assert service.stop() == 0, service.log
    log.append()
    dies(run, failpoints, newest(service, "offsets") + 1)
    failpoints.forget()
    service = recovered(run, settings, log)
    assert service.stop() == 0, service.log
    assert {"NONE", "ILLEGAL_GENERATION", "INVALID_REQUEST"} <= errors(assert_as_if_undisturbed(settings))


STATE = r"/state/0/\d+/\d+\.delta$"
FILES = {
    "plan": r"/offsets/\d+$",
    "commit": r"/commits/\d+$",
    "state": STATE,
}


@pytest.mark.nightly
@pytest.mark.parametrize("file", FILES)
def test_a_write_that_the_store_refuses_ends_the_query_and_skips_no_file(
    run: Run, settings: Settings, proxy: Proxy, file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(tmp_path, monkeypatch, IMPATIENT)
    log = RequestLog(settings)
    log.append(silent=0)
    service = run(checkpoint_wait_ms=3_000)
    service.await_ready()
    await_taken(service)
    finished = newest(service, "commits")
    proxy.refused = lambda request: request.kind == "PUT" and bool(re.search(FILES[file], request.key))
    log.append(silent=0)
    last_words(service)
    assert newest(service, "commits") == finished
    proxy.refused = none
    service = run()
    service.await_ready()
    await_taken(service)
    assert service.stop() == 0, service.log
    assert_as_if_undisturbed(settings)


def test_a_server_that_ignores_conditions_is_refused(run: Run, proxy: Proxy) -> None:
    proxy.unconditional = every
    assert "ignores If-None-Match" in last_words(run(), Exit.NEEDS_A_PERSON)


@pytest.mark.nightly
@pytest.mark.parametrize("with_lease", [False, True])
def test_the_plan_of_a_driver_that_was_held_back_is_refused(
    run: Run, settings: Settings, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_lease: bool
) -> None:
    """A plan is on its way for as long as another driver starts, plans the batch and finishes it."""
    configure(tmp_path, monkeypatch, PATIENT)
    log = RequestLog(settings)
    log.append(silent=0)
    first = run(stand_by=with_lease)
    first.await_ready()
    await_taken(first)
    has_come = proxy.hold(lambda request: request.kind == "PUT" and "/offsets/" in request.key)
    log.append(silent=0)
    wait_until(has_come.is_set, account=lambda: first.log)
    if with_lease:
        freeze(first)
    second = run(stand_by=with_lease)
    second.await_ready()
    log.append(silent=0)
    await_taken(second)
    if with_lease:
        thaw(first)
    proxy.release()
    last_words(first, Exit.FAILED if with_lease else Exit.NEEDS_A_PERSON)
    log.append(silent=0)
    await_taken(second)
    assert second.stop() == 0, second.log
    assert_as_if_undisturbed(settings)


@pytest.mark.nightly
def test_state_that_comes_late_has_the_bytes_of_the_state_that_is_there(
    run: Run, settings: Settings, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's state is on its way for as long as another driver starts, repeats the batch and finishes it and more.

    The store does not refuse the state. It need not: both drivers have run the one plan that the store took.
    """
    configure(tmp_path, monkeypatch, PATIENT)
    log = RequestLog(settings)
    log.append(silent=0)
    first = run()
    first.await_ready()
    await_taken(first)
    has_come = proxy.hold(lambda request: request.kind == "PUT" and bool(re.search(STATE, request.key)))
    log.append(silent=0)
    wait_until(has_come.is_set, account=lambda: first.log)
    batch = newest(first, "offsets")
    second = run()
    second.await_ready()
    log.append(silent=0)
    await_taken(second)
    assert newest(second, "commits") > batch
    states = states_of(second, batch)
    proxy.release()
    last_words(first, Exit.NEEDS_A_PERSON)
    assert states_of(second, batch) == states
    assert second.stop() == 0, second.log
    third = run()  # it reads the states from the store
    third.await_ready()
    log.append(silent=0)
    await_taken(third)
    assert third.stop() == 0, third.log
    assert_as_if_undisturbed(settings)


@pytest.mark.nightly
def test_batch_that_is_planned_anew_replaces_its_state(
    run: Run, settings: Settings, objects: Objects, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of the batch have written all their states, and the store refuses its commit."""
    configure(tmp_path, monkeypatch, IMPATIENT)
    log = RequestLog(settings)
    log.append(silent=0)
    service = run(checkpoint_wait_ms=3_000)
    service.await_ready()
    await_taken(service)
    proxy.refused = lambda request: request.kind == "PUT" and "/commits/" in request.key
    log.append(silent=0)
    last_words(service)
    proxy.refused = none
    batch = newest(service, "offsets")
    old = states_of(service, batch)
    assert old.keys() == {0, 1}
    where = {"COORDINATOR_STORE_ENDPOINT": proxy.url, "COORDINATOR_STORE_REGION": "us-east-1"}
    code, _ = command("checkpoint", "replan", objects.address, "--stopped", **where)
    assert code == Exit.DONE
    service = run(max_requests_per_batch=5)
    service.await_ready()
    await_taken(service)
    assert newest(service, "commits") > batch + 1, "the batch was divided"
    new = states_of(service, batch)
    assert [new[task] == old[task] for task in old] == [False, False]
    assert service.stop() == 0, service.log
    service = run()  # it reads the states from the store
    service.await_ready()
    log.append(silent=0)
    await_taken(service)
    assert service.stop() == 0, service.log
    assert (service.checkpoint / "replanned").is_dir()
    assert_as_if_undisturbed(settings)


def states_of(service: Service, batch: int) -> dict[int, bytes]:
    """Return the state that each task has written in a batch."""
    files = (service.checkpoint / "query" / "state" / "0").glob(f"*/{batch + 1}.delta")
    return {int(file.parent.name): file.read_bytes() for file in files}


PATIENT = {"connection.request.timeout": "30m", "connection.timeout": "30m"}
"""Settings with which the file system waits for a request that is held back."""

IMPATIENT = {"retry.limit": "1", "retry.throttle.limit": "1", "attempts.maximum": "1"}
"""Settings with which the file system gives up after some seconds."""


def configure(folder: Path, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]) -> None:
    """Write settings of the store for the services to Spark's own file."""
    place = folder / "spark"
    place.mkdir()
    lines = [f"spark.hadoop.fs.s3a.{name} {value}\n" for name, value in settings.items()]
    (place / "spark-defaults.conf").write_text("".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(place))
