"""The cost in a shard when many members of one group act at the same time, without Spark and Kafka.

All members act within one second, in batches of a tenth of a second. Seconds are processor time of the steps, the state
and the records. Bytes are the size of the records. Each cost is compared with the cost of a tenth of the members. A
linear cost is ten times as large.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from coordinator.base.config import Config
from coordinator.base.states import Phase
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    Assignment,
    DescribeGroup,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetToCommit,
    Protocol,
    Received,
    Request,
    SyncGroup,
)
from coordinator.messages.responses import JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from coordinator.state.member_index import MemberIndexCache
from streaming.wire.records import OutputTopics, pack
from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures
from tests.coordinator.waking import wake

MEMBERS = (1_000, 10_000)
BATCHES = 10
PATIENCE_S = 400
PUBLISHED_S = 10
BEGIN_MS = 1_790_000_000_000
CONFIG = Config(group_max_size=2 * MEMBERS[-1])  # a full group refuses a returning static member, as Kafka's does
TOPICS = OutputTopics("replies", "groups", "events", "requests")
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff\x00\x00\x00\x00"
ASSIGNMENT = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x01\x00\x00\x00\x07\xff\xff\xff\xff"


class Cost(NamedTuple):
    """Processor seconds, published bytes, and the longest step with its state and records, in seconds."""

    seconds: float
    out_bytes: int
    longest_s: float


class Group:
    """A shard with one group, and its responses by request id."""

    def __init__(self) -> None:
        self.now_ms, self._offset = BEGIN_MS, 0
        self._state: bytes | None = None
        self._rosters = MemberIndexCache()
        self._left: list[Received] = []
        self.answers: dict[str, Output] = {}

    def during_a_second(self, requests: Sequence[Request]) -> Cost:
        """Pass requests to the shard over one second, then run steps until no request is deferred."""
        costs = [
            self._batch(requests[tenth * len(requests) // BATCHES : (tenth + 1) * len(requests) // BATCHES], 100)
            for tenth in range(BATCHES)
        ]
        while self._left:
            costs.append(self._batch([], 100))
        return _sum(costs)

    def until(self, phase: Phase) -> Cost:
        """Advance the time without requests until the group is in this phase."""
        costs = [Cost(0, 0, 0)]
        while self.phase is not phase:
            assert len(costs) < PATIENCE_S, f"the group stays {self.phase}"
            costs.append(self._batch([], 1_000))
        return _sum(costs)

    def idle(self, seconds: int) -> Cost:
        """Advance the time without requests."""
        return _sum([self._batch([], 1_000) for _ in range(seconds)])

    @property
    def phase(self) -> Phase:
        """The phase of the group."""
        group = Shard(0, 1, b"x" * 32, CONFIG, self._state).group("g")
        assert group is not None, "the group exists"
        return group.phase

    def _batch(self, requests: Sequence[Request], after_ms: int) -> Cost:
        self.now_ms += after_ms
        log = list(self._left)
        for request in requests:
            self._offset += 1
            log.append(Received(self._offset, self.now_ms, request, None, 300))
        begun_s = time.process_time()
        shard = Shard(0, 1, b"x" * 32, CONFIG, self._state, self._rosters)
        outputs = shard.step([*log, wake(self.now_ms)], self.now_ms)
        self._state, self._left = shard.to_bytes(), list(shard.deferred)
        out_bytes = sum(len(value or b"") for pack_ in pack(outputs, TOPICS, 0) for value in pack_.values)
        seconds = time.process_time() - begun_s
        for output in outputs:
            if isinstance(output, Reply) and output.answer.request_id is not None:
                self.answers[output.answer.request_id] = output
        return Cost(seconds, out_bytes, seconds)


def _sum(costs: Sequence[Cost]) -> Cost:
    seconds, out_bytes, longest = zip(*costs, strict=True)
    return Cost(sum(seconds), sum(out_bytes), max(longest))


def measure(options: argparse.Namespace) -> Figures:
    """Measure groups of two sizes whose members all act at once."""
    found: dict[str, float] = {}
    for name, act in ACTS.items():
        say(f"{MEMBERS[-1]} members of one group together: {name.replace('_', ' ')}.")
        few, many = (act(members) for members in MEMBERS)
        found[f"together_{name}_s"] = many.seconds
        found[f"together_{name}_step_s"] = many.longest_s
        found[f"together_{name}_mib"] = many.out_bytes / 2**20
        found[f"together_{name}_growth"] = many.seconds / few.seconds
    return found


# -- the actions -------------------------------------------------------------------------------------------------------


def _joining(
    name: str, *, is_static: bool, member_id: str = "", knows_id: bool = False, process: str = "first"
) -> JoinGroup:
    return JoinGroup(
        request_id=f"{process} join {name} {member_id}", reply_to=f"{process} inbox of {name}", group_id="g",
        client_id="consumer",
        client_host="/10.0.0.1", member_id=member_id, group_instance_id=name if is_static else None,
        session_timeout_ms=45_000, rebalance_timeout_ms=300_000, protocol_type="consumer",
        protocols=(Protocol("range", SUBSCRIPTION),), require_known_member_id=knows_id,
    )  # fmt: skip


def _stable(members: int, *, is_static: bool) -> tuple[Group, list[str], Cost]:
    """Make a group Stable; return it, its members' ids, and the cost of the joins and syncs."""
    group = Group()
    cost = group.during_a_second([_joining(f"m{n}", is_static=is_static) for n in range(members)])
    cost = _sum([cost, group.until(Phase.COMPLETING)])
    joined = [_join_answer(group, f"first join m{n} ") for n in range(members)]
    leader = joined[0].leader
    assignments = tuple(Assignment(answer.member_id, ASSIGNMENT) for answer in joined)
    syncs = [
        SyncGroup(
            request_id=f"sync {n}",
            reply_to=f"inbox of m{n}",
            group_id="g",
            member_id=answer.member_id,
            generation_id=answer.generation_id,
            assignments=assignments if answer.member_id == leader else (),
        )
        for n, answer in enumerate(joined)
    ]
    cost = _sum([cost, group.during_a_second(syncs)])
    assert group.phase is Phase.STABLE, f"the group is {group.phase}"
    return group, [answer.member_id for answer in joined], cost


