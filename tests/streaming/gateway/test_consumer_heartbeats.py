"""The response to a heartbeat of the consumer protocol waits for news of its member, for a bounded time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.errors import ErrorCode
from coordinator.outputs import AnyAnswer, AssignedTopic, AssignmentNotice, ConsumerGroupHeartbeatAnswer, ErrorAnswer
from streaming.gateway.apis import APIS
from streaming.gateway.consumer_heartbeats import (
    MARGIN_MS,
    MEMBERS_MAX,
    PATIENCE_MS,
    PROMPT_MS,
    SHORT_FOR_S,
    SHORT_INTERVAL_MS,
    ConsumerHeartbeats,
)
from streaming.gateway.definitions import ConsumerGroupHeartbeatResponse
from streaming.gateway.messages import Header
from streaming.gateway.slots import Slot
from tests.streaming.gateway.examples import WHO, ended
from tests.streaming.gateway.parts import fact_of

T = fact_of("t", 3).topic_id or ""
INTERVAL_MS = 600_000
SOME = (AssignedTopic(T, "t", (0, 1)),)
OWNED = (OwnedPartitions(T, (1, 0)),)


def request(epoch: int = 5, **fields: Any) -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(**WHO, member_id="m", member_epoch=epoch, **fields)


def answer(epoch: int = 5, interval_ms: int = INTERVAL_MS, **fields: Any) -> ConsumerGroupHeartbeatAnswer:
    return ConsumerGroupHeartbeatAnswer(
        request_id="1", member_id="m", member_epoch=epoch, heartbeat_interval_ms=interval_ms, **fields
    )


def failed(code: ErrorCode) -> ErrorAnswer:
    return ErrorAnswer(request_id="1", **ended(code))


def notice(member_id: str = "m") -> AssignmentNotice:
    return AssignmentNotice(request_id=None, group_id="g", member_id=member_id, group_epoch=6)


class Bench:
    """The heartbeats of one connection. A test answers the heartbeats on the member's behalf."""

    def __init__(self, hold_ms_max: int = 600_000) -> None:
        self.given: list[tuple[Slot, Any]] = []
        self.asked: list[tuple[ConsumerGroupHeartbeat, Callable[[AnyAnswer], object]]] = []
        self.late_s = 0.0
        self.heartbeats = ConsumerHeartbeats(
            hold_ms_max, self._give, lambda request, then: self.asked.append((request, then)), self._clock
        )

    def _clock(self) -> float:
        return asyncio.get_running_loop().time() + self.late_s

    def _give(self, slot: Slot, frame: bytes) -> None:
        self.given.append((slot, ConsumerGroupHeartbeatResponse.decode(frame[4:], version=1, header=True)))

    def hold(
        self, asked: ConsumerGroupHeartbeat | None = None, said: ConsumerGroupHeartbeatAnswer | None = None
    ) -> bool:
        slot = Slot(APIS[68], Header(68, 1, 77, "c"), since_s=asyncio.get_running_loop().time())
        return self.heartbeats.hold(slot, asked or request(), said or answer())

    def own(self) -> None:
        """Assign partitions to the member, and acknowledge them."""
        assert not self.hold(request(0), answer(assignment=SOME))
        assert self.hold(request(topic_partitions=OWNED))
        self.heartbeats.release()
        self.given.clear()

    def answer_again(self, said: AnyAnswer) -> None:
        _, then = self.asked.pop()
        then(said)

    @property
    def response(self) -> Any:
        [(_, response)] = self.given
        return response


def run(scenario: Callable[[Bench], Awaitable[None]], hold_ms_max: int = 600_000) -> None:
    async def main() -> None:
        bench = Bench(hold_ms_max)
        await scenario(bench)
        bench.heartbeats.forget()

    asyncio.run(main())


