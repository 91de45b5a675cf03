"""`coordinator grow`: everything moves to a new coordinator. Two coordinators answer here without Kafka."""

import json
import shlex
from collections.abc import Callable

import pytest

from coordinator.base.limits import SLOTS
from coordinator.messages.move_requests import ReleaseSlots
from streaming.administration.growing import NotPrepared
from streaming.cli.moves import grow
from streaming.config.settings import Settings
from streaming.errors import NoAnswer, NoCoordinator, TopicMismatch, UserError
from tests.coordinator.moving.test_slots_of_many_shards import Side
from tests.streaming.cli.two_coordinators import NAMES, Cluster

GROW = ("grow", "--to", "B", "--shards", "2", "--yes")


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The prefixes with topics, and the numbers of their shards."""
    there = {"A": 3}

    def ensure(settings: Settings, tell: Callable[[str], None]) -> None:
        there.setdefault(settings.topic_prefix, settings.request_partitions)

    monkeypatch.setattr(grow.topics, "shards", lambda settings: there.get(settings.topic_prefix, 0))
    monkeypatch.setattr(grow.topics, "ensure", ensure)
    return there


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_everything_moves_and_the_old_coordinator_is_empty(cluster: Cluster, topics: dict[str, int]) -> None:
    done = cluster.runs(*GROW)
    assert done.exit_code == 0, done.exception
    assert {each["group_id"]: each["status"] for each in json.loads(done.stdout)} == dict.fromkeys(NAMES, "moved")
    assert topics == {"A": 3, "B": 2}
    assert cluster.groups_of("B") == sorted(NAMES)
    assert cluster.owners("A") == [(f"0-{SLOTS - 1}", "B", "elsewhere")]
    assert "A has no group left. Let gateways and members use the prefix B" in done.stderr


def test_a_second_run_finds_nothing_to_do(cluster: Cluster, topics: dict[str, int]) -> None:
    for _ in range(2):
        done = cluster.runs(*GROW)
        assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout) == []


def test_a_run_that_was_interrupted_is_continued(cluster: Cluster, topics: dict[str, int]) -> None:
    cluster.deaf.add("B")
    done = cluster.runs(*GROW)
    assert isinstance(done.exception, NoAnswer)
    cluster.deaf.clear()
    assert cluster.runs(*GROW).exit_code == 0
    assert cluster.groups_of("B") == sorted(NAMES)


def test_a_dry_run_changes_nothing(cluster: Cluster, topics: dict[str, int]) -> None:
    """It needs no new coordinator; with one, it asks about each group."""
    done = cluster.runs("grow", "--to", "B", "--dry-run")
    assert (done.exit_code, topics) == (0, {"A": 3})
    assert "The topics of B would be created, with 3 shards." in done.stderr
    topics["B"] = 2
    done = cluster.runs("grow", "--to", "B", "--dry-run")
    assert {each["status"] for each in json.loads(done.stdout)} == {"would be moved"}
    assert cluster.owners("A") == [(f"0-{SLOTS - 1}", "A", "here")]


def test_the_steps_are_shown_until_both_coordinators_are_prepared(cluster: Cluster, topics: dict[str, int]) -> None:
    """The new one is down, then it has slots of its own, then the old one has no peer; nothing moves meanwhile."""

    def refused(what: str) -> None:
        done = cluster.runs(*GROW)
        assert isinstance(done.exception, NotPrepared)
        assert str(done.exception).startswith(what)
        words = shlex.split(done.stderr.split("FOLDER:")[1].split("3. ")[0])
        assert {'COORDINATOR_PEERS=["A"]', "COORDINATOR_SLOTS=none", "COORDINATOR_REQUEST_PARTITIONS=2"} <= {*words}
        assert cluster.releases == []

    cluster.down.add("B")
    refused("The coordinator B does not answer")
    cluster.down.clear()
    prepared = cluster.sides
    cluster.sides = prepared | {"B": Side("B", "A", 2, 3, "all")}
    refused("B has slots of its own")
    cluster.sides = prepared | {"A": Side("A", "C", 3, 2, "all")}
    refused("A has no peer B")
    cluster.sides = prepared | {"B": Side("B", "C", 2, 3, "none")}
    refused("B has no peer A")
    cluster.sides = prepared
    assert cluster.runs(*GROW).exit_code == 0


def test_an_old_coordinator_that_does_not_run_is_reported(cluster: Cluster, topics: dict[str, int]) -> None:
    cluster.down.add("A")
    assert isinstance(cluster.runs(*GROW).exception, NoAnswer)


@pytest.mark.parametrize(
    ("there", "error"), [({}, NoCoordinator), ({"A": 3, "B": 4}, TopicMismatch)], ids=["no old one", "other shards"]
)
def test_topics_that_do_not_fit_are_errors(
    cluster: Cluster, topics: dict[str, int], there: dict[str, int], error: type[UserError]
) -> None:
    topics.clear()
    topics.update(there)
    assert isinstance(cluster.runs(*GROW).exception, error)
    assert topics == there


def test_what_a_coordinator_refuses_is_an_error(cluster: Cluster, topics: dict[str, int]) -> None:
    cluster.denied.add(ReleaseSlots)
    assert "CLUSTER_AUTHORIZATION_FAILED" in str(cluster.runs(*GROW).exception)


@pytest.mark.parametrize("flags", [("--to", "A"), (), ("--to", "B", "--shards", "0")])
def test_flags_that_do_not_fit_are_refused(cluster: Cluster, flags: tuple[str, ...]) -> None:
    assert cluster.runs("grow", *flags).exit_code == 2
