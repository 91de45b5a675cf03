"""The member's side, against the coordinator itself, with no engine, no clock and no wire between them."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from msgspec import structs

from coordinator.config import Config
from coordinator.effects import (
    Assigned,
    CommitEnded,
    CoordinatorSilent,
    Failed,
    FetchEnded,
    Left,
    Lost,
    MakePlan,
    PrepareToJoin,
    RejoinNeeded,
)
from coordinator.errors import ErrorCode
from coordinator.member import NEVER_MS, Member, MemberConfig, MemberState, Todo
from coordinator.outputs import (
    AnyAnswer,
    CommittedPartition,
    ErrorAnswer,
    HeartbeatAnswer,
    JoinedMember,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    RebalanceNotice,
    Reply,
    SyncGroupAnswer,
)
from coordinator.phases import Phase
from coordinator.reactions import ON_ERROR, RETRY, STOP, Act, action
from coordinator.requests import (
    Asked,
    Assignment,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    Received,
    Request,
    SyncGroup,
)
from coordinator.shard import Shard

BATCH_MS = 200
PARTITIONS = range(6)
PROTOCOLS = (Protocol("turns", b"everything"),)
NONE = ErrorCode.NONE


# -- a world without an engine -----------------------------------------------------------------------------------------


@dataclass
class Worker:
    """What an owner does: it polls, gives up, plans, and keeps what it was assigned."""

    name: str
    member: Member
    owned: set[int] = field(default_factory=set)
    story: list[str] = field(default_factory=list)
    is_awake: bool = True
    is_polling: bool = True

    def take(self, todos: list[Todo], now_ms: int) -> Iterator[Request]:
        """Do what the member asks for; yield the requests to send."""
        for todo in todos:
            match todo:
                case Asked():
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
                    self.story.append(f"assigned {sorted(self.owned)}")
                case Lost():
                    self._give_up("lost")
                case CommitEnded(_, _, error):
                    self.story.append(f"commit {error}")
                case Left():
                    self.story.append("left")
                case Failed():
                    self.story.append("failed")

    def _give_up(self, how: str) -> None:
        if self.owned:
            self.story.append(how)
        self.owned = set()


class World:
    """Workers and one shard on one clock; a batch takes `BATCH_MS`. `deliver` says how often a reply arrives."""

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

    def send(self, worker: Worker, todos: list[Todo]) -> None:
        for request in worker.take(todos, self.now_ms):
            self.log.append(Received(self.offset, self.now_ms, request))
            self.offset += 1

    def stop(self, name: str) -> None:
        self.workers[name].owned = set()
        self.send(self.workers[name], self.workers[name].member.leave("consumer closed", self.now_ms))

    def batch(self) -> None:
        """One batch of the coordinator, and one turn of every worker that is awake."""
        log, self.log = self.log, []
        self.now_ms += BATCH_MS
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
        """Run until the group is at rest: Stable, every worker in it, every partition with one owner."""
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


def settled(*names: str, **config: int) -> World:
    world = World()
    world.start(*names, **config)
    world.settle()
    for worker in world.workers.values():
        worker.story.clear()
    world.heard.clear()
    return world


# -- members and the coordinator ---------------------------------------------------------------------------------------


def test_members_that_start_together_share_one_generation() -> None:
    """S02, S119: join, sync, stable; each hears of its part once and revokes nothing before it owned anything."""
    world = World(Config(group_initial_rebalance_delay_ms=1_000))
    world.start("ana", "bo", "cy")
    world.settle()
    assert world.generation_id == 1
    assert {name: w.story for name, w in world.workers.items()} == {
        "ana": ["assigned [0, 3]"], "bo": ["assigned [1, 4]"], "cy": ["assigned [2, 5]"],
    }  # fmt: skip


def test_a_newcomer_makes_the_others_rejoin_by_notice_long_before_their_next_heartbeat() -> None:
    """S03, S110, design 4."""
    world = settled("ana", "bo", heartbeat_interval_ms=20_000)
    world.start("cy")
    world.settle(within_ms=6 * BATCH_MS)
    assert [name for name, answer in world.heard if isinstance(answer, RebalanceNotice)] == ["ana", "bo"]


def test_without_the_notice_the_heartbeat_tells() -> None:
    """S109: the notice is a hint, the heartbeat is the truth."""
    world = settled("ana", "bo", heartbeat_interval_ms=3_000)
    was = world.generation_id
    world.deliver = lambda name, answer: not isinstance(answer, RebalanceNotice)
    world.start("cy")
    world.settle(within_ms=3_000 + 7 * BATCH_MS)
    assert world.generation_id == was + 1


def test_revoke_and_assign_run_once_a_rebalance_in_this_order() -> None:
    """S121, S122."""
    world = settled("ana", "bo")
    world.start("cy")
    world.settle()
    assert {name: w.story for name, w in world.workers.items()} == {
        "ana": ["revoked", "assigned [0, 3]"], "bo": ["revoked", "assigned [1, 4]"], "cy": ["assigned [2, 5]"],
    }  # fmt: skip


def test_a_member_that_leaves_hands_over_at_once_and_beats_no_more() -> None:
    """S04, S113, S114: one leave request, answered; no id is left; a later subscription joins as somebody new."""
    world = settled("ana", "bo")
    bo, was = world.workers["bo"].member, world.workers["bo"].member.member_id
    world.stop("bo")
    assert (bo.state, bo.member_id, bo.generation_id) == (MemberState.UNJOINED, "", -1)
    assert [type(r.request) for r in world.log] == [LeaveGroup]
    world.settle(within_ms=6 * BATCH_MS)
    world.run(10_000)
    assert world.workers["bo"].story == ["left"]
    assert not any(isinstance(answer, HeartbeatAnswer) for name, answer in world.heard if name == "bo")
    world.send(world.workers["bo"], bo.subscribe())
    world.settle()
    assert bo.member_id not in ("", was)


def test_a_member_that_slept_past_its_session_hears_so_and_comes_back_as_another() -> None:
    """S05, S06: kill -9 and SIGSTOP look alike to the others; waking up, it has lost what it owned."""
    world = settled("ana", "bo", session_timeout_ms=10_000)
    bo = world.workers["bo"]
    was, bo.is_awake = bo.member.member_id, False
    world.run(20_000)
    assert world.workers["ana"].owned == set(PARTITIONS)
    bo.is_awake = True
    world.settle()
    assert bo.story == ["lost", "assigned [1, 3, 5]"]
    assert bo.member.member_id != was


def test_two_lost_heartbeats_in_a_row_expel_nobody() -> None:
    """S111: a third of the session is the heartbeat's interval, so three fit in."""
    world = settled("ana", "bo", session_timeout_ms=9_000, heartbeat_interval_ms=3_000)
    generation_id = world.generation_id
    world.workers["bo"].is_awake = False
    world.run(8_000)
    world.workers["bo"].is_awake = True
    world.run(10_000)
    assert world.is_settled
    assert world.generation_id == generation_id


