"""`coordinator move --take-back`: a group whose target does not answer goes back to its source, if that is safe."""

from typing import Any

import pytest
from msgspec import structs
from typer.testing import CliRunner

from coordinator.base.errors import ErrorCode
from coordinator.messages.move_events import GroupMoved, GroupReleased
from coordinator.messages.move_requests import AdoptGroup, CancelMove
from coordinator.messages.responses import ErrorAnswer
from streaming.administration.move import Result
from streaming.administration.take_back import Status, move_in_transit, take_back
from streaming.cli.main import app
from streaming.errors import NoAnswer, NotFound, RequestRefused
from streaming.wire.peering import Peering
from streaming.wire.records import encode_request
from tests.coordinator.moving.pair import Coordinator, Pair

PEERING = Peering(b"k" * 32, "A.requests", {"B": "B.requests"})


class World:
    """A group that A has released, and B's log, which B reads if it is up."""

    def __init__(self) -> None:
        self.pair, self.is_up = Pair.stable("c1", "c2"), False
        self.pair.b.at(2_000)
        self.pair.a.at(2_000).release()
        self.log: list[bytes] = []
        self.from_ms = 0

    @property
    def release(self) -> GroupReleased:
        return move_in_transit("g", self.pair.a.events(GroupReleased))

    def parts_arrive(self, count: int = 1) -> None:
        """Write parts of the group to B's log, as A's batch does."""
        for record in self.pair.a.written[:count]:
            self.log.append(PEERING.signed(record))

    def read(self, from_ms: int) -> Any:
        self.from_ms = from_ms
        return ((3, 100 + offset, value) for offset, value in enumerate(self.log))

    def ask(self, side: Coordinator) -> Any:
        def answer(request: Any) -> Any:
            if side is self.pair.b:
                self.log.append(encode_request(request))
                if not self.is_up:
                    raise NoAnswer("No response came.")
            asked = structs.replace(request, request_id="r", reply_to="op")
            side.send("op", asked)
            if self.is_up:
                self.pair.carry()
            return side.answers["r"][-1]

        return answer

    def takes_back(self, *, is_lost: bool = False) -> Result:
        ask = self.ask
        return take_back(self.release, ask(self.pair.a), ask(self.pair.b), self.read, is_lost=is_lost)

    def is_served_by_a(self) -> bool:
        return "g" in self.pair.a.shard.group_ids


@pytest.fixture
def world() -> World:
    return World()


def test_a_group_that_has_not_reached_the_log_of_its_target_is_taken_back(world: World) -> None:
    assert world.takes_back() == Result("g", Status.TAKEN_BACK)
    assert (world.is_served_by_a(), world.from_ms) == (True, world.release.at_ms - 3_600_000)


def test_a_group_that_its_target_may_have_adopted_stays_in_transit(world: World) -> None:
    world.parts_arrive()
    result = world.takes_back()
    assert (result.status, world.is_served_by_a()) == (Status.REFUSED, False)
    assert "B has the whole group in its log, and may have adopted it: start that coordinator" in result.why


def test_a_group_of_a_lost_coordinator_is_taken_back_all_the_same(world: World) -> None:
    world.parts_arrive()
    assert world.takes_back(is_lost=True) == Result("g", Status.TAKEN_BACK)
    assert world.is_served_by_a()


def test_parts_behind_the_cancel_do_not_count_and_a_later_cancel_counts(world: World) -> None:
    """Somebody without the right may have sent the first one: then B adopts the group that comes behind it."""
    forged = CancelMove(request_id="x", reply_to="y", group_id="g", move_id=world.release.move_id, number=1)
    world.log.append(encode_request(forged))
    world.parts_arrive()
    assert world.takes_back().status is Status.REFUSED


def test_other_moves_and_other_records_do_not_count(world: World) -> None:
    (part,) = world.pair.a.written
    assert isinstance(part, AdoptGroup)
    world.log += [PEERING.signed(structs.replace(part, move_id="A/0/1")), b"{", b""]
    assert world.takes_back().status is Status.TAKEN_BACK


def test_a_target_that_runs_decides(world: World) -> None:
    world.is_up = True
    assert world.takes_back() == Result("g", Status.TAKEN_BACK, "B has refused it: cancelled")
    assert world.is_served_by_a()


def test_a_target_that_has_adopted_the_group_keeps_it(world: World) -> None:
    world.is_up = True
    release = world.release
    world.pair.carry()
    ask = world.ask
    result = take_back(release, ask(world.pair.a), ask(world.pair.b), world.read, is_lost=False)
    assert result == Result("g", Status.ADOPTED, "B serves the group")


def test_without_the_cancel_in_the_log_nothing_is_taken_back(world: World) -> None:
    ask = world.ask
    result = take_back(world.release, ask(world.pair.a), ask(world.pair.b), lambda _: [], is_lost=True)
    assert (result.status, world.is_served_by_a()) == (Status.REFUSED, False)


def test_a_sender_without_the_right_is_refused(world: World) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refused = ErrorAnswer(request_id="r", error=code.name, code=code.number, error_message="no right")
    with pytest.raises(RequestRefused, match="did not cancel the move of g"):
        take_back(world.release, world.ask(world.pair.a), lambda _: refused, world.read, is_lost=False)
    with pytest.raises(RequestRefused, match="did not take back g"):
        take_back(world.release, lambda _: refused, world.ask(world.pair.b), world.read, is_lost=False)


def test_only_a_group_in_transit_is_taken_back(world: World) -> None:
    release = world.release
    with pytest.raises(NotFound, match="g is not in transit"):
        move_in_transit("g", [])
    moved = GroupMoved(
        group_id="g", at_ms=3_000, generation_id=1, version=9, to="B", move_id=release.move_id, number=release.number
    )
    with pytest.raises(NotFound):
        move_in_transit("g", [release, moved])


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ([], "name one of --group, --slots and --all"),
        (["-g", "g", "--all"], "name one of --group, --slots and --all"),
        (["--all", "--take-back"], "--take-back needs --group"),
        (["-g", "g", "--take-back", "--dry-run"], "has no --dry-run"),
        (["-g", "g", "--target-is-lost"], "--target-is-lost needs --take-back"),
        (["--all", "--in-transit", "0"], "Invalid value for '--in-transit'"),
        (["--all", "--in-transit", "257"], "Invalid value for '--in-transit'"),
    ],
)
def test_flags_that_do_not_fit_together_are_refused(typed: list[str], told: str) -> None:
    done = CliRunner().invoke(app, ["move", "--to", "B", *typed], env={"COLUMNS": "200"})
    assert (done.exit_code, told in done.output) == (2, True), done.output
