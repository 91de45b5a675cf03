"""The query is killed at every point of a batch, and its outputs equal those of an undisturbed run.

The points are F1 to F6 of a micro-batch: before its plan, after it, in its tasks, between two tasks, before its commit,
after it. `replaying.undisturbed` computes the expected output.
"""

import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.query.operator.failpoints import VARIABLE
from streaming.verify import verify
from streaming.verify.findings import Kind
from streaming.views import Raw, Views
from streaming.wire.newest_records import Order
from tests.system.conftest import Service
from tests.system.replaying import (
    Record,
    RequestLog,
    assert_as_if_undisturbed,
    await_taken,
    claim,
    last_words,
    newest,
    read,
    written,
)
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long

Run = Callable[..., Service]
Dies = Callable[[Run, "Failpoints", int], None]
"""Starts the service, and ends it at a point of the batch with this number."""

ALL = "0,1,2,3"
TASKS = (0, 1)


class Failpoints:
    """The points at which the next services stop; a folder shows the shards that have reached a point."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch, self._number = folder, monkeypatch, 0

    def plan(self, how: str, point: str, shards: str) -> Path:
        """Make every service that starts from now on stop at a point, once for each shard, and return the folder."""
        self._number += 1
        place = self._folder / f"failpoint-{self._number}"
        place.mkdir()
        self._patch.setenv(VARIABLE, f"{how} {point} {shards} {place}")
        return place

    def forget(self) -> None:
        self._patch.delenv(VARIABLE)


@pytest.fixture
def failpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Failpoints:
    return Failpoints(tmp_path, monkeypatch)


def await_stop(service: Service, place: Path, shards: int = 1) -> list[int]:
    """Wait until this many shards have reached the failpoint, and return the process ids of their workers."""

    def stopped() -> list[int]:
        return [int(text) for file in place.iterdir() if (text := file.read_text())]

    wait_until(lambda: len(stopped()) >= shards or service.process.poll() is not None, account=lambda: service.log)
    assert service.process.poll() is None, service.log
    return stopped()


def state_versions(service: Service, task: int) -> list[int]:
    """Return the versions of its state that a task has written; a batch's version is its number plus one."""
    folder = service.checkpoint / "query" / "state" / "0" / str(task)
    return sorted(int(file.stem) for file in folder.glob("*.delta") if file.stem.isdigit())


def errors(records: Iterable[Record]) -> set[str]:
    """Return the errors of the replies."""
    return {json.loads(r.value).get("error") for r in records if r.topic.endswith(".replies") and r.value}


def expired(settings: Settings) -> set[str]:
    """Return the groups of silent members that have expired.

    Members of other groups may expire as well on a slow machine: Kafka lets a new member wait 5 minutes for a round.
    """
    events = (json.loads(r.value) for r in written(settings) if r.topic == settings.events_topic and r.value)
    groups = {event["group_id"] for event in events if event["event"] == "member_expired"}
    return {group_id for group_id in groups if group_id.startswith("brief-")}


def family(service: Service) -> list[psutil.Process]:
    """Return the processes of a driver: Python, Java, Python's workers."""
    driver = psutil.Process(service.process.pid)
    return [driver, *driver.children(recursive=True)]


def freeze(service: Service) -> None:
    """Pause a driver with SIGSTOP."""
    _signal(service, signal.SIGSTOP)


def thaw(service: Service) -> None:
    _signal(service, signal.SIGCONT)


def _signal(service: Service, number: signal.Signals) -> None:
    for process in family(service):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def freeze_between_batches(service: Service) -> None:
    """Pause a driver at a time at which it runs no batch."""

    def is_frozen_there() -> bool:
        freeze(service)
        if newest(service, "offsets") == newest(service, "commits"):
            return True
        thaw(service)
        return False

    wait_until(is_frozen_there, account=lambda: service.log)


@pytest.fixture
def settings(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Settings:
    """Return the settings of all services of a test, with topics and with a checkpoint that has a known secret."""
    settings = Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=re.sub(r"\W+", "-", request.node.name),
        replication_factor=1,
        request_partitions=4,
        checkpoint=str(tmp_path / "state"),
        group_initial_rebalance_delay_ms=0,
    )
    claim(settings)
    return settings


@pytest.fixture
def run(settings: Settings, run_service: Callable[..., Service]) -> Callable[[], Service]:
    return lambda: run_service(settings.topic_prefix, group_initial_rebalance_delay_ms=0)


def killed_after_its_plan(run: Run, failpoints: Failpoints, number: int) -> None:
    """Kill the service at F2: no task has read a row."""
    failpoints.plan("SIGSTOP", "called", ALL)
    service = run()
    wait_until(lambda: newest(service, "offsets") == number, account=lambda: service.log)
    before = written(service.settings)
    service.kill()
    assert newest(service, "commits") < number
    assert [number + 1 in state_versions(service, task) for task in TASKS] == [False, False]
    assert written(service.settings) == before