def test_an_owner_that_does_not_poll_leaves_and_joins_again_with_its_next_poll() -> None:
    """W24; protocol.md 6.3, poll timer."""
    world = settled("ana", "bo", max_poll_interval_ms=30_000)
    bo = world.workers["bo"]
    bo.is_polling = False
    world.run(31_000)
    assert bo.member.state is MemberState.UNJOINED
    assert bo.story == ["lost", "left"]
    assert world.workers["ana"].owned == set(PARTITIONS)
    bo.is_polling = True
    world.settle()


LOSSES: dict[str, Callable[[AnyAnswer], bool]] = {
    "a leader's join": lambda a: isinstance(a, JoinGroupAnswer) and a.code == 0 and a.leader == a.member_id,
    "a follower's join": lambda a: isinstance(a, JoinGroupAnswer) and a.code == 0 and a.leader != a.member_id,
    "a sync": lambda a: isinstance(a, SyncGroupAnswer),
    "a heartbeat": lambda a: isinstance(a, HeartbeatAnswer),
}


@pytest.mark.parametrize("lost", LOSSES)
@pytest.mark.parametrize("copies", [0, 2], ids=["never comes", "comes twice"])
def test_a_reply_that_is_lost_or_repeated_changes_nothing_in_the_end(lost: str, copies: int) -> None:
    """Protocol.md 8.4 and 8.5: the same request once more; the coordinator's answer is the same."""
    world = World()
    hit: list[str] = []

    def deliver(name: str, answer: AnyAnswer) -> int:
        if not hit and LOSSES[lost](answer):
            hit.append(name)
            return copies
        return 1

    world.deliver = deliver
    world.start("ana", "bo", "cy", request_timeout_ms=5_000)
    world.run(30_000)
    world.settle()
    assert hit


