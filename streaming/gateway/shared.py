"""What all connections of a gateway share."""

from typing import Any, Protocol

from streaming.config.settings import Settings
from streaming.gateway.asking import Asking
from streaming.gateway.cluster import Cluster
from streaming.gateway.guard import Guard
from streaming.gateway.metrics import Metrics
from streaming.gateway.outgoing import Holder, Ledger
from streaming.gateway.upstream import Upstream


class ClientConnection(Holder, Protocol):
    """A connection, as the gateway sees it."""

    @property
    def is_silent(self) -> bool:
        """Whether the client has sent no whole request yet."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight or unfinished."""

    @property
    def active_s(self) -> float:
        """When the client last sent or took something."""

    @property
    def frame_since_s(self) -> float | None:
        """When the request began that has arrived in part; None where there is none."""

    @property
    def stuck_since_s(self) -> float | None:
        """Since when the client has taken no responses; None while it takes them."""

    def count_written(self) -> None:
        """Update the count of the bytes that the client has not taken."""

    def close(self) -> None:
        """Close the connection at once."""


class Shared(Protocol):
    """The gateway, as its connections see it.

    Attributes:
        mechanisms: The SASL mechanisms that clients may use; none where the brokers do not authenticate by SASL.
    """

    settings: Settings
    asking: Asking
    cluster: Cluster
    guard: Guard
    ledger: Ledger
    metrics: Metrics
    mechanisms: tuple[str, ...]

    async def offer_of(self, node_id: int | None) -> Any | None:
        """Return a broker's response to ApiVersions; None where it does not respond."""

    async def is_served(self) -> bool:
        """Return whether the coordinator answers. Wait a little for it where it does not."""

    async def open_upstream(self, node_id: int | None, upstream: Upstream) -> None:
        """Connect to a broker.

        Raises:
            OSError: the broker cannot be reached.
        """

    def opened(self, connection: ClientConnection) -> None:
        """Add a new connection. This may close the connection at once."""

    def said_something(self, connection: ClientConnection) -> None:
        """Record that a connection has sent its first whole request."""

    def holds(self, more_bytes: int) -> None:
        """Update the count of the bytes of unfinished requests; below 0 when there are fewer."""

    def closed(self, connection: ClientConnection) -> None:
        """Remove a connection."""
