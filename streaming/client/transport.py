"""Requests to the coordinator and its responses: one producer and one reader for a whole process.

A transport has a mailbox with a random name, which hashes to one partition of the reply topic. Its one thread reads
that partition, drops records for other mailboxes by the key alone, delivers each response to its receiver, and makes
each listener check its deadlines. The reader is at the partition's end before the first request is sent, so
that no response can be missed.

A group may have moved to another coordinator on the same brokers. The first response with that redirection makes the
transport read a partition of that coordinator's replies too, and later requests about the group go there. The refused
request itself is mostly not sent again: its sender does that, as after any error that passes.
"""

import itertools
import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaConfigurationError, KafkaError
from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.base.hashing import shard_of
from coordinator.messages.heartbeats import AnyHeartbeat
from coordinator.messages.requests import Request
from coordinator.messages.responses import AnyAnswer
from streaming.client.group_router import CoordinatorRoute, GroupRouter
from streaming.client.heartbeats import TOKEN_BYTES, may_be_one_of_many, records_of
from streaming.client.sending import CLOSE_WAIT_S, OnFailure, Outage, RequestProducer
from streaming.client.topics import TopicWatch
from streaming.config.timeouts import (
    ANSWER_WAIT_S,
    ATTEMPT_WAIT_S,
    LEADERS_WAIT_S,
    RECONNECT_BACKOFF_MAX_MS,
    RETRY_WAIT_S,
)
from streaming.errors import BrokerUnreachable, NoAnswer, NoCoordinator, UserError
from streaming.kafka.any_broker import may_pass
from streaming.kafka.brokers import LOOK_WAIT_S, check_brokers, unreachable_at
from streaming.kafka.pausing import PausingConsumer
from streaming.kafka.starting import started
from streaming.moments import monotonic_ms, unix_ms
from streaming.wire.inbox import Inbox, read_answer
from streaming.wire.signing import Signer

log = logging.getLogger(__name__)

TURN_MS = 50
"""The longest time that the thread waits for responses before it checks deadlines again: the delay of a deadline."""

TICK_MS = 1_000
"""A turn begins at each multiple of this time by the wall clock, since heartbeats of many processes fall due then."""

COMMAND_WAIT_S = 30.0
"""The time for which a command waits for the coordinator's response."""

FOLLOW_WAIT_S, FOLLOW_WAIT_S_MAX = 0.05, 1.0
"""The time until a request is sent again whose group is on its way to another coordinator: it doubles each time."""

PATIENCE_MS = 45_000
"""The time without an accepted request after which an error is logged, for a sender that does not name one: a session
by default."""

ROUTES_MAX = 32
"""The other coordinators of one client: as many as the peers of a coordinator. The responses for groups at further
ones have the error of the redirection."""

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR.number

TROUBLE_WAIT_S = 1.0


class ResponseListener(Protocol):
    """A sender of requests that gets the responses on the transport's thread."""

    def receive(self, answer: AnyAnswer) -> None:
        """Handle a response to one of its own requests, or a notice, which may be for another listener."""

    def advance(self) -> None:
        """Handle the deadlines that have passed. Called every `TURN_MS` or more often."""


