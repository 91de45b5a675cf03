"""The groups of a client that move to other coordinators, from the responses to its requests."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import SyncGroup
from coordinator.messages.responses import HeartbeatAnswer, HeartbeatsAnswer, Moved, SyncGroupAnswer
from streaming.client import group_router
from streaming.client.group_router import GroupRouter

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR.number


class World:
    """A client of the coordinator A at second 0."""

    def __init__(self, *peers: str) -> None:
        self.now_s = 0.0
        self.groups = GroupRouter("A", peers, lambda: self.now_s)

    def beat(self, name: str, group_id: str = "g") -> Heartbeat:
        return Heartbeat(request_id=name, reply_to="in", group_id=group_id, generation_id=1, member_id="m")

    def refused(self, by: str, name: str, to: str | None = None, number: int = 7) -> bool:
        moved = {} if to is None else {"moved": Moved(to, number)}
        return self.groups.answered(by, HeartbeatAnswer(request_id=name, code=NOT_COORDINATOR, **moved))


@pytest.fixture
def world() -> World:
    return World()


def test_a_redirection_names_the_coordinator_of_the_next_request(world: World) -> None:
    world.groups.record_request(world.beat("1"))
    assert (world.groups.has_moved("g"), world.groups.coordinator_of("g")) == (False, "A")
    world.refused("A", "1", "B")
    assert list(world.groups.named) == ["B"]
    assert (world.groups.has_moved("g"), world.groups.coordinator_of("g")) == (True, "B")
    assert world.groups.coordinator_of("h") == "A"


def test_a_refused_heartbeat_is_for_its_sender(world: World) -> None:
    world.groups.record_request(world.beat("1"))
    assert world.refused("A", "1", "B") is True


def test_a_heartbeat_that_was_refused_among_many_is_sent_singly_the_next_time(world: World) -> None:
    beats = [world.beat("1"), world.beat("2", "h")]
    world.groups.record_request(Heartbeats.of(beats, request_id="all", reply_to="in"))
    world.groups.answered("A", HeartbeatsAnswer(request_id="all", request_ids=("1", "2"), codes=(NOT_COORDINATOR, 0)))
    assert (world.groups.is_sent_singly("g"), world.groups.is_sent_singly("h")) == (True, False)
    world.groups.record_request(world.beat("3"))
    assert world.groups.is_sent_singly("g") is False
    world.refused("A", "3", "B")
    assert world.groups.coordinator_of("g") == "B"


def test_every_third_request_goes_to_the_source_until_the_group_has_arrived(world: World) -> None:
    world.groups.record_request(world.beat("0"))
    world.refused("A", "0", "B")
    asked = []
    for name in "12345":
        world.groups.record_request(world.beat(name))
        asked.append(world.groups.coordinator_of("g"))
        world.refused(asked[-1], name, "B" if asked[-1] == "A" else None)
    assert asked == ["B", "B", "A", "B", "B"]
    world.groups.record_request(world.beat("6"))
    world.groups.answered("B", HeartbeatAnswer(request_id="6"))
    assert world.groups.coordinator_of("g") == "B"


def test_a_refused_sync_is_sent_again_and_its_member_does_not_hear_of_it(world: World) -> None:
    sync = SyncGroup(request_id="s", reply_to="in", group_id="g", generation_id=1, member_id="m")
    moved = SyncGroupAnswer(request_id="s", code=NOT_COORDINATOR, moved=Moved("B", 7))
    world.groups.record_request(sync)
    assert (world.groups.answered("A", moved), list(world.groups.due())) == (False, [sync])
    world.groups.record_request(sync)
    refused = SyncGroupAnswer(request_id="s", code=NOT_COORDINATOR)
    assert (world.groups.answered("B", refused), list(world.groups.due())) == (False, [])
    world.now_s = group_router.SYNC_WAIT_S
    assert (list(world.groups.due()), list(world.groups.due())) == ([sync], [])
    world.groups.record_request(sync)
    assert world.groups.answered("B", SyncGroupAnswer(request_id="s")) is True


def test_a_response_without_a_known_request_is_for_its_receiver(world: World) -> None:
    assert world.refused("A", "unknown", "B") is True
    assert world.groups.has_moved("g") is False


@pytest.mark.parametrize(("requests", "is_known"), [(3, True), (4, False)])
def test_the_stored_requests_have_a_bound(
    monkeypatch: pytest.MonkeyPatch, world: World, requests: int, is_known: bool
) -> None:
    monkeypatch.setattr(group_router, "REQUESTS_MAX", 3)
    for number in range(requests):
        world.groups.record_request(world.beat(str(number)))
    world.refused("A", "0", "B")
    assert world.groups.has_moved("g") is is_known


def test_the_peers_are_asked_for_a_group_that_nobody_has_redirected() -> None:
    """moving.md 3.2: a coordinator that has never owned the slot names nobody. The own one is asked again as well."""
    world = World("B", "C")
    world.groups.record_request(world.beat("0"))
    world.refused("A", "0")
    asked = []
    for name in "1234":
        assert set(world.groups.named) <= {"A", "B", "C"}
        world.groups.record_request(world.beat(name))
        asked.append(world.groups.coordinator_of("g"))
        world.refused(asked[-1], name)
    assert asked == ["B", "C", "A", "B"]
    assert set(world.groups.named) == {"B", "C"}
    world.groups.record_request(world.beat("5"))
    world.groups.answered("C", HeartbeatAnswer(request_id="5"))
    assert world.groups.coordinator_of("g") == "C"


def test_a_refusal_among_many_responses_does_not_say_that_the_coordinator_has_never_had_the_group() -> None:
    """The response to the next heartbeat may name the coordinator."""
    world = World("B", "C")
    world.groups.record_request(Heartbeats.of([world.beat("1")], request_id="all", reply_to="in"))
    world.groups.answered("A", HeartbeatsAnswer(request_id="all", request_ids=("1",), codes=(NOT_COORDINATOR,)))
    assert (world.groups.coordinator_of("g"), world.groups.is_sent_singly("g")) == ("A", True)


def test_a_sync_is_sent_to_a_peer_at_once() -> None:
    world = World("B")
    sync = SyncGroup(request_id="s", reply_to="in", group_id="g", generation_id=1, member_id="m")
    world.groups.record_request(sync)
    answer = SyncGroupAnswer(request_id="s", error="NOT_COORDINATOR", code=NOT_COORDINATOR)
    assert world.groups.answered("A", answer) is False
    assert (list(world.groups.due()), world.groups.coordinator_of("g")) == ([sync], "B")
