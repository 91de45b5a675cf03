"""`coordinator move --slots` and `coordinator slots`: two coordinators of several shards answer here without Kafka."""

import json

import pytest
from typer.testing import CliRunner

from coordinator.base.limits import SLOTS
from coordinator.base.slots import slot_of
from coordinator.messages.move_requests import DescribeSlots, ReleaseSlots
from streaming.cli.main import app
from streaming.errors import NoAnswer, RequestRefused
from tests.streaming.cli.two_coordinators import NAMES, Cluster

LOW = "0-511"
MOVED = sorted(name for name in NAMES if slot_of(name) < 512)
"""The groups in the lower half of the slots."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_slots_move_with_the_groups_in_them(cluster: Cluster) -> None:
    """moving.md 4.3: all three steps; new groups begin at the new owner."""
    assert cluster.moves("--slots", LOW) == dict.fromkeys(MOVED, "moved")
    assert cluster.groups_of("B") == MOVED
    assert cluster.owners("A") == [("0-511", "B", "elsewhere"), ("512-1023", "A", "here")]
    assert cluster.owners("B") == [("0-511", "B", "here"), ("512-1023", None, "elsewhere")]
    free = next(name for name in map(str, range(99)) if slot_of(name) < 512)
    assert [cluster.sides[each].commits(free, cluster.now_ms) for each in "AB"] == ["NOT_COORDINATOR", "NONE"]
    assert cluster.moves("--slots", LOW) == {}, "nothing is left"
    assert cluster.releases == [0, 1, 2], "and no slot was released twice"


def test_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    done = cluster.runs("move", "--to", "B", "--slots", LOW, "--dry-run")
    assert {each["group_id"]: each["status"] for each in json.loads(done.stdout)} == dict.fromkeys(
        MOVED, "would be moved"
    )
    assert "512 slots of 512 would be moved." in done.stderr
    assert cluster.owners("A") == [("0-1023", "A", "here")]
    assert cluster.groups_of("A") == sorted(NAMES)


def test_a_run_that_was_interrupted_is_continued(cluster: Cluster) -> None:
    """One of three shards has released its slots, with another number."""
    cluster.releases_slots(range(512), 1)
    assert cluster.moves("--slots", LOW) == dict.fromkeys(MOVED, "moved")
    assert cluster.releases == [1, 0, 2]
    assert cluster.owners("B")[0] == ("0-511", "B", "here")


def test_slots_of_a_target_that_does_not_run_stay(cluster: Cluster) -> None:
    cluster.down.add("B")
    done = cluster.runs("move", "--to", "B", "--yes", "--slots", LOW)
    assert isinstance(done.exception, NoAnswer)
    assert cluster.owners("A") == [("0-1023", "A", "here")]


def test_slots_that_the_target_has_not_adopted_are_waited_for(cluster: Cluster) -> None:
    """The next run waits again, and moves the groups."""
    cluster.deaf.add("B")
    done = cluster.runs("move", "--to", "B", "--yes", "--slots", LOW)
    assert isinstance(done.exception, NoAnswer)
    assert str(done.exception).startswith("B has not adopted the slots 0-511. Check that the coordinator")
    assert cluster.groups_of("A") == sorted(NAMES)
    cluster.deaf.clear()
    assert cluster.moves("--slots", LOW) == dict.fromkeys(MOVED, "moved")


def test_slots_of_a_third_coordinator_are_refused(cluster: Cluster) -> None:
    cluster.moves("--slots", "7")
    done = CliRunner().invoke(app, ["move", "--to", "A", "--slots", "7-8", "--topic-prefix", "B", "-b", "h:1", "--yes"])
    assert isinstance(done.exception, RequestRefused)
    assert str(done.exception) == "B does not own the slots 8. `coordinator slots` shows owners."
    assert cluster.owners("B")[1] == ("7", "B", "here"), "no slot has moved"


def test_slots_go_back(cluster: Cluster) -> None:
    cluster.moves("--slots", LOW)
    flags = ("--to", "A", "--slots", "0-255", "--topic-prefix", "B", "-b", "h:1", "--yes", "-o", "json")
    done = CliRunner().invoke(app, ["move", *flags])
    assert done.exit_code == 0, done.exception
    assert cluster.groups_of("B") == [name for name in MOVED if slot_of(name) >= 256]
    assert cluster.owners("A") == [("0-255", "A", "here"), ("256-511", "B", "elsewhere"), ("512-1023", "A", "here")]


def test_a_refusal_of_a_shard_is_an_error(cluster: Cluster) -> None:
    """A sender without the right, and slots of a coordinator without peers."""
    cluster.denied.add(ReleaseSlots)
    done = cluster.runs("move", "--to", "B", "--yes", "--slots", LOW)
    assert str(done.exception).startswith("The slots were not released (CLUSTER_AUTHORIZATION_FAILED")
    cluster.denied = {DescribeSlots}
    for typed in (("move", "--to", "B", "--yes", "--slots", LOW), ("slots",)):
        done = cluster.runs(*typed)
        assert str(done.exception).startswith("The coordinator does not show its slots (CLUSTER_AUTHORIZATION_FAILED")


def test_slots_that_arrive_are_shown(cluster: Cluster) -> None:
    """B has the records of one shard of A, and waits for those of the others."""
    cluster.releases_slots(range(SLOTS), 0)
    assert [(owner, status) for _, owner, status in cluster.owners("B")] == [(None, "elsewhere"), ("B", "arriving")]


@pytest.mark.parametrize(
    "typed", [("--slots", "1", "--all"), ("--slots", "1", "-g", "g"), (), ("--slots", "1", "--take-back")]
)
def test_flags_that_do_not_fit_are_refused(cluster: Cluster, typed: tuple[str, ...]) -> None:
    assert cluster.runs("move", "--to", "B", *typed).exit_code == 2


@pytest.mark.parametrize("text", ["", "1024", "5-2", "a"])
def test_ranges_that_are_no_slots_are_refused(cluster: Cluster, text: str) -> None:
    done = cluster.runs("move", "--to", "B", "--slots", text)
    assert (done.exit_code, "--slots:" in done.stderr) == (2, True)
