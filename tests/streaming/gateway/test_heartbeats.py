"""The response to a heartbeat waits for a notice to its member, at most for the configured time."""

import asyncio
from collections.abc import Awaitable, Callable

from kafka.protocol.consumer.group import HeartbeatResponse

from coordinator.messages.responses import RebalanceNotice
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.members.heartbeat_holds import HeartbeatHolds
from streaming.gateway.protocol.messages import Header
from streaming.gateway.server.apis import APIS

WELL = b"all is well"
Given = list[tuple[InFlightRequest, bytes]]
Scenario = Callable[[HeartbeatHolds, Given], Awaitable[None]]


def run(scenario: Scenario, hold_ms_max: int = 600_000) -> None:
    async def main() -> None:
        given: Given = []
        heartbeats = HeartbeatHolds(hold_ms_max, lambda slot, answer: given.append((slot, answer)))
        heartbeats.joined("m", 300_000)
        await scenario(heartbeats, given)
        heartbeats.forget()

    asyncio.run(main())


def slot() -> InFlightRequest:
    return InFlightRequest(APIS[12], Header(12, 4, 77, "c"))


def notice(member_id: str) -> RebalanceNotice:
    return RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id=member_id)


def test_a_notice_is_answered_with_rebalance_in_progress():
    async def scenario(heartbeats: HeartbeatHolds, given: Given) -> None:
        held = slot()
        assert heartbeats.hold(held, "m", WELL)
        heartbeats.tell(notice("another"))
        assert given == []
        heartbeats.tell(notice("m"))
        ((answered, frame),) = given
        response = HeartbeatResponse.decode(frame[4:], version=4, header=True)
        assert (answered, response.error_code, response.header.correlation_id) == (held, 27, 77)
        heartbeats.tell(notice("m"))
        assert len(given) == 1

    run(scenario)


def test_a_released_heartbeat_has_its_held_response():
    async def scenario(heartbeats: HeartbeatHolds, given: Given) -> None:
        held = slot()
        heartbeats.hold(held, "m", WELL)
        heartbeats.release()
        heartbeats.release()
        assert given == [(held, WELL)]

    run(scenario)


def test_a_held_heartbeat_is_released_in_time():
    async def scenario(heartbeats: HeartbeatHolds, given: Given) -> None:
        heartbeats.joined("m", 30)
        heartbeats.hold(slot(), "m", WELL)
        while not given:
            await asyncio.sleep(0)

    run(scenario)


def test_a_member_that_joined_elsewhere_is_answered_at_once():
    """Notices to such a member go to another connection."""

    async def scenario(heartbeats: HeartbeatHolds, given: Given) -> None:
        assert not heartbeats.hold(slot(), "stranger", WELL)

    run(scenario)


def test_no_heartbeat_is_held_with_a_limit_of_zero():
    async def scenario(heartbeats: HeartbeatHolds, given: Given) -> None:
        assert not heartbeats.hold(slot(), "m", WELL)

    run(scenario, hold_ms_max=0)
