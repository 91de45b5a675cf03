"""The held response to a join, if the heartbeat on behalf of its new member is not answered in time."""

import asyncio

import pytest

from coordinator.base.errors import ErrorCode
from streaming.gateway.members.reported_interval import MARGIN_MS, PATIENCE_MS
from tests.streaming.gateway.held_bench import SOME, Bench, answer, failed, notice, request, run


@pytest.mark.parametrize("how", ["no answer", "not available"])
def test_a_new_member_does_not_join_again_because_the_coordinator_is_slow(how: str):
    """A static member that joined again would be refused for good: its own instance id has an owner.

    The join is answered, and the next heartbeat gets the error once: the full request after it gets the assignment.
    """

    async def scenario(bench: Bench) -> None:
        bench.hold(request(0), answer(interval_ms=PATIENCE_MS + MARGIN_MS, assignment=(), pending="waiting"))
        bench.heartbeats.handle_notice(notice())
        if how == "no answer":
            bench.late_s = 60
            bench.heartbeats.release()
            while not bench.given:
                await asyncio.sleep(0)
            bench.asking.reply(answer(6, assignment=SOME))
        else:
            bench.asking.reply(failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert (bench.response.error_code, bench.response.member_epoch) == (0, 5)
        assert bench.response.assignment.topic_partitions == []
        assert [bench.heartbeats.consumer.must_be_full(request(5)) for _ in range(2)] == [True, False]

    run(scenario)


@pytest.mark.parametrize("begins", [0, 5])
def test_a_request_that_has_all_fields_follows_a_join_without_an_error(begins: int):
    async def scenario(bench: Bench) -> None:
        bench.hold(request(0), answer(assignment=(), pending="waiting"))
        bench.heartbeats.handle_notice(notice())
        bench.asking.reply(failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        full = request(begins, rebalance_timeout_ms=1, subscribed_topic_names=("t",), topic_partitions=())
        assert not bench.heartbeats.consumer.must_be_full(full)
        assert not bench.heartbeats.consumer.must_be_full(request(5))

    run(scenario)


def test_a_new_member_that_is_gone_gets_the_error():
    async def scenario(bench: Bench) -> None:
        bench.hold(request(0), answer(assignment=(), pending="waiting"))
        bench.heartbeats.handle_notice(notice())
        bench.asking.reply(failed(ErrorCode.UNKNOWN_MEMBER_ID))
        assert bench.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID.number
        assert not bench.heartbeats.consumer.must_be_full(request(5))

    run(scenario)