class Transport:
    """A connection to the coordinator. All members and single requests of a process share it.

    Args:
        kafka: The connection settings, as kafka-python's clients take them.
        topic_prefix: The coordinator's topics are `PREFIX.requests` and `PREFIX.replies`.
        signer_at: Returns the signer of requests to the coordinator with a prefix.
        peers: The prefixes of further coordinators to ask for a group that this one does not have.

    Raises:
        BrokerUnreachable: no broker answered.
        NoCoordinator: the topics do not exist.
    """

    def __init__(
        self,
        kafka: Mapping[str, object],
        topic_prefix: str = "coordinator",
        signer_at: Callable[[str], Signer] = lambda _: Signer(None),
        peers: Sequence[str] = (),
    ) -> None:
        self._home = CoordinatorRoute(topic_prefix, secrets.token_hex(TOKEN_BYTES), signer_at(topic_prefix))
        self._signer_at = signer_at
        self._routes = {topic_prefix: self._home}
        self.moves = GroupRouter(topic_prefix, peers)
        self._kafka, self._servers = kafka, kafka["bootstrap_servers"]
        self._answers = Inbox()
        self._heartbeats: list[AnyHeartbeat] = []
        self._listeners: dict[str, ResponseListener] = {}
        self._patience_ms: dict[str, int] = {}
        self._outage = Outage(self._servers)
        self.topics = TopicWatch(kafka)
        self._closing = threading.Event()
        self._clients: list[Any] = []
        self._reader = self._open_in_time(kafka)
        self._thread = threading.Thread(target=self._run, name=f"coordinator transport {self.inbox[:8]}", daemon=True)
        self._thread.start()

    @property
    def inbox(self) -> str:
        """Return the name of the mailbox at the client's own coordinator."""
        return self._home.inbox

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_in_time(self, kafka: Mapping[str, Any]) -> Any:
        """Return the reader of replies. A broker that is down may end an attempt; the next one may choose another."""
        wait_s = min(ANSWER_WAIT_S, kafka.get("bootstrap_timeout_ms", math.inf) / 1_000)
        try:
            return started(lambda attempt: self._open(attempt.config(kafka)), wait_s)
        except KafkaConfigurationError:
            raise  # a wrong setting, as a KafkaConsumer refuses it
        except (KafkaError, OSError) as error:
            raise unreachable_at(kafka, error, wait_s=min(LOOK_WAIT_S, wait_s)) from error

    def _open(self, kafka: Mapping[str, Any]) -> Any:
        clients = self._clients = []
        orphans: list[Any] = []  # their owner failed in its constructor, so that it cannot close them

        def acquainted(**config: Any) -> Any:
            """Return the network client of a kafka-python client. Connecting then fetches the topics as well.

            A later request for a topic would wait for `retry_backoff_ms` after connecting, at each start.
            """
            clients.append(kafka["kafka_client"](**config))
            clients[-1].cluster.need_all_topic_metadata = True
            orphans.append(clients[-1])
            return clients[-1]

        shared = {"client_id": f"coordinator-client-{self.inbox[:8]}", "metrics_enabled": False,
                  "reconnect_backoff_max_ms": RECONNECT_BACKOFF_MAX_MS, **kafka,
                  "allow_auto_create_topics": False, "kafka_client": acquainted}  # fmt: skip
        with ExitStack() as opened:
            opened.callback(lambda: [client.close() for client in orphans])
            reader = KafkaConsumer(group_id=None, enable_auto_commit=False, auto_offset_reset="earliest", **shared)
            opened.callback(reader.close)
            orphans.clear()
            self._producer = RequestProducer(shared, self._outage)
            opened.callback(self._producer.close, timeout=0)
            orphans.clear()  # the producer's thread may still be using its own client
            self._stand_at_the_end(reader)
            opened.pop_all()
        clients[-1].cluster.add_topic(self._home.requests)  # the producer would forget its leaders at the next refresh
        for client in clients:
            client.cluster.need_all_topic_metadata = False
        return reader

    def _stand_at_the_end(self, reader: Any) -> None:
        self._read_replies(reader, self._home)

    def _read_replies(self, reader: Any, route: CoordinatorRoute) -> None:
        """Add a coordinator's replies to what is read, from the end of the topic on."""
        for topic in (route.requests, route.replies):
            if not (partitions := reader.partitions_for_topic(topic)):
                raise NoCoordinator.without(topic, self._servers)
        mine, end = self._end_of_replies(reader, route, len(partitions))
        reader.assign([*reader.assignment(), mine])
        reader.seek(mine, end)

    def _end_of_replies(self, reader: Any, route: CoordinatorRoute, partitions: int) -> tuple[TopicPartition, int]:
        """Return the partition of a mailbox and its end. If its leader does not answer, the mailbox moves to the next
        partition."""
        until_s = time.monotonic() + LEADERS_WAIT_S
        while True:  # a new topic gets its leaders a moment later
            mine = TopicPartition(route.replies, shard_of(route.inbox, partitions))
            try:
                return mine, reader.end_offsets([mine], timeout_ms=1_000 * ATTEMPT_WAIT_S)[mine]
            except KafkaError as error:
                if not may_pass(error) or time.monotonic() > until_s:
                    why = f"{mine.topic}-{mine.partition}: {error}"
                    raise unreachable_at(self._kafka, why, [mine.topic]) from error
                for client in self._clients:  # end_offsets never asks who leads now
                    client.cluster.request_update()
                route.rename(_inbox_in((mine.partition + 1) % partitions, partitions))
                self._closing.wait(RETRY_WAIT_S)

    # -- sending -------------------------------------------------------------------------------------------------------

    def register(self, listener: ResponseListener, patience_ms: int = PATIENCE_MS) -> str:
        """Register a receiver of responses and deadlines. Return the prefix with which its request ids must begin.

        Args:
            patience_ms: The time after which an error is logged if the brokers accept no request.
        """
        name = secrets.token_hex(TOKEN_BYTES)
        self._answers.open_mailbox(name, partial(_log_exceptions, listener.receive))
        self._listeners[name], self._patience_ms[name] = listener, patience_ms
        return f"{name}."

    def unregister(self, prefix: str) -> None:
        """Unregister the owner of this prefix."""
        name = prefix.removesuffix(".")
        self._listeners.pop(name, None)
        self._patience_ms.pop(name, None)
        self._answers.close_mailbox(name)

    def send(self, request: Request, on_error: OnFailure | None = None) -> None:
        """Append a request to the request topic. Returns before the broker has it.

        Heartbeats that fall due at the same time are sent in one record for each shard; of the consumer protocol, only
        bare ones. The loss of such a record is logged.

        Args:
            on_error: Called if the brokers do not accept the request; otherwise that is logged.

        Raises:
            KafkaError: no broker has returned the partition's leader, or the request is too large.
        """
        if (
            threading.current_thread() is self._thread
            and may_be_one_of_many(request)
            and not self.moves.is_sent_singly(request.group_id)
        ):
            self._heartbeats.append(request)
            return
        self._append_to(self._route_of(request.group_id), request, on_error=on_error)

    def _route_of(self, group_id: str) -> CoordinatorRoute:
        """Return the way to a group's coordinator. Until that is open, requests go home and are redirected again."""
        prefix = self.moves.coordinator_of(group_id)
        if prefix not in self._routes:
            self.moves.named[prefix] = None
        return self._routes.get(prefix, self._home)

    def _append_to(
        self,
        route: CoordinatorRoute,
        request: Request,
        partition: int | None = None,
        on_error: OnFailure | None = None,
    ) -> None:
        on_failure = on_error or (lambda error: log.warning("a %s request was not sent: %s", _kind(request), error))
        self.moves.record_request(request)
        addressed = request if route is self._home else structs.replace(request, reply_to=route.inbox)
        value, key = route.signer.value_of(addressed, unix_ms()), request.group_id.encode()
        self._producer.send(route.requests, key, value, partition, on_failure)

    def ask(self, request: Request, timeout_s: float = 10.0, *, follows: bool = True) -> AnyAnswer:
        """Send one request and wait for its response. `request_id` and `reply_to` are set here.

        Args:
            follows: Whether the request goes to the coordinator to which its group has moved.

        Raises:
            NoAnswer: no response came in time.
            BrokerUnreachable: the brokers did not accept the request.
        """
        deadline_s, wait_s, left_s = time.monotonic() + timeout_s, FOLLOW_WAIT_S, timeout_s
        while True:
            route = self._route_of(request.group_id) if follows else self._home
            answer = self._ask(route, request, [None], left_s)[0]
            left_s = deadline_s - time.monotonic() - wait_s
            is_final = not follows or answer.code != NOT_COORDINATOR or not self.moves.has_moved(request.group_id)
            if is_final or left_s <= 0:
                return answer
            self._closing.wait(wait_s)
            wait_s = min(2 * wait_s, FOLLOW_WAIT_S_MAX)

    def ask_every_shard(self, request: Request, timeout_s: float = 10.0) -> list[AnyAnswer]:
        """Send one request to each shard, as a request without a group needs it, and wait for all responses.

        Raises:
            NoAnswer: not all responses came in time.
            BrokerUnreachable: the brokers did not accept the requests.
        """
        return self.ask_shards(request, None, timeout_s)

    def ask_shards(self, request: Request, shards: Sequence[int] | None, timeout_s: float = 10.0) -> list[AnyAnswer]:
        """Send one request to some shards, or to all of them, and return the responses in the same order.

        Raises:
            NoAnswer, BrokerUnreachable: As `ask_every_shard`.
        """
        every = sorted(self._producer.partitions_for(self._home.requests))
        return self._ask(self._home, request, every if shards is None else shards, timeout_s)

    def _ask(
        self, route: CoordinatorRoute, request: Request, partitions: Sequence[int | None], timeout_s: float
    ) -> list[AnyAnswer]:
        deadline_s = time.monotonic() + timeout_s
        awaited: dict[str, Future[AnyAnswer]] = {secrets.token_hex(TOKEN_BYTES): Future() for _ in partitions}
        try:
            for partition, (request_id, answer) in zip(partitions, awaited.items(), strict=True):
                self._answers.expect(self.inbox, request_id, partial(_settle, answer))
                requested = structs.replace(request, request_id=request_id, reply_to=self.inbox)
                self._append_to(route, requested, partition, partial(_give_up, answer))
            return [answer.result(max(0.0, deadline_s - time.monotonic())) for answer in awaited.values()]
        except FutureTimeout:
            raise self._no_answer(route, request.group_id, timeout_s) from None
        except KafkaError as error:
            raise self._not_accepted(route, error) from error
        finally:
            self._answers.forget(self.inbox, awaited)

    def _no_answer(self, route: CoordinatorRoute, group_id: str, timeout_s: float) -> NoAnswer:
        """Return the error of a request without a response, after a look at the brokers, which may be the cause."""
        about = f" about the group {group_id!r}" if group_id else ""
        fault = check_brokers(self._kafka, [route.requests, route.replies]).sentence
        advice = fault or f"Check that the coordinator that reads {route.requests} is running."
        return NoAnswer(f"No response{about} came on {route.replies} within {timeout_s:g} s. {advice}")

    def _not_accepted(self, route: CoordinatorRoute, error: KafkaError) -> BrokerUnreachable:
        """Return the error of a request that the brokers did not accept, after a look at them if that may pass."""
        fault = check_brokers(self._kafka, [route.requests]).sentence if may_pass(error) else ""
        refused = f"The brokers at {self._servers} did not accept the request ({error}). See their logs."
        return BrokerUnreachable(fault or refused)

    def condition(self) -> threading.Condition:
        """Return a new condition, on which the owner of a member waits for this transport's thread."""
        return threading.Condition()

    def record_reader(self, config: Mapping[str, Any]) -> Any:
        """Return a new KafkaConsumer without a group, for the records of a member's partitions."""
        wait_s = config.get("bootstrap_timeout_ms", KafkaConsumer.DEFAULT_CONFIG["bootstrap_timeout_ms"]) / 1_000
        return started(lambda attempt: PausingConsumer(**attempt.config(config)), wait_s)

    def client_host(self) -> str:
        """Return the address from which this process reaches the brokers, as Kafka prints it."""
        servers = self._servers.split(",") if isinstance(self._servers, str) else list(self._servers)  # type: ignore[call-overload]
        return next(filter(None, map(_address_towards, servers)), "")

    def close(self) -> None:
        """Send the remaining requests, and stop."""
        self._closing.set()
        self.topics.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_WAIT_S)
        self._answers.close()
        self._producer.close(timeout=CLOSE_WAIT_S)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                batches = self._reader.poll(timeout_ms=min(TURN_MS, TICK_MS - unix_ms() % TICK_MS))
            except Exception:  # members must keep sending heartbeats after any error
                log.warning("reading %s failed and is retried", self._home.replies, exc_info=True)
                batches = {}
                self._closing.wait(TROUBLE_WAIT_S)
            routes = {route.replies: route for route in self._routes.values()}
            for record in itertools.chain.from_iterable(batches.values()):
                if (route := routes.get(record.topic)) is not None and record.key == route.key:
                    self._deliver(route, record.value)
            _log_exceptions(self._follow)
            for listener in list(self._listeners.values()):
                _log_exceptions(listener.advance)
            _log_exceptions(self._send_heartbeats)
            self._outage.log_changes(min(list(self._patience_ms.values()), default=PATIENCE_MS), monotonic_ms())
        self._reader.close()

    def _send_heartbeats(self) -> None:
        """Send the heartbeats of this turn in one record for each shard, or in several if there are very many."""
        heartbeats, self._heartbeats = self._heartbeats, []
        shards = lambda route: len(self._producer.partitions_for(route.requests))  # noqa: E731
        try:
            for route, shard, record in records_of(heartbeats, self._route_of, shards, self.inbox):
                self._append_to(route, record, shard)
        except KafkaError as error:  # their members send the next ones soon
            log.warning("heartbeats were not sent: %s", error)

    def _deliver(self, route: CoordinatorRoute, value: bytes) -> None:
        if (answer := read_answer(value)) is not None and self.moves.answered(route.prefix, answer):
            self._answers.deliver(self.inbox, answer)

    def _follow(self) -> None:
        """Open the coordinators that redirections have named, and send the refused SyncGroups again."""
        while self.moves.named:
            prefix, _ = self.moves.named.popitem()
            if prefix not in self._routes:
                self._open_route(prefix)
        for sync in self.moves.due():
            self.send(sync)

    def _open_route(self, prefix: str) -> None:
        """Begin to read the replies of a coordinator to which a group has moved."""
        route = CoordinatorRoute(prefix, secrets.token_hex(TOKEN_BYTES), self._signer_at(prefix))
        try:
            if len(self._routes) > ROUTES_MAX:
                raise NoCoordinator(f"A client serves groups of {ROUTES_MAX} other coordinators at most.")
            self._read_replies(self._reader, route)
        except (KafkaError, UserError) as error:
            log.warning("the coordinator %r, to which a group has moved, cannot be used: %s", prefix, error)
        else:
            self._routes[prefix] = route