def killed_in_its_tasks(run: Run, failpoints: Failpoints, number: int) -> None:
    """Kill the service at F3: each task has run one shard through the batch and has written no state."""
    place = failpoints.plan("SIGSTOP", "yielded", ALL)
    service = run()
    await_stop(service, place, shards=len(TASKS))
    service.kill()
    assert [number + 1 in state_versions(service, task) for task in TASKS] == [False, False]


def killed_between_two_tasks(run: Run, failpoints: Failpoints, number: int) -> None:
    """Kill the service at F4: one task has written all its output and state, the other one nothing."""
    place = failpoints.plan("SIGSTOP", "called", "0")
    service = run()
    before = len(written(service.settings))
    await_stop(service, place)
    wait_until(lambda: number + 1 in state_versions(service, 1), account=lambda: service.log)
    wait_until(lambda: len(written(service.settings)) > before)
    service.kill()
    assert [number + 1 in state_versions(service, task) for task in TASKS] == [False, True]


def failed_with_a_worker(run: Run, failpoints: Failpoints, number: int) -> None:
    """Kill a worker between two shards (F3, F4): Spark's local mode does not retry a task, so the service ends."""
    place = failpoints.plan("SIGKILL", "stepped", "2")
    service = run()
    told = "A process of Spark ended unexpectedly: check that memory is free, and start again;"
    assert last_words(service) == f"{told} the coordinator continues."
    assert [file.name for file in place.iterdir()] == ["2"]
    assert newest(service, "commits") < number
    assert number + 1 not in state_versions(service, 0)


def failed_before_its_commit(run: Run, failpoints: Failpoints, number: int) -> None:
    """Make the commit fail at F5: the tasks have written everything, and the commits' folder is replaced by a file.

    Each task syncs the commits' folder before its first output, so both have done so before the folder is replaced.
    """
    place = failpoints.plan("SIGSTOP", "yielded", ALL)
    service = run()
    workers = await_stop(service, place, shards=len(TASKS))
    for shard in ALL.split(","):
        (place / shard).touch()  # the other shards do not stop
    commits = service.checkpoint / "query" / "commits"
    aside = commits.rename(commits.with_name("aside"))
    commits.write_text("no folder")
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    assert last_words(service, Exit.NEEDS_A_PERSON).startswith(f"The checkpoint {service.checkpoint} cannot be written")
    commits.unlink()
    aside.rename(commits)
    assert newest(service, "commits") < number
    assert [number + 1 in state_versions(service, task) for task in TASKS] == [True, True]


def killed_after_its_commit(run: Run, failpoints: Failpoints, number: int) -> None:
    """Kill the service at F6: the batch is finished, and a start continues with the next one."""
    failpoints.forget()
    service = run()
    wait_until(lambda: newest(service, "commits") == number, account=lambda: service.log)
    service.kill()


POINTS = (
    killed_after_its_plan,
    killed_in_its_tasks,
    killed_between_two_tasks,
    failed_with_a_worker,
    failed_before_its_commit,
    killed_after_its_commit,
)


def recovered(run: Run, settings: Settings, log: RequestLog) -> Service:
    """Start a service after a failure, and return it when it has expired the silent members and taken new requests."""
    service = run()
    service.await_ready()
    wait_until(lambda: len(expired(settings)) == log.silent, account=lambda: (expired(settings), service.log))
    log.append(silent=0)
    await_taken(service)  # they are in the newest batch: nothing is due after it
    return service


@pytest.mark.parametrize(
    "points",
    [
        pytest.param((killed_between_two_tasks,), id="one point"),
        pytest.param(POINTS, id="every point", marks=pytest.mark.nightly),
    ],
)
def test_batch_that_is_killed_writes_the_same_output(
    run: Run, settings: Settings, failpoints: Failpoints, points: Sequence[Dies]
) -> None:
    """F1 to F6, F9, I8, I16, I17, I20, I21: one batch and its recoveries are stopped at each of the points in turn."""
    log = RequestLog(settings)
    log.append()
    service = run()
    service.await_ready()
    await_taken(service)
    freeze_between_batches(service)
    log.append()
    number = newest(service, "offsets") + 1
    service.kill()  # F1: requests exist, but no plan
    for dies in points:
        dies(run, failpoints, number)

    service = recovered(run, settings, log)
    assert service.stop() == 0, service.log
    told = assert_as_if_undisturbed(settings)
    assert len(told) > len(set(told)), "many records are repeats"
    assert {"NONE", "ILLEGAL_GENERATION", "INVALID_REQUEST"} <= errors(told), "not only refusals"

    (service.checkpoint / "query" / "commits" / str(newest(service, "commits"))).unlink()
    again = run()
    again.await_ready()
    assert again.stop() == 0, again.log
    repeated = assert_as_if_undisturbed(settings)
    assert len(repeated) > len(told), "the newest batch, whose commit was lost, was repeated"


