"""Two real shards that exchange a group at random, while a client commits growing offsets and members send heartbeats.

Every record between the coordinators is written at least once, in any order, and perhaps again much later. Each
coordinator reads its log in order, and may be far behind. B's clock differs. Operators release the group at either
side, and cancel moves. The promises of moving.md 6 are checked after every record.
"""

from collections import deque
from random import Random
from typing import Any

from coordinator.errors import ErrorCode
from coordinator.move_requests import AdoptGroup, CancelMove, PeerRecord, ReleaseGroup
from coordinator.moving.kept_moves import Custody
from coordinator.outputs import Event, GroupArrived, GroupReleased, MemberExpired, Published, RebalanceStarted, Reply
from coordinator.requests import Heartbeat, OffsetCommit, OffsetToCommit, Received
from tests.coordinator.moving.pair import Coordinator, Pair

CLOCKS_DIFFER_MS = 2_000
TICK_MS = 6_000
RECORDS_MAX = 400


class Broken(AssertionError):
    """A promise does not hold."""


class Simulation:
    """One run.

    Args:
        sends_on_silence: The client sends its commit to the other coordinator too while it waits: a seeded bug.
    """

    def __init__(self, seed: int, *, sends_on_silence: bool = False) -> None:
        self.chance, self.sends_on_silence = Random(seed), sends_on_silence
        pair = Pair.stable("c1", "c2")
        self.pair, self.sides = pair, {"A": pair.a, "B": pair.b}
        self.now_ms = 20_000
        self.skew_ms = {"A": 0, "B": self.chance.randint(-CLOCKS_DIFFER_MS, CLOCKS_DIFFER_MS)}
        self.logs: dict[str, deque[tuple[int, Any]]] = {"A": deque(), "B": deque()}
        self.unwritten: list[PeerRecord] = []
        self.written: list[PeerRecord] = []
        self.where, self.best, self.acked, self.offset = "A", 0, 0, 0
        self.asked: set[str] = set()
        self.late: list[tuple[str, Any]] = []
        self.numbers: list[int] = []
        self.answers: dict[str, PeerRecord] = {}
        self.versions = {"A": self._last_version(pair.a), "B": 0}
        self.requests = 0

    @staticmethod
    def _last_version(side: Coordinator) -> int:
        return max(o.version or 0 for o in side.outputs if isinstance(o, Event | Published))

    # -- events --------------------------------------------------------------------------------------------------------

    def run(self, events: int) -> None:
        """Play random events, and then read and write everything that is left."""
        for _ in range(events):
            self.chance.choices(
                (self.read, self.write, self.repeat, self.commit, self.release, self.cancel, self.tick),
                (8, 5, 1, 3, 1, 0.5, 1),
            )[0]()
        while self.unwritten or any(self.logs.values()):
            self.write()
            self.read()
        serving = [name for name in self.sides if self.custody(name) is Custody.HERE]
        if len(serving) != 1 or any(side.shard.moves.sent for side in self.sides.values()):
            raise Broken(f"NeverNowhere: {serving} serve when everything is read")

    def append(self, name: str, record: Any) -> None:
        """Append a record to the log of a coordinator, by its clock."""
        at_ms = self.now_ms + self.skew_ms[name]
        self.logs[name].append((max(at_ms, self.logs[name][-1][0] if self.logs[name] else 0), record))

    def request(self, name: str, kind: type[Any], **fields: Any) -> str:
        """Append a request to the log of a coordinator. Return its id."""
        self.requests += 1
        request_id = f"r{self.requests}"
        request = kind(request_id=request_id, reply_to=f"inbox at {name}", group_id="g", **fields)
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
        self.request(name, ReleaseGroup, to="B" if name == "A" else "A")

    def cancel(self) -> None:
        moves = [r for r in (*self.unwritten, *self.written) if isinstance(r, AdoptGroup)]
        if moves:
            move = self.chance.choice(moves)
            self.request(move.to, CancelMove, move_id=move.move_id, number=move.number)

    def commit(self) -> None:
        """Commit the next offset if the last commit was answered."""
        if self.asked:
            if self.sends_on_silence:
                elsewhere = "B" if self.where == "A" else "A"
                self.asked.add(self._send_commit(elsewhere))
                self.late.append((elsewhere, self.logs[elsewhere].pop()[1]))
            return
        self.offset += 1
        self.asked = {self._send_commit(self.where)}

    def _send_commit(self, name: str) -> str:
        return self.request(
            name,
            OffsetCommit,
            member_id=self.pair.a.ids["c1"],
            generation_id=self.pair.a.generations["c1"],
            offsets=(OffsetToCommit("t", 0, self.offset),),
        )

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
                self._note_reply(name, output.answer)
            elif isinstance(output, MemberExpired | RebalanceStarted):
                raise Broken(f"MovesAreQuiet: {output}")
            elif isinstance(output, Event | Published) and output.version is not None:
                self._note_version(name, output)
        self._check_custody()

    def _note_answer(self, record: PeerRecord) -> None:
        if not isinstance(record, AdoptGroup) and self.answers.setdefault(record.move_id, record) != record:
            raise Broken(f"VerdictsAreFinal: {record} after {self.answers[record.move_id]}")

    def _note_reply(self, name: str, answer: Any) -> None:
        if answer.request_id not in self.asked:
            return
        if answer.code == ErrorCode.NONE.number:
            self.acked, self.asked = max(self.acked, self.offset), set()
            return
        self.asked.discard(answer.request_id)
        if self.asked:
            return
        self.offset -= 1  # the offset is committed again, where the redirection leads
        moved = answer.moved if answer.moved else None
        if moved is not None and moved.number > self.best:
            self.where, self.best = moved.to, moved.number
        else:
            self.where = "B" if name == "A" else "A"

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

    def custody(self, name: str) -> Custody:
        """Return the relation of a coordinator to the group."""
        kept = self.sides[name].shard._moves
        assert kept is not None
        return kept.custody_of("g")

    def _check_custody(self) -> None:
        serving = [name for name in self.sides if self.custody(name) is Custody.HERE]
        if len(serving) > 1:
            raise Broken("OneServes: both coordinators serve the group")
        for name in serving:
            group = self.sides[name].group
            stored = group.offsets.get("t", {}).get(0)
            if (stored.offset if stored else 0) < self.acked:
                raise Broken(f"MovedCommitsAreKept: {name} has {stored}, and {self.acked} was acknowledged")
            if (len(group.members), group.generation_id) != (2, self.pair.a.generations["c1"]):
                raise Broken("MovesAreQuiet: the group is not as it was")
