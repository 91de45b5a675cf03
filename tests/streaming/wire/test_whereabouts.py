"""The places of groups that have moved, from the answers of coordinators."""

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.messages.responses import HeartbeatAnswer, Moved
from streaming.wire import coordinator_cache
from streaming.wire.coordinator_cache import CoordinatorCache, RetryDecision

OK = HeartbeatAnswer(request_id="r")
NOT_HERE = HeartbeatAnswer(request_id="r", error="NOT_COORDINATOR", code=ErrorCode.NOT_COORDINATOR.number)
UNSENT = HeartbeatAnswer(request_id="r", code=ErrorCode.COORDINATOR_NOT_AVAILABLE.number)


def moved(to: str, number: int) -> HeartbeatAnswer:
    return HeartbeatAnswer(request_id="r", code=ErrorCode.NOT_COORDINATOR.number, moved=Moved(to, number))


def slot_moved(to: str, number: int) -> HeartbeatAnswer:
    return HeartbeatAnswer(request_id="r", code=ErrorCode.NOT_COORDINATOR.number, moved=Moved(to, number, of="slot"))


@pytest.fixture
def places() -> CoordinatorCache:
    return CoordinatorCache("A")


def test_a_group_is_at_home_until_a_redirection_names_another_coordinator(places: CoordinatorCache) -> None:
    assert (places.record("g", "A", OK), places.of("g", 1)) == (RetryDecision.DONE, "A")
    assert (places.record("g", "A", NOT_HERE), places.of("g", 1)) == (RetryDecision.DONE, "A")
    assert (places.record("g", "A", moved("B", 7)), places.of("g", 1), places.of("h", 1)) == (
        RetryDecision.SEND_NOW,
        "B",
        "A",
    )


def test_an_older_redirection_is_not_followed(places: CoordinatorCache) -> None:
    places.record("g", "A", moved("B", 7))
    for older in (moved("C", 6), moved("C", 7), moved("B", 7)):
        assert (places.record("g", "A", older), places.of("g", 1)) == (RetryDecision.SEND_LATER, "B")
    assert (places.record("g", "B", moved("C", 8)), places.of("g", 1)) == (RetryDecision.SEND_NOW, "C")


def test_a_new_request_and_every_third_try_go_to_the_source_until_the_group_has_arrived(
    places: CoordinatorCache,
) -> None:
    places.record("g", "A", moved("B", 7))
    assert places.record("g", "B", NOT_HERE) is RetryDecision.SEND_LATER
    assert [places.of("g", tries) for tries in range(7)] == ["A", "B", "B", "A", "B", "B", "A"]
    places.record("g", "B", OK)
    assert {places.of("g", tries) for tries in range(7)} == {"B"}


def test_a_group_that_was_taken_back_is_at_its_source_and_may_move_again(places: CoordinatorCache) -> None:
    places.record("g", "A", moved("B", 7))
    assert (places.record("g", "A", UNSENT), places.of("g", 1)) == (RetryDecision.DONE, "B")
    assert (places.record("g", "A", OK), places.of("g", 1)) == (RetryDecision.DONE, "A")
    assert (places.record("g", "A", moved("B", 9)), places.of("g", 1)) == (RetryDecision.SEND_NOW, "B")


def test_an_early_answer_of_the_source_does_not_hide_the_move(places: CoordinatorCache) -> None:
    places.record("g", "A", moved("B", 7))
    places.record("g", "A", OK)
    assert (places.record("g", "A", moved("B", 7)), places.of("g", 1)) == (RetryDecision.SEND_NOW, "B")


def test_a_group_is_in_transit_until_its_coordinator_has_answered(places: CoordinatorCache) -> None:
    assert places.is_in_transit("g") is False
    places.record("g", "A", moved("B", 7))
    places.record("g", "B", NOT_HERE)
    places.record("g", "A", UNSENT)
    assert places.is_in_transit("g") is True
    places.record("g", "B", OK)
    assert places.is_in_transit("g") is False


def test_a_group_moves_there_and_back(places: CoordinatorCache) -> None:
    places.record("g", "A", moved("B", 7))
    places.record("g", "B", OK)
    places.record("g", "B", moved("A", 9))
    assert (places.of("g", 1), places.record("g", "A", OK), places.of("g", 1)) == ("A", RetryDecision.DONE, "A")


def test_the_owner_of_the_slot_is_found_and_then_the_name(places: CoordinatorCache) -> None:
    """Numbers of slots are milliseconds, far above or below those of names."""
    assert (places.record("g", "A", slot_moved("B", 1_000)), places.of("g", 1)) == (RetryDecision.SEND_NOW, "B")
    assert (places.record("g", "B", moved("C", 7)), places.of("g", 1)) == (RetryDecision.SEND_NOW, "C")
    assert (places.record("g", "C", OK), places.of("g")) == (RetryDecision.DONE, "C")
    assert (places.record("g", "A", slot_moved("B", 2_000)), places.of("g", 1)) == (RetryDecision.SEND_LATER, "C")


