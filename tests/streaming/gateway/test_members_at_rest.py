"""Heartbeats of members of the consumer protocol at rest wait for the tick, and go out with those of other members."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.responses import (
    Ask,
    AssignmentNotice,
    ErrorAnswer,
    HeartbeatsAnswer,
)
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.coordinator.batching import SPARE_MS
from streaming.gateway.members.heartbeat_protocols import PendingHeartbeat
from streaming.gateway.members.heartbeat_states import State
from streaming.gateway.members.member_state import MEMBERS_MAX
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatRequest
from tests.streaming.gateway import held_bench
from tests.streaming.gateway.held_bench import answer, request
from tests.streaming.gateway.members_bench import ALL, INTERVAL_MS, Bench, run

TICK_MS = 1_000
SESSION_MS = 45_000
OTHER = ConsumerGroupHeartbeat(request_id="other", reply_to="in", group_id="g", member_id="other", member_epoch=1)


# -- the rules ---------------------------------------------------------------------------------------------------------


def at_rest(scenario: Callable[[held_bench.Bench], object], *members: str) -> None:
    """Run a scenario on a connection with these members at rest."""

    async def main(bench: held_bench.Bench) -> None:
        bench.asking.batchers.tick_ms = TICK_MS
        for member_id in members:
            record(bench, request(member_id=member_id), answer())
        scenario(bench)

    held_bench.run(main, group_consumer_session_timeout_ms=SESSION_MS)


def record(bench: held_bench.Bench, asked: ConsumerGroupHeartbeat, said: Any) -> None:
    bench.heartbeats.consumer.record_rest(asked, said, 100.0)


def ticks_of(
    bench: held_bench.Bench, asked: ConsumerGroupHeartbeat, patience_ms: float = 60_000, silence_ms: int = 0
) -> int:
    """Return for how many ticks a heartbeat waits; 0 if it is sent.

    Args:
        patience_ms: How long its client waits for the response.
        silence_ms: The time since the member's last heartbeat.
    """
    slot = bench.slot(68, 1)
    slot.since_s = 100.0 + silence_ms / 1_000
    heartbeat = PendingHeartbeat(slot, bench.heartbeats.consumer)
    heartbeat.request, heartbeat.member_id = asked, asked.member_id
    heartbeat.until_s = asyncio.get_running_loop().time() + patience_ms / 1_000
    may_wait = bench.heartbeats._may_wait(heartbeat)
    bench.flow.queue.withdraw(slot)
    return heartbeat.ticks if may_wait else 0


@pytest.mark.parametrize(
    ("patience_ms", "silence_ms", "ticks"),
    [
        (3 * TICK_MS + SPARE_MS + 100, 0, 3),
        (3 * TICK_MS + SPARE_MS - 1, 0, 1),
        (TICK_MS + SPARE_MS + 100, 0, 1),
        (TICK_MS + SPARE_MS - 1, 0, 0),
        (0, 0, 0),
        (60_000, SESSION_MS - 3 * TICK_MS - SPARE_MS, 3),
        (60_000, SESSION_MS - TICK_MS - SPARE_MS, 1),
        (60_000, SESSION_MS - TICK_MS - SPARE_MS + 1, 0),
        (60_000, SESSION_MS, 0),
    ],
)
def test_a_heartbeat_waits_only_if_client_and_session_leave_room(patience_ms: float, silence_ms: int, ticks: int):
    def scenario(bench: held_bench.Bench) -> None:
        assert ticks_of(bench, request(), patience_ms, silence_ms) == ticks

    at_rest(scenario, "m")


def test_without_ticks_no_heartbeat_waits():
    def scenario(bench: held_bench.Bench) -> None:
        bench.asking.batchers.tick_ms = 0
        assert not ticks_of(bench, request())

    at_rest(scenario, "m")


@pytest.mark.parametrize(
    "fields",
    [{"member_id": "another"}, {"again": True}, {"topic_partitions": ()}, {"rebalance_timeout_ms": 1}],
    ids=str,
)
def test_only_a_bare_heartbeat_of_a_member_at_rest_waits(fields: dict[str, Any]):
    def scenario(bench: held_bench.Bench) -> None:
        assert not ticks_of(bench, request(**fields))

    at_rest(scenario, "m")


def test_each_heartbeat_needs_the_answer_to_the_one_before():
    def scenario(bench: held_bench.Bench) -> None:
        assert ticks_of(bench, request())
        assert not ticks_of(bench, request())

    at_rest(scenario, "m")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (request(), answer(error="FENCED_MEMBER_EPOCH", code=110)),
        (request(), ErrorAnswer(request_id="r", code=15)),
        (request(), answer(assignment=())),
        (request(), answer(pending="waiting")),
        (request(), answer(pending="revoking")),
        (request(), answer(ask=Ask(("t",)))),
        (request(0), answer()),
        (request(-1), answer()),
    ],
    ids=str,
)
def test_after_an_answer_with_a_change_no_heartbeat_waits(asked: ConsumerGroupHeartbeat, said: Any):
    def scenario(bench: held_bench.Bench) -> None:
        record(bench, asked, said)
        assert not ticks_of(bench, request())

    at_rest(scenario)


def test_the_members_at_rest_are_bounded():
    def scenario(bench: held_bench.Bench) -> None:
        assert not ticks_of(bench, request(member_id="m0"))
        assert ticks_of(bench, request(member_id="m1"))

    at_rest(scenario, *(f"m{number}" for number in range(MEMBERS_MAX + 1)))


# -- a connection ------------------------------------------------------------------------------------------------------


def beat(bench: Bench, epoch: int = 1, member_id: str = "m") -> InFlightRequest:
    return bench.ask(
        ConsumerGroupHeartbeatRequest(
            version=1, group_id="g", member_id=member_id, member_epoch=epoch, rebalance_timeout_ms=-1
        )
    )


async def rest(bench: Bench) -> None:
    """Make the client a member with its assignment, and another heartbeat wait for the tick."""
    await bench.join()
    end_hold(bench)
    assert bench.response().error_code == 0
    bench.asking.batchers.add(OTHER, lambda *_: None)


def end_hold(bench: Bench) -> None:
    """End the time for which the response is held."""
    [heartbeat] = bench.heartbeats._timed
    assert heartbeat.state is State.HELD
    bench.heartbeats._expire(heartbeat)


def answer_record(bench: Bench, code: int) -> None:
    """Answer the record of the tick: this code to the client's heartbeat, 0 to the other."""
    record = bench.asking.requests[-1]
    assert isinstance(record, Heartbeats)
    codes = tuple(0 if request_id == "other" else code for request_id in record.request_ids)
    bench.asking.answer(HeartbeatsAnswer, request_ids=record.request_ids, codes=codes)


