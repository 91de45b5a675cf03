"""The members of the consumer protocol on one connection: what is asked for them, and what they are answered."""

import asyncio
from uuid import UUID

from kafka.protocol.consumer.group import OffsetCommitRequest

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.responses import Ask, AssignmentNotice, ErrorAnswer, GroupTopicsAnswer
from streaming.gateway.members.heartbeat_scheduler import REPEATS_MAX
from streaming.gateway.members.reported_interval import PATIENCE_MS, SHORT_INTERVAL_MS
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatResponse
from streaming.gateway.protocol.topic_ids import id_of
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.members_bench import ALL, INTERVAL_MS, Bench, T, run
from tests.streaming.gateway.parts import fact_of, turn

# -- what the coordinator asks for -------------------------------------------------------------------------------------


def test_a_refused_heartbeat_is_repeated_with_the_facts_that_the_coordinator_asks_for():
    """A classic group is converted only when the partitions of its members are known."""

    async def scenario(bench: Bench) -> None:
        bench.shared.cluster.topics["u"] = 2
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        await bench.idle()
        bench.answer(0, ask=Ask(("u",)), **ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        await bench.idle()
        first, second = bench.asking.requests
        assert second.topics == (fact_of("u", 2), T)
        assert first.request_id != second.request_id
        assert bench.frames() == []
        bench.answer(1, assignment=ALL)
        assert bench.response().member_epoch == 1

    run(scenario)


def test_a_heartbeat_is_repeated_a_bounded_number_of_times():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        for _ in range(REPEATS_MAX + 1):
            await bench.idle()
            bench.answer(0, ask=Ask(("u",)), **ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        await bench.idle()
        assert bench.response().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.number
        assert len(bench.asking.requests) == REPEATS_MAX + 1

    run(scenario)


def test_a_group_is_told_what_its_coordinator_asks_for_beside_the_response():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        await bench.idle()
        bench.answer(1, assignment=(), ask=Ask(("t",)))
        assert bench.response().member_epoch == 1
        await bench.idle()
        assert [told.topics for told in bench.group_topics] == [(T,)]
        bench.asking.answer(GroupTopicsAnswer)
        assert bench.asking.waiting == 0

    run(scenario)


# -- responses ---------------------------------------------------------------------------------------------------------


def test_a_response_is_held_until_there_is_news():
    async def scenario(bench: Bench) -> None:
        await bench.join()
        inbox = bench.asking.inboxes[bench.asking.requests[0].reply_to]
        inbox(AssignmentNotice(request_id=None, group_id="g", member_id="m", group_epoch=2))
        again = bench.asking.requests[-1]
        assert isinstance(again, ConsumerGroupHeartbeat)
        assert (again.again, again.member_epoch, again.subscribed_topic_names) == (True, 1, None)
        bench.answer(2, assignment=(), pending="revoking")
        assert bench.response().member_epoch == 2
        assert bench.count("requests_total", api="ConsumerGroupHeartbeat") == 0, "requests are counted on arrival"
        assert not bench.flow.questions

    run(scenario)


def test_a_member_whose_join_was_answered_early_sends_all_fields_before_it_is_answered_again():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        await bench.idle()
        bench.answer(1, assignment=(), pending="waiting")
        inbox = bench.asking.inboxes[bench.asking.requests[0].reply_to]
        inbox(AssignmentNotice(request_id=None, group_id="g", member_id="m", group_epoch=2))
        bench.asking.answer(ErrorAnswer, **ended(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        assert (bench.response().error_code, len(bench.asking.requests)) == (0, 2)
        bench.beat(1)
        assert bench.response().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        assert len(bench.asking.requests) == 2
        bench.beat(1, subscribed_topic_names=["t"], topic_partitions=[])
        await bench.idle()
        bench.answer(2, assignment=ALL)
        assert bench.response().member_epoch == 2

    run(scenario)


def test_no_response_is_held_on_a_connection_with_other_requests():
    async def scenario(bench: Bench) -> None:
        bench.heartbeats.stop_holding()
        bench.beat()
        bench.answer()
        assert bench.response().member_epoch == 5

    run(scenario)


def test_a_client_that_sends_other_requests_beside_a_heartbeat_is_told_a_short_interval():
    """It commits often, so its next response may be held only if its next heartbeat comes soon."""

    async def scenario(bench: Bench) -> None:
        bench.beat(1)
        bench.ask(OffsetCommitRequest(version=8, group_id="g", member_id="m", topics=[]))
        bench.answer(1)
        [frame, _] = bench.frames()
        response = ConsumerGroupHeartbeatResponse.decode(frame, version=1, header=True)
        assert response.heartbeat_interval_ms == SHORT_INTERVAL_MS
        bench.beat(1)
        [heartbeat] = bench.heartbeats._timed
        assert heartbeat.until_s - asyncio.get_running_loop().time() <= (SHORT_INTERVAL_MS - PATIENCE_MS) / 1_000

    run(scenario)


def test_an_error_of_the_gateway_is_sent():
    async def scenario(bench: Bench) -> None:
        bench.beat()
        bench.asking.answer(ErrorAnswer, **ended(ErrorCode.INVALID_REQUEST))
        assert bench.response().error_code == ErrorCode.INVALID_REQUEST.number

    run(scenario)


def test_a_heartbeat_without_an_answer_gets_an_error_in_time():
    """librdkafka waits for a response for one interval, and then drops the connection."""

    async def scenario(bench: Bench) -> None:
        bench.heartbeats.consumer.interval._usual_ms = PATIENCE_MS
        bench.beat()
        while not bench.soon:
            await asyncio.sleep(0.01)
        assert bench.response().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        bench.answer(6, assignment=ALL)
        assert bench.frames() == []

    run(scenario)


def test_a_heartbeat_is_given_up_by_the_time_of_its_arrival():
    """The facts about its topics may take long, and the client waits no longer for that."""

    async def scenario(bench: Bench) -> None:
        bench.heartbeats.consumer.interval._usual_ms = PATIENCE_MS
        bench.beat(subscribed_topic_names=["new"])
        assert len(bench.heartbeats._timed) == 1
        assert bench.asking.requests == []

    run(scenario)


def test_an_error_ends_the_wait_for_an_answer():
    async def scenario(bench: Bench) -> None:
        bench.heartbeats.consumer.interval._usual_ms = PATIENCE_MS
        bench.beat()
        [heartbeat] = bench.heartbeats._timed
        bench.asking.answer(ErrorAnswer, **ended(ErrorCode.INVALID_REQUEST))
        assert (bench.heartbeats._timed, heartbeat.timer) == (set(), None)
        assert bench.response().error_code == ErrorCode.INVALID_REQUEST.number
        assert (bench.frames(), bench.flow.send_buffer.held_bytes) == ([], 0)

    run(scenario)


def test_a_client_that_is_told_a_short_interval_hears_of_late_answers():
    """The coordinator takes longer for each heartbeat than the client waits for one."""

    async def scenario(bench: Bench) -> None:
        bench.beat(1)
        bench.ask(OffsetCommitRequest(version=8, group_id="g", member_id="m", topics=[]))
        bench.answer(1)
        assert bench.heartbeats.consumer.interval.last_ms == SHORT_INTERVAL_MS
        bench.frames()
        bench.beat(1)
        bench.give_up()
        assert bench.response().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        before = len(bench.asking.requests)
        bench.beat(1)
        assert len(bench.asking.requests) == before
        bench.answer(2, assignment=ALL)
        response = bench.response()
        assert (response.member_epoch, response.heartbeat_interval_ms) == (2, INTERVAL_MS)

    run(scenario)


def test_without_holding_a_client_is_always_told_the_usual_interval():
    """With `gateway_consumer_heartbeat_hold_ms` 0 all responses are Kafka's."""

    async def scenario(bench: Bench) -> None:
        bench.beat(1)
        bench.ask(OffsetCommitRequest(version=8, group_id="g", member_id="m", topics=[]))
        bench.answer(1)
        [frame, _] = bench.frames()
        response = ConsumerGroupHeartbeatResponse.decode(frame, version=1, header=True)
        assert response.heartbeat_interval_ms == INTERVAL_MS

    run(scenario, gateway_consumer_heartbeat_hold_ms=0)


def test_a_join_may_wait_as_long_as_the_client_does():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        await bench.idle()
        await turn()
        assert not bench.heartbeats._timed

    run(scenario)


def test_ids_of_topics_are_those_of_the_brokers():
    assert id_of(T.topic_id or "") == UUID(bytes=b"t".ljust(16, b"."))


# -- heartbeats over another connection --------------------------------------------------------------------------------


def test_a_heartbeat_waits_for_the_answer_to_the_last_one_over_another_connection():
    """Otherwise a client that connects again and again, while the brokers are away, would be fenced by its copies."""

    async def scenario(bench: Bench) -> None:
        unanswered = bench.shared.coordinators.outstanding
        unanswered.sent(("g", "m", bench.identity.principal), "over another connection")
        bench.beat(5)
        await bench.idle()
        assert bench.asking.requests == []
        unanswered.answered("over another connection")
        await bench.idle()
        (request,) = bench.asking.requests
        assert (request.member_id, request.member_epoch) == ("m", 5)

    run(scenario)


def test_a_heartbeat_that_waits_is_not_sent_if_its_connection_is_closed():
    async def scenario(bench: Bench) -> None:
        unanswered = bench.shared.coordinators.outstanding
        unanswered.sent(("g", "m", bench.identity.principal), "over another connection")
        bench.beat(5)
        bench.close()
        unanswered.answered("over another connection")
        await bench.idle()
        assert bench.asking.requests == []

    run(scenario)
