"""`coordinator move`: groups move between two coordinators, whose cores answer here without Kafka."""

from collections.abc import Callable
from threading import Event, Lock
from typing import Any

import pytest
from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.messages.move_requests import CheckAdoption, ReleaseGroup
from coordinator.messages.responses import CheckAdoptionAnswer, ErrorAnswer
from streaming.administration.move import Mover, Result, Status
from streaming.errors import NoAnswer, RequestRefused
from tests.coordinator.moving.pair import Coordinator, Pair
from tests.system.waiting import HANG_S


class World:
    """Two coordinators that answer requests from several threads. B may be down."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.lock, self.is_up = pair, Lock(), True
        self.asked: list[Any] = []

    def ask(self, side: Coordinator) -> Callable[..., Any]:
        def answer(request: Any, timeout_s: float = 0) -> Any:
            with self.lock:
                self.asked.append(request)
                request = structs.replace(request, request_id=f"r{len(self.asked)}", reply_to="op")
                if side is self.pair.b and not self.is_up:
                    raise NoAnswer("No response came.")
                side.send("op", request)
                if self.is_up:
                    self.pair.carry()
                if not (answers := side.answers.get(request.request_id)):
                    raise NoAnswer("No response came.")
                return answers[-1]

        return answer

    def mover(self, in_transit: int = 256) -> Mover:
        return Mover(self.ask(self.pair.a), self.ask(self.pair.b), "B", in_transit)

    def moves(self, *group_ids: str) -> list[Result]:
        return list(self.mover().move_all(group_ids))

    def names(self) -> tuple[list[str], list[str]]:
        return sorted(self.pair.a.shard.group_ids), sorted(self.pair.b.shard.group_ids)


@pytest.fixture
def world() -> World:
    pair = Pair.stable("c1", "c2")
    pair.b.at(1_000)
    return World(pair)


def test_a_group_moves_once(world: World) -> None:
    assert list(world.mover().check_all(["g"])) == [Result("g", Status.WOULD_BE_MOVED)]
    assert world.names() == (["g"], [])
    assert world.moves("g") == [Result("g", Status.MOVED)]
    assert world.names() == ([], ["g"])
    assert world.moves("g") == [Result("g", Status.THERE_ALREADY)]


def test_a_group_that_both_have_stays_where_it_is(world: World) -> None:
    world.pair.b = Coordinator("B", "A")
    world.pair.b.at(1_000).join("other")
    (result,) = world.moves("g")
    assert (result.status, result.why) == (Status.REFUSED, "a group of that name lives at the target")
    assert not any(isinstance(each, ReleaseGroup) for each in world.asked)


def test_a_group_at_another_coordinator_is_refused(world: World) -> None:
    world.moves("g")
    mover = Mover(world.ask(world.pair.a), lambda request: CheckAdoptionAnswer(request_id="r"), "C", 1)
    assert list(mover.move_all(["g"])) == [Result("g", Status.REFUSED, "B has the group")]


def test_without_an_answer_no_further_group_is_released(world: World) -> None:
    mover, original = world.mover(in_transit=1), world.ask(world.pair.a)

    def source(request: Any) -> Any:
        world.is_up = False  # the target fails between its check and the release
        return original(request)

    mover._source = source
    found = list(mover.move_all(["g", "h"]))
    assert [(each.group_id, each.status) for each in found] == [("g", Status.IN_TRANSIT)]
    assert "the same command asks once more" in found[0].why
    world.is_up = True
    assert [each.status for each in world.moves("g", "h")] == [Status.THERE_ALREADY, Status.MOVED]
    assert world.names() == ([], ["g"])


def test_the_next_group_begins_when_the_oldest_has_its_result(world: World) -> None:
    third_has_begun, original = Event(), world.ask(world.pair.b)

    def target(request: Any) -> Any:
        if request.group_id == "third":
            third_has_begun.set()
        elif request.group_id == "second":
            assert third_has_begun.wait(HANG_S)
        return original(request)

    mover = Mover(world.ask(world.pair.a), target, "B", in_transit=2)
    found = list(mover.move_all(["first", "second", "third"]))
    assert found == [Result(group_id, Status.MOVED) for group_id in ("first", "second", "third")]


def test_a_target_that_does_not_answer_leaves_everything_as_it_is(world: World) -> None:
    world.is_up = False
    with pytest.raises(NoAnswer):
        world.moves("g")
    assert world.names() == (["g"], [])


@pytest.mark.parametrize("kind", [CheckAdoption, ReleaseGroup])
def test_a_sender_without_the_right_is_refused(world: World, kind: type[Any]) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def refusing(ask: Callable[[Any], Any]) -> Callable[[Any], Any]:
        refused = ErrorAnswer(request_id="r", error=code.name, code=code.number, error_message="no right")
        return lambda request: refused if isinstance(request, kind) else ask(request)

    mover = Mover(refusing(world.ask(world.pair.a)), refusing(world.ask(world.pair.b)), "B", 1)
    with pytest.raises(RequestRefused, match=r"did not move g \(CLUSTER_AUTHORIZATION_FAILED: no right\)"):
        list(mover.move_all(["g"]))
    assert world.names() == (["g"], [])