def _join_answer(group: Group, request_id: str) -> JoinGroupAnswer:
    output = group.answers[request_id]
    assert isinstance(output, Reply), "only replies are kept"
    assert isinstance(output.answer, JoinGroupAnswer), "the response to a join is a JoinGroupAnswer"
    assert output.answer.code == 0, f"a join was refused: {output.answer.error}"
    return output.answer


def _restart_static(members: int) -> Cost:
    group, _, _ = _stable(members, is_static=True)
    cost = group.during_a_second([_joining(f"m{n}", is_static=True, process="second") for n in range(members)])
    for n in range(members):
        _join_answer(group, f"second join m{n} ")
    return _sum([cost, group.idle(PUBLISHED_S)])


def _restart_dynamic(members: int) -> Cost:
    """Make all members leave, and join again as new members with two joins each, as current clients do."""
    group, ids, _ = _stable(members, is_static=False)
    left = group.during_a_second([_leaving(member_id) for member_id in ids])
    asked = group.during_a_second([_joining(f"n{n}", is_static=False, knows_id=True) for n in range(members)])
    given = []
    for n in range(members):
        output = group.answers[f"first join n{n} "]
        assert isinstance(output, Reply), "only replies are kept"
        assert isinstance(output.answer, JoinGroupAnswer), "the response to a join is a JoinGroupAnswer"
        given.append(output.answer.member_id)
    joins = [_joining(f"n{n}", is_static=False, member_id=member_id) for n, member_id in enumerate(given)]
    return _sum([left, asked, group.during_a_second(joins), group.until(Phase.COMPLETING)])


def _join(members: int) -> Cost:
    return _stable(members, is_static=False)[2]


def _leave(members: int) -> Cost:
    group, ids, _ = _stable(members, is_static=False)
    return group.during_a_second([_leaving(member_id) for member_id in ids])


def _leaving(member_id: str) -> LeaveGroup:
    return LeaveGroup(request_id=f"leave {member_id}", reply_to="in", group_id="g", members=(Leaving(member_id, None),))


def _expire(members: int) -> Cost:
    group, _, _ = _stable(members, is_static=False)
    return group.until(Phase.EMPTY)


def _commit(members: int) -> Cost:
    group, ids, _ = _stable(members, is_static=False)
    commits = [
        OffsetCommit(
            request_id=f"commit {n}",
            reply_to="in",
            group_id="g",
            member_id=member_id,
            generation_id=1,
            offsets=(OffsetToCommit("orders", n, n),),
        )
        for n, member_id in enumerate(ids)
    ]
    return group.during_a_second(commits)


def _describe(members: int) -> Cost:
    group, _, _ = _stable(members, is_static=False)
    return group.during_a_second(
        [DescribeGroup(request_id=f"describe {n}", reply_to="in", group_id="g") for n in range(members)]
    )


ACTS: dict[str, Callable[[int], Cost]] = {
    "join": _join,
    "restart_static": _restart_static,
    "restart_dynamic": _restart_dynamic,
    "leave": _leave,
    "expire": _expire,
    "commit": _commit,
    "describe": _describe,
}

if __name__ == "__main__":
    bench.main(measure)
