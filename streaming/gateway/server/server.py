"""The gateway: its ports, its health checks, the shared state of its connections, and the end of unused connections."""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry

from streaming.config.settings import Settings
from streaming.config.timeouts import ATTEMPT_WAIT_S
from streaming.errors import PortTaken, UserError
from streaming.gateway.connection.metrics import Metrics
from streaming.gateway.connection.send_buffer import MemoryBudget
from streaming.gateway.coordinator.reach import Reaching
from streaming.gateway.coordinator.routing import Coordinators
from streaming.gateway.coordinator.transaction_writer import Transactions
from streaming.gateway.members.services import ClientConnection, ClientKey
from streaming.gateway.members.topic_updates import TopicUpdates
from streaming.gateway.members.topics import Topics
from streaming.gateway.protocol.limits import (
    FRAME_WAIT_S,
    LAST_RESPONSES_S,
    SILENCE_S,
    STUCK_WAIT_S,
    UNFINISHED_BYTES_MAX,
    connections_max,
)
from streaming.gateway.relay.authorizer import Authorizer
from streaming.gateway.relay.broker_connection import Upstream
from streaming.gateway.relay.broker_versions import versions_of
from streaming.gateway.relay.large_produce import Room
from streaming.gateway.relay.metadata import METADATA_WAIT_S, Address, Cluster
from streaming.gateway.security.acls import NOTHING_IS_ALLOWED, BrokerAcls
from streaming.gateway.server.connection import Connection
from streaming.gateway.server.find_coordinator import CoordinatorProbe
from streaming.health import Listener
from streaming.kafka.broker_monitor import BrokerMonitor
from streaming.kafka.topic_facts import TopicFacts

log = logging.getLogger(__name__)

# -- health checks -----------------------------------------------------------------------------------------------------


LOOP_WAIT_S = 2.0


class GatewayHealth:
    """The health of a gateway.

    A gateway is ready even while the coordinator is unavailable: it relays all requests that do not concern groups,
    every other gateway is in the same state, and clients without a gateway could only wait too. It is not ready while
    brokers that others reach do not answer this gateway.

    Args:
        runs_within: Returns whether the gateway's event loop runs a callback within a number of seconds.
        silence_s: Returns the seconds since the coordinator's last answer.
        unreached: Returns the reasons why other gateways can serve clients better; see `reach`.
    """

    process = "gateway"

    def __init__(
        self,
        brokers: BrokerMonitor,
        registry: CollectorRegistry,
        runs_within: Callable[[float], bool],
        silence_s: Callable[[], float],
        unreached: Callable[[], Sequence[str]],
    ) -> None:
        self._brokers, self.registry, self._runs_within, self._silence_s = brokers, registry, runs_within, silence_s
        self._unreached = unreached

    def unhealthy_reasons(self) -> Sequence[str]:
        return [] if self._runs_within(LOOP_WAIT_S) else [f"its event loop has run no callback for {LOOP_WAIT_S:.0f} s"]

    def not_ready_reasons(self) -> Sequence[str]:
        return [*self._brokers.not_ready_reasons(), *self._unreached()]

    def figures(self) -> dict[str, object]:
        silent_s = self._silence_s()
        return {"coordinator_silent_s": round(silent_s, 1) if math.isfinite(silent_s) else None}


SWEEP_S = 1.0
CONNECT_WAIT_S = 10.0
START_WAIT_S = 60.0
STOP_WAIT_S = LAST_RESPONSES_S + 10.0
BACKLOG = 1_024

OFFER_AGE_S = 1.0
"""The time for which a broker's versions are cached. A client keeps the levels of features that it found when it
connected, so it has to find those that the brokers have now."""

RENEW_WAIT_S = 2.0
"""The longest wait for a newer response of a broker whose last one is known, and is offered otherwise."""

TURNED_AWAY_S = 10.0
"""The time for which a client gets no metadata that was sent to other gateways, so that it looks for one of them."""