def notice(bench: Bench, member_id: str = "m") -> None:
    inbox = bench.asking.inboxes[bench.asking.requests[0].reply_to]
    inbox(AssignmentNotice(request_id=None, group_id="g", member_id=member_id, group_epoch=2))


def test_a_heartbeat_at_rest_waits_for_the_tick_and_is_answered_by_a_code():
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        sent = len(bench.asking.sent)
        for _ in range(2):
            beat(bench)
            assert len(bench.asking.sent) == sent
            bench.asking.batchers.add(OTHER, lambda *_: None)
            bench.asking.tick()
            answer_record(bench, 0)
            assert bench.frames() == [], "the response is held as before"
            end_hold(bench)
            said = bench.response()
            assert (said.member_id, said.member_epoch, said.assignment) == ("m", 1, None)
            assert said.heartbeat_interval_ms == INTERVAL_MS
            sent += 1
        assert not bench.flow.questions
        assert not bench.heartbeats._timed

    run(scenario)


def test_the_interval_is_the_one_that_the_coordinator_named_last():
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        beat(bench)
        bench.heartbeats.release()
        bench.answer(1, heartbeat_interval_ms=7_000)
        end_hold(bench)
        assert bench.response().heartbeat_interval_ms == 7_000
        beat(bench)
        bench.asking.tick()
        answer_record(bench, 0)
        end_hold(bench)
        assert bench.response().heartbeat_interval_ms == 7_000

    run(scenario)


