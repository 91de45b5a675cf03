"""Members and the coordinator, without an engine, a real clock or a network, as their owners see them."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from coordinator.base.config import Config
from coordinator.base.states import Phase
from coordinator.member.effects import Assigned, CommitEnded, Failed, Left, MakePlan, PartitionsLost, PrepareToJoin
from coordinator.member.member import Action, Member, MemberState
from coordinator.member.requests import MemberConfig
from coordinator.messages.fields import BaseRequest
from coordinator.messages.requests import Assignment, LeaveGroup, OffsetToCommit, Protocol, Received, Request
from coordinator.messages.responses import (
    AnyAnswer,
    HeartbeatAnswer,
    JoinGroupAnswer,
    OffsetFetchAnswer,
    RebalanceNotice,
    Reply,
    SyncGroupAnswer,
)
from coordinator.shard.shard import Shard
from tests.coordinator.waking import wake

BATCH_MS = 200
PARTITIONS = range(6)
PROTOCOLS = (Protocol("turns", b"everything"),)


# -- a simulation without an engine ------------------------------------------------------------------------------------


@dataclass
class Worker:
    """An owner: it polls, revokes, computes assignments, and keeps its partitions."""

    name: str
    member: Member
    owned: set[int] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    is_awake: bool = True
    is_polling: bool = True

    def take(self, todos: list[Action], now_ms: int) -> Iterator[Request]:
        """Handle the member's calls, and yield the requests to send."""
        for todo in todos:
            match todo:
                case BaseRequest():
                    yield todo
                case PrepareToJoin():
                    self._give_up("revoked")
                    yield from self.take(self.member.join(PROTOCOLS, now_ms), now_ms)
                case MakePlan(generation_id, _, members):
                    plan = [
                        Assignment(m.member_id, bytes(PARTITIONS[i :: len(members)])) for i, m in enumerate(members)
                    ]
                    yield from self.take(self.member.plan(generation_id, plan, now_ms), now_ms)
                case Assigned(generation_id, _, assignment) if generation_id == self.member.generation_id:
                    self.owned = set(assignment)
                    self.calls.append(f"assigned {sorted(self.owned)}")
                case PartitionsLost():
                    self._give_up("lost")
                case CommitEnded(_, _, error):
                    self.calls.append(f"commit {error}")
                case Left():
                    self.calls.append("left")
                case Failed():
                    self.calls.append("failed")

    def _give_up(self, how: str) -> None:
        if self.owned:
            self.calls.append(how)
        self.owned = set()


