"""The environment of a connection's parts: a transport that stores written bytes, and test doubles of a gateway."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

from coordinator.base.hashing import shard_of
from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer, RebalanceNotice
from streaming.gateway.connection.flow_control import Flow, InFlightRequest
from streaming.gateway.connection.metrics import Metrics
from streaming.gateway.connection.send_buffer import MemoryBudget, SendBuffer
from streaming.gateway.coordinator.batching import HeartbeatBatcher, SendSingle
from streaming.gateway.coordinator.outstanding import OutstandingHeartbeats
from streaming.gateway.coordinator.routing import ShardAddress
from streaming.gateway.coordinator.transaction_ends import Ends
from streaming.gateway.coordinator.transaction_writer import Written
from streaming.gateway.members.services import ClientKey
from streaming.gateway.members.topic_updates import TopicUpdates
from streaming.gateway.members.topics import Topics
from streaming.gateway.protocol.messages import Header
from streaming.gateway.protocol.topic_ids import id_text
from streaming.gateway.relay.authorizer import Authorizer
from streaming.gateway.relay.broker_connection import Upstream
from streaming.gateway.relay.large_produce import Room
from streaming.gateway.relay.metadata import Address
from streaming.gateway.server.apis import APIS
from streaming.kafka.transactional import Transaction
from tests.system.waiting import HANG_S

OWN_TOPIC = "kept.requests"


class FakeTransport(asyncio.Transport):
    """Stores the written bytes and the calls. `untaken_bytes` is the number of bytes that the peer has not read.

    Attributes:
        ended: The first call that ended the connection.
        calls: All calls that end the connection or its sending side.
    """

    def __init__(self, **extra: object) -> None:
        super().__init__(extra)
        self.written = bytearray()
        self.untaken_bytes = 0
        self.is_reading = True
        self.ended: str | None = None
        self.calls: list[str] = []
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.on_write()

    def get_write_buffer_size(self) -> int:
        return self.untaken_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.ended is not None

    def can_write_eof(self) -> bool:
        return self.get_extra_info("sslcontext") is None

    def write_eof(self) -> None:
        self.calls.append("write_eof")

    def close(self) -> None:
        self.calls.append("closed")
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.calls.append("aborted")
        self.ended = self.ended or "aborted"

    def frames(self) -> list[bytes]:
        """Return the complete frames that were written, without their lengths, and remove them."""
        found = []
        while len(self.written) >= 4:
            size = int.from_bytes(self.written[:4])
            assert len(self.written) >= 4 + size, "a frame was written incompletely"
            found.append(bytes(self.written[4 : 4 + size]))
            del self.written[: 4 + size]
        return found


class Socket:
    """A double of the system's socket that accepts every option, and whose peer has closed it."""

    def setsockopt(self, *arguments: object) -> None:
        pass

    def fileno(self) -> int:
        return -1


@dataclass
class FakeOwner:
    """A double of a connection, for its flow."""

    transport: FakeTransport
    send_buffer: SendBuffer = field(init=False)
    calls: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def stop_requests(self) -> None:
        self.calls.append("stop")

    def resume_requests(self) -> None:
        self.calls.append("take")

    def flushed(self) -> None:
        self.calls.append("flushed")

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)

    def close(self) -> None:
        self.calls.append("close")
        self.transport.abort()

    def refuse(self, why: str) -> None:
        self.refusals.append(why)


class FlowBench:
    """A flow whose transport, owner, clock and loop are controlled by a test."""

    def __init__(self) -> None:
        self.transport, self.metrics = FakeTransport(), Metrics()
        self.owner = FakeOwner(self.transport)
        self.owner.send_buffer = SendBuffer(self.owner, MemoryBudget([self.owner], lambda: None))
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []
        self.flow = Flow(
            self.transport, self.owner, self.owner.send_buffer, self.metrics, self.soon.append, lambda: self.now_s
        )

    def run_soon(self) -> None:
        """Run the scheduled calls."""
        waiting, self.soon[:] = list(self.soon), []
        for each in waiting:
            each()

    def slot(self, api_key: int, version: int | None = None, correlation_id: int = 77) -> InFlightRequest:
        """Add a request of an API, in its last version or the given one."""
        return self.flow.queue.add(slot_of(api_key, version, correlation_id))

    def count(self, name: str, **labels: str) -> float:
        """Return the value of a metric."""
        return self.metrics.registry.get_sample_value(f"groupcoord_gateway_{name}", labels) or 0