def test_the_first_heartbeat_after_an_assignment_does_not_wait():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        await bench.idle()
        bench.answer(1, assignment=ALL)
        assert bench.response().member_epoch == 1
        beat(bench)
        assert isinstance(bench.asking.requests[-1], ConsumerGroupHeartbeat)
        assert bench.asking.batchers.outstanding == 0

    run(scenario)


@pytest.mark.parametrize("code", [14, 30])
def test_a_refused_heartbeat_is_sent_in_a_record_of_its_own_whose_answer_counts(code: int):
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        beat(bench)
        bench.asking.tick()
        answer_record(bench, code)
        assert bench.frames() == []
        single = bench.asking.requests[-1]
        assert isinstance(single, ConsumerGroupHeartbeat)
        assert single.is_bare
        bench.answer(2, assignment=())
        assert bench.response().member_epoch == 2
        sent = len(bench.asking.sent)
        beat(bench, 2)
        assert len(bench.asking.sent) == sent + 1, "the member is not at rest"

    run(scenario)


def test_a_notice_ends_the_wait_for_the_tick():
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        beat(bench)
        sent = len(bench.asking.sent)
        notice(bench, "another")
        assert len(bench.asking.sent) == sent
        notice(bench)
        (single,) = bench.asking.requests[sent:]
        assert isinstance(single, ConsumerGroupHeartbeat)
        assert (single.member_id, single.again) == ("m", False)
        bench.answer(2, assignment=())
        assert bench.response().member_epoch == 2
        bench.asking.tick()
        assert bench.asking.requests[-1] == OTHER, "it is not sent again at the tick"

    run(scenario)


def test_after_a_notice_the_next_heartbeat_does_not_wait():
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        notice(bench)
        sent = len(bench.asking.sent)
        beat(bench)
        assert len(bench.asking.sent) == sent + 1

    run(scenario)


def test_the_next_request_ends_the_wait_for_the_tick():
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        waiting = beat(bench)
        bench.heartbeats.release()
        bench.heartbeats.release()
        assert isinstance(bench.asking.requests[-1], ConsumerGroupHeartbeat)
        assert waiting.waited_ms < TICK_MS
        bench.answer(1)
        sent = len(bench.asking.sent)
        bench.heartbeats.release()
        bench.asking.tick()
        assert bench.asking.requests[sent:] == [OTHER]

    run(scenario)


def test_a_release_after_the_tick_sends_nothing():
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        waiting = beat(bench)
        waiting.since_s -= 4 * TICK_MS / 1_000
        bench.asking.tick()
        sent = len(bench.asking.sent)
        bench.heartbeats.release()
        assert (len(bench.asking.sent), waiting.waited_ms) == (sent, 3 * TICK_MS)

    run(scenario)


@pytest.mark.parametrize("kind", ["other requests", "a request before", "short interval"])
def test_a_heartbeat_that_the_client_cannot_wait_for_is_sent_at_once(kind: str):
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        if kind == "other requests":
            bench.heartbeats.stop_holding()
        elif kind == "a request before":
            bench.slot(10)
        else:
            bench.heartbeats.consumer.interval.last_ms = TICK_MS + SPARE_MS
        sent = len(bench.asking.sent)
        beat(bench)
        assert len(bench.asking.sent) == sent + 1

    run(scenario)


def test_a_late_answer_is_no_rest():
    """The client has had an error, and its next heartbeat got the answer to the one before."""

    async def scenario(bench: Bench) -> None:
        await rest(bench)
        beat(bench)
        bench.asking.tick()
        bench.give_up()
        assert bench.response().error_code == 15
        beat(bench)
        answer_record(bench, 0)
        end_hold(bench)
        assert bench.response().member_epoch == 1
        sent = len(bench.asking.sent)
        beat(bench)
        assert len(bench.asking.sent) == sent + 1

    run(scenario)


def test_a_closed_connection_leaves_its_heartbeat_to_the_tick():
    async def scenario(bench: Bench) -> None:
        await rest(bench)
        beat(bench)
        bench.close()
        bench.asking.tick()
        answer_record(bench, 0)
        assert (bench.frames(), bench.asking.batchers.outstanding) == ([], 0)

    run(scenario)
