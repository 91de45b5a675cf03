"""Which groups a client may know of, asked of the coordinator where rules say who may do what."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from coordinator.errors import ErrorCode
from coordinator.outputs import AnyAnswer
from coordinator.requests import OffsetFetch
from streaming.gateway.answers import Answers
from streaming.gateway.asking import Asking
from streaming.gateway.locating import seen_by


async def seen(
    asked: Sequence[OffsetFetch], asking: Asking, wait_ms: int, waiting: set[str], hold: Callable[[int], None]
) -> dict[str, ErrorCode]:
    """Ask about groups what any asker needs to be allowed to describe them for, and nothing is done by.

    Args:
        asked: One request a group.
        waiting: The ids of the client's requests without an answer, these among them for as long as they have none.
        hold: Called with the bytes of answers that are held.
    """
    request_ids = {request.request_id for request in asked}
    heard: asyncio.Future[Sequence[AnyAnswer]] = asyncio.get_running_loop().create_future()
    answers = Answers(len(asked), heard.set_result, hold)
    waiting |= request_ids
    try:
        for index, request in enumerate(asked):
            asking.send(request, partial(answers.take, index))
        found = await asyncio.wait_for(heard, wait_ms / 1_000)
    except TimeoutError:
        return dict.fromkeys((request.group_id for request in asked), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    finally:
        waiting -= request_ids
        answers.forget()
        asking.forget(asked[0].reply_to if asked else "", request_ids)
    return dict(zip((request.group_id for request in asked), map(seen_by, found), strict=True))
