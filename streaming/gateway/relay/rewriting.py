"""Brokers' responses that contain addresses, rewritten to the gateway's own addresses.

A broker without a port of the gateway is removed, like an unavailable one: its real address must not reach a client.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from kafka.protocol.api_message import ApiMessage

from streaming.gateway.relay.coordinator_lookup import MANY_KEYS
from streaming.gateway.relay.metadata import Cluster

BROKERS = 1
"""DescribeCluster's endpoint type of brokers. The other type is controllers, which clients of a gateway never need."""

SPEAKS_OF_ADDRESSES = ("listeners", "quorum.voters", "bootstrap.servers")
"""The ends of names of settings that contain addresses."""


class Rewrite(NamedTuple):
    """The rewriting of one API's responses.

    Args:
        response: The class of the response.
        change: Changes a response in place.
        first: The first version whose responses contain addresses.
        is_needed: Whether a response, without its length, may contain addresses.
    """

    response: type[ApiMessage]
    change: Callable[[Any, Cluster], Awaitable[None]]
    first: int = 0
    is_needed: Callable[[bytes], bool] = lambda frame: True


async def metadata(message: Any, cluster: Cluster) -> None:
    await cluster.learn(((b.node_id, b.host, b.port) for b in message.brokers), are_all=True)
    message.brokers = [broker for broker in message.brokers if _move(broker, broker.node_id, cluster)]


async def described_cluster(message: Any, cluster: Cluster) -> None:
    if message.endpoint_type != BROKERS:
        message.brokers = []
    await cluster.learn(((b.broker_id, b.host, b.port) for b in message.brokers), are_all=False)
    message.brokers = [broker for broker in message.brokers if _move(broker, broker.broker_id, cluster)]


async def found_coordinator(message: Any, cluster: Cluster) -> None:
    found: Iterable[Any] = message.coordinators if message.version >= MANY_KEYS else [message]
    for each in found:
        if each.node_id >= 0:
            await cluster.learn([(each.node_id, each.host, each.port)], are_all=False)
            if not _move(each, each.node_id, cluster):
                each.host, each.port = "", -1


async def described_configs(message: Any, cluster: Cluster) -> None:
    for entry in (config for result in message.results for config in result.configs or ()):
        if entry.name.endswith(SPEAKS_OF_ADDRESSES):
            entry.value, entry.is_sensitive = None, True
            for synonym in entry.synonyms or ():
                synonym.value = None


async def produced(message: Any, cluster: Cluster) -> None:
    await cluster.learn(((e.node_id, e.host, e.port) for e in message.node_endpoints), are_all=False)
    message.node_endpoints = [each for each in message.node_endpoints if _move(each, each.node_id, cluster)]


def _move(entry: Any, node_id: int, cluster: Cluster) -> bool:
    """Replace the address of an entry by the gateway's own; return whether the gateway has one."""
    address = cluster.ours(node_id)
    if address:
        entry.host, entry.port = address
    return address is not None


async def rewritten(
    rewrite: Rewrite, version: int, frame: bytes, cluster: Cluster, alters: Callable[[Any], None] | None = None
) -> bytes:
    """Return a broker's response, rewritten, with its length.

    Args:
        frame: The response without its length.
        alters: Called with the response before it is rewritten.
    """
    message: Any = rewrite.response.decode(frame, version=version, header=True)
    if alters:
        alters(message)
    await rewrite.change(message, cluster)
    return bytes(message.encode(header=True, framed=True))