def slot_of(api_key: int, version: int | None = None, correlation_id: int = 77) -> InFlightRequest:
    api = APIS[api_key]
    return InFlightRequest(api, Header(api_key, api.last if version is None else version, correlation_id, "ana"))


class FakeCoordinators:
    """A double of the coordinator's client. It stores requests, and a test answers them."""

    shards = 4
    lost_shards = frozenset[int]()

    def __init__(self, send_single: SendSingle | None = None) -> None:
        self.sent: list[tuple[Request, int | None]] = []
        self.inboxes: dict[str, Callable[[RebalanceNotice], object]] = {}
        self._told: dict[str, Callable[[AnyAnswer, int], object]] = {}
        self.outstanding = OutstandingHeartbeats()
        self._numbers = count(1)
        self.moved: set[str] = set()
        self.ticks: list[tuple[float, Callable[[], None]]] = []
        self._turns: list[Callable[[], None]] | None = None
        self.now_ms = 0
        fields = {"reply_to": "inbox-gathered"}
        self.batcher = self.batchers = HeartbeatBatcher(
            self, self.shards, lambda: {**fields, "request_id": self.request_id()}, 1_000, self.outstanding,
            self._later, send_single or self.send, lambda: self.now_ms, lambda: self.now_ms,
        )  # fmt: skip

    def _later(self, wait_s: float, call: Callable[[], None]) -> None:
        """Call a function at a tick. The event loop's next turn comes at once, unless `await_turns` was called."""
        if wait_s:
            self.ticks.append((wait_s, call))
        elif self._turns is not None:
            self._turns.append(call)
        else:
            call()

    def await_turns(self) -> list[Callable[[], None]]:
        """Return the functions that the event loop calls in its next turn. From now on a test calls them."""
        self._turns = []
        return self._turns

    def tick(self) -> None:
        """Send the heartbeats that wait."""
        while self.ticks:
            wait_s, tick = self.ticks.pop()
            self.now_ms += round(1_000 * wait_s)
            tick()

    def open_inbox(self, tell: Callable[[RebalanceNotice], object] = lambda _: None) -> str:
        name = f"inbox-{next(self._numbers)}"
        self.inboxes[name] = tell
        return name

    def close_inbox(self, inbox: str) -> None:
        self.inboxes.pop(inbox, None)

    def request_id(self) -> str:
        return f"id-{next(self._numbers)}"

    def send(
        self,
        request: Request,
        told: Callable[[AnyAnswer, int], object],
        shard: int | None = None,
        at: str | None = None,
    ) -> int:
        self.sent.append((request, shard))
        self._told[request.request_id] = told
        return 100

    def shard_address_of(self, group_id: str) -> ShardAddress:
        return ShardAddress("A", shard_of(group_id, self.shards))

    def may_have_moved(self, group_id: str) -> bool:
        return group_id in self.moved

    @property
    def shard_addresses(self) -> list[ShardAddress]:
        return [ShardAddress("A", shard) for shard in range(self.shards)]

    def forget(self, inbox: str, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self._told.pop(request_id, None)

    @property
    def waiting(self) -> int:
        return len(self._told)

    def silence_s(self) -> float:
        return 0.0

    @property
    def requests(self) -> list[Request]:
        return [request for request, _ in self.sent]

    def answer(self, kind: Callable[..., AnyAnswer], index: int = -1, size: int = 0, **fields: Any) -> None:
        """Answer a request, the last one or the given one."""
        self.reply(kind(request_id=self.requests[index].request_id, **fields), index, size)

    def reply(self, answer: AnyAnswer, index: int = -1, size: int = 0) -> None:
        """Deliver an answer to a request, to the last one or the given one."""
        self._told.pop(self.requests[index].request_id)(answer, size)


def fact_of(topic: str, partitions: int | None) -> TopicFact:
    """Return the fact about a topic, with an id that is derived from its name; None stands for a missing topic."""
    if partitions is None:
        return TopicFact(topic)
    return TopicFact(topic, id_text(topic.encode().ljust(16, b".")[:16]), partitions)


@dataclass
class FakeCluster:
    """Brokers and topics."""

    topics: dict[str, int] = field(default_factory=lambda: {"t": 3})
    refreshed: int = 0

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.topics)

    async def refresh(self) -> None:
        self.refreshed += 1

    def renew(self) -> None:
        pass

    def coordinator_of(self, group_id: str) -> int | None:
        return 1 if group_id.startswith("g") else 2

    def ours(self, node_id: int) -> Address | None:
        return Address("gw", 9193 + node_id)

    async def learn(self, brokers: Iterable[tuple[int, str, int]], *, are_all: bool) -> None:
        list(brokers)


