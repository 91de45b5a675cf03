"""Requests of a gateway follow their group from coordinator to coordinator, and their clients notice nothing."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import (
    DescribeGroup,
    JoinGroup,
    ListGroups,
    OffsetCommit,
    OffsetToCommit,
    Request,
    TxnOffsetCommit,
)
from coordinator.messages.responses import (
    AnyAnswer,
    HeartbeatAnswer,
    HeartbeatsAnswer,
    JoinGroupAnswer,
    ListGroupsAnswer,
    Moved,
)
from streaming.errors import NoCoordinator
from streaming.gateway.coordinator import routing
from streaming.gateway.coordinator.routing import Coordinators, ShardAddress
from tests.streaming.gateway.parts import FakeCoordinators

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR.number
REFUSED = {"error": "NOT_COORDINATOR", "code": NOT_COORDINATOR}


class Loop:
    """An event loop whose timers a test fires."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
        self._tasks: list[Any] = []

    def call_later(self, wait_s: float, call: Callable[..., None], *arguments: Any) -> Any:
        timer = (wait_s, call, arguments)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer) if timer in self.timers else None)

    def create_task(self, opening: Any) -> None:
        self._tasks.append(opening)
        if len(self._tasks) > 1:
            return  # the task that creates it is the first one
        while self._tasks:
            asyncio.run(self._tasks[0])
            del self._tasks[0]

    def fire(self) -> float:
        """Fire the only timer, and return its wait in seconds."""
        ((wait_s, call, arguments),) = self.timers
        self.timers.clear()
        call(*arguments)
        return wait_s


class World:
    """A gateway with coordinators A (its own), B and C."""

    def __init__(self, *peers: str) -> None:
        self.loop, self.askings, self.missing = Loop(), dict[str, FakeCoordinators](), set[str]()
        settings = SimpleNamespace(topic_prefix="A", peers=peers, model_copy=lambda update: SimpleNamespace(**update))
        self.gateway = Coordinators(settings, self.loop, self.open)  # type: ignore[arg-type]
        self.notices: list[object] = []
        self.mailbox = self.gateway.open_inbox(self.notices.append)
        self.answers: list[AnyAnswer] = []

    def open(self, settings: Any, loop: object, unanswered: object, send_single: Any) -> Any:
        if settings.topic_prefix in self.missing:
            raise NoCoordinator.without("B.requests", "broker:9092")
        return self.askings.setdefault(settings.topic_prefix, FakeCoordinators(send_single))

    def send(self, kind: Any = DescribeGroup, group_id: str = "g", at: str | None = None, **fields: Any) -> Request:
        request_id = self.gateway.request_id()
        request = kind(request_id=request_id, reply_to=self.mailbox, group_id=group_id, **fields)
        self.gateway.send(request, lambda answer, _: self.answers.append(answer), at=at)
        return request

    def answer(
        self, prefix: str, kind: Any = HeartbeatAnswer, to: tuple[str, int] | None = None, **fields: Any
    ) -> None:
        """Answer the last request to a coordinator."""
        if to is not None:
            fields = {**REFUSED, "moved": Moved(*to), **fields}
        self.askings[prefix].answer(kind, **fields)

    def sent(self, prefix: str) -> list[Request]:
        return self.askings[prefix].requests if prefix in self.askings else []


@pytest.fixture
def world() -> World:
    return World()


def test_a_refused_request_goes_to_the_coordinator_that_is_named_with_a_mailbox_there(world: World) -> None:
    request = world.send()
    world.answer("A", to=("B", 7))
    (there,) = world.sent("B")
    assert (there.request_id, there.reply_to in world.askings["B"].inboxes) == (request.request_id, True)
    world.answer("B")
    assert ([each.code for each in world.answers], world.gateway.waiting) == ([0], 0)