def test_offsets_are_committed_by_members_of_the_generation_and_read_back() -> None:
    """S136, S142."""
    world = settled("ana")
    ana = world.workers["ana"]
    _, todos = ana.member.commit((OffsetToCommit("t", 0, 7),), world.now_ms)
    world.send(ana, todos)
    world.batch()
    assert ana.story == ["commit NONE"]
    _, todos = ana.member.fetch(None, world.now_ms)
    world.send(ana, todos)
    world.batch()
    answer = world.heard[-1][1]
    assert isinstance(answer, OffsetFetchAnswer)
    assert [(p.topic, p.partition, p.offset) for p in answer.partitions] == [("t", 0, 7)]


def test_a_member_may_commit_before_it_gives_up_and_not_while_the_plan_is_made() -> None:
    """Protocol.md 3.6 and 6.2."""
    world = settled("ana")
    world.start("bo")
    ana = world.workers["ana"]
    ana.is_polling = False
    while not ana.member.rejoin_needed:
        world.batch()
    _, todos = ana.member.commit((OffsetToCommit("t", 0, 7),), world.now_ms)
    world.send(ana, todos)
    world.batch()
    world.send(ana, ana.member.poll(world.now_ms))
    _, todos = ana.member.commit((OffsetToCommit("t", 0, 8),), world.now_ms)
    world.send(ana, todos)
    assert ana.story == ["commit NONE", "revoked", "commit REBALANCE_IN_PROGRESS"]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_lost_repeated_or_asleep_the_group_comes_to_rest(seed: int) -> None:
    """Thirty seconds of trouble, then none: Stable, everybody in it, each partition with one owner."""
    chance = random.Random(seed)
    world = World(Config(group_initial_rebalance_delay_ms=chance.choice((0, 1_000))))
    world.deliver = lambda name, answer: chance.choices((0, 1, 2), (2, 7, 1))[0]
    names = [f"m{i}" for i in range(6)]
    world.start(*names[:3], session_timeout_ms=6_000, heartbeat_interval_ms=1_000, request_timeout_ms=2_000,
                max_poll_interval_ms=15_000)  # fmt: skip
    until_ms = world.now_ms + 30_000
    while world.now_ms < until_ms:
        world.run(chance.randrange(BATCH_MS, 3_000))
        worker = chance.choice(list(world.workers.values()))
        match chance.choice(("sleep", "idle", "leave", "back", "start")):
            case "sleep":
                worker.is_awake = not worker.is_awake
            case "idle":
                worker.is_polling = not worker.is_polling
            case "leave" if worker.is_awake:
                world.stop(worker.name)
            case "back" if worker.is_awake and not worker.member.is_subscribed:
                world.send(worker, worker.member.subscribe())
            case "start" if len(world.workers) < len(names):
                world.start(names[len(world.workers)], session_timeout_ms=6_000, heartbeat_interval_ms=1_000,
                            request_timeout_ms=2_000, max_poll_interval_ms=15_000)  # fmt: skip
    world.deliver = lambda name, answer: 1
    for worker in world.workers.values():
        worker.is_awake = worker.is_polling = True
    if not any(w.member.is_subscribed for w in world.workers.values()):
        world.send(worker, worker.member.subscribe())
    world.settle(within_ms=120_000)


# -- one member, answer by answer --------------------------------------------------------------------------------------


T = TypeVar("T")
ME = MemberConfig(group_id="g", reply_to="inbox", client_id="me", protocol_type="work", together_ms=0)


