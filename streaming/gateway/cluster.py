"""The brokers behind a gateway, their topics, and the gateway's own address for each broker.

Each broker has its own port of the gateway: the first port plus 1 plus the broker's node id, so that all gateways of a
cluster agree; or any free port, if the first one is 0. A removed broker keeps its port: the gateway continues to serve
groups there, and the broker may return.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from coordinator.hashing import java_hash

log = logging.getLogger(__name__)

METADATA_WAIT_S = 10.0
METADATA_AGE_S = 30.0
"""The age of metadata after which it is requested again, in parallel to the request that needs it."""

METADATA_AGE_MIN_S = 1.0
"""Up to this age, metadata without a topic proves that the topic does not exist."""


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
        self._partitions: dict[str, int] = {}
        self._names = frozenset[str]()
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    # -- brokers -------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> tuple[int, ...]:
        """The node ids of the available brokers in the last response, in order."""
        return self._alive

    def real(self, node_id: int | None) -> Address | None:
        """Return the address at which a broker listens; any broker's for None."""
        if node_id is None:
            node_id = self._alive[time.monotonic_ns() % len(self._alive)] if self._alive else None
        return None if node_id is None else self._real.get(node_id)

    def ours(self, node_id: int) -> Address | None:
        """Return the gateway's own address for a broker; None if the gateway has no port for it."""
        return self._ours.get(node_id)

    async def learn(self, brokers: Iterable[tuple[int, str, int]], *, are_all: bool) -> None:
        """Store the brokers of a response before it is sent to the client, and open ports for new brokers.

        Args:
            are_all: A broker that is not in the response is unavailable.
        """
        told = {node_id: Address(host, port) for node_id, host, port in brokers}
        self._real |= told
        for node_id in sorted(told.keys() - self._ours.keys()):
            if address := await self._listen(node_id):
                self._ours[node_id] = address
        if are_all and told:
            self._alive = tuple(sorted(told))

    def coordinator_of(self, group_id: str) -> int | None:
        """Return the broker whose port a group's members are sent to; None while no broker is known.

        Source: Kafka distributes groups over the partitions of a topic in the same way (`Utils.abs(groupId.hashCode)`).
        """
        nodes = [node_id for node_id in self._alive if node_id in self._ours]
        return nodes[java_hash(group_id) % len(nodes)] if nodes else None

    # -- topics --------------------------------------------------------------------------------------------------------

    def partitions_of(self, topic: str) -> int | None:
        """Return the number of a topic's partitions in the last metadata; None if the topic was not in it."""
        return self._partitions.get(topic)

    @property
    def names(self) -> frozenset[str]:
        """The names of all topics in the last metadata: the same object as long as they are the same."""
        return self._names

    @property
    def is_recent(self) -> bool:
        """Whether the metadata is so new that a topic that is not in it does not exist."""
        return time.monotonic() - self._asked_s < METADATA_AGE_MIN_S

    def is_sure_of(self, wanted: Mapping[str, int]) -> bool:
        """Return whether the metadata is sufficient: it has each topic, with at least as many partitions.

        Old metadata is requested again in the background.
        """
        age_s = time.monotonic() - self._asked_s
        if age_s > METADATA_AGE_S:
            self._ask()
        is_enough = all((self._partitions.get(topic) or 0) >= partitions for topic, partitions in wanted.items())
        return is_enough or age_s < METADATA_AGE_MIN_S

    async def refresh(self) -> None:
        """Request the brokers and topics. The old metadata remains if no broker answers."""
        await asyncio.shield(self._ask())

    def _ask(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_brokers())
        return self._asking

    async def _ask_brokers(self) -> None:
        try:
            told = await asyncio.to_thread(self._list_topics, timeout=METADATA_WAIT_S)
        except KafkaException as error:
            log.warning("the brokers do not return their topics: %s", error)
            return
        self._partitions = {name: len(topic.partitions) for name, topic in told.topics.items() if not topic.error}
        if self._partitions.keys() != self._names:
            self._names = frozenset(self._partitions)
        self._asked_s = time.monotonic()
        await self.learn(((b.id, b.host, b.port) for b in told.brokers.values()), are_all=True)
