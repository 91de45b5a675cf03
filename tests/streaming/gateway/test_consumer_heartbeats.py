"""The response to a heartbeat of the consumer protocol waits for news of its member, for a bounded time."""

import asyncio

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.responses import ConsumerGroupHeartbeatAnswer
from streaming.gateway.members.member_state import MEMBERS_MAX
from streaming.gateway.members.reported_interval import (
    MARGIN_MS,
    PATIENCE_MS,
    PROMPT_MS,
    SHORT_FOR_S,
    SHORT_INTERVAL_MS,
)
from tests.streaming.gateway.examples import WHO, ended
from tests.streaming.gateway.held_bench import INTERVAL_MS, OWNED, SOME, Bench, answer, notice, request, run

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

    run(scenario)


def test_no_response_is_held_if_the_setting_says_so():
    async def scenario(bench: Bench) -> None:
        assert not bench.hold()

    run(scenario, gateway_consumer_heartbeat_hold_ms=0)


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

    run(scenario, gateway_consumer_heartbeat_hold_ms=20)


@pytest.mark.parametrize(("hold_ms", "is_held"), [(5_000, False), (6_000, True)])
def test_the_time_counts_from_the_arrival_of_the_request(hold_ms: int, is_held: bool):
    async def scenario(bench: Bench) -> None:
        bench.late_s = 5
        assert bench.hold(said=answer(interval_ms=MARGIN_MS + hold_ms)) is is_held

    run(scenario)


# -- the interval ------------------------------------------------------------------------------------------------------


def test_a_client_whose_requests_end_a_hold_is_told_a_short_interval():
    """A commit ends a hold, and news waits for the next heartbeat: it comes sooner."""

    async def scenario(bench: Bench) -> None:
        bench.hold()
        bench.heartbeats.release()
        assert bench.response.heartbeat_interval_ms == SHORT_INTERVAL_MS
        bench.late_s = (SHORT_INTERVAL_MS - MARGIN_MS) / 1_000
        assert not bench.hold(), "librdkafka waits no longer for the response than the interval that it was told"

    run(scenario)


def test_a_hold_that_ends_by_itself_leaves_the_interval():
    async def scenario(bench: Bench) -> None:
        bench.hold()
        while not bench.given:
            await asyncio.sleep(0)
        assert bench.response.heartbeat_interval_ms == INTERVAL_MS

    run(scenario, gateway_consumer_heartbeat_hold_ms=20)


def test_the_usual_interval_comes_back():
    async def scenario(bench: Bench) -> None:
        bench.hold()
        bench.heartbeats.release()
        for bench.late_s, interval_ms in ((SHORT_FOR_S - 1, SHORT_INTERVAL_MS), (SHORT_FOR_S, INTERVAL_MS)):
            heartbeat = bench.send(request(topic_partitions=OWNED))
            heartbeat.in_flight.since_s += bench.late_s
            bench.given.clear()
            bench.asking.reply(answer())
            assert bench.response.heartbeat_interval_ms == interval_ms

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
        bench.heartbeats.consumer.interval.record_early_end()
        heartbeat = bench.send(request(topic_partitions=OWNED))
        heartbeat.in_flight.waited_ms = waited_ms + 1e-3
        now_s = heartbeat.in_flight.since_s + (PROMPT_MS + 500) / 1_000
        bench.heartbeats._clock = lambda: now_s
        bench.asking.reply(answer())
        assert bench.response.heartbeat_interval_ms == interval_ms

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
        bench.heartbeats.handle_notice(notice("another"))
        assert bench.asked == []
        bench.heartbeats.handle_notice(notice())
        bench.heartbeats.handle_notice(notice())
        [asked] = bench.asked
        assert (asked.member_id, asked.member_epoch, asked.again, asked.topic_partitions) == ("m", 5, True, None)
        bench.asking.reply(answer(assignment=SOME[:0], pending="revoking"))
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
        bench.heartbeats.handle_notice(notice())
        bench.asking.reply(after)
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
        bench.heartbeats.handle_notice(notice())
        bench.asking.reply(answer(2))
        assert (bench.response.member_epoch, bench.response.assignment.topic_partitions) == (2, [])

    run(scenario)


def test_a_response_that_must_be_sent_waits_for_the_answer_under_way():
    """Otherwise the client would never hear of the assignment in that answer."""

    async def scenario(bench: Bench) -> None:
        bench.own()
        bench.hold()
        bench.heartbeats.handle_notice(notice())
        bench.heartbeats.release()
        bench.heartbeats.release()
        assert bench.given == []
        bench.asking.reply(answer(6, assignment=()))
        assert (bench.response.member_epoch, bench.response.assignment.topic_partitions) == (6, [])

    run(scenario)


def test_a_response_does_not_wait_for_ever():
    """The client then says all that it owns, and so gets what the lost answer had."""

    async def scenario(bench: Bench) -> None:
        bench.own()
        bench.hold(said=answer(interval_ms=PATIENCE_MS + MARGIN_MS))
        bench.heartbeats.handle_notice(notice())
        bench.late_s = 60
        bench.heartbeats.release()
        while not bench.given:
            await asyncio.sleep(0)
        assert bench.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        bench.asking.reply(answer(6, assignment=()))
        assert len(bench.given) == 1

    run(scenario)


def test_a_closed_connection_gets_nothing():
    async def scenario(bench: Bench) -> None:
        bench.hold()
        bench.heartbeats.handle_notice(notice())
        bench.heartbeats.close()
        bench.heartbeats.release()
        bench.heartbeats.handle_notice(notice())
        bench.asking.reply(answer(6, assignment=SOME))
        assert (bench.given, len(bench.asked)) == ([], 1)

    run(scenario)
