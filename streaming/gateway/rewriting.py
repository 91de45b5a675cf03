"""Brokers' answers that name addresses, with the gateway's own in their place.

A broker for which the gateway has no port is left out, as one that is down: its real address must not get to a client.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from kafka.protocol.admin import DescribeClusterResponse, DescribeConfigsResponse
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from streaming.gateway.cluster import Cluster
from streaming.gateway.locating import MANY_KEYS

BROKERS = 1
"""DescribeCluster's kind of endpoint; the other kind are controllers, whom no client of ours has to reach."""

SPEAKS_OF_ADDRESSES = ("listeners", "quorum.voters", "bootstrap.servers")
"""How settings end that hold addresses."""


async def _metadata(message: Any, cluster: Cluster) -> None:
    await cluster.learn(((b.node_id, b.host, b.port) for b in message.brokers), are_all=True)
    message.brokers = [broker for broker in message.brokers if _move(broker, broker.node_id, cluster)]


async def _described_cluster(message: Any, cluster: Cluster) -> None:
    if message.endpoint_type != BROKERS:
        message.brokers = []
    await cluster.learn(((b.broker_id, b.host, b.port) for b in message.brokers), are_all=False)
    message.brokers = [broker for broker in message.brokers if _move(broker, broker.broker_id, cluster)]


async def _found_coordinator(message: Any, cluster: Cluster) -> None:
    found: Iterable[Any] = message.coordinators if message.version >= MANY_KEYS else [message]
    for each in found:
        if each.node_id >= 0:
            await cluster.learn([(each.node_id, each.host, each.port)], are_all=False)
            if not _move(each, each.node_id, cluster):
                each.host, each.port = "", -1


async def _described_configs(message: Any, cluster: Cluster) -> None:
    for entry in (config for result in message.results for config in result.configs or ()):
        if entry.name.endswith(SPEAKS_OF_ADDRESSES):
            entry.value, entry.is_sensitive = None, True
            for synonym in entry.synonyms or ():
                synonym.value = None


def _move(entry: Any, node_id: int, cluster: Cluster) -> bool:
    """Have an entry name our own address; tell whether there is one."""
    address = cluster.ours(node_id)
    if address:
        entry.host, entry.port = address
    return address is not None


REWRITERS: Mapping[int, tuple[type[ApiMessage], Callable[[Any, Cluster], Awaitable[None]]]] = {
    MetadataResponse.API_KEY: (MetadataResponse, _metadata),
    DescribeClusterResponse.API_KEY: (DescribeClusterResponse, _described_cluster),
    FindCoordinatorResponse.API_KEY: (FindCoordinatorResponse, _found_coordinator),
    DescribeConfigsResponse.API_KEY: (DescribeConfigsResponse, _described_configs),
}


async def rewritten(
    api_key: int, version: int, frame: bytes, cluster: Cluster, alters: Callable[[Any], None] | None = None
) -> bytes:
    """Rewrite an answer of a broker's; frames without their lengths come in, with their lengths they go out.

    Args:
        alters: Called with the answer before that.
    """
    kind, rewrite = REWRITERS[api_key]
    message: Any = kind.decode(frame, version=version, header=True)
    if alters:
        alters(message)
    await rewrite(message, cluster)
    return bytes(message.encode(header=True, framed=True))