class Simulation:
    """Workers and one shard with one clock; a batch takes `BATCH_MS`.

    `deliver` returns the number of copies of a response.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.now_ms = 1_000_000
        self.shard = Shard(0, 1, b"a secret of the tests", config or Config(group_initial_rebalance_delay_ms=0))
        self.workers: dict[str, Worker] = {}
        self.log: list[Received] = []
        self.offset = 0
        self.heard: list[tuple[str, AnyAnswer]] = []
        self.deliver: Callable[[str, AnyAnswer], int] = lambda name, answer: 1

    def start(self, *names: str, **config: int) -> None:
        for name in names:
            settings = MemberConfig(group_id="g", reply_to=name, client_id=name, protocol_type="work", **config)  # type: ignore[arg-type]
            worker = self.workers[name] = Worker(name, Member(settings, f"{name}-{self.now_ms}-", self.now_ms))
            self.send(worker, worker.member.subscribe())

    def send(self, worker: Worker, todos: list[Action]) -> None:
        for request in worker.take(todos, self.now_ms):
            self.log.append(Received(self.offset, self.now_ms, request))
            self.offset += 1

    def stop(self, name: str) -> None:
        self.workers[name].owned = set()
        self.send(self.workers[name], self.workers[name].member.leave("consumer closed", self.now_ms))

    def batch(self) -> None:
        """Run one batch of the coordinator, and one turn of every worker that is awake."""
        log, self.log = self.log, []
        self.now_ms += BATCH_MS
        log.append(wake(self.now_ms, self.offset))
        for output in self.shard.step(log, self.now_ms):
            worker = self.workers.get(output.to) if isinstance(output, Reply) else None
            if isinstance(output, Reply) and worker is not None and worker.is_awake:
                for _ in range(self.deliver(worker.name, output.answer)):
                    self.heard.append((worker.name, output.answer))
                    self.send(worker, worker.member.receive(output.answer, self.now_ms))
        for worker in filter(lambda w: w.is_awake, list(self.workers.values())):
            self.send(worker, worker.member.advance(self.now_ms))
            if worker.is_polling:
                self.send(worker, worker.member.poll(self.now_ms))

    def run(self, duration_ms: int) -> None:
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            self.batch()

    def settle(self, within_ms: int = 60_000) -> None:
        """Run until the group is at rest: Stable, with every worker, and one owner of every partition."""
        until_ms = self.now_ms + within_ms
        while not self.is_settled:
            assert self.now_ms < until_ms, f"not at rest: {self}"
            self.batch()

    @property
    def is_settled(self) -> bool:
        group, members = self.shard.group("g"), [w.member for w in self.workers.values() if w.member.is_subscribed]
        owned = sorted(p for w in self.workers.values() for p in w.owned)
        return (
            group is not None
            and group.phase is Phase.STABLE
            and set(group.members) == {m.member_id for m in members}
            and all(m.state is MemberState.STABLE and not m.rejoin_needed for m in members)
            and all(m.generation_id == group.generation_id for m in members)
            and owned == list(PARTITIONS)
        )

    def __str__(self) -> str:
        group = self.shard.group("g")
        workers = {w.name: (w.member.state.name, w.member.generation_id, w.owned) for w in self.workers.values()}
        return f"{self.now_ms} {group and (group.phase, group.generation_id, list(group.members))} {workers}"

    @property
    def generation_id(self) -> int:
        group = self.shard.group("g")
        assert group is not None
        return group.generation_id


def settled(*names: str, **config: int) -> Simulation:
    simulation = Simulation()
    simulation.start(*names, **config)
    simulation.settle()
    for worker in simulation.workers.values():
        worker.calls.clear()
    simulation.heard.clear()
    return simulation


# -- members and the coordinator ---------------------------------------------------------------------------------------


def test_members_that_start_together_share_one_generation() -> None:
    """S02, S119: join, sync, stable. Each gets its assignment once, and revokes nothing before it owns a partition."""
    simulation = Simulation(Config(group_initial_rebalance_delay_ms=1_000))
    simulation.start("ana", "bo", "cy")
    simulation.settle()
    assert simulation.generation_id == 1
    assert {name: w.calls for name, w in simulation.workers.items()} == {
        "ana": ["assigned [0, 3]"], "bo": ["assigned [1, 4]"], "cy": ["assigned [2, 5]"],
    }  # fmt: skip


def test_a_new_member_makes_the_others_rejoin_by_notice() -> None:
    """S03, S110, design 4: they rejoin long before their next heartbeat."""
    simulation = settled("ana", "bo", heartbeat_interval_ms=20_000)
    simulation.start("cy")
    simulation.settle(within_ms=6 * BATCH_MS)
    assert [name for name, answer in simulation.heard if isinstance(answer, RebalanceNotice)] == ["ana", "bo"]


def test_without_a_notice_the_heartbeat_makes_a_member_rejoin() -> None:
    """S109: a notice is only a hint; a heartbeat's response is sufficient."""
    simulation = settled("ana", "bo", heartbeat_interval_ms=3_000)
    was = simulation.generation_id
    simulation.deliver = lambda name, answer: not isinstance(answer, RebalanceNotice)
    simulation.start("cy")
    simulation.settle(within_ms=3_000 + 7 * BATCH_MS)
    assert simulation.generation_id == was + 1


