"""Two real shards that exchange names and slots at random, while clients commit growing offsets and members heartbeats.

One name has a group with members from the beginning. A client of each other name creates its group by a commit, and
sometimes deletes it. A producer commits inside transactions. Every record between the coordinators is written at least
once, in any order, and perhaps again much later. Each coordinator reads its log in order, and may be far behind. B's
clock differs. Operators release names and slots at either side, and cancel moves. The promises of moving.md 6 are
checked after every record.
"""

from collections import deque
from itertools import count, islice
from random import Random
from typing import Any

from coordinator.base.slots import bitmap_of, slot_of
from coordinator.messages.events import MemberExpired, RebalanceStarted
from coordinator.messages.fields import Event
from coordinator.messages.group_records import Published
from coordinator.messages.move_events import GroupArrived, GroupReleased, SlotsAdopted
from coordinator.messages.move_requests import (
    AdoptGroup,
    AdoptionRefused,
    AdoptSlots,
    CancelMove,
    PeerRecord,
    ReleaseGroup,
    ReleaseSlots,
)
from coordinator.messages.requests import (
    DeleteGroup,
    Heartbeat,
    OffsetCommit,
    OffsetToCommit,
    Received,
    SettleTransactions,
    TxnOffsetCommit,
)
from coordinator.messages.responses import Reply
from coordinator.moves.custody import Custody
from tests.coordinator.moving.client import Client
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.coordinator.moving.producing import Producer

CLOCKS_DIFFER_MS = 2_000
TICK_MS = 6_000
RECORDS_MAX = 400


class Broken(AssertionError):
    """A promise does not hold."""


OF_ITS_SLOT = islice((name for name in map(str, count()) if slot_of(name) == slot_of("g")), 2)
NAMES = ("g", *OF_ITS_SLOT, next(name for name in map(str, count()) if slot_of(name) != slot_of("g")))
"""The group with members, two names of its slot, and one of another slot."""

PRODUCED = "p"
"""The group with commits inside transactions."""


