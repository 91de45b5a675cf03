"""Two coordinators, each one shard with its own log, and the records that they write to each other.

    pair = Pair.stable("c1", "c2")
    pair.a.at(10_100).release()
    pair.carry()                      # every record that is written is read by its coordinator

Requests are sent as in a `Scenario`. A record for the other coordinator is kept in `written` until `carry` or a test
reads it there.
"""

from typing import Any, Self

from coordinator.base.slots import bitmap_of, slot_of
from coordinator.messages.move_requests import (
    AdoptGroup,
    CancelMove,
    CheckAdoption,
    Evidence,
    MoveRecord,
    PeerRecord,
    ReleaseGroup,
    ReleaseSlots,
    TakeBack,
)
from coordinator.messages.outputs import Output, ToPeer
from coordinator.messages.requests import Received
from coordinator.moves.custody import Custody
from tests.coordinator.scenario import Scenario


class Coordinator(Scenario):
    """One of two coordinators. The checkers of a single coordinator do not know that groups move."""

    def __init__(self, prefix: str, peer: str, *, slots: str = "all", **config: Any) -> None:
        super().__init__(prefix=prefix, peers=(peer,), peer_partitions={peer: 1}, slots=slots, **config)
        self._checkers = []
        self.prefix, self.peer = prefix, peer
        self.written: list[PeerRecord] = []

    def release(self, **fields: Any) -> Self:
        """Release the group to the other coordinator."""
        return self.ask("op", ReleaseGroup, **{"to": self.peer, **fields})

    def release_slots(self, *names: str, **fields: Any) -> Self:
        """Release the slots of names to the other coordinator; by default with the present time as their number."""
        slots = bitmap_of(map(slot_of, names))
        return self.ask("op", ReleaseSlots, **{"group_id": "", "to": self.peer, "slots": slots, "made_ms": self.now_ms,
                                               **fields})  # fmt: skip

    def custody(self, name: str) -> Custody:
        """Return the relation of the coordinator to a name."""
        assert self.shard.move_store is not None
        return self.shard.move_store.custody_of(name)

    def cancel(self, record: MoveRecord) -> Self:
        """Cancel a move to this coordinator."""
        fields = {"group_id": record.group_id, "move_id": record.move_id, "number": record.number}
        return self.ask("op", CancelMove, **fields)

    def take_back(self, record: MoveRecord, **evidence: Any) -> Self:
        """Request that a name is taken back."""
        fields = {"group_id": record.group_id, "move_id": record.move_id, "number": record.number}
        return self.ask("op", TakeBack, evidence=Evidence(**evidence), **fields)

    def check(self, **fields: Any) -> Self:
        """Request the reason for which a move would be refused."""
        return self.ask("op", CheckAdoption, **{"codec": 8, **fields})

    def reads(self, *records: PeerRecord, doubt: str | None = None) -> Self:
        """Read records of the other coordinator, each in a batch of its own."""
        for record in records:
            self._offset += 1
            self.step([Received(self._offset, self.now_ms, record, doubt, 1_000)], self.now_ms)
        return self

    def step(self, log: list[Received], now_ms: int) -> list[Output]:
        """Run one batch, and keep the records for the other coordinator."""
        outputs = super().step(log, now_ms)
        self.written += [output.record for output in outputs if isinstance(output, ToPeer)]
        return outputs


class Pair:
    """The coordinator A, which owns all slots, and B, which owns none."""

    def __init__(self, a: Coordinator, b: Coordinator) -> None:
        self.a, self.b = a, b

    @classmethod
    def blank(cls, **config: Any) -> "Pair":
        """Return two coordinators without groups."""
        return cls(Coordinator("A", "B", **config), Coordinator("B", "A", slots="none", **config))

    @classmethod
    def stable(cls, *names: str, session_timeout_ms: int = 45_000, **config: Any) -> "Pair":
        """Return two coordinators. At A, `names` are members of a Stable group; the first one leads."""
        pair = cls.blank(**config)
        a = pair.a.at(1_000)
        for name in (*names, names[0]):
            a.join(name, session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=40_000)
        a.sync(names[0], plan={name: {"t": [place]} for place, name in enumerate(names)})
        for name in names[1:]:
            a.sync(name)
        a.is_("Stable")
        return pair.know()

    def know(self) -> "Pair":
        """Copy to both scenarios the names and generations that one of them has seen."""
        for name, value in {**self.a.ids, **self.b.ids}.items():
            for side in (self.a, self.b):
                side.ids.setdefault(name, value)
                side.names.setdefault(value, name)
        for name in {**self.a.generations, **self.b.generations}:
            latest = max(side.generations.get(name, -1) for side in (self.a, self.b))
            for side in (self.a, self.b):
                side.generations[name] = latest
        return self

    def carry(self) -> "Pair":
        """Deliver to each coordinator all that the other one has written, until nothing is left."""
        self.know()
        while self.a.written or self.b.written:
            for source, target in ((self.a, self.b), (self.b, self.a)):
                records, source.written = source.written, []
                target.reads(*records)
        return self

    def other(self, side: Coordinator) -> Coordinator:
        """Return the other coordinator."""
        return self.b if side is self.a else self.a

    def adopt_record(self) -> AdoptGroup:
        """Return the only `adopt_group` that A has written and B has not read."""
        (record,) = self.a.written
        assert isinstance(record, AdoptGroup)
        return record
