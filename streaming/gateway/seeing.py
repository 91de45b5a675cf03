"""The groups that a client may see, requested from the coordinator if access rules apply."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import OffsetFetch
from coordinator.messages.responses import AnyAnswer
from streaming.gateway.answers import Answers
from streaming.gateway.coordinators import Coordinators
from streaming.gateway.locating import seen_by


async def seen(
    asked: Sequence[OffsetFetch], asking: Coordinators, wait_ms: int, waiting: set[str], hold: Callable[[int], None]
) -> dict[str, ErrorCode]:
    """Send requests without an effect that require the right to describe a group, and return each group's error.

    Args:
        asked: One request for each group.
        waiting: The ids of the client's unanswered requests, which contain these ids until the answers arrive.
        hold: Called with the number of newly held bytes of answers.
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
