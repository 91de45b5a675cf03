"""A million members in the core alone: 100,000 groups of 10 on 64 shards, with heartbeats, joins, deaths and commits.

    python -m tests.benchmarks.million                          ten minutes of all shards
    python -m tests.benchmarks.million --shards 8 --minutes 60  an hour of eight of them

The time of the groups is simulated: a batch of each shard is one second of it, and it is handled as the operator does:
the shard is read from its bytes, handles the requests of that second, and is written to bytes, without collections of
garbage. Each shard runs alone in one of several processes. Neither Spark nor Kafka is part of the figures. It is
started by hand, because it takes hours of a core. `--groups 10000` has a tenth of the groups on the same number of
shards, so that both can be compared.

A member sends a heartbeat every 3 s, together with others in records of 1,000, and commits an offset every minute. Once
an hour each group loses a member, which sends nothing more; a new one joins ten seconds later. The rebalance that this
begins ends with the session of the lost member.
"""

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.base.limits import HEARTBEATS_MAX
from coordinator.messages.events import MemberExpired, RebalanceCompleted
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import JoinGroup, Received, Request, Wake
from coordinator.messages.responses import HeartbeatsAnswer, JoinGroupAnswer, OffsetCommitAnswer, Reply, SyncGroupAnswer
from coordinator.shard.shard import Shard
from coordinator.state.member_index import MemberIndexCache
from streaming.progress import Work, shown
from streaming.query.operator.operator import disable_garbage_collection
from tests.benchmarks.figures import percentile
from tests.benchmarks.members import HEARTBEAT_INTERVAL_S, Member

SHARDS, GROUPS, EACH = 64, 100_000, 10
SECRET = b"x" * 32
SESSION_TIMEOUT_MS = 45_000  # Kafka's default
JOINS_WITHIN_S = 60
BEGINS_S = 120
"""The seconds until all groups are Stable. The figures begin then."""

COMMIT_EVERY_S = 60
LOSS_EVERY_S = 3_600
JOINS_AGAIN_S = 10
BEATS = "beats"
"""The mailbox of the records of heartbeats."""

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID.number
AGAIN = {UNKNOWN, ErrorCode.REBALANCE_IN_PROGRESS.number, ErrorCode.ILLEGAL_GENERATION.number}
"""The errors after which a member joins again."""

MS = 1_000


class Load(NamedTuple):
    """What one shard has to do."""

    groups: int
    each: int
    seconds: int


class Found(NamedTuple):
    """The figures of one shard.

    Args:
        requests: Handled in the measured seconds. Each heartbeat of a record counts as one.
        cpu_s: The processor time of these seconds' batches.
        longest_s: The longest batch.
        state_bytes: The largest state.
    """

    shard: int
    members: int
    requests: int
    cpu_s: float
    longest_s: float
    p99_s: float
    state_bytes: int
    deaths: int
    expired: int
    rebalances: int


@dataclass
class Worker(Member):
    """A member that knows its mailbox and whether it has an assignment."""

    is_stable: bool = False

    @cached_property
    def inbox(self) -> str:
        return Member.inbox.fget(self)  # type: ignore[attr-defined, no-any-return]

    def joins(self) -> Request:
        """Return its JoinGroup request."""
        self.is_stable, joining = False, self.join_group("join")
        assert isinstance(joining, JoinGroup), "a join is a JoinGroup request"
        return replace(joining, session_timeout_ms=SESSION_TIMEOUT_MS, member_id=self.member_id)

    def beats(self) -> Heartbeat:
        """Return its heartbeat, for a record of many."""
        beat = self.heartbeat(self.inbox)
        assert isinstance(beat, Heartbeat), "a heartbeat is a Heartbeat request"
        return beat


