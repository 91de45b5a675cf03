"""Requests about groups of which the gateway's own coordinator knows nothing: its peers are asked in turn."""

import pytest

from coordinator.messages.requests import OffsetCommit, OffsetToCommit
from tests.streaming.gateway.test_coordinators import NOT_COORDINATOR, REFUSED, World


@pytest.fixture
def world() -> World:
    return World("B", "C")


def codes(world: World) -> list[int]:
    return [answer.code for answer in world.answers]


def test_the_peer_that_has_the_group_answers_and_gets_the_next_request_at_once(world: World) -> None:
    request = world.send()
    world.answer("A", **REFUSED)
    world.answer("B", **REFUSED)
    (there,) = world.sent("C")
    assert (there.request_id, there.reply_to in world.askings["C"].inboxes) == (request.request_id, True)
    world.answer("C")
    world.send()
    assert (codes(world), len(world.sent("A")), len(world.sent("C"))) == ([0], 1, 2)


def test_nobody_is_asked_more_often_than_once_a_second_in_the_end(world: World) -> None:
    world.send()
    waits = []
    for _ in range(7):
        for prefix in "ABC":
            world.answer(prefix, **REFUSED)
        waits.append(world.loop.fire())
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert {prefix: len(world.sent(prefix)) for prefix in "ABC"} == {"A": 8, "B": 7, "C": 7}
    assert world.answers == []


def test_a_peer_without_topics_is_passed_over(world: World) -> None:
    world.missing.add("B")
    world.send()
    world.answer("A", **REFUSED)
    world.answer("C")
    assert codes(world) == [0]


def test_without_peers_the_client_gets_the_error() -> None:
    world = World()
    world.send()
    world.answer("A", **REFUSED)
    assert codes(world) == [NOT_COORDINATOR]


def test_commits_of_a_client_keep_their_order(world: World) -> None:
    """The first one looks for the group, and the later ones wait for its answer."""
    for offset in (1, 2, 3):
        world.send(OffsetCommit, offsets=(OffsetToCommit("t", 0, offset),))
        world.answer("A", **REFUSED) if offset == 1 else None
    assert [request.offsets[0].offset for request in world.sent("A") + world.sent("B")] == [1, 1]  # type: ignore[union-attr]
    world.answer("B", **REFUSED)
    world.answer("C")
    assert [request.offsets[0].offset for request in world.sent("C")] == [1, 2, 3]  # type: ignore[union-attr]
