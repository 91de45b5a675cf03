"""The heartbeats of the consumer protocol on one connection, one after another. A test answers for the coordinator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.responses import (
    AssignedTopic,
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    ErrorAnswer,
)
from streaming.gateway.members.heartbeat_protocols import PendingHeartbeat
from streaming.gateway.members.heartbeat_states import State
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatResponse
from tests.streaming.gateway.examples import WHO, ended
from tests.streaming.gateway.parts import fact_of
from tests.streaming.gateway.serving_bench import ServingBench

T = fact_of("t", 3).topic_id or ""
INTERVAL_MS = 600_000
SOME = (AssignedTopic(T, "t", (0, 1)),)
OWNED = (OwnedPartitions(T, (1, 0)),)


def request(epoch: int = 5, member_id: str = "m", **fields: Any) -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(**WHO, member_id=member_id, member_epoch=epoch, **fields)


def answer(
    epoch: int = 5, interval_ms: int = INTERVAL_MS, member_id: str = "m", **fields: Any
) -> ConsumerGroupHeartbeatAnswer:
    return ConsumerGroupHeartbeatAnswer(
        request_id="1", member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms, **fields
    )


def failed(code: ErrorCode) -> ErrorAnswer:
    return ErrorAnswer(request_id="1", **ended(code))


def notice(member_id: str = "m") -> AssignmentNotice:
    return AssignmentNotice(request_id=None, group_id="g", member_id=member_id, group_epoch=6)


class Bench(ServingBench):
    """The heartbeats of one connection, without ticks.

    Attributes:
        late_s: How far the gateway's clock is ahead of the event loop's.
        given: The responses that the client has.
    """

    def __init__(self, **settings: Any) -> None:
        self.late_s = 0.0
        super().__init__(lambda: asyncio.get_running_loop().time() + self.late_s, **settings)
        self.asking.batchers.tick_ms = 0
        self._given: list[Any] = []

    @property
    def given(self) -> list[Any]:
        self.run_soon()
        kind = ConsumerGroupHeartbeatResponse
        self._given += [kind.decode(frame, version=1, header=True) for frame in self.transport.frames()]
        return self._given

    @property
    def response(self) -> Any:
        """The only response."""
        [response] = self.given
        return response

    @property
    def asked(self) -> list[ConsumerGroupHeartbeat]:
        """The heartbeats on the member's behalf."""
        return [each for each in self.asking.requests if isinstance(each, ConsumerGroupHeartbeat) and each.again]

    def send(self, asked: ConsumerGroupHeartbeat | None = None) -> PendingHeartbeat:
        asked = asked or request()
        slot = self.slot(68, 1)
        slot.since_s = asyncio.get_running_loop().time()
        heartbeat = self.heartbeats.came(slot, asked)
        assert heartbeat is not None
        self.heartbeats.schedule(heartbeat, asked)
        return heartbeat

    def hold(
        self, asked: ConsumerGroupHeartbeat | None = None, said: ConsumerGroupHeartbeatAnswer | None = None
    ) -> bool:
        """Send a heartbeat, and answer it. Return whether the response is held; without that, the client has it."""
        self.given.clear()
        heartbeat = self.send(asked)
        self.asking.reply(said or answer())
        assert bool(self.given) is (heartbeat.state is State.DONE)
        return heartbeat.state is State.HELD

    def own(self) -> None:
        """Assign partitions to the member, and acknowledge them."""
        assert not self.hold(request(0), answer(assignment=SOME))
        assert self.hold(request(topic_partitions=OWNED))
        self.heartbeats.release()
        self.given.clear()


def run(scenario: Callable[[Any], Awaitable[None]], kind: type[Bench] = Bench, **settings: Any) -> None:
    async def main() -> None:
        bench = kind(**settings)
        await scenario(bench)
        bench.close()
        assert bench.owner.errors == []

    asyncio.run(main())