def test_revoke_and_assign_run_once_a_rebalance_in_this_order() -> None:
    """S121, S122: the listener is called once in each rebalance, in this order."""
    simulation = settled("ana", "bo")
    simulation.start("cy")
    simulation.settle()
    assert {name: w.calls for name, w in simulation.workers.items()} == {
        "ana": ["revoked", "assigned [0, 3]"], "bo": ["revoked", "assigned [1, 4]"], "cy": ["assigned [2, 5]"],
    }  # fmt: skip


def test_a_member_that_leaves_hands_over_at_once_and_sends_no_heartbeat() -> None:
    """S04, S113, S114: one leave request is answered and its id is gone; a later subscription joins as a new member."""
    simulation = settled("ana", "bo")
    bo, was = simulation.workers["bo"].member, simulation.workers["bo"].member.member_id
    simulation.stop("bo")
    assert (bo.state, bo.member_id, bo.generation_id) == (MemberState.UNJOINED, "", -1)
    assert [type(r.request) for r in simulation.log] == [LeaveGroup]
    simulation.settle(within_ms=6 * BATCH_MS)
    simulation.run(10_000)
    assert simulation.workers["bo"].calls == ["left"]
    assert not any(isinstance(answer, HeartbeatAnswer) for name, answer in simulation.heard if name == "bo")
    simulation.send(simulation.workers["bo"], bo.subscribe())
    simulation.settle()
    assert bo.member_id not in ("", was)


def test_a_member_that_slept_past_its_session_joins_as_a_new_one() -> None:
    """S05, S06: kill -9 and SIGSTOP look equal to the others. After waking up, it has lost its partitions."""
    simulation = settled("ana", "bo", session_timeout_ms=10_000)
    bo = simulation.workers["bo"]
    was, bo.is_awake = bo.member.member_id, False
    simulation.run(20_000)
    assert simulation.workers["ana"].owned == set(PARTITIONS)
    bo.is_awake = True
    simulation.settle()
    assert bo.calls == ["lost", "assigned [1, 3, 5]"]
    assert bo.member.member_id != was


def test_two_lost_heartbeats_in_a_row_expel_no_member() -> None:
    """S111: the heartbeat interval is a third of the session timeout, so three heartbeats fit in."""
    simulation = settled("ana", "bo", session_timeout_ms=9_000, heartbeat_interval_ms=3_000)
    generation_id = simulation.generation_id
    simulation.workers["bo"].is_awake = False
    simulation.run(8_000)
    simulation.workers["bo"].is_awake = True
    simulation.run(10_000)
    assert simulation.is_settled
    assert simulation.generation_id == generation_id


def test_an_owner_that_does_not_poll_leaves_and_joins_again_with_its_next_poll() -> None:
    """W24; protocol.md 6.3, poll timer: the member leaves, and joins again with the next poll."""
    simulation = settled("ana", "bo", max_poll_interval_ms=30_000)
    bo = simulation.workers["bo"]
    bo.is_polling = False
    simulation.run(31_000)
    assert bo.member.state is MemberState.UNJOINED
    assert bo.calls == ["lost", "left"]
    assert simulation.workers["ana"].owned == set(PARTITIONS)
    bo.is_polling = True
    simulation.settle()


LOSSES: dict[str, Callable[[AnyAnswer], bool]] = {
    "a leader's join": lambda a: isinstance(a, JoinGroupAnswer) and a.code == 0 and a.leader == a.member_id,
    "a follower's join": lambda a: isinstance(a, JoinGroupAnswer) and a.code == 0 and a.leader != a.member_id,
    "a sync": lambda a: isinstance(a, SyncGroupAnswer),
    "a heartbeat": lambda a: isinstance(a, HeartbeatAnswer),
}


