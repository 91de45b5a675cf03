"""Heartbeats that take the path of all other requests."""

from msgspec.structs import asdict, replace

from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import Received


class PlainHeartbeat(Heartbeat, frozen=True, kw_only=True, tag="heartbeat"):
    """A heartbeat of another type, so that the shard handles it on the path of all other requests."""


def long_path(received: Received) -> Received:
    """Return a record whose heartbeat takes the path of all other requests."""
    request = received.request
    request = PlainHeartbeat(**asdict(request)) if type(request) is Heartbeat else request
    return replace(received, request=request)