def test_the_next_request_goes_there_at_once_and_its_notices_come_to_the_same_owner(world: World) -> None:
    world.send()
    world.answer("A", to=("B", 7))
    world.answer("B")
    world.send()
    world.send(group_id="h")
    first, second = world.sent("B")
    assert (len(world.sent("A")), first.reply_to) == (2, second.reply_to)
    world.askings["B"].inboxes[first.reply_to]("news")  # type: ignore[arg-type]
    assert world.notices == ["news"]
    world.gateway.close_inbox(world.mailbox)
    assert [asking.inboxes for asking in world.askings.values()] == [{}, {}]


def test_a_request_waits_for_a_group_that_has_not_arrived_and_asks_the_source_every_third_time(world: World) -> None:
    world.send()
    world.answer("A", to=("B", 7))
    waits = []
    for prefix in ("B", "B", "A", "B", "B", "A", "B"):
        world.answer(prefix, **(REFUSED if prefix == "B" else {"to": ("B", 7)}))
        waits.append(world.loop.fire())
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert len(world.sent("B")) == 6
    world.answer("B")
    assert [each.code for each in world.answers] == [0]


def test_a_group_that_was_taken_back_is_served_by_its_source(world: World) -> None:
    world.send()
    world.answer("A", to=("B", 7))
    for prefix in ("B", "B"):
        world.answer(prefix, **REFUSED)
        world.loop.fire()
    world.answer("A")
    world.send()
    assert (len(world.answers), len(world.sent("A")), world.loop.timers) == (1, 3, [])


def test_a_join_without_an_id_takes_that_of_the_redirection(world: World) -> None:
    fields = {"member_id": "", "protocol_type": "consumer", "session_timeout_ms": 9, "rebalance_timeout_ms": 9}
    world.send(JoinGroup, protocols=(), **fields)
    world.answer("A", JoinGroupAnswer, to=("B", 7), member_id="ana-1")
    assert [each.member_id for each in world.sent("B")] == ["ana-1"]  # type: ignore[union-attr]


def test_the_place_of_a_transactional_commit_is_of_one_coordinator_so_its_client_repeats_it(world: World) -> None:
    commit = {"producer_id": 1, "producer_epoch": 0, "place": 3, "offsets": ()}
    home = world.gateway.shard_address_of("g")
    assert not world.gateway.may_have_moved("g")
    world.send(TxnOffsetCommit, at=home.prefix, **commit)
    world.answer("A", to=("B", 7))
    assert ([each.code for each in world.answers], world.sent("B")) == ([NOT_COORDINATOR], [])
    assert world.gateway.shard_address_of("g") == home  # no client of B is open
    world.send()
    world.answer("A", to=("B", 7))
    world.loop.fire()
    assert world.gateway.shard_address_of("g") == ShardAddress("B", home.shard)
    assert world.gateway.may_have_moved("g")
    world.send(TxnOffsetCommit, at="B", **commit)
    assert isinstance(world.sent("B")[-1], TxnOffsetCommit)


def test_any_group_may_have_moved_where_there_are_peers() -> None:
    """A group that has come back is at home, and this gateway has heard of neither move."""
    assert World("B").gateway.may_have_moved("g")


def test_a_coordinator_that_cannot_be_used_is_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.missing.add("B")
    world.send()
    world.answer("A", to=("B", 7))
    assert (world.answers, "'B', which may have groups, cannot be used" in caplog.text) == ([], True)
    world.missing.clear()
    world.loop.fire()
    world.answer("B")
    assert [each.code for each in world.answers] == [0]


@pytest.mark.parametrize(("maximum", "used"), [(2, True), (1, False)])
def test_the_coordinators_have_a_bound(monkeypatch: pytest.MonkeyPatch, world: World, maximum: int, used: bool) -> None:
    monkeypatch.setattr(routing, "COORDINATORS_MAX", maximum)
    world.send()
    world.answer("A", to=("B", 7))
    assert (len(world.sent("B")) == 1, bool(world.loop.timers)) == (used, not used)