# -- what is held ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said", "is_held"),
    [
        (request(), answer(), True),
        (request(), answer(pending="waiting"), True),
        (request(), answer(epoch=6), True),
        (request(), answer(pending="revoking"), False),
        (request(), answer(assignment=SOME), False),
        (request(), answer(assignment=()), False),
        (request(), answer(**ended(ErrorCode.FENCED_MEMBER_EPOCH)), False),
        (request(topic_partitions=OWNED), answer(), False),
        (request(0, topic_partitions=()), answer(1, assignment=(), pending="waiting"), True),
        (request(0, topic_partitions=()), answer(1, assignment=()), False),
        (request(0, topic_partitions=()), answer(1, assignment=SOME, pending="waiting"), False),
        (request(-1), answer(-1), False),
        (request(-2), answer(-2), False),
        (request(), answer(interval_ms=MARGIN_MS), False),
        (request(), answer(interval_ms=MARGIN_MS + 100), True),
    ],
)
def test_only_a_response_without_news_is_held(
    asked: ConsumerGroupHeartbeat, said: ConsumerGroupHeartbeatAnswer, is_held: bool
):
    async def scenario(bench: Bench) -> None:
        assert bench.hold(asked, said) is is_held
        assert bench.given == []

    run(scenario)


def test_no_response_is_held_if_the_setting_says_so():
    async def scenario(bench: Bench) -> None:
        assert not bench.hold()

    run(scenario, hold_ms_max=0)


def test_no_response_is_held_before_the_acknowledgement():
    """A client acknowledges its assignment only after the response before."""

    async def scenario(bench: Bench) -> None:
        assert not bench.hold(request(0), answer(assignment=SOME))
        assert not bench.hold(request(), answer())
        assert not bench.hold(request(topic_partitions=()), answer())
        assert bench.hold(request(topic_partitions=OWNED), answer())

    run(scenario)


def test_an_error_clears_what_a_member_owns():
    """After an error, a client says again all that it owns."""

    async def scenario(bench: Bench) -> None:
        bench.own()
        assert not bench.hold(request(), answer(**ended(ErrorCode.UNKNOWN_MEMBER_ID)))
        assert bench.hold(request(0, topic_partitions=()), answer(1, assignment=(), pending="waiting"))

    run(scenario)


def test_the_members_of_a_connection_are_bounded():
    async def scenario(bench: Bench) -> None:
        bench.own()
        for number in range(MEMBERS_MAX):
            asked = ConsumerGroupHeartbeat(**WHO, member_id=f"m{number}", member_epoch=0, topic_partitions=())
            said = ConsumerGroupHeartbeatAnswer(request_id="1", member_id=f"m{number}", assignment=SOME)
            assert not bench.hold(asked, said)
        assert bench.hold(request(), answer()), "the oldest member is dropped: nothing is known of it"

    run(scenario)


# -- the end of a hold -------------------------------------------------------------------------------------------------


def test_a_released_response_is_sent_once():
    async def scenario(bench: Bench) -> None:
        bench.hold()
        bench.heartbeats.release()
        bench.heartbeats.release()
        assert (bench.response.member_epoch, bench.response.assignment) == (5, None)

    run(scenario)


def test_a_response_is_sent_when_its_time_is_over():
    async def scenario(bench: Bench) -> None:
        bench.hold()
        while not bench.given:
            await asyncio.sleep(0)
        assert bench.response.member_epoch == 5

    run(scenario, hold_ms_max=20)


def test_the_time_counts_from_the_arrival_of_the_request():
    async def scenario(bench: Bench) -> None:
        bench.late_s = 5
        assert not bench.hold(said=answer(interval_ms=MARGIN_MS + 5_000))
        assert bench.hold(said=answer(interval_ms=MARGIN_MS + 6_000))

    run(scenario)


# -- the interval ------------------------------------------------------------------------------------------------------


def test_a_client_whose_requests_end_a_hold_is_told_a_short_interval():
    """A commit ends a hold, and news waits for the next heartbeat: it comes sooner."""

    async def scenario(bench: Bench) -> None:
        bench.hold()
        bench.heartbeats.release()
        assert bench.response.heartbeat_interval_ms == bench.heartbeats.told_ms == SHORT_INTERVAL_MS
        bench.late_s = (SHORT_INTERVAL_MS - MARGIN_MS) / 1_000
        assert not bench.hold(), "librdkafka waits no longer for the response than the interval that it was told"

    run(scenario)


