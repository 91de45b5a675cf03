"""A connection with members of the consumer protocol, whose coordinator is a test."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from coordinator.messages.consumer_requests import GroupTopics
from coordinator.messages.responses import AssignedTopic, ConsumerGroupHeartbeatAnswer
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from streaming.gateway.protocol.topic_ids import id_of
from tests.streaming.gateway.parts import fact_of
from tests.streaming.gateway.serving_bench import ServingBench

T = fact_of("t", 3)
ALL = (AssignedTopic(T.topic_id or "", "t", (0, 1, 2)),)
INTERVAL_MS = 600_000


class Bench(ServingBench):
    """A connection with members of the consumer protocol."""

    def beat(self, epoch: int = 5, member_id: str = "m", **fields: Any) -> InFlightRequest:
        return self.ask(
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

    def give_up(self) -> None:
        """End the time that the client waits for a response to its heartbeat."""
        [heartbeat] = self.heartbeats._timed
        self.heartbeats._expire(heartbeat)

    async def idle(self) -> None:
        """Wait for the requests to the brokers."""
        while self.work._tasks:
            await asyncio.sleep(0.001)

    def frames(self) -> list[bytes]:
        self.run_soon()
        return self.transport.frames()

    def response(self) -> Any:
        [frame] = self.frames()
        return ConsumerGroupHeartbeatResponse.decode(frame, version=1, header=True)

    @property
    def group_topics(self) -> list[GroupTopics]:
        return [request for request in self.asking.requests if isinstance(request, GroupTopics)]


def run(scenario: Callable[[Bench], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        bench = Bench(**settings)
        await scenario(bench)
        bench.close()
        assert bench.owner.errors == []

    asyncio.run(main())
