"""Two coordinators of several shards that answer the commands here, without Kafka."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.slots import bitmap_of
from coordinator.messages.move_requests import AdoptSlots, ReleaseSlots
from coordinator.messages.outputs import ToPeer
from coordinator.messages.responses import ErrorAnswer, Reply
from streaming.administration import move_slots
from streaming.cli.main import app
from streaming.cli.moves import move
from streaming.config.settings import Settings
from streaming.errors import NoAnswer
from tests.coordinator.moving.test_slots_of_many_shards import Side

NAMES = [f"group {number}" for number in range(40)]


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
        monkeypatch.setattr(move, "_open", self.open)
        monkeypatch.setattr(move, "ANSWER_WAIT_S", 0.01)
        monkeypatch.setattr(move_slots, "LOOK_EVERY_S", 0.0)
        monkeypatch.setattr(move_slots, "unix_ms", lambda: self.now_ms)

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