@pytest.mark.parametrize(("maximum", "is_kept"), [(200, True), (199, False)])
def test_the_kept_requests_have_a_bound(
    monkeypatch: pytest.MonkeyPatch, world: World, maximum: int, is_kept: bool
) -> None:
    monkeypatch.setattr(routing, "KEPT_BYTES_MAX", maximum)
    world.send()
    world.send(group_id="h")
    world.answer("A", to=("B", 7))
    assert ([each.code for each in world.answers], len(world.sent("B"))) == (
        ([], 1) if is_kept else ([NOT_COORDINATOR], 0)
    )
    world.askings["A"].answer(HeartbeatAnswer, 0)
    world.send()
    world.send()
    assert (world.gateway._kept_bytes <= maximum, world.gateway._kept_bytes) == (True, 200 if is_kept else 100)


def test_requests_of_a_closed_connection_are_not_sent_again(world: World) -> None:
    request, second = world.send(), world.send(group_id="h")
    world.answer("A", to=("B", 7))
    world.askings["A"].answer(HeartbeatAnswer, 0, **REFUSED, moved=Moved("B", 5))
    world.answer("B", **REFUSED)
    world.gateway.forget(world.mailbox, [request.request_id, second.request_id])
    assert (world.loop.timers, world.gateway.waiting, world.gateway._kept_bytes) == ([], 0, 0)


def committed(world: World, prefix: str) -> list[int]:
    """Return the offsets of the commits that were sent to a coordinator."""
    return [each.offsets[0].offset for each in world.sent(prefix) if isinstance(each, OffsetCommit)]


def commit(world: World, offset: int, group_id: str = "g") -> Request:
    return world.send(OffsetCommit, group_id, offsets=(OffsetToCommit("t", 0, offset),))


def test_commits_keep_their_order_while_the_group_is_in_transit(world: World) -> None:
    """The commits 1 and 2 are in A's log when the group moves; 3 comes later. B has the group at the second try."""
    commit(world, 1)
    commit(world, 2)
    world.askings["A"].answer(HeartbeatAnswer, 0, **REFUSED, moved=Moved("B", 7))
    commit(world, 3)
    world.askings["A"].answer(HeartbeatAnswer, 1, **REFUSED, moved=Moved("B", 7))
    world.send()  # other requests do not wait
    assert (committed(world, "B"), len(world.sent("A"))) == ([1], 3)
    world.askings["B"].answer(HeartbeatAnswer, 0, **REFUSED)
    world.loop.fire()
    assert committed(world, "B") == [1, 1]
    world.answer("B")
    assert committed(world, "B") == [1, 1, 2, 3]
    for index in (-2, -1):
        world.askings["B"].answer(HeartbeatAnswer, index)
    commit(world, 4)
    assert (committed(world, "B")[-1], len(world.answers), world.gateway._commits) == (4, 3, {})


def test_commits_to_a_coordinator_that_the_group_may_not_have_reached_are_sent_one_by_one(world: World) -> None:
    world.send()
    world.answer("A", to=("B", 7))
    for offset in (1, 2, 3):
        commit(world, offset)
    assert (committed(world, "A"), committed(world, "B")) == ([1], [])
    world.answer("A", to=("B", 7))
    world.loop.fire()
    assert committed(world, "B") == [1]
    world.answer("B")
    assert committed(world, "B") == [1, 2, 3]


def test_commits_of_another_group_or_client_do_not_wait(world: World) -> None:
    commit(world, 1)
    world.answer("A", to=("B", 7))
    commit(world, 5, group_id="h")
    world.mailbox = world.gateway.open_inbox()
    commit(world, 6)
    assert (committed(world, "A"), committed(world, "B")) == ([1, 5, 6], [1])


def test_commits_go_on_if_the_client_of_the_first_one_does_not_wait_any_more(world: World) -> None:
    first = commit(world, 1)
    world.answer("A", to=("B", 7))
    commit(world, 2)
    world.gateway.forget(world.mailbox, [first.request_id])
    assert (committed(world, "A"), committed(world, "B")) == ([1, 2], [1])


