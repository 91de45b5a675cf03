"""`coordinator move --slots` and `coordinator slots`: two coordinators of several shards answer here without Kafka."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from coordinator.errors import ErrorCode
from coordinator.hashing import shard_of
from coordinator.limits import SLOTS
from coordinator.move_requests import AdoptSlots, DescribeSlots, ReleaseSlots
from coordinator.outputs import ErrorAnswer, Reply, ToPeer
from coordinator.slots import bitmap_of, slot_of
from streaming.administration import slot_moving
from streaming.cli import relocating
from streaming.cli.main import app
from streaming.config.settings import Settings
from streaming.errors import NoAnswer, RequestRefused
from tests.coordinator.moving.test_slots_of_many_shards import Side

NAMES = [f"group {number}" for number in range(40)]
LOW = "0-511"
MOVED = sorted(name for name in NAMES if slot_of(name) < 512)
"""The groups in the lower half of the slots."""


class Cluster:
    """Coordinators A and B, with the records that they have written to each other and not read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sides = {"A": Side("A", "B", 3, 2, "all"), "B": Side("B", "A", 2, 3, "none")}
        self.now_ms = 1_000
        self.unread: deque[ToPeer] = deque()
        self.down: set[str] = set()
        self.deaf: set[str] = set()
        """Coordinators that answer requests, and have not read the records of the other one yet."""
        self.denied: set[type] = set()
        self.releases: list[int] = []
        """The shards of which slots were released."""
        self._lock = Lock()
        for name in NAMES:
            self.sides["A"].commits(name, self.now_ms)
        monkeypatch.setattr(relocating, "_open", self.open)
        monkeypatch.setattr(relocating, "ANSWER_WAIT_S", 0.01)
        monkeypatch.setattr(slot_moving, "LOOK_EVERY_S", 0.0)
        monkeypatch.setattr(slot_moving, "unix_ms", lambda: self.now_ms)

    @contextmanager
    def open(self, settings: Settings) -> Iterator["Way"]:
        """Yield the way to one of the coordinators, as `relocating._open` does."""
        yield Way(self, settings.topic_prefix)

    def ask(self, prefix: str, shard: int, request: Any) -> Any:
        """Return the response of a shard, after both coordinators have read what they can."""
        with self._lock:
            self.now_ms += 1
            if type(request) in self.denied:
                error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                return ErrorAnswer(request_id="r", error=error.name, code=error.number)
            if prefix in self.down:
                raise NoAnswer("No response came.")
            if isinstance(request, ReleaseSlots):
                self.releases.append(shard)
            answers = self._step(prefix, shard, replace(request, request_id="r", reply_to="op"))
            while self.unread and self.unread[0].record.to not in self.down | self.deaf:
                written = self.unread.popleft()
                at = self.sides[written.record.to]
                to = written.partition
                if not isinstance(written.record, AdoptSlots):
                    to = shard_of(written.record.group_id, len(at.shards))
                assert to is not None
                answers += self._step(written.record.to, to, written.record)
        if not answers:
            raise NoAnswer("No response came.")
        return answers[0]

    def _step(self, prefix: str, shard: int, request: Any) -> list[Any]:
        outputs = self.sides[prefix].step(shard, request, self.now_ms)
        self.unread.extend(each for each in outputs if isinstance(each, ToPeer))
        return [each.answer for each in outputs if isinstance(each, Reply) and each.to == "op"]

    def releases_slots(self, slots: Iterable[int], shard: int) -> None:
        """Release slots of one shard of A."""
        bitmap = bitmap_of(slots)
        request = ReleaseSlots(request_id="", reply_to="", to="B", slots=bitmap, made_ms=self.now_ms)
        assert self.ask("A", shard, request).error == "NONE"

    def groups_of(self, prefix: str) -> list[str]:
        return sorted(name for shard in self.sides[prefix].shards for name in shard.group_ids)

    def runs(self, *typed: str) -> Result:
        return CliRunner().invoke(app, [*typed, "-b", "h:1", "--topic-prefix", "A", "-o", "json"])

    def moves(self, *typed: str) -> dict[str, str]:
        """Move slots, and return the status of each group."""
        done = self.runs("move", "--to", "B", "--yes", *typed)
        assert done.exit_code == 0, done.exception or done.output
        return {each["group_id"]: each["status"] for each in json.loads(done.stdout)}

    def owners(self, prefix: str = "A") -> list[tuple[str, str | None, str]]:
        """Return what `coordinator slots` shows."""
        done = CliRunner().invoke(app, ["slots", "-b", "h:1", "--topic-prefix", prefix, "-o", "json"])
        assert done.exit_code == 0, done.exception or done.output
        return [(each["slots"], each["owner"], each["status"]) for each in json.loads(done.stdout)]


class Way:
    """The way to one coordinator, as a `Transport` is one."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self._cluster, self._prefix = cluster, prefix
        self._shards = len(cluster.sides[prefix].shards)

    def ask(self, request: Any, timeout_s: float, *, follows: bool = True) -> Any:
        return self._cluster.ask(self._prefix, shard_of(request.group_id, self._shards), request)

    def ask_shards(self, request: Any, shards: Sequence[int] | None, timeout_s: float) -> list[Any]:
        return [self._cluster.ask(self._prefix, each, request) for each in shards or range(self._shards)]

    def ask_every_shard(self, request: Any, timeout_s: float) -> list[Any]:
        return self.ask_shards(request, None, timeout_s)


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