class Simulation:
    """One run.

    Args:
        sends_on_silence: The client of the first name sends its commit to the other coordinator too while it waits: a
            seeded bug.
        coordinators: The kind of both coordinators.
    """

    def __init__(self, seed: int, *, sends_on_silence: bool = False, coordinators: type[Pair] = Pair) -> None:
        self.chance, self.sends_on_silence = Random(seed), sends_on_silence
        pair = coordinators.stable("c1", "c2")
        self.pair, self.sides = pair, {"A": pair.a, "B": pair.b}
        self.now_ms = 20_000
        self.skew_ms = {"A": 0, "B": self.chance.randint(-CLOCKS_DIFFER_MS, CLOCKS_DIFFER_MS)}
        self.logs: dict[str, deque[tuple[int, Any]]] = {"A": deque(), "B": deque()}
        self.unwritten: list[PeerRecord] = []
        self.written: list[PeerRecord] = []
        self.producer = Producer(PRODUCED, self.chance)
        self.clients = {name: Client(name) for name in NAMES} | {PRODUCED: self.producer}
        self.late: list[tuple[str, Any]] = []
        self.numbers: list[int] = []
        self.slots: list[tuple[str, bytes, int]] = []
        self.answers: dict[str, PeerRecord] = {}
        self.versions = {"A": self._last_version(pair.a), "B": 0}
        self.requests = self.adopted_slots = self.drained = 0

    @staticmethod
    def _last_version(side: Coordinator) -> int:
        return max(o.version or 0 for o in side.outputs if isinstance(o, Event | Published))

    # -- events --------------------------------------------------------------------------------------------------------

    def run(self, events: int) -> None:
        """Play random events, and then read and write everything that is left."""
        for _ in range(events):
            self.chance.choices(
                (self.read, self.write, self.repeat, self.commit, self.release, self.release_slots, self.cancel,
                 self.delete, self.tick, self.produce, self.settle),
                (11, 5, 1, 3, 1.6, 0.5, 0.5, 0.5, 1.6, 2, 1),
            )[0]()  # fmt: skip
        self.read_all()
        if self.producer.accepted is not None:
            self.producer.end()
        for name in self.sides:
            self.settle(name)
        self.read_all()
        for name in self.clients:
            if len(serving := self.serving(name)) != 1:
                raise Broken(f"NeverNowhere: {serving} serve {name} when everything is read")
        if any(side.shard.moves.sent or side.shard.slots.partial for side in self.sides.values()):
            raise Broken("NeverNowhere: something is in transit when everything is read")

    def read_all(self) -> None:
        """Write and read everything that is left."""
        while self.unwritten or any(self.logs.values()):
            self.write()
            self.read()

    def append(self, name: str, record: Any) -> None:
        """Append a record to the log of a coordinator, by its clock."""
        at_ms = self.now_ms + self.skew_ms[name]
        self.logs[name].append((max(at_ms, self.logs[name][-1][0] if self.logs[name] else 0), record))

    def request(self, name: str, kind: type[Any], group_id: str = "g", **fields: Any) -> str:
        """Append a request to the log of a coordinator. Return its id."""
        self.requests += 1
        request_id = f"r{self.requests}"
        request = kind(request_id=request_id, reply_to=f"inbox at {name}", group_id=group_id, **fields)
        self.sides[name].asked[request_id] = ("client", request)
        self.append(name, request)
        return request_id

    def tick(self) -> None:
        """Advance the time, and send a heartbeat of each member to both coordinators."""
        self.now_ms += self.chance.randint(1, TICK_MS)
        for name in self.sides:
            for member in ("c1", "c2"):
                generation = self.pair.a.generations[member]
                self.request(name, Heartbeat, member_id=self.pair.a.ids[member], generation_id=generation)

    def release(self) -> None:
        name = self.chance.choice("AB")
        group_id = PRODUCED if self.chance.random() < 0.2 else self._any_name()
        self.request(name, ReleaseGroup, group_id, to="B" if name == "A" else "A")

    def _any_name(self) -> str:
        """Return one of the names, mostly the group with members."""
        return self.chance.choice(("g",) * 2 * len(NAMES) + NAMES)

    def release_slots(self) -> None:
        """Release a slot, or two at once; or send slots again."""
        if self.slots and self.chance.random() < 0.2:
            name, slots, made_ms = self.chance.choice(self.slots)
        else:
            name, names = self.chance.choice("AB"), self.chance.choice((NAMES, NAMES[:1], NAMES[-1:]))
            slots, made_ms = bitmap_of(map(slot_of, names)), self.now_ms
            self.slots.append((name, slots, made_ms))
        self.request(name, ReleaseSlots, "", to="B" if name == "A" else "A", slots=slots, made_ms=made_ms)

    def cancel(self) -> None:
        moves = [r for r in (*self.unwritten, *self.written) if isinstance(r, AdoptGroup)]
        if moves:
            move = self.chance.choice(moves)
            self.request(move.to, CancelMove, move.group_id, move_id=move.move_id, number=move.number)

    def commit(self) -> None:
        """Commit the next offset of a name if the last request was answered."""
        client = self.clients[self._any_name()]
        if client.asked:
            if self.sends_on_silence and client.name == "g":
                elsewhere = "B" if client.where == "A" else "A"
                client.asked.add(self._send_commit(client, elsewhere))
                self.late.append((elsewhere, self.logs[elsewhere].pop()[1]))
            return
        client.offset += 1
        client.deletes = False
        client.asked = {self._send_commit(client, client.where)}

    def _send_commit(self, client: Client, name: str) -> str:
        offsets = (OffsetToCommit("t", 0, client.offset),)
        if client.name != "g":
            return self.request(name, OffsetCommit, client.name, offsets=offsets)
        ids = {"member_id": self.pair.a.ids["c1"], "generation_id": self.pair.a.generations["c1"]}
        return self.request(name, OffsetCommit, offsets=offsets, **ids)

    def delete(self) -> None:
        """Delete a group without members if the last request of its client was answered."""
        client = self.clients[self.chance.choice(NAMES[1:])]
        if not client.asked:
            client.deletes = True
            client.asked = {self.request(client.where, DeleteGroup, client.name)}

    def produce(self) -> None:
        """Commit an offset inside a transaction, or end the transaction whose commit was accepted."""
        producer = self.producer
        if producer.accepted is not None:
            producer.end()
        elif not producer.asked and producer.ended is None:
            producer.begin()
            offsets, ids = (OffsetToCommit("t", 0, producer.offset),), {"producer_id": 1, "producer_epoch": 0}
            place = producer.write()
            producer.asked = {
                self.request(producer.where, TxnOffsetCommit, PRODUCED, place=place, offsets=offsets, **ids)
            }

    def settle(self, name: str | None = None) -> None:
        """Report to a coordinator how transactions have ended."""
        name = self.chance.choice("AB") if name is None else name
        settled = self.sides[name].shard.settled.before
        report = self.producer.topics[name].report(settled)
        self.request(name, SettleTransactions, "", topic_id=f"topic of {name}", **report)

    def write(self) -> None:
        """Write one of the records that have to be written; or a commit that was sent because of a silence."""
        if self.late and self.chance.random() < 0.1:
            self.append(*self.late.pop(0))
        if self.unwritten:
            record = self.unwritten.pop(self.chance.randrange(len(self.unwritten)))
            self.written.append(record)
            self.append(record.to, record)

    def repeat(self) -> None:
        """Write a record again that was written before, at any time."""
        if self.written:
            record = self.chance.choice(self.written)
            self.append(record.to, record)

    # -- a record is read ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Deliver to a coordinator the next record of its log, and check every promise."""
        name = self.chance.choice("AB")
        if not self.logs[name]:
            return
        at_ms, record = self.logs[name].popleft()
        side = self.sides[name]
        side._offset += 1
        side.step([Received(side._offset, at_ms, record, None, 1_000)], at_ms)
        self.unwritten += side.written
        for written in side.written:
            self._note_answer(written)
        side.written = []
        for output in side.latest:
            if isinstance(output, Reply):
                for client in self.clients.values():
                    client.note(name, output.answer)
            elif isinstance(output, MemberExpired | RebalanceStarted):
                raise Broken(f"MovesAreQuiet: {output}")
            elif isinstance(output, SlotsAdopted):
                self.adopted_slots += 1
            elif isinstance(output, GroupReleased) and type(record) is SettleTransactions:
                self.drained += 1
            elif isinstance(output, Event | Published) and output.version is not None and output.group_id == "g":
                self._note_version(name, output)
        for client in self.clients.values():
            self._check_custody(client)

    def _note_answer(self, record: PeerRecord) -> None:
        if isinstance(record, AdoptGroup | AdoptSlots):
            return
        if isinstance(record, AdoptionRefused) and record.reason == "unsound":
            raise Broken(f"TransactionsStay: {record.why}")
        if self.answers.setdefault(record.move_id, record) != record:
            raise Broken(f"VerdictsAreFinal: {record} after {self.answers[record.move_id]}")

    def _note_version(self, name: str, output: Any) -> None:
        before, self.versions[name] = self.versions[name], output.version
        if isinstance(output, GroupArrived):
            if output.version != output.version_before + 1 or output.version <= before:
                raise Broken(f"VersionsHaveNoGap: {output}")
        elif output.version != before + 1:
            raise Broken(f"VersionsHaveNoGap: {output} after version {before} of {name}")
        if isinstance(output, GroupReleased):
            if self.numbers and output.number <= self.numbers[-1]:
                raise Broken(f"NumbersGrow: {output.number} after {self.numbers[-1]}")
            self.numbers.append(output.number)

    def serving(self, name: str) -> list[str]:
        """Return the coordinators with custody of a name."""
        return [side for side in self.sides if self.sides[side].custody(name) is Custody.HERE]

    def _check_custody(self, client: Client) -> None:
        serving, name = self.serving(client.name), client.name
        if len(serving) > 1:
            raise Broken(f"OneServes: both coordinators serve {name}")
        groups = {side: group for side in self.sides if (group := self.sides[side].shard.group(name)) is not None}
        if set(groups) - set(serving):
            raise Broken(f"OneFounds: {list(groups)} have a group {name}, and {serving} serve the name")
        for side in serving:
            stored = groups[side].offsets.get("t", {}).get(0) if side in groups else None
            offset = stored.offset if stored else 0
            if offset < client.acked:
                raise Broken(f"MovedCommitsAreKept: {side} has {stored}, and {client.acked} was acknowledged")
            if client is self.producer and offset not in self.producer.visible:
                raise Broken(f"TransactionsStay: {side} has {stored} of a transaction that is not committed")
            if 0 < offset <= client.deleted:
                raise Broken(f"OneFounds: {side} has {stored} of a group {name} that was deleted")
            if name == "g":
                group = groups.get(side)
                if group is None or (len(group.members), group.generation_id) != (2, self.pair.a.generations["c1"]):
                    raise Broken("MovesAreQuiet: the group is not as it was")
