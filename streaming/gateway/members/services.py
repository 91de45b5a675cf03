"""The interfaces between a gateway and its connections."""

from collections.abc import Sequence
from typing import Any, Protocol

from streaming.config.settings import Settings
from streaming.gateway.connection.metrics import Metrics
from streaming.gateway.connection.send_buffer import Holder, MemoryBudget
from streaming.gateway.coordinator.routing import Coordinators
from streaming.gateway.coordinator.transaction_writer import Transactions
from streaming.gateway.members.topic_updates import TopicUpdates
from streaming.gateway.members.topics import Topics
from streaming.gateway.relay.authorizer import Authorizer
from streaming.gateway.relay.broker_connection import Upstream
from streaming.gateway.relay.large_produce import Room
from streaming.gateway.relay.metadata import Cluster

ClientKey = tuple[str, str, str | None]
"""The address, the client id and the principal of a client: its connections have the same."""


class ClientConnection(Holder, Protocol):
    """The part of a connection that the gateway uses."""

    @property
    def is_silent(self) -> bool:
        """Whether the client has sent no complete request yet."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight or unfinished."""

    @property
    def active_s(self) -> float:
        """The time at which the client last sent or read something."""

    @property
    def frame_since_s(self) -> float | None:
        """The time at which the incomplete request began; None without one."""

    @property
    def streams_since_s(self) -> float | None:
        """The time at which the large request that is being relayed began; None without one."""

    @property
    def stuck_since_s(self) -> float | None:
        """The time since which the client has read no responses; None while it reads them."""

    @property
    def client_key(self) -> ClientKey:
        """The client, as far as its connections can be recognized."""

    def count_written(self) -> None:
        """Update the count of the bytes that the client has not read."""

    def end(self) -> None:
        """Read no further request, and close the connection when those that have arrived are answered."""

    def close(self) -> None:
        """Close the connection at once."""


class Shared(Protocol):
    """The part of the gateway that its connections use.

    Attributes:
        mechanisms: The SASL mechanisms that clients may use; empty if the brokers do not authenticate by SASL.
    """

    settings: Settings
    coordinators: Coordinators
    cluster: Cluster
    topics: Topics
    topic_updates: TopicUpdates
    transactions: Transactions
    authorizer: Authorizer
    memory_budget: MemoryBudget
    room: Room
    metrics: Metrics
    mechanisms: tuple[str, ...]

    async def offer_of(self, node_id: int | None) -> Any | None:
        """Return a broker's response to ApiVersions; None if it does not respond."""

    async def is_served(self, group_ids: Sequence[str]) -> bool:
        """Return whether the coordinator answers. Wait up to `gateway_hold_ms` for an answer.

        Args:
            group_ids: The groups that the client looks for.
        """

    def reject_moved(self, group_ids: Sequence[str], client: ClientKey) -> bool:
        """Close all connections of a client if the gateway cannot write to the shard of one of its groups. Return
        whether they are closed: the client then looks for another gateway."""

    def is_rejected(self, client: ClientKey) -> bool:
        """Return whether `reject_moved` has closed the connections of a client a moment ago."""

    async def open_upstream(self, node_id: int | None, upstream: Upstream) -> None:
        """Connect to a broker.

        Raises:
            OSError: The broker cannot be reached.
        """

    def opened(self, connection: ClientConnection) -> None:
        """Add a new connection. This may close the connection at once."""

    def said_something(self, connection: ClientConnection) -> None:
        """Record that a connection has sent its first complete request."""

    def holds(self, more_bytes: int) -> None:
        """Update the count of the bytes of unfinished requests; below 0 for fewer."""

    def closed(self, connection: ClientConnection) -> None:
        """Remove a connection."""
