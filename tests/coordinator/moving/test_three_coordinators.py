"""Three coordinators with several shards exchange names and slots at random (moving.md 4, 6).

Every record between them is read at least once, in any order, and perhaps again later. A client of each name commits
growing offsets anywhere, and the first commit creates the group. One operator releases names at any coordinator, and
slots one request after the other: a shard that refuses a request gets it again until it has released the slots.
"""

from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from coordinator.base.config import Config
from coordinator.base.hashing import shard_of
from coordinator.base.slots import bitmap_of, slot_of
from coordinator.messages.move_events import SlotsAdopted
from coordinator.messages.move_requests import PeerRecord, ReleaseGroup, ReleaseSlots
from coordinator.messages.outputs import ToPeer
from coordinator.messages.requests import OffsetCommit, OffsetToCommit, Received
from coordinator.messages.responses import Reply
from coordinator.moves import slot_source, slot_target, target
from coordinator.moves.custody import Custody, MoveStore
from coordinator.shard.shard import Shard
from tests.coordinator.moving.simulation import Broken
from tests.coordinator.scenario import SECRET

NAMES = [f"name {number}" for number in range(5)]
SHARDS = {"A": 2, "B": 3, "C": 1}
"""Three is no divisor of 1,024: a slot has names in each of B's shards."""


class World:
    """The coordinators, of which A owns all slots at first, and the records that have to be read."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now_ms, self.requests, self.adopted = Random(seed), 1_000, 0, 0
        self.shards = {
            (prefix, number): Shard(number, count, SECRET, self._config(prefix))
            for prefix, count in SHARDS.items()
            for number in range(count)
        }
        self.unread: list[tuple[tuple[str, int], PeerRecord]] = []
        self.read: list[tuple[tuple[str, int], PeerRecord]] = []
        self.acked = dict.fromkeys(NAMES, 0)
        self.refusing: list[tuple[tuple[str, int], dict[str, Any]]] = []

    @staticmethod
    def _config(prefix: str) -> Config:
        others = {other: count for other, count in SHARDS.items() if other != prefix}
        slots: Any = "all" if prefix == "A" else "none"
        return Config(prefix=prefix, peers=tuple(others), peer_partitions=others, slots=slots)

    def place(self, prefix: str, name: str) -> tuple[str, int]:
        return prefix, shard_of(name, SHARDS[prefix])

    def step(self, place: tuple[str, int], request: Any) -> str | None:
        """Read one record in a shard, check the promises, and return the error of a response."""
        self.requests += 1
        self.now_ms += 1
        outputs = self.shards[place].step([Received(self.requests, self.now_ms, request)], self.now_ms)
        for output in outputs:
            if isinstance(output, ToPeer):
                to, name = output.record.to, output.name
                shard = output.partition if output.partition is not None else shard_of(name, SHARDS[to])
                self.unread.append(((to, shard), output.record))
            self.adopted += isinstance(output, SlotsAdopted)
        self.check()
        return next((output.answer.error for output in outputs if isinstance(output, Reply)), None)

    def ask(self, place: tuple[str, int], kind: type[Any], **fields: Any) -> str | None:
        return self.step(place, kind(request_id=f"r{self.requests}", reply_to="i", **fields))

    # -- events --------------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        if self.unread:
            record = self.unread.pop(self.chance.randrange(len(self.unread)))
            self.read.append(record)
            self.step(*record)

    def repeat(self) -> None:
        if self.read:
            self.step(*self.chance.choice(self.read))

    def commit(self) -> None:
        name = self.chance.choice(NAMES)
        offset = self.acked[name] + 1
        place = self.place(self.chance.choice("ABC"), name)
        if self.ask(place, OffsetCommit, group_id=name, offsets=(OffsetToCommit("t", 0, offset),)) == "NONE":
            self.acked[name] = offset

    def release(self) -> None:
        (prefix, to), name = self.chance.sample("ABC", 2), self.chance.choice(NAMES)
        self.ask(self.place(prefix, name), ReleaseGroup, group_id=name, to=to)

    def release_slots(self) -> None:
        """Send the last request again to shards that refused it; or a new one to the shards of an owner."""
        if not self.refusing and not self.unread:
            prefix, to = self.chance.sample("ABC", 2)
            slots = frozenset(map(slot_of, self.chance.choice((NAMES, NAMES[:1], NAMES[1:3]))))
            shards = [place for place in self.shards if place[0] == prefix]
            if all(self.shards[place].move_store.owns_slot(slot) for place in shards for slot in slots):
                fields = {"to": to, "slots": bitmap_of(slots), "made_ms": self.now_ms + 1}
                self.refusing = [(place, fields) for place in shards]
        tried, self.refusing = self.refusing, []
        for place, fields in tried:
            if self.ask(place, ReleaseSlots, **fields) != "NONE":
                self.refusing.append((place, fields))

    def run(self, events: int) -> None:
        """Play random events, then read all that is left, and expect that each name has a coordinator."""
        for _ in range(events):
            kinds = self.deliver, self.repeat, self.commit, self.release, self.release_slots
            self.chance.choices(kinds, (8, 2, 4, 1.5, 1.5))[0]()
        while self.unread or self.refusing:
            self.deliver()
            if not self.unread and self.refusing:
                self.release_slots()
        for name in NAMES:
            if len(serving := self.serving(name)) != 1:
                raise Broken(f"NeverNowhere: {serving} serve {name} when everything is read")

    # -- promises ------------------------------------------------------------------------------------------------------

    def serving(self, name: str) -> list[str]:
        """Return the coordinators with custody of a name."""
        shards = {prefix: self.shards[self.place(prefix, name)] for prefix in SHARDS}
        return [prefix for prefix, shard in shards.items() if shard.move_store.custody_of(name) is Custody.HERE]

    def check(self) -> None:
        for name, acked in self.acked.items():
            serving = self.serving(name)
            groups = {prefix: self.shards[self.place(prefix, name)].group(name) for prefix in SHARDS}
            if len(serving) > 1:
                raise Broken(f"OneServes: {serving} serve {name}")
            if {prefix for prefix, group in groups.items() if group is not None} - set(serving):
                raise Broken(f"OneFounds: a group {name} is where its custody is not")
            for prefix in serving:
                group = groups[prefix]
                if (group.offsets["t"][0].offset if group is not None else 0) < acked:
                    raise Broken(f"MovedCommitsAreKept: {prefix} lacks offset {acked} of {name}")


@pytest.mark.parametrize("seed", range(20))
def test_no_run_breaks_a_promise(seed: int):
    World(seed).run(300)


def test_slots_move_in_these_runs():
    worlds = [World(seed) for seed in range(5)]
    for world in worlds:
        world.run(300)
    assert sum(world.adopted for world in worlds) > 15
    assert sum(sum(world.acked.values()) for world in worlds) > 50


def run_many(runs: int) -> None:
    for seed in range(runs):
        World(seed).run(300)


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [
        (slot_source, "_cut", lambda elsewhere: [()]),
        (MoveStore, "owns", lambda *_: True),
        (target, "refusal_of", lambda *_, **__: None),
        (slot_target, "partitions_with", lambda *_: []),
    ],
)
def test_a_seeded_bug_is_found(place: Any, name: str, bug: Callable):
    with patch.object(place, name, bug), pytest.raises(Broken):
        run_many(50)