class FakeTransactions:
    """A writer of transactions that answers with `written`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Transaction, int]] = []
        self.written = Written(0, 41)
        self.while_writing: Callable[[], None] = lambda: None
        self.until_s = float("-inf")
        self.ends = Ends()

    async def join(self, transaction: Transaction, home: ShardAddress, until_s: float) -> Written:
        self.calls.append(("join", transaction, home.shard))
        self.until_s = until_s
        return self.written

    async def write(
        self, transaction: Transaction, home: ShardAddress, group_id: str, until_s: float, *, joins: bool
    ) -> Written:
        prepared = "join and write" if joins else "write"
        self.calls.append((f"{prepared} {group_id}", transaction, home.shard))
        self.until_s = until_s
        self.while_writing()
        return self.written


class FakeShared:
    """A double of a gateway, for its connections, with an authorizer that protects `OWN_TOPIC`."""

    def __init__(self, metrics: Metrics | None = None, mechanisms: tuple[str, ...] = ()) -> None:
        self.settings: Any = SimpleNamespace(
            access="everybody",
            gateway_hold_ms=60_000,
            gateway_heartbeat_hold_ms=600_000,
            gateway_heartbeat_tick_ms=1_000,
            gateway_consumer_heartbeat_hold_ms=600_000,
            group_consumer_heartbeat_interval_ms=600_000,
            group_consumer_session_timeout_ms=900_000,
        )
        self.coordinators: Any = FakeCoordinators()
        self.cluster: Any = FakeCluster()
        self.described: list[list[str]] = []
        self.may_describe = threading.Event()
        self.may_describe.set()
        self.topics = Topics(self.cluster, self._describe)
        self.topics.update({"t": fact_of("t", 3)})
        self.topic_updates = TopicUpdates(self.topics)
        self.transactions: Any = FakeTransactions()
        self.authorizer = Authorizer([OWN_TOPIC])
        self.connections: list[Any] = []
        self.memory_budget = MemoryBudget(self.connections, lambda: None)
        self.room = Room()
        self.metrics, self.mechanisms = metrics or Metrics(), mechanisms
        self.unfinished_bytes = 0
        self.spoke: list[Any] = []
        self.upstreams: list[FakeTransport] = []
        self.upstream: Upstream
        self.refuses_upstreams = self.closes_upstreams = False
        self.may_connect = asyncio.Event()
        self.may_connect.set()
        self.served = True
        self.lost_groups: set[str] = set()
        self.turned_away: set[ClientKey] = set()
        self.offer: Any = None

    def _describe(self, names: Sequence[str], ids: Sequence[bytes]) -> dict[str, TopicFact]:
        self.described.append([*names, *map(id_text, ids)])
        assert self.may_describe.wait(HANG_S)
        facts = {name: fact_of(name, self.cluster.topics.get(name)) for name in names}
        existing = (fact_of(name, partitions) for name, partitions in self.cluster.topics.items())
        return facts | {fact.topic: fact for fact in existing if fact.topic_id in map(id_text, ids)}

    async def offer_of(self, node_id: int | None) -> Any | None:
        return self.offer

    async def is_served(self, group_ids: Sequence[str]) -> bool:
        return self.served

    def reject_moved(self, group_ids: Sequence[str], client: ClientKey) -> bool:
        if not self.lost_groups.intersection(group_ids):
            return False
        self.turned_away.add(client)
        return True

    def is_rejected(self, client: ClientKey) -> bool:
        return client in self.turned_away

    async def open_upstream(self, node_id: int | None, upstream: Upstream) -> None:
        await self.may_connect.wait()
        if self.refuses_upstreams:
            raise ConnectionRefusedError("no broker is known")
        self.upstream = upstream
        self.upstreams.append(FakeTransport())
        upstream.connection_made(self.upstreams[-1])
        if self.closes_upstreams:
            upstream.connection_lost(None)

    def opened(self, connection: Any) -> None:
        self.connections.append(connection)

    def said_something(self, connection: Any) -> None:
        self.spoke.append(connection)

    def holds(self, more_bytes: int) -> None:
        self.unfinished_bytes += more_bytes

    def closed(self, connection: Any) -> None:
        if connection in self.connections:
            self.connections.remove(connection)


async def turn(times: int = 10) -> None:
    """Run the callbacks of the loop that are ready."""
    for _ in range(times):
        await asyncio.sleep(0)