class Alone:
    """One member whose coordinator is this test."""

    def __init__(self, config: MemberConfig = ME) -> None:
        self.now_ms = 0
        self.generation_id = 0
        self.member = Member(config, "r", 0)

    def joining(self) -> JoinGroup:
        self.member.subscribe()
        self.member.poll(self.now_ms)
        return only(JoinGroup, self.member.join(PROTOCOLS, self.now_ms))

    def syncing(self) -> SyncGroup:
        self.generation_id += 1
        return only(
            SyncGroup,
            self.hears(
                JoinGroupAnswer(
                    request_id=self.joining().request_id,
                    generation_id=self.generation_id,
                    protocol_type="work",
                    protocol_name="turns",
                    leader="another",
                    member_id="me-1",
                )
            ),
        )

    def stable(self) -> "Alone":
        self.hears(SyncGroupAnswer(request_id=self.syncing().request_id, protocol_type="work", protocol_name="turns"))
        assert self.member.state is MemberState.STABLE
        return self

    def stable_later(self) -> "Alone":
        """Stable, where what is sent is held for a moment."""
        join = JoinGroupAnswer(request_id=self.joining().request_id, generation_id=1, protocol_type="work",
                               protocol_name="turns", leader="another", member_id="me-1")  # fmt: skip
        self.hears(join)
        sync = only(SyncGroup, self.passes(self.member.config.together_ms))
        self.hears(SyncGroupAnswer(request_id=sync.request_id, protocol_type="work", protocol_name="turns"))
        return self

    def beating(self) -> Heartbeat:
        self.stable()
        self.now_ms += self.member.config.heartbeat_interval_ms
        return only(Heartbeat, self.member.advance(self.now_ms))

    def committing(self) -> OffsetCommit:
        self.stable()
        return only(OffsetCommit, self.member.commit((OffsetToCommit("t", 0, 1),), self.now_ms)[1])

    def fetching(self) -> OffsetFetch:
        self.stable()
        return only(OffsetFetch, self.member.fetch(None, self.now_ms)[1])

    def hears(self, answer: AnyAnswer) -> list[Todo]:
        return self.member.receive(answer, self.now_ms)

    def refused(self, request: Request, error: ErrorCode) -> list[Todo]:
        made, _ = _ANSWERS[type(request)]
        more = {"member_id": "me-2"} if isinstance(request, JoinGroup) else {}
        return self.hears(made(request_id=request.request_id, error=error.name, code=error.number, **more))

    def passes(self, wait_ms: int) -> list[Todo]:
        self.now_ms += wait_ms
        return self.member.advance(self.now_ms)


_ANSWERS: dict[type, tuple[Callable[..., AnyAnswer], Callable[[Alone], Request]]] = {
    JoinGroup: (JoinGroupAnswer, Alone.joining),
    SyncGroup: (SyncGroupAnswer, Alone.syncing),
    Heartbeat: (HeartbeatAnswer, Alone.beating),
    OffsetCommit: (OffsetCommitAnswer, Alone.committing),
    OffsetFetch: (OffsetFetchAnswer, Alone.fetching),
}


def only(kind: type[T], todos: Sequence[Todo]) -> T:
    (todo,) = todos
    assert isinstance(todo, kind)
    return todo


def outcome(alone: Alone, todos: list[Todo]) -> Act:
    """Read off a member what it has done about an error, by the words of the table."""
    member = alone.member
    if any(isinstance(t, Failed) for t in todos):
        return Act.STOP
    if any(isinstance(t, Lost) for t in todos):
        return Act.NEW_GENERATION if member.member_id else Act.NEW_MEMBER
    if any(isinstance(t, JoinGroup) for t in todos):
        return Act.TAKE_ID if member.member_id == "me-2" else Act.REJOIN
    if any(isinstance(t, RejoinNeeded) for t in todos):
        return Act.REJOIN
    if any(isinstance(t, CommitEnded | FetchEnded) for t in todos):
        return Act.TELL
    assert not todos
    again = alone.passes(ME.retry_backoff_max_ms)
    return Act.REJOIN_LATER if isinstance(again[0], JoinGroup) and member.generation_id == 1 else Act.RETRY


@pytest.mark.parametrize("asked", _ANSWERS)
@pytest.mark.parametrize("error", [e for e in ErrorCode if e is not NONE])
def test_each_error_of_the_table_has_its_effect(asked: type, error: ErrorCode) -> None:
    """Protocol.md 6.2, every cell; what the table does not name stops the member, or is the caller's to know."""
    alone = Alone()
    request = _ANSWERS[asked][1](alone)
    assert outcome(alone, alone.refused(request, error)) is action(asked, error.number)