def _inbox_in(partition: int, partitions: int) -> str:
    """Return a random name of a mailbox in a partition."""
    names = (secrets.token_hex(TOKEN_BYTES) for _ in itertools.count())
    return next(name for name in names if shard_of(name, partitions) == partition)


def _address_towards(server: str) -> str:
    """Return the address from which this process reaches a server, as Kafka prints it; empty if the name of the server
    does not resolve."""
    host, _, port = server.strip().rpartition(":")
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # this sends nothing, it only chooses the route
            return f"/{probe.getsockname()[0]}"
    except (OSError, ValueError):
        return ""


def _log_exceptions(call: Callable[..., None], *arguments: object) -> None:
    """Call a function and log its exception, so that one listener's bug does not stop the others."""
    try:
        call(*arguments)
    except Exception:
        log.exception("a member's code failed on the transport's thread")


def _settle(awaited: Future[AnyAnswer], answer: AnyAnswer, _size: int) -> None:
    with suppress(InvalidStateError):  # the brokers' refusal came first
        awaited.set_result(answer)


def _give_up(awaited: Future[AnyAnswer], error: BaseException) -> None:
    with suppress(InvalidStateError):
        awaited.set_exception(error)


def _kind(request: Request) -> str:
    return str(type(request).__struct_config__.tag)