def test_a_coordinator_without_an_entry_of_the_name_sends_it_on_to_the_owner_of_the_slot(
    places: CoordinatorCache,
) -> None:
    places.record("g", "A", moved("B", 7_000))
    assert (places.record("g", "B", slot_moved("C", 50)), places.of("g", 1)) == (RetryDecision.SEND_NOW, "C")
    assert (places.record("g", "C", OK), places.of("g")) == (RetryDecision.DONE, "C")


def test_two_coordinators_that_name_each_other_are_not_asked_without_a_pause(places: CoordinatorCache) -> None:
    """B knows the owner of the slot, and has not adopted the name yet."""
    places.record("g", "A", moved("B", 7))
    followed = [places.record("g", by, answer) for by, answer in 3 * (("B", slot_moved("A", 50)), ("A", moved("B", 7)))]
    assert followed == [RetryDecision.SEND_NOW, RetryDecision.SEND_NOW, *4 * (RetryDecision.SEND_LATER,)]


@pytest.mark.parametrize(("names", "first"), [(3, "B"), (4, "A")])
def test_the_places_have_a_bound(
    monkeypatch: pytest.MonkeyPatch, places: CoordinatorCache, names: int, first: str
) -> None:
    monkeypatch.setattr(coordinator_cache, "NAMES_MAX", 3)
    for number in range(names):
        places.record(f"g{number}", "A", moved("B", 7))
    assert (places.of("g0", 1), places.of(f"g{names - 1}", 1)) == (first, "B")


# -- a coordinator that does not know who has a group ------------------------------------------------------------------


@pytest.fixture
def of_three() -> CoordinatorCache:
    return CoordinatorCache("A", ("B", "C"))


def test_all_others_are_asked_in_turn_and_then_the_own_one_later(of_three: CoordinatorCache) -> None:
    for _ in range(2):
        told = [(of_three.record("g", by, NOT_HERE), of_three.of("g", 1)) for by in "ABC"]
        assert told == [(RetryDecision.ASK_NEXT, "B"), (RetryDecision.ASK_NEXT, "C"), (RetryDecision.SEND_LATER, "A")]


def test_the_one_that_serves_a_group_is_known_until_it_refuses_the_group(of_three: CoordinatorCache) -> None:
    of_three.record("g", "A", NOT_HERE)
    assert (of_three.of("g"), of_three.is_in_transit("g"), of_three.reached()) == ("A", True, set())
    of_three.record("g", "B", OK)
    assert (of_three.of("g"), of_three.is_in_transit("g"), of_three.reached()) == ("B", False, {"B"})
    assert (of_three.record("g", "B", NOT_HERE), of_three.of("g", 1)) == (RetryDecision.ASK_NEXT, "C")


def test_requests_at_the_same_time_do_not_pass_over_a_coordinator(of_three: CoordinatorCache) -> None:
    told = [of_three.record("g", "A", NOT_HERE) for _ in range(3)]
    assert (told, of_three.of("g", 1)) == ([RetryDecision.ASK_NEXT] * 3, "B")
    told = [of_three.record("g", "B", NOT_HERE) for _ in range(3)]
    assert (told, of_three.of("g", 1)) == ([RetryDecision.ASK_NEXT] * 3, "C")
    told = [of_three.record("g", "C", NOT_HERE) for _ in range(3)]
    assert (told, of_three.of("g", 1)) == ([RetryDecision.SEND_LATER] * 3, "A")


def test_a_redirection_counts_more_than_a_guess(of_three: CoordinatorCache) -> None:
    of_three.record("g", "A", NOT_HERE)
    assert (of_three.record("g", "B", moved("C", 7)), of_three.of("g", 1)) == (RetryDecision.SEND_NOW, "C")
    assert (of_three.record("g", "C", NOT_HERE), of_three.of("g", 3)) == (RetryDecision.SEND_LATER, "B")


def test_a_group_may_be_found_at_the_own_coordinator_later(of_three: CoordinatorCache) -> None:
    for by in "ABC":
        of_three.record("g", by, NOT_HERE)
    assert (of_three.record("g", "A", OK), of_three.of("g"), of_three.reached()) == (RetryDecision.DONE, "A", set())


def test_a_redirection_without_a_number_to_a_stranger_breaks_nothing(of_three: CoordinatorCache) -> None:
    of_three.record("g", "A", NOT_HERE)
    assert (of_three.record("g", "B", moved("X", 0)), of_three.of("g", 1)) == (RetryDecision.SEND_NOW, "X")
    assert (of_three.record("g", "X", NOT_HERE), of_three.of("g", 1)) == (RetryDecision.ASK_NEXT, "B")
