"""Heartbeats of all connections wait for a tick, and go out in one record for each shard."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.base.hashing import shard_of
from coordinator.base.limits import HEARTBEATS_MAX
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer, ErrorAnswer, HeartbeatsAnswer
from streaming.gateway.coordinator import batching as module
from streaming.gateway.coordinator.batching import HeartbeatBatcher
from streaming.gateway.coordinator.outstanding import OutstandingHeartbeats, key_of

SHARDS = 4
TICK_MS = 1_000
HOUR_MS = 3_600_000


class World:
    """A gathering without brokers, at 300 ms behind a whole second.

    Attributes:
        step_ms: How far the gateway's clock is ahead of the true time.
    """

    def __init__(self) -> None:
        self.now_ms, self.step_ms = 5_300, 0
        self.sent: list[tuple[Request, Callable[[AnyAnswer, int], object], int | None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.codes: dict[str, int] = {}
        self.awaited = OutstandingHeartbeats(lambda: 0.0)
        self.gathering = HeartbeatBatcher(
            self, SHARDS, lambda: {"request_id": "all", "reply_to": "gateway"}, TICK_MS, self.awaited,
            lambda wait_s, call: self.later.append((wait_s, call)), self.send, lambda: self.now_ms + self.step_ms,
            lambda: self.now_ms,
        )  # fmt: skip

    def send(self, request: Request, told: Callable[[AnyAnswer, int], object], shard: int | None = None) -> int:
        self.sent.append((request, told, shard))
        return 0

    def add(self, *names: str, ticks: int = 1) -> None:
        for name in names:
            told = lambda answer, _, name=name: self.codes.update({name: answer.code})  # noqa: E731
            self.gathering.add(beat(name), told, ticks)

    def add_prompt(self, *names: str) -> None:
        for name in names:
            told = lambda answer, _, name=name: self.codes.update({name: answer.code})  # noqa: E731
            self.gathering.add_prompt(beat(name), told)

    def tick(self, late_ms: int = 0) -> None:
        """Move to the time for which the gathering waits, or a little before or after it."""
        (wait_s, call) = self.later.pop()
        self.now_ms += round(1_000 * wait_s) + late_ms
        call()


def bare(name: str) -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(request_id=name, reply_to="in", group_id="g", member_id=name, member_epoch=5)


def beat(name: str) -> Heartbeat:
    return Heartbeat(request_id=name, reply_to="in", group_id="g", generation_id=1, member_id=name, client_id=name)


@pytest.fixture
def world() -> World:
    return World()


def answer(**codes: int) -> HeartbeatsAnswer:
    return HeartbeatsAnswer(request_id="all", request_ids=tuple(codes), codes=tuple(codes.values()))


def test_heartbeats_go_out_together_at_the_next_tick(world: World):
    world.add("a", "b", "c")
    assert (world.sent, [wait_s for wait_s, _ in world.later]) == ([], [0.7])
    world.tick()
    ((record, told, shard),) = world.sent
    assert isinstance(record, Heartbeats)
    assert (list(record.each()), shard) == (
        [Heartbeat(**fields(name)) for name in "abc"],
        shard_of("g", SHARDS),
    )
    told(answer(a=0, b=25, c=27), 0)
    assert world.codes == {"a": 0, "b": 25, "c": 27}
    assert world.gathering.outstanding == 0


def test_some_heartbeats_wait_for_a_later_tick_unless_others_of_their_shard_go_out_before(world: World):
    world.add("a", ticks=3)  # due at 6,000
    world.tick(late_ms=-3)
    assert [type(record) for record, _, _ in world.sent] == [Heartbeat], "a timer may be a little early"
    world.now_ms = 6_000
    world.add("b", "c", ticks=3)
    for seconds in (6, 7, 8):
        assert world.now_ms // TICK_MS == seconds
        assert len(world.sent) == 1
        world.tick()
    assert len(world.sent) == 2, "sent at 9,000"
    world.add("d", ticks=3)
    world.add("e")
    world.tick()
    assert list(world.sent[2][0].request_ids) == ["d", "e"], "a shard that is woken is woken for all"
    assert world.later == [], "nothing waits"


@pytest.mark.parametrize("step_ms", [-HOUR_MS, -1_500, HOUR_MS])
def test_a_step_of_the_clock_keeps_no_heartbeat(world: World, step_ms: int):
    """stroom 5772. A member alone on its shard sends no further heartbeat before it has the response to this one."""
    world.add("a", ticks=3)  # due at 6,000
    world.step_ms = step_ms
    world.tick()
    assert [record.request_id for record, _, _ in world.sent] == ["a"]
    world.add("b", ticks=3)
    sent_ms = world.now_ms
    while world.later:
        world.tick()
    assert [record.request_id for record, _, _ in world.sent] == ["a", "b"]
    assert world.now_ms - sent_ms <= 3 * TICK_MS


def fields(name: str) -> dict[str, Any]:
    return {"request_id": name, "reply_to": "gateway", "group_id": "g", "generation_id": 1, "member_id": name,
            "client_id": name}  # fmt: skip


def test_a_single_heartbeat_is_a_record_of_its_own(world: World):
    world.add("a")
    world.tick()
    assert [request for request, _, _ in world.sent] == [beat("a")]


def test_a_full_record_does_not_wait(world: World):
    world.add(*(str(number) for number in range(HEARTBEATS_MAX + 1)))
    ((record, _, _),) = world.sent
    assert isinstance(record, Heartbeats)
    assert len(record.request_ids) == HEARTBEATS_MAX
    world.tick()
    assert [request for request, _, _ in world.sent[1:]] == [beat(str(HEARTBEATS_MAX))]


def test_a_heartbeat_that_was_not_handled_is_sent_in_a_record_of_its_own(world: World):
    world.add("a", "b")
    world.tick()
    world.sent.pop()[1](answer(a=14, b=0), 0)
    assert world.codes == {"b": 0}
    assert [request for request, _, _ in world.sent] == [beat("a")]


@pytest.mark.parametrize("code", [14, 42])
def test_the_heartbeats_of_a_refused_record_are_sent_singly(world: World, code: int):
    world.add("a", "b")
    world.tick()
    world.sent.pop()[1](HeartbeatsAnswer(request_id="all", code=code), 0)
    assert [request for request, _, _ in world.sent] == [beat("a"), beat("b")]


def test_a_record_that_no_broker_takes_is_an_error_for_each(world: World):
    world.add("a", "b")
    world.tick()
    world.sent.pop()[1](ErrorAnswer(request_id="all", code=15), 0)
    assert (world.codes, world.sent) == ({"a": 15, "b": 15}, [])


def test_a_heartbeat_is_sent_at_once_on_demand_and_only_once(world: World):
    world.add("a", "b", "c")
    world.gathering.send_now(beat("b"))
    world.gathering.send_now(beat("b"))
    assert [request for request, _, _ in world.sent] == [beat("b")]
    world.tick()
    record = world.sent[1][0]
    assert isinstance(record, Heartbeats)
    assert record.request_ids == ("a", "c")


def test_a_heartbeat_of_a_closed_connection_is_sent_and_its_answer_dropped(world: World):
    world.add("a", "b")
    world.gathering.forget(["a"])
    world.tick()
    ((record, told, _),) = world.sent
    assert isinstance(record, Heartbeats)
    assert record.request_ids == ("a", "b")
    told(answer(a=0, b=0), 0)
    assert world.codes == {"b": 0}


# -- the consumer protocol ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [14, 16, 25, 30, 110])
def test_a_refused_heartbeat_of_the_consumer_protocol_is_sent_in_a_record_of_its_own(world: World, code: int):
    for name in "abc":
        world.gathering.add(bare(name), lambda answer, _, name=name: world.codes.update({name: answer.code}))
    world.add("classic")
    world.tick()
    ((record, told, _),) = world.sent
    assert isinstance(record, Heartbeats)
    assert record.consumers == (True, True, True, False)
    told(answer(a=0, b=code, c=0, classic=25), 0)
    assert world.codes == {"a": 0, "c": 0, "classic": 25}
    assert [request for request, _, _ in world.sent[1:]] == [bare("b")]


def test_a_member_awaits_the_answer_to_a_heartbeat_from_the_time_that_it_waits(world: World):
    """Its heartbeats over another connection wait for that answer."""
    sent = list[str]()
    for name in "abc":
        world.gathering.add(bare(name), lambda *_: None)
        assert world.awaited.wait(key_of(bare(name)), lambda name=name: sent.append(name))
    world.gathering.send_now(bare("b"))
    world.tick()
    assert (len(world.awaited), sent) == (3, []), "the single heartbeat has no answer either"
    world.gathering.forget(["a"])
    world.sent[-1][1](answer(a=0, c=14), 0)
    assert (len(world.awaited), sent) == (2, ["a"]), "also without its connection"
    world.awaited.answered("b")
    world.awaited.answered("c")
    assert sent == ["a", "b", "c"]


def test_a_record_that_no_broker_takes_is_an_error_for_members_of_the_consumer_protocol_too(world: World):
    for name in "ab":
        world.gathering.add(bare(name), lambda answer, _, name=name: world.codes.update({name: answer.code}))
    world.tick()
    world.sent.pop()[1](ErrorAnswer(request_id="all", code=15), 0)
    assert (world.codes, world.sent, len(world.awaited)) == ({"a": 15, "b": 15}, [], 0)


# -- heartbeats that may not wait --------------------------------------------------------------------------------------


def test_heartbeats_that_may_not_wait_go_out_together_in_the_next_turn(world: World):
    world.add_prompt("a", "b", "c")
    assert (world.sent, [wait_s for wait_s, _ in world.later]) == ([], [0])
    world.tick()
    ((record, told, shard),) = world.sent
    assert (list(record.request_ids), shard) == (["a", "b", "c"], shard_of("g", SHARDS))
    told(answer(a=0, b=25, c=27), 0)
    assert world.codes == {"a": 0, "b": 25, "c": 27}
    world.add_prompt("d")
    world.tick()
    assert [request for request, _, _ in world.sent[1:]] == [beat("d")], "a single one is a record of its own"


def test_heartbeats_that_may_not_wait_go_out_in_a_record_for_each_shard(world: World):
    group_of = {shard_of(name, SHARDS): name for name in map(str, range(100))}
    for number, group_id in enumerate([*group_of.values()] * 2):
        world.gathering.add_prompt(replace(beat(str(number)), group_id=group_id), lambda *_: None)
    world.tick()
    assert {shard: set(record.groups) for record, _, shard in world.sent} == {s: {g} for s, g in group_of.items()}
    assert [len(record.request_ids) for record, _, _ in world.sent] == [2] * SHARDS


def test_heartbeats_that_may_not_wait_leave_the_others_to_the_tick(world: World):
    world.add("a", "b")
    world.add_prompt("c", "d")
    world.gathering.send_prompt()
    assert [list(record.request_ids) for record, _, _ in world.sent] == [["c", "d"]]
    (_, turn), world.later = world.later[1], world.later[:1]
    turn()
    assert len(world.sent) == 1, "they are sent once"
    world.tick()
    assert list(world.sent[1][0].request_ids) == ["a", "b"]


def test_a_full_record_does_not_wait_for_the_next_turn(world: World):
    world.add_prompt(*(str(number) for number in range(HEARTBEATS_MAX + 2)))
    assert [len(record.request_ids) for record, _, _ in world.sent] == [HEARTBEATS_MAX]
    while world.later:
        world.tick()
    assert [len(record.request_ids) for record, _, _ in world.sent] == [HEARTBEATS_MAX, 2]


def test_beyond_a_bound_of_unanswered_ones_each_heartbeat_is_a_record_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "TOGETHER_MAX", 4)
    for names in ("ab", "cd", "ef"):
        world.add_prompt(*names)
        world.gathering.send_prompt()
    first, second, *rest = world.sent
    assert [list(record.request_ids) for record, _, _ in (first, second)] == [["a", "b"], ["c", "d"]]
    assert [request for request, _, _ in rest] == [beat("e"), beat("f")]
    first[1](answer(a=0, b=0), 0)
    world.add_prompt("g", "h")
    world.gathering.send_prompt()
    assert list(world.sent[-1][0].request_ids) == ["g", "h"], "an answered record makes room"