class Crowd:
    """The members of one shard, and what they send next.

    Args:
        names: The groups.
        each: The members of a group.
    """

    def __init__(self, names: Sequence[str], each: int) -> None:
        self._chance = Random(len(names))
        self._names = names
        self._places = {name: place for place, name in enumerate(names)}
        self._numbers = [each] * len(names)
        self._alive: dict[str, Worker] = {}
        """The members that live, by their mailboxes."""
        self._of_group: list[list[Worker]] = [[] for _ in names]
        self._comes: defaultdict[int, list[Worker]] = defaultdict(list)
        self._next: list[Request] = []
        self._losses: defaultdict[int, list[int]] = defaultdict(list)
        self.deaths = 0
        for place, name in enumerate(names):
            self._comes[place % JOINS_WITHIN_S] += [Worker(name, number) for number in range(each)]
            self._losses[place * LOSS_EVERY_S // len(names)].append(place)

    @property
    def members(self) -> int:
        return len(self._alive)

    def requests(self, now_s: int) -> Iterator[Request]:
        """Yield the requests of one second, with heartbeats last."""
        for worker in self._comes.pop(now_s, ()):
            self._alive[worker.inbox] = worker
            self._of_group[self._places[worker.group_id]].append(worker)
            yield worker.joins()
        yield from self._next
        self._next = []
        beats: list[Heartbeat] = []
        for worker in self._alive.values():
            turn = self._places[worker.group_id] + worker.number - now_s
            if worker.is_stable and turn % COMMIT_EVERY_S == 0:
                yield worker.commit("commit")
            if worker.is_stable and turn % HEARTBEAT_INTERVAL_S == 0:
                beats.append(worker.beats())
        for start in range(0, len(beats), HEARTBEATS_MAX):
            yield Heartbeats.of(beats[start : start + HEARTBEATS_MAX], request_id="beats", reply_to=BEATS)

    def hear(self, reply: Reply) -> None:
        """Note a response, and what its member sends next."""
        answer = reply.answer
        if isinstance(answer, HeartbeatsAnswer):
            for inbox, code in zip(answer.request_ids, answer.codes, strict=True):
                if code and (worker := self._alive.get(inbox)) is not None and worker.is_stable:
                    self._joins_again(worker, code)
            return
        worker = self._alive.get(reply.to)
        if worker is None or not isinstance(answer, JoinGroupAnswer | SyncGroupAnswer | OffsetCommitAnswer):
            return  # a member that is gone, or a notice: the next heartbeat says the same
        if answer.code:
            if worker.is_stable or not isinstance(answer, OffsetCommitAnswer):
                self._joins_again(worker, answer.code)
        elif isinstance(answer, JoinGroupAnswer):
            worker.take(answer)
            self._next.append(worker.sync_group("sync"))
        elif isinstance(answer, SyncGroupAnswer):
            worker.is_stable = True

    def _joins_again(self, worker: Worker, code: int) -> None:
        assert code in AGAIN, f"{worker.client_id} got the error {code}"
        if code == UNKNOWN:
            worker.member_id = ""
        self._next.append(worker.joins())

    def lose(self, now_s: int) -> None:
        """Remove a member of each group whose turn it is, and start another one for it."""
        for place in self._losses[now_s % LOSS_EVERY_S]:
            those = [worker for worker in self._of_group[place] if worker.is_stable]
            if those:
                gone = self._chance.choice(those)
                self._of_group[place].remove(gone)
                del self._alive[gone.inbox]
                self.deaths += 1
                self._comes[now_s + JOINS_AGAIN_S].append(Worker(self._names[place], self._numbers[place]))
                self._numbers[place] += 1


# -- one shard ---------------------------------------------------------------------------------------------------------


class Running:
    """The batches of one shard, as the operator runs them, and their figures."""

    def __init__(self, number: int, crowd: Crowd) -> None:
        self._number, self._crowd = number, crowd
        self._rosters, self._offset = MemberIndexCache(), 0
        self._state: bytes | None = None
        self.took_s = list[float]()
        self.requests = self.expired = self.rebalances = self.state_bytes = 0

    def batch(self, now_s: int, *, is_measured: bool) -> None:
        """Handle the requests of one second."""
        asked, now_ms = [*self._crowd.requests(now_s), Wake()], now_s * MS
        log = [Received(self._offset + place, now_ms, request) for place, request in enumerate(asked)]
        self._offset += len(log)
        began_s = time.process_time()
        shard = Shard(self._number, SHARDS, SECRET, Config(), self._state, self._rosters)
        outputs = shard.step(log, now_ms)
        self._state = shard.to_bytes()
        batch_s = time.process_time() - began_s
        assert not shard.deferred, "each batch is handled whole"
        for output in outputs:
            if isinstance(output, Reply):
                self._crowd.hear(output)
        self.expired += sum(isinstance(output, MemberExpired) for output in outputs)
        if is_measured:
            self.took_s.append(batch_s)
            self.requests += sum(len(each.groups) if isinstance(each, Heartbeats) else 1 for each in asked)
            self.rebalances += sum(isinstance(output, RebalanceCompleted) for output in outputs)
            self.state_bytes = max(self.state_bytes, len(self._state or b""))


def run(load: Load, number: int) -> Found:
    """Return the figures of one shard, after it has run."""
    disable_garbage_collection()
    names = [f"orders-{group:06}" for group in range(load.groups)]
    crowd = Crowd([name for name in names if shard_of(name, SHARDS) == number], load.each)
    running = Running(number, crowd)
    for now_s in range(BEGINS_S + load.seconds):
        if is_measured := now_s >= BEGINS_S:
            crowd.lose(now_s)
        running.batch(now_s, is_measured=is_measured)
    took_s = running.took_s
    return Found(
        number,
        crowd.members,
        running.requests,
        sum(took_s),
        max(took_s),
        percentile(took_s, 99),
        running.state_bytes,
        crowd.deaths,
        running.expired,
        running.rebalances,
    )


# -- all shards --------------------------------------------------------------------------------------------------------


def main() -> int:
    """Run the shards, and print their figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.million", description=__doc__)
    parser.add_argument("--groups", type=int, default=GROUPS, help="groups of all 64 shards")
    parser.add_argument("--members", type=int, default=EACH, help="members of each group")
    parser.add_argument("--shards", type=int, default=SHARDS, help="how many of the 64 shards run")
    parser.add_argument("--minutes", type=float, default=10, help="minutes of simulated time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    load = Load(options.groups, options.members, round(60 * options.minutes))
    with ProcessPoolExecutor(options.jobs) as processes, shown(Work("Running", "shards", options.shards)) as work:
        found = []
        for each in processes.map(partial(run, load), range(options.shards)):
            found.append(each)
            work.advance()
    show(load, found)
    if any(each.expired > each.deaths for each in found):
        sys.exit("A member that lives has expired.")
    return 0


def show(load: Load, found: Sequence[Found]) -> None:
    """Print the figures of the shards together."""
    requests, cpu_s = sum(each.requests for each in found), sum(each.cpu_s for each in found)
    members = sum(each.members for each in found)
    lost, expired = sum(each.deaths for each in found), sum(each.expired for each in found)
    print(f"{members} members of {load.each} in a group, on {len(found)} of {SHARDS} shards, for {load.seconds} s:")
    print(f"  {requests} requests, {requests / load.seconds:.0f} a second; {1e6 * cpu_s / requests:.2f} µs each")
    print(f"  {cpu_s / load.seconds:.2f} cores for these shards, without Spark and Kafka")
    print(f"  a batch of a shard: p99 {MS * max(each.p99_s for each in found):.0f} ms in the slowest shard,")
    print(f"    the longest {MS * max(each.longest_s for each in found):.0f} ms")
    print(f"  state: {sum(each.state_bytes for each in found) / 1e6:.1f} MB, "
          f"{sum(each.state_bytes for each in found) / members:.0f} bytes a member, "
          f"{max(each.state_bytes for each in found) / 1e6:.2f} MB in the largest shard")  # fmt: skip
    print(f"  {sum(each.rebalances for each in found)} rebalances; {lost} members died, and {expired} expired")


if __name__ == "__main__":
    sys.exit(main())