def test_the_table_is_kafkas() -> None:
    """A few cells of protocol.md 6.2, so that a slip in the table is not its own proof."""
    assert ON_ERROR[SyncGroup, 22] is Act.NEW_GENERATION
    assert ON_ERROR[Heartbeat, 25] is Act.NEW_MEMBER
    assert ON_ERROR[JoinGroup, 79] is Act.TAKE_ID
    assert ON_ERROR[SyncGroup, 16] is Act.REJOIN_LATER
    assert ON_ERROR[OffsetCommit, 27] is Act.REJOIN
    membership = (JoinGroup, SyncGroup, Heartbeat)
    assert {action(asked, code) for asked in membership for code in (23, 24, 26, 30, 35, 81, 82)} == {Act.STOP}
    assert (action(OffsetCommit, 82), action(OffsetCommit, 7), action(OffsetFetch, 88)) == (STOP, RETRY, RETRY)
    assert {action(asked, code) for asked in (OffsetCommit, OffsetFetch) for code in (24, 28, 29, 30)} == {Act.TELL}
    assert {action(asked, 12) for asked in (OffsetCommit, OffsetFetch)} == {Act.TELL}


def test_what_stays_unanswered_is_sent_again_as_it_is() -> None:
    """So the coordinator knows a parked request again, and does not answer it as superseded."""
    alone = Alone()
    request = alone.syncing()
    assert request not in alone.passes(ME.request_timeout_ms - 1)
    assert request in alone.passes(1)


def test_what_was_refused_is_asked_again_under_a_new_id_and_the_owner_need_not_know() -> None:
    alone = Alone()
    request = alone.committing()
    assert alone.refused(request, ErrorCode.COORDINATOR_NOT_AVAILABLE) == []
    again = only(OffsetCommit, alone.passes(ME.retry_backoff_ms * 2))
    assert again.request_id != request.request_id
    ended = only(CommitEnded, alone.hears(OffsetCommitAnswer(request_id=again.request_id)))
    assert ended == CommitEnded(request.request_id, 0, "NONE")


def test_backoffs_grow_to_their_bound_and_differ_from_member_to_member() -> None:
    alone, waits_ms = Alone(), []
    request: Request = alone.joining()
    for _ in range(8):
        alone.refused(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        waits_ms.append(alone.member.deadline_ms - alone.now_ms)
        request = only(JoinGroup, alone.passes(waits_ms[-1]))
    bounds_ms = (100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000)
    for wait_ms, bound_ms in zip(waits_ms, bounds_ms, strict=True):
        assert bound_ms * 4 // 5 <= wait_ms <= bound_ms * 6 // 5
    assert len(set(waits_ms[4:])) > 1


def test_an_old_commit_is_not_sent_again_after_a_newer_one() -> None:
    """Whichever of the two the coordinator kept last, offsets do not go back."""
    alone = Alone()
    first = alone.committing()
    second = only(OffsetCommit, alone.member.commit((OffsetToCommit("t", 0, 2),), alone.now_ms)[1])
    alone.hears(OffsetCommitAnswer(request_id=second.request_id))
    todos = [t for t in alone.passes(ME.request_timeout_ms) if not isinstance(t, Heartbeat)]
    assert only(CommitEnded, todos) == CommitEnded(first.request_id, 15, "COORDINATOR_NOT_AVAILABLE")


def test_an_answer_to_a_generation_that_is_over_says_nothing_about_this_one() -> None:
    """S114, protocol.md 6.2: "if generation unchanged ... else ignore"."""
    alone = Alone()
    beat = alone.beating()
    commit = only(OffsetCommit, alone.member.commit((OffsetToCommit("t", 0, 1),), alone.now_ms)[1])
    alone.member.request_rejoin("for the test")
    alone.stable()
    assert alone.refused(beat, ErrorCode.UNKNOWN_MEMBER_ID) == []
    assert alone.refused(commit, ErrorCode.UNKNOWN_MEMBER_ID) == [
        CommitEnded(commit.request_id, 25, "UNKNOWN_MEMBER_ID")
    ]
    assert (alone.member.state, alone.member.generation_id) == (MemberState.STABLE, 2)


def test_a_notice_for_another_generation_or_member_is_not_for_this_one() -> None:
    alone = Alone().stable()
    notice = RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="me-1")
    for field_name, value in (("group_id", "h"), ("generation_id", 0), ("member_id", "me-0")):
        other = {"group_id": "g", "generation_id": 1, "member_id": "me-1", field_name: value}
        assert alone.hears(RebalanceNotice(request_id=None, **other)) == []  # type: ignore[arg-type]
    assert alone.hears(notice) == [RejoinNeeded("group is already rebalancing")]
    assert alone.hears(notice) == []


