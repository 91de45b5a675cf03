"""The heartbeats of one connection, whose responses may be held: a test answers for the coordinator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat, OwnedPartitions
from coordinator.messages.responses import (
    AnyAnswer,
    AssignedTopic,
    AssignmentNotice,
    ConsumerGroupHeartbeatAnswer,
    ErrorAnswer,
)
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.members.consumer_heartbeats import ConsumerHeartbeatHolds
from streaming.gateway.protocol.definitions import ConsumerGroupHeartbeatResponse
from streaming.gateway.protocol.messages import Header
from streaming.gateway.server.apis import APIS
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
        self.given: list[tuple[InFlightRequest, Any]] = []
        self.asked: list[tuple[ConsumerGroupHeartbeat, Callable[[AnyAnswer], object]]] = []
        self.late_s = 0.0
        self.heartbeats = ConsumerHeartbeatHolds(
            hold_ms_max, self._give, lambda request, then: self.asked.append((request, then)), self._clock
        )

    def _clock(self) -> float:
        return asyncio.get_running_loop().time() + self.late_s

    def _give(self, slot: InFlightRequest, frame: bytes) -> None:
        self.given.append((slot, ConsumerGroupHeartbeatResponse.decode(frame[4:], version=1, header=True)))

    def hold(
        self, asked: ConsumerGroupHeartbeat | None = None, said: ConsumerGroupHeartbeatAnswer | None = None
    ) -> bool:
        slot = InFlightRequest(APIS[68], Header(68, 1, 77, "c"), since_s=asyncio.get_running_loop().time())
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
