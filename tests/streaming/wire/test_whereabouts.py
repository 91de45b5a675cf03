"""The places of groups that have moved, from the answers of coordinators."""

import pytest

from coordinator.errors import ErrorCode
from coordinator.outputs import HeartbeatAnswer, Moved
from streaming.wire import whereabouts
from streaming.wire.whereabouts import Next, Whereabouts

OK = HeartbeatAnswer(request_id="r")
NOT_HERE = HeartbeatAnswer(request_id="r", error="NOT_COORDINATOR", code=ErrorCode.NOT_COORDINATOR.number)
UNSENT = HeartbeatAnswer(request_id="r", code=ErrorCode.COORDINATOR_NOT_AVAILABLE.number)


def moved(to: str, number: int) -> HeartbeatAnswer:
    return HeartbeatAnswer(request_id="r", code=ErrorCode.NOT_COORDINATOR.number, moved=Moved(to, number))


def slot_moved(to: str, number: int) -> HeartbeatAnswer:
    return HeartbeatAnswer(request_id="r", code=ErrorCode.NOT_COORDINATOR.number, moved=Moved(to, number, of="slot"))


@pytest.fixture
def places() -> Whereabouts:
    return Whereabouts("A")


def test_a_group_is_at_home_until_a_redirection_names_another_coordinator(places: Whereabouts) -> None:
    assert (places.note("g", "A", OK), places.of("g", 1)) == (Next.DONE, "A")
    assert (places.note("g", "A", NOT_HERE), places.of("g", 1)) == (Next.DONE, "A")
    assert (places.note("g", "A", moved("B", 7)), places.of("g", 1), places.of("h", 1)) == (Next.SEND_NOW, "B", "A")


def test_an_older_redirection_is_not_followed(places: Whereabouts) -> None:
    places.note("g", "A", moved("B", 7))
    for older in (moved("C", 6), moved("C", 7), moved("B", 7)):
        assert (places.note("g", "A", older), places.of("g", 1)) == (Next.SEND_LATER, "B")
    assert (places.note("g", "B", moved("C", 8)), places.of("g", 1)) == (Next.SEND_NOW, "C")


def test_a_new_request_and_every_third_try_go_to_the_source_until_the_group_has_arrived(places: Whereabouts) -> None:
    places.note("g", "A", moved("B", 7))
    assert places.note("g", "B", NOT_HERE) is Next.SEND_LATER
    assert [places.of("g", tries) for tries in range(7)] == ["A", "B", "B", "A", "B", "B", "A"]
    places.note("g", "B", OK)
    assert {places.of("g", tries) for tries in range(7)} == {"B"}


def test_a_group_that_was_taken_back_is_at_its_source_and_may_move_again(places: Whereabouts) -> None:
    places.note("g", "A", moved("B", 7))
    assert (places.note("g", "A", UNSENT), places.of("g", 1)) == (Next.DONE, "B")
    assert (places.note("g", "A", OK), places.of("g", 1)) == (Next.DONE, "A")
    assert (places.note("g", "A", moved("B", 9)), places.of("g", 1)) == (Next.SEND_NOW, "B")


def test_an_early_answer_of_the_source_does_not_hide_the_move(places: Whereabouts) -> None:
    places.note("g", "A", moved("B", 7))
    places.note("g", "A", OK)
    assert (places.note("g", "A", moved("B", 7)), places.of("g", 1)) == (Next.SEND_NOW, "B")


def test_a_group_is_in_transit_until_its_coordinator_has_answered(places: Whereabouts) -> None:
    assert places.is_in_transit("g") is False
    places.note("g", "A", moved("B", 7))
    places.note("g", "B", NOT_HERE)
    places.note("g", "A", UNSENT)
    assert places.is_in_transit("g") is True
    places.note("g", "B", OK)
    assert places.is_in_transit("g") is False


def test_a_group_moves_there_and_back(places: Whereabouts) -> None:
    places.note("g", "A", moved("B", 7))
    places.note("g", "B", OK)
    places.note("g", "B", moved("A", 9))
    assert (places.of("g", 1), places.note("g", "A", OK), places.of("g", 1)) == ("A", Next.DONE, "A")


def test_the_owner_of_the_slot_is_found_and_then_the_name(places: Whereabouts) -> None:
    """Numbers of slots are milliseconds, far above or below those of names."""
    assert (places.note("g", "A", slot_moved("B", 1_000)), places.of("g", 1)) == (Next.SEND_NOW, "B")
    assert (places.note("g", "B", moved("C", 7)), places.of("g", 1)) == (Next.SEND_NOW, "C")
    assert (places.note("g", "C", OK), places.of("g")) == (Next.DONE, "C")
    assert (places.note("g", "A", slot_moved("B", 2_000)), places.of("g", 1)) == (Next.SEND_LATER, "C")


def test_a_coordinator_without_an_entry_of_the_name_sends_it_on_to_the_owner_of_the_slot(places: Whereabouts) -> None:
    places.note("g", "A", moved("B", 7_000))
    assert (places.note("g", "B", slot_moved("C", 50)), places.of("g", 1)) == (Next.SEND_NOW, "C")
    assert (places.note("g", "C", OK), places.of("g")) == (Next.DONE, "C")


def test_two_coordinators_that_name_each_other_are_not_asked_without_a_pause(places: Whereabouts) -> None:
    """B knows the owner of the slot, and has not adopted the name yet."""
    places.note("g", "A", moved("B", 7))
    followed = [places.note("g", by, answer) for by, answer in 3 * (("B", slot_moved("A", 50)), ("A", moved("B", 7)))]
    assert followed == [Next.SEND_NOW, Next.SEND_NOW, *4 * (Next.SEND_LATER,)]


@pytest.mark.parametrize(("names", "first"), [(3, "B"), (4, "A")])
def test_the_places_have_a_bound(monkeypatch: pytest.MonkeyPatch, places: Whereabouts, names: int, first: str) -> None:
    monkeypatch.setattr(whereabouts, "NAMES_MAX", 3)
    for number in range(names):
        places.note(f"g{number}", "A", moved("B", 7))
    assert (places.of("g0", 1), places.of(f"g{names - 1}", 1)) == (first, "B")