def test_heartbeats_keep_their_rhythm_however_late_the_answers_are() -> None:
    """The log holds them: each renews the session at the time it was appended, answered or not."""
    alone = Alone().stable()
    sent_ms = []
    for _ in range(3):
        alone.now_ms = alone.member.deadline_ms
        sent_ms += [alone.now_ms for t in alone.member.advance(alone.now_ms) if isinstance(t, Heartbeat)]
    assert sent_ms == [3_000, 6_000, 9_000]


def test_no_heartbeat_before_the_join_is_answered() -> None:
    """S119, protocol.md 6.1."""
    alone = Alone()
    alone.joining()
    assert [t for t in alone.passes(20_000) if isinstance(t, Heartbeat)] == []


def test_a_rebalance_heard_of_while_the_plan_is_awaited_is_left_to_the_sync() -> None:
    """Protocol.md 6.2, Heartbeat 27: only in STABLE."""
    alone = Alone()
    alone.syncing()
    beat = only(Heartbeat, alone.passes(ME.heartbeat_interval_ms))
    assert alone.refused(beat, ErrorCode.REBALANCE_IN_PROGRESS) == []


def test_a_leader_plans_for_the_members_it_was_told_and_its_plan_is_void_once_overtaken() -> None:
    alone = Alone()
    others = (JoinedMember("me-1", None, b""), JoinedMember("bo-1", None, b""))
    answer = JoinGroupAnswer(request_id=alone.joining().request_id, generation_id=3, protocol_type="work",
                             protocol_name="turns", leader="me-1", member_id="me-1", members=others)  # fmt: skip
    assert alone.hears(answer) == [MakePlan(3, "turns", others)]
    assert alone.member.plan(2, (), 0) == []
    plan = (Assignment("me-1", b"0"), Assignment("bo-1", b"1"))
    assert only(SyncGroup, alone.member.plan(3, plan, 0)).assignments == plan


def test_a_generation_of_another_type_is_refused() -> None:
    """Protocol.md 6.1: else 23, fatal."""
    alone = Alone()
    answer = JoinGroupAnswer(request_id=alone.joining().request_id, generation_id=1, protocol_type="connect")
    assert Failed(23, "INCONSISTENT_GROUP_PROTOCOL", "the group is of type connect") in alone.hears(answer)


def test_an_invalid_request_is_no_riddle() -> None:
    alone = Alone()
    answer = ErrorAnswer(request_id=alone.joining().request_id, error="INVALID_REQUEST", code=42,
                                  error_message="Expected `int` - at `session_timeout_ms`")  # fmt: skip
    assert Failed(42, "INVALID_REQUEST", "Expected `int` - at `session_timeout_ms`") in alone.hears(answer)


def test_one_partition_that_is_refused_makes_the_commit_fail_with_its_error() -> None:
    alone = Alone()
    answer = OffsetCommitAnswer(
        request_id=alone.committing().request_id,
        partitions=(CommittedPartition("t", 0, "OFFSET_METADATA_TOO_LARGE", 12),),
    )
    assert only(CommitEnded, alone.hears(answer)).code == 12


def test_leaving_before_there_is_an_id_asks_nobody() -> None:
    alone = Alone()
    alone.joining()
    assert alone.member.leave("consumer closed", 0) == []
    assert alone.member.deadline_ms == NEVER_MS


def test_a_leave_that_is_answered_is_over() -> None:
    alone = Alone().stable()
    request = only(LeaveGroup, alone.member.leave("consumer closed", 0))
    assert request.members[0].reason == "consumer closed"
    assert alone.hears(LeaveGroupAnswer(request_id=request.request_id)) == [Left()]


