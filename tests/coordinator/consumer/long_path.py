"""Heartbeats of the consumer protocol on the path of all other requests.

The shard answers the plain heartbeats of settled members by the hot state alone. The long path must give the same
outputs and the same bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from msgspec.structs import asdict

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.requests import Received
from coordinator.shard.consumer_handlers import CONSUMER_HANDLERS
from coordinator.shard.handlers import HANDLERS


class PlainHeartbeat(ConsumerGroupHeartbeat, frozen=True, kw_only=True, tag="consumer_group_heartbeat"):
    """A heartbeat of another type, so that the shard handles it on the path of all other requests."""


@contextmanager
def long_paths() -> Iterator[None]:
    """Make shards handle the heartbeats that `on_long_path` returns."""
    with (
        patch.dict(HANDLERS, {PlainHeartbeat: HANDLERS[ConsumerGroupHeartbeat]}),
        patch.dict(CONSUMER_HANDLERS, {PlainHeartbeat: CONSUMER_HANDLERS[ConsumerGroupHeartbeat]}),
    ):
        yield


def on_long_path(received: Received) -> Received:
    """Return a record whose heartbeat takes the long path."""
    request = received.request
    if type(request) is ConsumerGroupHeartbeat:
        request = PlainHeartbeat(**asdict(request))
    return Received(received.offset, received.at_ms, request)