def test_a_group_that_was_taken_back_from_a_silent_coordinator_is_found_at_its_source(world: World) -> None:
    world.send()
    world.answer("A", to=("B", 7))  # B never answers
    world.send()
    world.answer("A")
    world.send()
    assert ([each.code for each in world.answers], len(world.sent("A")), len(world.sent("B"))) == ([0], 3, 1)


def test_a_request_for_a_shard_goes_to_the_coordinator_that_it_names_with_a_mailbox_there(world: World) -> None:
    own = [ShardAddress("A", shard) for shard in range(4)]
    world.send()
    world.answer("A", to=("B", 7))
    assert world.gateway.shard_addresses == own, "the group may not have reached B"
    world.answer("B")
    assert world.gateway.shard_addresses == [*own, *(ShardAddress("B", shard) for shard in range(4))]
    answers: list[AnyAnswer] = []
    for prefix in (None, "B"):
        request = ListGroups(request_id=prefix or "own", reply_to=world.mailbox, group_id="")
        world.gateway.send(request, lambda answer, _: answers.append(answer), 3, prefix)
    for prefix in "AB":
        request, shard = world.askings[prefix].sent[-1]
        assert (shard, request.reply_to in world.askings[prefix].inboxes) == (3, True)
        world.answer(prefix, ListGroupsAnswer, groups=())
    assert [each.request_id for each in answers] == ["own", "B"]


@pytest.mark.parametrize("is_prompt", [False, True])
def test_heartbeats_are_gathered_for_the_coordinator_of_their_group(world: World, is_prompt: bool) -> None:
    world.send()
    world.answer("A", to=("B", 7))
    world.answer("B")
    codes: list[int] = []
    world.askings["B"].await_turns()
    gathering = world.gateway.batchers
    for name in ("m1", "m2"):
        fields = {"request_id": name, "reply_to": world.mailbox, "group_id": "g", "member_id": name}
        add = gathering.add_prompt if is_prompt else gathering.add
        add(Heartbeat(**fields, generation_id=1), lambda answer, _: codes.append(answer.code))
    gathering.send_prompt()
    world.askings["B"].tick()
    record = world.sent("B")[-1]
    assert isinstance(record, Heartbeats)
    world.answer("B", HeartbeatsAnswer, request_ids=("m1", "m2"), codes=(0, NOT_COORDINATOR))
    assert (codes, world.sent("B")[-1].request_id) == ([0], "m2")
    world.answer("B", to=("C", 8))
    world.answer("C")
    assert codes == [0, 0]


def test_new_mailboxes_are_opened_where_the_sender_reads_another_partition(world: World) -> None:
    """The owner does not notice: it knows the first name only."""
    world.send()
    world.answer("A")
    before = world.sent("A")[-1].reply_to
    world.gateway.mailboxes_moved("A")
    assert before not in world.askings["A"].inboxes
    world.send()
    world.send()
    first, second = (each.reply_to for each in world.sent("A")[-2:])
    assert (first == second, first == before, first in world.askings["A"].inboxes) == (True, False, True)
    world.askings["A"].inboxes[first]("notice")  # type: ignore[arg-type]
    assert world.notices == ["notice"]
    world.gateway.close_inbox(world.mailbox)
    assert first not in world.askings["A"].inboxes


def test_a_group_is_lost_with_its_shard(world: World) -> None:
    assert not world.gateway.is_lost("g")
    world.askings["A"].lost_shards = frozenset({shard_of("g", FakeCoordinators.shards)})
    assert world.gateway.is_lost("g")
    other = next(
        name for name in "abcdefgh" if shard_of(name, FakeCoordinators.shards) != shard_of("g", FakeCoordinators.shards)
    )
    assert not world.gateway.is_lost(other)
