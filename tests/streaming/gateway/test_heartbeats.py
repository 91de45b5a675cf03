"""A heartbeat's answer waits for news, for no longer than it may, and for nobody else's."""

import asyncio
from collections.abc import Awaitable, Callable

from kafka.protocol.consumer.group import HeartbeatResponse

from coordinator.outputs import RebalanceNotice
from streaming.gateway.apis import APIS
from streaming.gateway.heartbeats import Heartbeats
from streaming.gateway.messages import Header
from streaming.gateway.slots import Slot

WELL = b"all is well"
Given = list[tuple[Slot, bytes]]
Story = Callable[[Heartbeats, Given], Awaitable[None]]


def run(story: Story, hold_ms_max: int = 600_000) -> None:
    async def tell() -> None:
        given: Given = []
        heartbeats = Heartbeats(hold_ms_max, lambda slot, answer: given.append((slot, answer)))
        heartbeats.joined("m", 300_000)
        await story(heartbeats, given)
        heartbeats.forget()

    asyncio.run(tell())


def slot() -> Slot:
    return Slot(APIS[12], Header(12, 4, 77, "c"))


def notice(member_id: str) -> RebalanceNotice:
    return RebalanceNotice(request_id=None, group_id="g", generation_id=1, member_id=member_id)


def test_the_news_is_rebalance_in_progress():
    async def story(heartbeats: Heartbeats, given: Given) -> None:
        held = slot()
        assert heartbeats.hold(held, "m", WELL)
        heartbeats.tell(notice("another"))
        assert given == []
        heartbeats.tell(notice("m"))
        ((answered, frame),) = given
        said = HeartbeatResponse.decode(frame[4:], version=4, header=True)
        assert (answered, said.error_code, said.header.correlation_id) == (held, 27, 77)
        heartbeats.tell(notice("m"))
        assert len(given) == 1

    run(story)


def test_what_is_let_go_is_what_was_held():
    async def story(heartbeats: Heartbeats, given: Given) -> None:
        held = slot()
        heartbeats.hold(held, "m", WELL)
        heartbeats.release()
        heartbeats.release()
        assert given == [(held, WELL)]

    run(story)


def test_it_is_let_go_in_time():
    async def story(heartbeats: Heartbeats, given: Given) -> None:
        heartbeats.joined("m", 30)
        heartbeats.hold(slot(), "m", WELL)
        while not given:
            await asyncio.sleep(0)

    run(story)


def test_who_has_not_joined_here_is_answered_at_once():
    """Notices about it go elsewhere."""

    async def story(heartbeats: Heartbeats, given: Given) -> None:
        assert not heartbeats.hold(slot(), "stranger", WELL)

    run(story)


def test_nothing_is_held_where_that_is_not_wanted():
    async def story(heartbeats: Heartbeats, given: Given) -> None:
        assert not heartbeats.hold(slot(), "m", WELL)

    run(story, hold_ms_max=0)
