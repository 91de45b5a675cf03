"""The brokers behind a gateway, their topics, and the gateway's own address for each broker.

Each broker has its own port of the gateway: the first port plus 1 plus the broker's node id, so that all gateways of a
cluster agree; or any free port, if the first one is 0. A removed broker keeps its port: the gateway continues to serve
groups there, and the broker may return.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from coordinator.base.hashing import java_hash
from streaming.gateway.connection.tasks import Coalesced

log = logging.getLogger(__name__)

METADATA_WAIT_S = 10.0
METADATA_AGE_S = 30.0
"""The age of metadata after which it is requested again, in parallel to the request that needs it. The age is counted
from the request for the metadata: its response may have been on its way for long."""


class Address(NamedTuple):
    """The address of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Cluster:
    """The gateway's metadata of the brokers.

    Args:
        list_topics: Requests all metadata from the brokers and blocks; as `confluent_kafka.Producer.list_topics`.
        listen: Opens the gateway's port for a broker, given its node id.
    """

    def __init__(self, list_topics: Callable[..., Any], listen: Callable[[int], Awaitable[Address | None]]) -> None:
        self._list_topics, self._listen = list_topics, listen
        self._real: dict[int, Address] = {}
        self._ours: dict[int, Address] = {}
        self._alive: tuple[int, ...] = ()
        self._avoided = frozenset[int]()
        self._names = frozenset[str]()
        self._asked_s = float("-inf")
        self._opening = asyncio.Lock()
        self.refresh = Coalesced(self._ask_brokers)
        """Requests the brokers and the names of all topics. The old metadata remains if no broker answers."""

    # -- brokers -------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> tuple[int, ...]:
        """The node ids of the available brokers in the last response, in order."""
        return self._alive

    def real(self, node_id: int | None) -> Address | None:
        """Return the address at which a broker listens; any broker's for None."""
        if node_id is None:
            node_id = next(iter(self.any_in_turn()), None)
        return None if node_id is None else self._real.get(node_id)

    def any_in_turn(self) -> Sequence[int]:
        """Return the brokers of which any will do, from another one on each time."""
        nodes = self._preferred(self._alive)
        first = time.monotonic_ns() % len(nodes) if nodes else 0
        return [*nodes[first:], *nodes[:first]]

    def avoid(self, node_ids: frozenset[int]) -> None:
        """Set the brokers that this gateway does not reach. Others are preferred where any broker will do."""
        self._avoided = node_ids

    def is_avoided(self, node_id: int | None) -> bool:
        """Return whether this gateway does not reach a broker."""
        return node_id in self._avoided

    def _preferred(self, node_ids: Sequence[int]) -> Sequence[int]:
        if not self._avoided:
            return node_ids
        return [node_id for node_id in node_ids if node_id not in self._avoided] or node_ids

    def ours(self, node_id: int) -> Address | None:
        """Return the gateway's own address for a broker; None if the gateway has no port for it."""
        return self._ours.get(node_id)

    async def learn(self, brokers: Iterable[tuple[int, str, int]], *, are_all: bool) -> None:
        """Store the brokers of a response before it is sent to the client, and open ports for new brokers.

        Two responses may name a new broker at the same time. The second one waits until the broker's port is open.

        Args:
            are_all: A broker that is not in the response is unavailable.
        """
        addresses = {node_id: Address(host, port) for node_id, host, port in brokers}
        self._real |= addresses
        if addresses.keys() - self._ours.keys():
            await self._open_ports(addresses.keys())
        if are_all and addresses:
            self._alive = tuple(sorted(addresses))

    async def _open_ports(self, node_ids: Set[int]) -> None:
        async with self._opening:
            for node_id in sorted(node_ids - self._ours.keys()):
                if address := await self._listen(node_id):
                    self._ours[node_id] = address

    def coordinator_of(self, group_id: str) -> int | None:
        """Return the broker whose port a group's members are sent to; None while no broker is known.

        Source: Kafka distributes groups over the partitions of a topic in the same way (`Utils.abs(groupId.hashCode)`).
        """
        nodes = self._preferred([node_id for node_id in self._alive if node_id in self._ours])
        return nodes[java_hash(group_id) % len(nodes)] if nodes else None

    # -- topics --------------------------------------------------------------------------------------------------------

    @property
    def names(self) -> frozenset[str]:
        """The names of all topics in the last metadata: the same object as long as they are the same."""
        return self._names

    def renew(self) -> None:
        """Request old metadata again, in the background."""
        if time.monotonic() - self._asked_s > METADATA_AGE_S and not self.refresh.is_under_way:
            self.refresh.begin()

    async def _ask_brokers(self) -> None:
        asked_s = time.monotonic()
        try:
            callback = await asyncio.to_thread(self._list_topics, timeout=METADATA_WAIT_S)
        except KafkaException as error:
            log.warning("the brokers do not return their topics: %s", error)
            return
        names = {name for name, topic in callback.topics.items() if not topic.error}
        if names != self._names:
            self._names = frozenset(names)
        self._asked_s = asked_s
        await self.learn(((b.id, b.host, b.port) for b in callback.brokers.values()), are_all=True)