def test_nobody_hears_of_a_commit_or_a_fetch_that_was_given_up() -> None:
    alone = Alone()
    commit = alone.committing()
    _, (fetch,) = alone.member.fetch(None, alone.now_ms)
    for asked, answer in ((commit, OffsetCommitAnswer), (fetch, OffsetFetchAnswer)):
        alone.member.give_up(asked.request_id)
        assert alone.hears(answer(request_id=asked.request_id)) == []


def test_a_plan_for_another_protocol_is_refused() -> None:
    """Protocol.md 6.1: what the sync names must be what the join named."""
    alone = Alone()
    answer = SyncGroupAnswer(request_id=alone.syncing().request_id, protocol_type="work", protocol_name="dice")
    assert Failed(23, "INCONSISTENT_GROUP_PROTOCOL", "the plan is for ('work', 'dice')") in alone.hears(answer)


def test_one_partition_that_may_be_tried_again_has_the_whole_commit_tried_again() -> None:
    """Protocol.md 6.2: under a new id, after a backoff; its owner hears of the last try alone."""
    alone = Alone()
    first = alone.committing()
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    partition = CommittedPartition("t", 0, error.name, error.number)
    assert alone.hears(OffsetCommitAnswer(request_id=first.request_id, partitions=(partition,))) == []
    second = only(OffsetCommit, alone.passes(200))
    assert (second.offsets, second.request_id != first.request_id) == (first.offsets, True)
    ended = only(CommitEnded, alone.hears(OffsetCommitAnswer(request_id=second.request_id)))
    assert (ended.ticket, ended.code) == (first.request_id, 0)


def test_a_fetch_that_is_refused_for_good_ends_with_its_error() -> None:
    alone = Alone()
    asked = alone.fetching()
    assert alone.refused(asked, ErrorCode.INVALID_GROUP_ID) == [FetchEnded(asked.request_id, 24, "INVALID_GROUP_ID")]


def test_a_commit_that_a_rebalance_has_overtaken_ends_with_that() -> None:
    """Protocol.md 6.2: refused for its generation, while the next one is being joined."""
    alone = Alone()
    asked = alone.committing()
    for again in (alone.stable, alone.joining):
        alone.member.request_rejoin("for the test")
        again()
    assert alone.refused(asked, ErrorCode.ILLEGAL_GENERATION) == [
        CommitEnded(asked.request_id, 27, "REBALANCE_IN_PROGRESS")
    ]


def test_a_leave_that_is_refused_is_over_too() -> None:
    """Protocol.md 6.4: who goes does not come back to argue."""
    alone = Alone().stable()
    request = only(LeaveGroup, alone.member.leave("consumer closed", 0))
    answer = LeaveGroupAnswer(request_id=request.request_id, error="COORDINATOR_NOT_AVAILABLE", code=15)
    assert alone.hears(answer) == [Left()]


# -- together ----------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_round_are_held_to_be_sent_together() -> None:
    """One batch of the coordinator takes what is there when it begins; 20 ms are little beside a batch."""
    alone = Alone(structs.replace(ME, together_ms=20)).stable_later()
    notice = RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id="me-1")
    alone.hears(notice)
    alone.now_ms += 5
    assert alone.member.poll(alone.now_ms) == [PrepareToJoin("group is already rebalancing")]
    assert alone.member.join(PROTOCOLS, alone.now_ms) == []
    assert alone.passes(14) == []
    join = only(JoinGroup, alone.passes(1))
    members = (JoinedMember("me-1", None, b""),)
    answer = JoinGroupAnswer(request_id=join.request_id, generation_id=2, protocol_type="work", protocol_name="turns",
                             leader="me-1", member_id="me-1", members=members)  # fmt: skip
    alone.hears(answer)
    assert alone.member.plan(2, (Assignment("me-1", b"1"),), alone.now_ms) == []
    assert only(SyncGroup, alone.passes(20)).assignments == (Assignment("me-1", b"1"),)


