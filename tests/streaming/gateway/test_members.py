"""The members of the consumer protocol on one connection: what is asked for them, and what they are answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer.group import OffsetCommitRequest

from coordinator.consumer_requests import ConsumerGroupHeartbeat, GroupTopics
from coordinator.errors import ErrorCode
from coordinator.outputs import (
    Ask,
    AssignedTopic,
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    ErrorAnswer,
    GroupTopicsAnswer,
)
from streaming.gateway import members as module
from streaming.gateway.consumer_heartbeats import MEMBERS_MAX, PATIENCE_MS, SHORT_INTERVAL_MS
from streaming.gateway.definitions import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from streaming.gateway.ids import id_of
from streaming.gateway.members import REPEATS_MAX
from tests.streaming.gateway.examples import ended
from tests.streaming.gateway.parts import fact_of, turn
from tests.streaming.gateway.serving_bench import ServingBench

T = fact_of("t", 3)
ALL = (AssignedTopic(T.topic_id or "", "t", (0, 1, 2)),)
INTERVAL_MS = 600_000


class Bench(ServingBench):
    """A connection with members of the consumer protocol."""

    def beat(self, epoch: int = 5, member_id: str = "m", **fields: Any) -> None:
        self.ask(
            ConsumerGroupHeartbeatRequest(
                version=1, group_id="g", member_id=member_id, member_epoch=epoch, rebalance_timeout_ms=9_000, **fields
            )
        )

    def answer(self, epoch: int = 5, index: int = -1, member_id: str = "m", **fields: Any) -> None:
        said = {"member_id": member_id, "member_epoch": epoch, "heartbeat_interval_ms": INTERVAL_MS, **fields}
        self.asking.answer(ConsumerGroupHeartbeatAnswer, index, **said)

    async def join(self, member_id: str = "m", names: tuple[str, ...] = ("t",), **fields: Any) -> None:
        """Subscribe a member, and acknowledge its assignment. The response to that is held."""
        self.beat(0, member_id, subscribed_topic_names=list(names), topic_partitions=[], **fields)
        await self.idle()
        self.answer(1, member_id=member_id, assignment=ALL)
        assert self.response().member_epoch == 1
        owned = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=id_of(T.topic_id or ""), partitions=[0, 1, 2])
        self.beat(1, member_id, topic_partitions=[owned])
        self.answer(1, member_id=member_id)
        assert self.frames() == []

    async def idle(self) -> None:
        """Wait for the requests to the brokers."""
        while self.work._tasks:
            await asyncio.sleep(0)

    def frames(self) -> list[bytes]:
        self.run_soon()
        return self.transport.frames()

    def response(self) -> Any:
        [frame] = self.frames()
        return ConsumerGroupHeartbeatResponse.decode(frame, version=1, header=True)

    @property
    def group_topics(self) -> list[GroupTopics]:
        return [request for request in self.asking.requests if isinstance(request, GroupTopics)]


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await scenario(bench)
        bench.members.close()

    asyncio.run(main())


# -- topics ------------------------------------------------------------------------------------------------------------


def test_a_subscription_waits_for_the_facts_about_its_topics():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_names=["t", "nowhere"], topic_partitions=[])
        assert bench.asking.requests == []
        await bench.idle()
        [sent] = bench.asking.requests
        assert sent.topics == (T, fact_of("nowhere", None))
        bench.answer(1)
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        assert bench.asking.requests[1].topics == (T,)
        assert bench.shared.described == [["t", "nowhere"]]

    run(scenario)


def test_a_pattern_waits_for_the_names_and_the_facts():
    async def scenario(bench: Bench) -> None:
        bench.shared.cluster.is_recent = False
        bench.shared.cluster.is_refreshed.set()
        bench.beat(0, subscribed_topic_regex="t.*", topic_partitions=[])
        bench.shared.cluster.topics = {"t": 3, "t2": 1, "u": 1}
        await bench.idle()
        [sent] = bench.asking.requests
        assert (sent.regex_topics, sent.topics) == (("t", "t2"), (T, fact_of("t2", 1)))
        assert bench.shared.cluster.refreshed == 1

    run(scenario)


def test_a_heartbeat_without_a_subscription_waits_for_nothing():
    async def scenario(bench: Bench) -> None:
        bench.beat()
        bench.answer()
        assert bench.shared.described == []

    run(scenario)


def test_the_topics_of_a_member_are_followed_until_it_leaves():
    async def scenario(bench: Bench) -> None:
        await bench.join()
        bench.shared.cluster.topics["t"] = 4
        await bench.shared.following.look()
        [told] = bench.group_topics
        assert (told.group_id, told.topics, told.principal) == ("g", (fact_of("t", 4),), "User:CN=ana")
        bench.members.release()
        bench.beat(-1)
        bench.answer(-1)
        bench.shared.cluster.topics["t"] = 5
        await bench.shared.following.look()
        assert len(bench.group_topics) == 1

    run(scenario)


def test_a_heartbeat_may_change_a_part_of_the_subscription():
    async def scenario(bench: Bench) -> None:
        await bench.join()
        bench.members.release()
        bench.beat(1, subscribed_topic_regex="u.*")
        await bench.idle()
        bench.answer(2)
        bench.shared.cluster.topics |= {"t": 4, "u": 1}
        await bench.shared.following.look()
        [told] = bench.group_topics
        assert {fact.topic for fact in told.topics} == {"t", "u"}
        assert [resolved.topics for resolved in told.regexes] == [("u",)]

    run(scenario)


@pytest.mark.parametrize("end", ["error", "closed"])
def test_a_member_that_is_gone_is_not_followed(end: str):
    async def scenario(bench: Bench) -> None:
        await bench.join()
        bench.members.release()
        if end == "error":
            bench.beat(1)
            bench.answer(**ended(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            bench.members.close()
        bench.shared.cluster.topics["t"] = 4
        await bench.shared.following.look()
        assert bench.group_topics == []

    run(scenario)


def test_the_followed_members_of_a_connection_are_bounded():
    async def scenario(bench: Bench) -> None:
        for number in range(MEMBERS_MAX + 1):
            bench.beat(0, f"m{number}", subscribed_topic_names=[f"t{number}"], topic_partitions=[])
            await bench.idle()
            bench.answer(1, member_id=f"m{number}", assignment=ALL)
        bench.shared.cluster.topics |= {"t0": 1, "t1": 1, f"t{MEMBERS_MAX}": 1}
        await bench.shared.following.look()
        assert {fact.topic for fact in bench.group_topics[0].topics} == {"t1", f"t{MEMBERS_MAX}"}

    run(scenario)


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
        assert second.topics == (T, fact_of("u", 2))
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


def test_no_response_is_held_on_a_connection_with_other_requests():
    async def scenario(bench: Bench) -> None:
        bench.heartbeats._is_of_groups = False
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
        [timer] = bench.members._timers.values()
        assert timer.when() - asyncio.get_running_loop().time() <= (SHORT_INTERVAL_MS - PATIENCE_MS) / 1_000

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
        bench.members._interval_ms = PATIENCE_MS
        module_patience = module.PATIENCE_MS
        assert module_patience == PATIENCE_MS
        bench.beat()
        while not bench.soon:
            await asyncio.sleep(0.01)
        assert bench.response().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.number
        bench.answer(6, assignment=ALL)
        assert bench.frames() == []

    run(scenario)


def test_a_join_may_wait_as_long_as_the_client_does():
    async def scenario(bench: Bench) -> None:
        bench.beat(0, subscribed_topic_names=["t"], topic_partitions=[])
        await bench.idle()
        await turn()
        assert not bench.members._timers

    run(scenario)


def test_ids_of_topics_are_those_of_the_brokers():
    assert id_of(T.topic_id or "") == UUID(bytes=b"t".ljust(16, b"."))