def test_a_hold_that_ends_by_itself_leaves_the_interval():
    async def scenario(bench: Bench) -> None:
        bench.hold()
        while not bench.given:
            await asyncio.sleep(0)
        assert bench.response.heartbeat_interval_ms == INTERVAL_MS

    run(scenario, hold_ms_max=20)


def test_the_usual_interval_comes_back():
    async def scenario(bench: Bench) -> None:
        bench.heartbeats.end_early()
        slot = Slot(APIS[68], Header(68, 1, 77, "c"), since_s=asyncio.get_running_loop().time())
        assert bench.heartbeats.answer_now(slot, answer()).heartbeat_interval_ms == SHORT_INTERVAL_MS
        bench.late_s = SHORT_FOR_S
        slot.since_s += SHORT_FOR_S
        assert bench.heartbeats.answer_now(slot, answer()).heartbeat_interval_ms == INTERVAL_MS

    run(scenario)


def test_a_slow_coordinator_is_not_asked_more_often():
    """With the short interval, a client gives up sooner: its repeated requests would add to the load."""

    async def scenario(bench: Bench) -> None:
        bench.late_s = PROMPT_MS / 1_000 + 1
        assert bench.hold()
        bench.heartbeats.release()
        assert bench.response.heartbeat_interval_ms == INTERVAL_MS

    run(scenario)


@pytest.mark.parametrize(
    ("waited_ms", "interval_ms"), [(500, SHORT_INTERVAL_MS), (499, INTERVAL_MS)], ids=["prompt", "slow"]
)
def test_the_time_for_which_a_heartbeat_waits_for_the_tick_is_not_the_coordinators(waited_ms: int, interval_ms: int):
    async def scenario(bench: Bench) -> None:
        bench.heartbeats.end_early()
        now_s = asyncio.get_running_loop().time()
        bench.heartbeats._clock = lambda: now_s
        age_s = (PROMPT_MS + 500) / 1_000
        slot = Slot(APIS[68], Header(68, 1, 77, "c"), since_s=now_s - age_s, waited_ms=waited_ms + 1e-3)
        assert bench.heartbeats.answer_now(slot, answer()).heartbeat_interval_ms == interval_ms

    run(scenario)


def test_an_interval_below_the_short_one_stays():
    async def scenario(bench: Bench) -> None:
        bench.hold(said=answer(interval_ms=MARGIN_MS + 500))
        bench.heartbeats.release()
        assert bench.response.heartbeat_interval_ms == MARGIN_MS + 500

    run(scenario)


# -- news --------------------------------------------------------------------------------------------------------------


def test_a_notice_brings_the_news_of_the_member():
    async def scenario(bench: Bench) -> None:
        bench.own()
        bench.hold()
        bench.heartbeats.tell(notice("another"))
        assert bench.asked == []
        bench.heartbeats.tell(notice())
        bench.heartbeats.tell(notice())
        [(asked, _)] = bench.asked
        assert (asked.member_id, asked.member_epoch, asked.again, asked.topic_partitions) == ("m", 5, True, None)
        bench.answer_again(answer(assignment=SOME[:0], pending="revoking"))
        assert bench.response.assignment.topic_partitions == []
        bench.given.clear()
        assert not bench.hold(request(), answer()), "the member owes an acknowledgement"

    run(scenario)


@pytest.mark.parametrize(
    ("before", "after", "is_news"),
    [
        (answer(), answer(6), False),
        (answer(pending="waiting"), answer(6, pending="waiting"), False),
        (answer(pending="waiting"), answer(6), True),
        (answer(), answer(pending="revoking"), True),
        (answer(), answer(6, assignment=SOME), True),
        (answer(), answer(**ended(ErrorCode.UNKNOWN_MEMBER_ID)), True),
    ],
)
def test_a_response_is_held_on_without_news(
    before: ConsumerGroupHeartbeatAnswer, after: ConsumerGroupHeartbeatAnswer, is_news: bool
):
    async def scenario(bench: Bench) -> None:
        bench.hold(said=before)
        bench.heartbeats.tell(notice())
        bench.answer_again(after)
        assert bool(bench.given) is is_news
        bench.heartbeats.release()
        assert (bench.response.member_epoch, bench.response.error_code) == (
            0 if after.code else after.member_epoch,
            after.code,
        )

    run(scenario)