def test_a_slow_plan_is_held_no_longer_and_one_that_came_to_nothing_is_asked_for_again() -> None:
    alone = Alone()
    members = (JoinedMember("me-1", None, b""),)
    answer = JoinGroupAnswer(request_id=alone.joining().request_id, generation_id=1, protocol_type="work",
                             protocol_name="turns", leader="me-1", member_id="me-1", members=members)  # fmt: skip
    alone.hears(answer)
    assert alone.member.fail_to_plan(0, alone.now_ms) == []
    assert alone.member.fail_to_plan(1, alone.now_ms) == []
    again = only(JoinGroup, alone.passes(ME.retry_backoff_max_ms))
    assert (again.member_id, again.protocols) == ("me-1", PROTOCOLS)
    assert alone.hears(structs.replace(answer, request_id=again.request_id)) == [MakePlan(1, "turns", members)]
    assert only(SyncGroup, alone.member.plan(1, (), alone.now_ms))


# -- static members ----------------------------------------------------------------------------------------------------

STATIC = structs.replace(ME, group_instance_id="i1")


def test_a_static_member_names_its_instance_in_all_that_a_zombie_could_send() -> None:
    """KIP-345: so that whoever comes under the name fences it."""
    alone = Alone(STATIC)
    asked = [alone.joining(), alone.syncing(), alone.beating(), alone.committing()]
    assert [request.group_instance_id for request in asked] == ["i1"] * 4  # type: ignore[attr-defined]


def test_a_static_member_leaves_by_silence() -> None:
    """S89, protocol.md 6.4: closing and missing polls end the heartbeats, and ask for nothing."""
    alone = Alone(STATIC).stable()
    assert alone.member.leave("consumer closed", 0) == []
    assert (alone.member.state, alone.member.deadline_ms) == (MemberState.UNJOINED, NEVER_MS)
    late = Alone(STATIC).stable()
    todos = late.passes(STATIC.max_poll_interval_ms)
    assert [type(t) for t in todos if not isinstance(t, CoordinatorSilent)] == [Lost]


def test_a_fence_stops_the_member_it_is_meant_for_and_no_later_one() -> None:
    """Protocol.md 6.2, 82 to a commit: fatal where the generation is the same; else the commit alone has failed."""
    alone = Alone(STATIC)
    commit = alone.committing()
    todos = alone.refused(commit, ErrorCode.FENCED_INSTANCE_ID)
    assert [type(t) for t in todos] == [Lost, Failed, CommitEnded]
    other = Alone(STATIC)
    commit = other.committing()
    other.member.request_rejoin("for the test")
    other.stable()
    assert other.refused(commit, ErrorCode.FENCED_INSTANCE_ID) == [
        CommitEnded(commit.request_id, 82, "FENCED_INSTANCE_ID")
    ]


def test_a_leader_whose_plan_stands_syncs_at_once_and_watches_all_the_same() -> None:
    """KIP-814: it is told who is in the group, and that no plan is wanted."""
    alone = Alone(STATIC)
    others = (JoinedMember("me-1", "i1", b""), JoinedMember("bo-1", None, b""))
    answer = JoinGroupAnswer(request_id=alone.joining().request_id, generation_id=3, protocol_type="work",
                             protocol_name="turns", leader="me-1", member_id="me-1", members=others,
                             skip_assignment=True)  # fmt: skip
    sync, lead = alone.hears(answer)
    assert isinstance(sync, SyncGroup)
    assert sync.assignments == ()
    assert lead == MakePlan(3, "turns", others, is_planned=True)


# -- a coordinator that says nothing -----------------------------------------------------------------------------------


def test_silence_for_as_long_as_a_session_is_told_once_and_any_answer_ends_it() -> None:
    """Protocol.md 6.3, session timer: nothing is lost by it, since the log holds the heartbeats."""
    alone = Alone().stable()
    silent = [t for _ in range(40) for t in alone.passes(3_000) if isinstance(t, CoordinatorSilent)]
    assert silent == [CoordinatorSilent(45_000)]
    assert alone.member.state is MemberState.STABLE
    (beat,) = [t for t in alone.passes(3_000) if isinstance(t, Heartbeat)]
    alone.hears(HeartbeatAnswer(request_id=beat.request_id))
    assert alone.passes(44_999)[0] != CoordinatorSilent(45_000)
    assert CoordinatorSilent(45_000) in alone.passes(1)