@pytest.mark.parametrize("lost", LOSSES)
@pytest.mark.parametrize("copies", [0, 2], ids=["never comes", "comes twice"])
def test_a_lost_or_repeated_response_does_not_change_the_result(lost: str, copies: int) -> None:
    """Protocol.md 8.4 and 8.5: the same request is sent again, and the coordinator's response is the same."""
    simulation = Simulation()
    hit: list[str] = []

    def deliver(name: str, answer: AnyAnswer) -> int:
        if not hit and LOSSES[lost](answer):
            hit.append(name)
            return copies
        return 1

    simulation.deliver = deliver
    simulation.start("ana", "bo", "cy", request_timeout_ms=5_000)
    simulation.run(30_000)
    simulation.settle()
    assert hit


def test_offsets_are_committed_by_members_of_the_generation_and_read_back() -> None:
    """S136, S142: a new owner reads the committed offsets."""
    simulation = settled("ana")
    ana = simulation.workers["ana"]
    _, todos = ana.member.commit((OffsetToCommit("t", 0, 7),), simulation.now_ms)
    simulation.send(ana, todos)
    simulation.batch()
    assert ana.calls == ["commit NONE"]
    _, todos = ana.member.fetch(None, simulation.now_ms)
    simulation.send(ana, todos)
    simulation.batch()
    answer = simulation.heard[-1][1]
    assert isinstance(answer, OffsetFetchAnswer)
    assert [(p.topic, p.partition, p.offset) for p in answer.partitions] == [("t", 0, 7)]


def test_a_member_may_commit_in_preparing_and_not_in_completing() -> None:
    """Protocol.md 3.6 and 6.2: a commit before the revocation succeeds, one in CompletingRebalance fails."""
    simulation = settled("ana")
    simulation.start("bo")
    ana = simulation.workers["ana"]
    ana.is_polling = False
    while not ana.member.rejoin_needed:
        simulation.batch()
    _, todos = ana.member.commit((OffsetToCommit("t", 0, 7),), simulation.now_ms)
    simulation.send(ana, todos)
    simulation.batch()
    simulation.send(ana, ana.member.poll(simulation.now_ms))
    _, todos = ana.member.commit((OffsetToCommit("t", 0, 8),), simulation.now_ms)
    simulation.send(ana, todos)
    assert ana.calls == ["commit NONE", "revoked", "commit REBALANCE_IN_PROGRESS"]


@pytest.mark.parametrize("seed", range(40))
def test_a_group_comes_to_rest_after_random_faults(seed: int) -> None:
    """Thirty seconds of faults, then none: Stable, with every worker, and one owner of each partition."""
    chance = random.Random(seed)
    simulation = Simulation(Config(group_initial_rebalance_delay_ms=chance.choice((0, 1_000))))
    simulation.deliver = lambda name, answer: chance.choices((0, 1, 2), (2, 7, 1))[0]
    names = [f"m{i}" for i in range(6)]
    simulation.start(*names[:3], session_timeout_ms=6_000, heartbeat_interval_ms=1_000, request_timeout_ms=2_000,
                max_poll_interval_ms=15_000)  # fmt: skip
    until_ms = simulation.now_ms + 30_000
    while simulation.now_ms < until_ms:
        simulation.run(chance.randrange(BATCH_MS, 3_000))
        worker = chance.choice(list(simulation.workers.values()))
        match chance.choice(("sleep", "idle", "leave", "back", "start")):
            case "sleep":
                worker.is_awake = not worker.is_awake
            case "idle":
                worker.is_polling = not worker.is_polling
            case "leave" if worker.is_awake:
                simulation.stop(worker.name)
            case "back" if worker.is_awake and not worker.member.is_subscribed:
                simulation.send(worker, worker.member.subscribe())
            case "start" if len(simulation.workers) < len(names):
                simulation.start(names[len(simulation.workers)], session_timeout_ms=6_000, heartbeat_interval_ms=1_000,
                            request_timeout_ms=2_000, max_poll_interval_ms=15_000)  # fmt: skip
    simulation.deliver = lambda name, answer: 1
    for worker in simulation.workers.values():
        worker.is_awake = worker.is_polling = True
    if not any(w.member.is_subscribed for w in simulation.workers.values()):
        simulation.send(worker, worker.member.subscribe())
    simulation.settle(within_ms=120_000)
