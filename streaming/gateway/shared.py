"""What all connections of a gateway share."""

from typing import TYPE_CHECKING, Any, Protocol

from streaming.config.settings import Settings
from streaming.gateway.asking import Asking
from streaming.gateway.cluster import Cluster
from streaming.gateway.guard import Guard
from streaming.gateway.metrics import Metrics
from streaming.gateway.outgoing import Ledger
from streaming.gateway.upstream import Upstream

if TYPE_CHECKING:
    from streaming.gateway.connection import Connection


class House(Protocol):
    """What all connections of a gateway share."""

    settings: Settings
    asking: Asking
    cluster: Cluster
    guard: Guard
    ledger: Ledger
    metrics: Metrics
    mechanisms: tuple[str, ...]
    """How clients may say who they are; none where the brokers do not want to know."""

    async def offer_of(self, node_id: int | None) -> Any | None:
        """Return what a broker answers to ApiVersions, None if it does not."""

    async def is_served(self) -> bool:
        """Tell whether the coordinator answers, after holding on a little if it does not."""

    async def open_upstream(self, node_id: int | None, upstream: Upstream) -> None:
        """Connect to a broker.

        Raises:
            OSError: it cannot be reached.
        """

    def opened(self, connection: "Connection") -> None:
        """Take a new connection in; it may be closed at once."""

    def said_something(self, connection: "Connection") -> None:
        """Know that a connection has sent a whole request."""

    def holds(self, more_bytes: int) -> None:
        """Know that more of unfinished requests is here, or less."""

    def closed(self, connection: "Connection") -> None:
        """Forget a connection."""