PORT_MAX = 65_535


class Gateway:
    """A gateway that runs in its own thread, from `start` to `stop`.

    Args:
        settings: The coordinator's settings; `gateway_*` are the gateway's addresses and limits.
        report: A callback for plain sentences about events.
    """

    def __init__(self, settings: Settings, report: Callable[[str], None] = lambda _: None) -> None:
        self.settings, self._report = settings, report
        self.metrics = Metrics()
        self.mechanisms = settings.client_mechanisms
        self.coordinators: Coordinators
        self.cluster: Cluster
        self.topics: Topics
        self.topic_updates: TopicUpdates
        self.authorizer: Authorizer
        self._connections: set[ClientConnection] = set()
        self._are_all_closed = asyncio.Event()
        self.memory_budget = MemoryBudget(self._connections, self.metrics.overfull.inc)
        self.metrics.answer_bytes.set_function(lambda: self.memory_budget.held_bytes)
        self.room = Room()
        self._silent: dict[ClientConnection, None] = {}
        self._connections_max = connections_max(settings.gateway_connections_max)
        self._servers: list[asyncio.Server] = []
        self._broker_context = settings.broker_context()
        self._turned_away: dict[ClientKey, float] = {}
        self._offers: dict[int | None, tuple[float, Any]] = {}
        self._unfinished_bytes = 0
        self._bootstrap: Address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._watched = contextlib.ExitStack()

    # -- for the owner of the gateway ----------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return str(self._bootstrap)

    def start(self) -> Self:
        """Start to listen, and return when clients may connect.

        Raises:
            BrokerUnreachable: No broker answers.
            NoCoordinator: The coordinator's topics do not exist.
            PortTaken: Another program listens on one of the ports.
            PlaintextRefused: Other machines could connect without encryption, and no setting allows that.
            BadSettings: Clients could not connect to the advertised host.
        """
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(START_WAIT_S)
            if self.settings.gateway_metrics_port is not None:
                self.serve_health_at(self.settings.gateway_host, self.settings.gateway_metrics_port)
        except BaseException:
            self.stop()
            raise
        return self

    def serve_health_at(self, host: str, port: int) -> str:
        """Serve the gateway's health checks at this address until it stops, and return their URL.

        Raises:
            PortTaken: Another program listens on the port.
        """
        brokers = self._watched.enter_context(BrokerMonitor.of(self.settings, tolerated=1.0))
        health = GatewayHealth(
            brokers,
            self.metrics.registry,
            self.runs_within,
            self.coordinators.silence_s,
            self._reaching.not_ready_reasons,
        )
        return self._watched.enter_context(Listener(host, port, health)).url

    def runs_within(self, wait_s: float) -> bool:
        """Return whether the event loop runs a callback within that time. The loop itself must not call this."""
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result(wait_s)
            return True
        return False

    def stop(self) -> None:
        """Answer the requests that have arrived, and close all connections.

        Members keep their membership, because the coordinator manages their sessions.
        """
        self._watched.close()
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(STOP_WAIT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_WAIT_S)
            self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- start and stop ------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        settings = self.settings
        self._listener_context = settings.listener_context(settings.gateway_host)
        self._client_host = settings.gateway_client_host()
        self.coordinators = await asyncio.to_thread(Coordinators, settings, self._loop)
        self._probe = CoordinatorProbe(self.coordinators, settings.gateway_hold_ms)
        self.cluster = Cluster(self.coordinators.list_topics, self._listen_for)
        self._reaching = Reaching(
            lambda: self.coordinators.clients, self._ask_versions, self.cluster.avoid, self.coordinators.mailboxes_moved
        )
        self._facts = TopicFacts(settings, "coordinator-gateway")
        self.topics = Topics(self.cluster, lambda names, ids: self._facts.of(names, METADATA_WAIT_S, ids))
        self.topic_updates = TopicUpdates(self.topics)
        self.transactions = Transactions(settings)
        self.authorizer = await self._make_authorizer()
        await self.cluster.refresh()
        await self.offer_of(None)  # without it a client that connects at once would get a response without most APIs
        self._bootstrap = await self._listen(settings.gateway_port, None)
        self._reacher = self._loop.create_task(self._reaching.run())
        self._sweeper = self._loop.create_task(self._sweep())
        self._follower = self._loop.create_task(self.topic_updates.run(settings.metadata_refresh_ms / 1_000))
        self._report(f"The gateway listens on {self.bootstrap_servers}. Use it as bootstrap.servers of Kafka clients.")

    async def _make_authorizer(self) -> Authorizer:
        settings = self.settings
        if not settings.is_relayed_as_gateway or settings.gateway_relay == "lend_gateway_rights":
            return Authorizer(settings.topics, store_facts=self.topics.update)
        if settings.gateway_relay == "refuse":
            return Authorizer(settings.topics, lambda: NOTHING_IS_ALLOWED, self.topics.update)
        acls = self._acls = BrokerAcls(settings)
        await acls.refresh()
        self._acls_keeper = self._loop.create_task(acls.run())
        return Authorizer(settings.topics, acls.current, self.topics.update, acls.renew)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        await self._end_connections()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        if hasattr(self, "coordinators"):
            await asyncio.to_thread(self.coordinators.close)
        if hasattr(self, "transactions"):
            await asyncio.to_thread(self.transactions.close)
            await asyncio.to_thread(self._facts.close)
        if hasattr(self, "_acls"):
            await asyncio.to_thread(self._acls.close)

    async def _end_connections(self) -> None:
        """Close all connections when the requests that have arrived are answered, or after `LAST_RESPONSES_S`."""
        for connection in list(self._connections):
            connection.end()
        if self._connections:
            self._are_all_closed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._are_all_closed.wait(), LAST_RESPONSES_S)
        for connection in list(self._connections):
            connection.close()

    async def _listen_for(self, node_id: int) -> Address | None:
        """Open the port for a broker; return None if this is impossible."""
        first = self.settings.gateway_port
        port = first + 1 + node_id if first else 0
        try:
            return await self._listen(port, node_id)
        except UserError as error:
            log.error("broker %s cannot be reached through the gateway: %s", node_id, error)
            return None

    async def _listen(self, port: int, node_id: int | None) -> Address:
        host = self.settings.gateway_host
        try:
            if port > PORT_MAX:
                raise OverflowError
            server = await self._loop.create_server(
                lambda: Connection(self, node_id), host, port, backlog=BACKLOG, ssl=self._listener_context
            )
        except OSError as error:
            raise PortTaken(f"The gateway cannot listen on {host}:{port} ({error.strerror}).") from error
        except OverflowError:
            raise PortTaken(f"Broker {node_id} would need port {port}. Choose a lower gateway_port.") from None
        self._servers.append(server)
        return Address(self._client_host, server.sockets[0].getsockname()[1])

    # -- for connections -----------------------------------------------------------------------------------------------

    async def offer_of(self, node_id: int | None) -> Any | None:
        asked_s, offer = self._offers.get(node_id, (float("-inf"), None))
        if time.monotonic() - asked_s < OFFER_AGE_S:
            return offer
        if self.cluster.is_avoided(node_id) and (offer := offer or self._offer_of_any()) is not None:
            return offer
        # of several, a frozen one takes the connection and hides none of the others
        asked, wait_s = (self.cluster.any_in_turn(), ATTEMPT_WAIT_S) if node_id is None else ([node_id], CONNECT_WAIT_S)
        if offer is not None:
            wait_s = RENEW_WAIT_S
        for broker in asked:
            try:
                offer = await asyncio.wait_for(self._ask_versions(broker), wait_s)
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                log.warning("broker %s does not return its API versions: %r", broker, error)
            else:
                self._offers[node_id] = time.monotonic(), offer
                return offer
        return offer if offer is not None else self._offer_of_any()

    def _offer_of_any(self) -> Any | None:
        """Return what another broker has returned. A client would keep a response without most APIs for long."""
        return next((offer for _, offer in self._offers.values()), None)

    async def _ask_versions(self, node_id: int) -> Any:
        host, port = self._real(node_id)
        reader, writer = await asyncio.open_connection(host, port, ssl=self._broker_context)
        with contextlib.closing(writer):
            return await versions_of(reader, writer)

    def _real(self, node_id: int | None) -> Address:
        if (address := self.cluster.real(node_id)) is None:
            raise ConnectionRefusedError("no broker is known")
        return address

    async def open_upstream(self, node_id: int | None, upstream: Upstream) -> None:
        host, port = self._real(node_id)
        connecting = self._loop.create_connection(lambda: upstream, host, port, ssl=self._broker_context)
        await asyncio.wait_for(connecting, CONNECT_WAIT_S)

    def reject_moved(self, group_ids: Sequence[str], client: ClientKey) -> bool:
        if not any(map(self.coordinators.is_lost, group_ids)):
            return False
        now_s = time.monotonic()
        self._turned_away = {each: until_s for each, until_s in self._turned_away.items() if until_s > now_s}
        self._turned_away[client] = now_s + TURNED_AWAY_S
        for connection in list(self._connections):
            if connection.client_key == client:
                connection.refuse("its group's requests cannot be written from this gateway")
        return True

    def is_rejected(self, client: ClientKey) -> bool:
        return time.monotonic() < self._turned_away.get(client, 0.0)

    async def is_served(self, group_ids: Sequence[str]) -> bool:
        return await self._probe.is_served(group_ids)

    # -- connections ---------------------------------------------------------------------------------------------------

    def opened(self, connection: ClientConnection) -> None:
        self._connections.add(connection)
        self._silent[connection] = None
        self.metrics.accepted.inc()
        self.metrics.connections.set(len(self._connections))
        if len(self._connections) > self._connections_max:
            next(iter(self._silent)).refuse(  # the connection that has been silent longest, or the new one
                f"the gateway has {self._connections_max} connections, its maximum"
            )

    def said_something(self, connection: ClientConnection) -> None:
        self._silent.pop(connection, None)

    def closed(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        self._silent.pop(connection, None)
        self.metrics.connections.set(len(self._connections))
        if not self._connections:
            self._are_all_closed.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now_s = time.monotonic()
            for connection in list(self._connections):
                connection.count_written()
                if why := self._overdue(connection, now_s):
                    connection.refuse(why)

    def _overdue(self, connection: ClientConnection, now_s: float) -> str | None:
        if connection.is_silent and now_s - connection.active_s > SILENCE_S:
            return f"it sent no request for {SILENCE_S:.0f} s"
        if connection.frame_since_s is not None and now_s - connection.frame_since_s > FRAME_WAIT_S:
            return f"a request took longer than {FRAME_WAIT_S:.0f} s to arrive"
        streams_since_s = connection.streams_since_s
        if self.room.is_short and streams_since_s is not None and now_s - streams_since_s > FRAME_WAIT_S:
            return f"a large request took longer than {FRAME_WAIT_S:.0f} s to arrive while others waited for room"
        if connection.stuck_since_s is not None and now_s - connection.stuck_since_s > STUCK_WAIT_S:
            return f"it did not read its responses for {STUCK_WAIT_S:.0f} s"
        if connection.is_idle and now_s - connection.active_s > self.settings.gateway_connections_max_idle_ms / 1_000:
            return "it was idle for too long"
        return None

    def holds(self, more_bytes: int) -> None:
        self._unfinished_bytes += more_bytes
        if more_bytes > 0 and self._unfinished_bytes > UNFINISHED_BYTES_MAX:
            slowest = min(self._connections, key=lambda each: each.frame_since_s or float("inf"))
            slowest.refuse("all unfinished requests together are too large, and its request is the oldest of them")