def test_a_new_members_empty_assignment_is_kept():
    """The response to a join always has an assignment."""

    async def scenario(bench: Bench) -> None:
        bench.hold(request(0, topic_partitions=()), answer(1, assignment=(), pending="waiting"))
        bench.heartbeats.tell(notice())
        bench.answer_again(answer(2))
        assert (bench.response.member_epoch, bench.response.assignment.topic_partitions) == (2, [])

    run(scenario)


def test_a_response_that_must_be_sent_waits_for_the_answer_under_way():
    """Otherwise the client would never hear of the assignment in that answer."""

    async def scenario(bench: Bench) -> None:
        bench.own()
        bench.hold()
        bench.heartbeats.tell(notice())
        bench.heartbeats.release()
        bench.heartbeats.release()
        assert bench.given == []
        bench.answer_again(answer(6, assignment=()))
        assert (bench.response.member_epoch, bench.response.assignment.topic_partitions) == (6, [])

    run(scenario)


def test_a_response_does_not_wait_for_ever():
    """The client then says all that it owns, and so gets what the lost answer had."""

    async def scenario(bench: Bench) -> None:
        bench.own()
        bench.hold(said=answer(interval_ms=PATIENCE_MS + MARGIN_MS))
        bench.heartbeats.tell(notice())
        bench.late_s = 60
        bench.heartbeats.release()
        while not bench.given:
            await asyncio.sleep(0)
        assert bench.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        bench.answer_again(answer(6, assignment=()))
        assert len(bench.given) == 1

    run(scenario)


@pytest.mark.parametrize("how", ["no answer", "not available"])
def test_a_new_member_does_not_join_again_because_the_coordinator_is_slow(how: str):
    """A static member that joined again would be refused for good: its own instance id has an owner.

    The join is answered, and the next heartbeat gets the error once: the full request after it gets the assignment.
    """

    async def scenario(bench: Bench) -> None:
        bench.hold(request(0), answer(interval_ms=PATIENCE_MS + MARGIN_MS, assignment=(), pending="waiting"))
        bench.heartbeats.tell(notice())
        if how == "no answer":
            bench.late_s = 60
            bench.heartbeats.release()
            while not bench.given:
                await asyncio.sleep(0)
            bench.answer_again(answer(6, assignment=SOME))
        else:
            bench.answer_again(failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert (bench.response.error_code, bench.response.member_epoch) == (0, 5)
        assert bench.response.assignment.topic_partitions == []
        assert [bench.heartbeats.is_behind(request(5)) for _ in range(2)] == [True, False]

    run(scenario)


@pytest.mark.parametrize("begins", [0, 5])
def test_a_request_that_has_all_fields_follows_a_join_without_an_error(begins: int):
    async def scenario(bench: Bench) -> None:
        bench.hold(request(0), answer(assignment=(), pending="waiting"))
        bench.heartbeats.tell(notice())
        bench.answer_again(failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        full = request(begins, rebalance_timeout_ms=1, subscribed_topic_names=("t",), topic_partitions=())
        assert not bench.heartbeats.is_behind(full)
        assert not bench.heartbeats.is_behind(request(5))

    run(scenario)


def test_a_new_member_that_is_gone_gets_the_error():
    async def scenario(bench: Bench) -> None:
        bench.hold(request(0), answer(assignment=(), pending="waiting"))
        bench.heartbeats.tell(notice())
        bench.answer_again(failed(ErrorCode.UNKNOWN_MEMBER_ID))
        assert bench.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID.number
        assert not bench.heartbeats.is_behind(request(5))

    run(scenario)


def test_a_closed_connection_gets_nothing():
    async def scenario(bench: Bench) -> None:
        bench.hold()
        bench.heartbeats.tell(notice())
        bench.heartbeats.forget()
        bench.heartbeats.release()
        bench.heartbeats.tell(notice())
        bench.answer_again(answer(6, assignment=SOME))
        assert (bench.given, bench.asked) == ([], [])

    run(scenario)
