"""Heartbeats of many members that fall due at the same time, in one record for each shard."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import TypeGuard

from coordinator.base.hashing import shard_of
from coordinator.base.limits import HEARTBEATS_MAX
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.heartbeats import AnyHeartbeat, Heartbeat, Heartbeats
from coordinator.messages.requests import Request
from streaming.client.group_router import CoordinatorRoute

TOKEN_BYTES = 16
"""The random bytes of a mailbox's name and of the beginning of request ids: nobody can guess 128 bits."""


def may_be_one_of_many(request: Request) -> TypeGuard[AnyHeartbeat]:
    """Return whether a request is a heartbeat that may be sent together with others; of the consumer protocol, only
    bare ones."""
    return isinstance(request, Heartbeat) or (isinstance(request, ConsumerGroupHeartbeat) and request.is_bare)


def records_of(
    heartbeats: Iterable[AnyHeartbeat],
    route_of: Callable[[str], CoordinatorRoute],
    shards: Callable[[CoordinatorRoute], int],
    inbox: str,
) -> Iterator[tuple[CoordinatorRoute, int, Request]]:
    """Yield the records with these heartbeats: the coordinator, the shard, and one heartbeat or many.

    Args:
        route_of: Returns the way to the coordinator of a group.
        shards: Returns the number of shards of a coordinator.
    """
    by_shard: dict[tuple[CoordinatorRoute, int], list[AnyHeartbeat]] = {}
    for heartbeat in heartbeats:
        route = route_of(heartbeat.group_id)
        by_shard.setdefault((route, shard_of(heartbeat.group_id, shards(route))), []).append(heartbeat)
    for (route, shard), due in by_shard.items():
        for begin in range(0, len(due), HEARTBEATS_MAX):
            some = due[begin : begin + HEARTBEATS_MAX]
            record = {"request_id": secrets.token_hex(TOKEN_BYTES), "reply_to": inbox}
            yield route, shard, some[0] if len(some) == 1 else Heartbeats.of(some, **record)
