"""The coordinator on a standalone cluster: kills of executor, worker and driver have no effect on its groups."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.messages.requests import OffsetFetch
from coordinator.messages.responses import OffsetFetchAnswer
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.verify import verify
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.members import Member, members
from tests.cluster.beating import Beating
from tests.cluster.standalone import Cluster, bare_python, submit, wheel
from tests.system.conftest import Service
from tests.system.replaying import assert_as_if_undisturbed, claim, read
from tests.system.waiting import HANG_S, wait_until

GROUPS, EACH = 100, 10
SESSION_MS, INTERVAL_S = 30_000, 3.0
KEEP_PLANS = {"spark.sql.streaming.minBatchesToRetain": "1000000"}
"""The judge reads all plans since the first batch."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
def settings(broker: Broker, tmp_path: Path) -> Settings:
    settings = Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix="cluster",
        replication_factor=1,
        checkpoint=str(tmp_path / "state"),
    )
    claim(settings)
    return settings


@pytest.fixture
def run(cluster: Cluster, settings: Settings, tmp_path: Path) -> Iterator[Callable[[], Service]]:
    """Return a function that submits the coordinator. Only the submitted processes run the project from its wheel."""
    started: list[Service] = []
    (tmp_path / "dist").mkdir()
    code, python = wheel(tmp_path / "dist"), bare_python(tmp_path / "python")

    def start() -> Service:
        started.append(submit(tmp_path, len(started), settings, cluster.url, code, python, conf=KEEP_PLANS))
        return started[-1]

    yield start
    for service in started:
        if service.process.poll() is None:
            service.kill()


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.parametrize(
    "with_driver",
    [False, True],
    ids=["executor", "executor, worker and driver"],
)
def test_kills_do_not_affect_groups(
    run: Callable[[], Service], cluster: Cluster, settings: Settings, with_driver: bool
) -> None:
    """F2 to F6, I8, I13, I16, I17, I21: no acknowledged commit is lost, no group rebalances, and no record differs."""
    service = run()
    service.await_ready()
    everybody = members(GROUPS, EACH)
    with Crowd(settings) as crowd:
        crowd.settle(everybody, SESSION_MS)
        assert len(cluster.at_work()) == 2, "both executors must serve shards"
        with Beating(crowd, everybody, INTERVAL_S) as beating:
            beating.await_answers(HANG_S)
            figures = {"executor": executor_killed(cluster, beating)}
            if with_driver:
                figures["worker"] = worker_killed(cluster, beating)
                service.kill()
                service = run()
                figures["driver"] = beating.await_answers(HANG_S)
        assert beating.longest_pause_s < SESSION_MS / 1_000, "the members themselves were silent for too long"
        responses = beating.responses
        assert responses.refused == []
        assert committed(crowd, everybody) == responses.acknowledged
    print(f"{responses.answered} responses; seconds from the kill to its end: {figures}")
    service.await_ready()
    assert service.stop() is not None
    assert rebalances(settings) == {f"orders-{number:05}": 1 for number in range(GROUPS)}, (
        "each group rebalances once, when it is created"
    )
    assert_as_if_undisturbed(settings)
    assert str(verify(settings, settling_ms=0)).startswith("Nothing found")


def executor_killed(cluster: Cluster, beating: Beating) -> float:
    """Kill one of two executors, and wait for a new one; return the seconds until all requests were answered."""
    begun_s = time.monotonic()
    victim = cluster.at_work()[0]
    victim.kill()
    beating.await_answers(HANG_S)
    answered_s = time.monotonic() - begun_s
    wait_until(lambda: len(cluster.executors()) == 2 and victim not in cluster.executors(), account=cluster.executors)
    return answered_s


def worker_killed(cluster: Cluster, beating: Beating) -> float:
    """Kill one of two workers, which ends its executor; return the seconds until all requests were answered."""
    begun_s = time.monotonic()
    cluster.workers[0].kill()
    beating.await_answers(HANG_S)
    return time.monotonic() - begun_s


def committed(crowd: Crowd, everybody: list[Member]) -> dict[str, int]:
    """Return the committed offset of each group."""
    leaders = [member for member in everybody if member.number == 0]
    asks = [lambda r, m=m: OffsetFetch(request_id=r, reply_to=m.inbox, group_id=m.group_id) for m in leaders]
    found = {}
    for member, answer in zip(leaders, crowd.ask(*asks), strict=True):
        assert isinstance(answer, OffsetFetchAnswer)
        (found[member.group_id],) = (p.offset for p in answer.partitions)
    return found


def rebalances(settings: Settings) -> Counter[str]:
    """Count the started rebalances by group."""
    events = {
        (r.key, json.loads(r.value)["version"]): json.loads(r.value) for r in read(settings, settings.events_topic)
    }
    return Counter(key.decode() for (key, _), event in events.items() if event["event"] == "rebalance_started")