@pytest.mark.nightly
def test_later_one_of_two_drivers_on_one_checkpoint_continues(
    run: Run, settings: Settings, failpoints: Failpoints
) -> None:
    """One driver is paused in a batch, one between batches; another one takes over. Resumed, each logs why it ends.

    The records that it writes until then repeat its successor's records byte for byte (I8, I16).
    """
    another = f"Another coordinator runs on the checkpoint {settings.checkpoint}"
    log = RequestLog(settings)
    log.append()
    place = failpoints.plan("SIGSTOP", "called", "0")
    first = run()
    (worker,) = await_stop(first, place)
    failpoints.forget()
    second = run()
    second.await_ready()
    log.append()
    await_taken(second)
    before = len(written(settings))
    os.kill(worker, signal.SIGCONT)
    assert last_words(first, Exit.NEEDS_A_PERSON).startswith(another)
    assert len(written(settings)) > before, "it has repeated its part of the batch"

    freeze_between_batches(second)
    third = run()
    third.await_ready()
    log.append()
    await_taken(third)
    thaw(second)
    assert last_words(second, Exit.NEEDS_A_PERSON).startswith(another)
    log.append()
    await_taken(third)
    assert third.stop() == 0, third.log
    assert_as_if_undisturbed(settings)


def is_put_right(settings: Settings) -> bool:
    """Return whether the last record of each key, which compaction keeps, gives the same views as all records."""
    records = list(groups_topic(settings))
    return standing({raw.key: raw for raw in records}.values()) == standing(records)


def newest_of(records: Iterable[Raw]) -> dict[bytes, Order]:
    newest: dict[bytes, Order] = {}
    for raw in records:
        if order := raw.order:
            newest[raw.key] = max(order, newest.get(raw.key, order))
    return newest


def groups_topic(settings: Settings) -> Iterator[Raw]:
    for r in read(settings, settings.groups_topic):
        told = dict(r.headers)
        yield Raw("groups", r.partition, r.offset, r.timestamp, r.key, r.value, told.get("version"), told.get("at_ms"))


def standing(records: Iterable[Raw]) -> object:
    views = Views()
    for raw in sorted(records, key=lambda raw: (raw.partition, raw.offset)):
        views.fold(raw, 0)
    return [(group.group_id, group.record, group.offsets) for group in views.present()]


def repeats(before: list[Raw], after: list[Raw]) -> list[Raw]:
    """Return the records written between two readings that are byte for byte equal to earlier ones."""
    places = {(raw.partition, raw.offset) for raw in before}
    seen = {(raw.key, raw.value, raw.version, raw.at_ms) for raw in before}
    written_since = [raw for raw in after if (raw.partition, raw.offset) not in places]
    return [raw for raw in written_since if (raw.key, raw.value, raw.version, raw.at_ms) in seen]


@pytest.mark.nightly
def test_late_repeats_of_a_paused_driver_are_corrected_by_new_records(
    run: Run, settings: Settings, failpoints: Failpoints
) -> None:
    """A driver is paused in a batch, another continues, and the first resumes and repeats records after newer ones.

    The first driver ends. A reader of only the last record of each key still gets the newest record of each (I8).
    """
    log = RequestLog(settings)
    log.append()
    place = failpoints.plan("SIGSTOP", "called", "0")
    first = run()
    (worker,) = await_stop(first, place)
    failpoints.forget()
    second = run()
    second.await_ready()
    for _ in range(2):
        log.append(silent=0)
        await_taken(second)
    before = list(groups_topic(settings))
    newest_orders = newest_of(before)
    os.kill(worker, signal.SIGCONT)
    assert last_words(first, Exit.NEEDS_A_PERSON).startswith("Another coordinator runs on the checkpoint")
    after = list(groups_topic(settings))
    late = repeats(before, after)
    assert any(raw.order < newest_orders[raw.key] for raw in late if raw.order), "older records behind newer ones"
    assert standing(after) == standing(raw for raw in after if raw not in late), "all records still give the newest"

    wait_until(
        lambda: b"republish_group" in b"".join(r.value for r in read(settings, settings.requests_topic) if r.value)
    )
    wait_until(lambda: is_put_right(settings))
    report = verify(settings, settling_ms=0)
    assert report.corrected > 0
    assert not [finding for finding in report.findings if finding.kind is Kind.STANDS_OLD], str(report)
    assert second.stop() == 0, second.log
    assert_as_if_undisturbed(settings)
