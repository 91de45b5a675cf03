"""The requests of one connection that this coordinator serves, each by an exchange of questions and answers."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from coordinator.base.errors import ErrorCode
from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.responses import AnyAnswer, JoinGroupAnswer, LeaveGroupAnswer
from streaming.gateway.connection.flow_control import Flow, InFlightRequest
from streaming.gateway.connection.tasks import Work
from streaming.gateway.coordinator.routing import ShardAddress
from streaming.gateway.coordinator.transaction_writer import WRITE_WAIT_S
from streaming.gateway.exchanges import SERVED
from streaming.gateway.exchanges.exchange import Exchange, Preparing, Served, Subscription
from streaming.gateway.members.heartbeat_protocols import PendingHeartbeat
from streaming.gateway.members.heartbeat_scheduler import HeartbeatScheduler
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.members.members import Members
from streaming.gateway.members.services import Shared
from streaming.gateway.protocol.messages import decode
from streaming.gateway.security.authenticate import Identity
from streaming.kafka.patterns import Matches


class ListenerMetadata:
    """The cluster as the gateway shows it at one of its ports: the `ListenerData` of exchanges.

    Args:
        node_id: The broker that the port stands for; None for the bootstrap address.
    """

    def __init__(self, shared: Shared, node_id: int | None, identity: Identity) -> None:
        self._shared, self._node_id, self._identity = shared, node_id, identity
        self._resolved = "", Matches()

    @property
    def shard_addresses(self) -> list[ShardAddress]:
        return self._shared.coordinators.shard_addresses

    @property
    def has_rules(self) -> bool:
        return self._shared.settings.access == "rules"

    def partitions_of(self, topic: str) -> int | None:
        return self._shared.topics.partitions_of(topic)

    @property
    def missing_code(self) -> int:
        """The error of a missing partition. Without the brokers' answer it is one that clients retry."""
        is_silent = self._shared.topics.are_brokers_silent
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_silent else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error.number

    def coordinates(self, group_id: str) -> bool:
        return self._node_id is None or self._shared.cluster.coordinator_of(group_id) == self._node_id

    def facts_of(self, topics: Iterable[str]) -> tuple[TopicFact, ...]:
        return self._shared.topics.facts_of(topics)

    def topic_of(self, topic_id: bytes) -> str | None:
        return self._shared.topics.name_of(topic_id)

    def topic_id_of(self, topic: str) -> str | None:
        return self._shared.topics.id_of(topic)

    def may_see(self, topic: str) -> bool:
        """Return whether the client may know that a topic exists."""
        return self._shared.authorizer.may_see(self._identity.client, topic)

    def matching(self, pattern: str) -> Matches:
        resolved, found = self._resolved
        assert resolved == pattern, "a pattern is resolved before its exchange begins"
        return found

    async def resolve(self, pattern: str) -> Matches:
        """Find the topics that a pattern matches, for `matching`. A connection resolves one pattern at a time."""
        (found,) = await self._shared.topics.resolve([(pattern, self.may_see)])
        self._resolved = pattern, found
        return found

    def follows(self, group_id: str) -> bool:
        return self._shared.topic_updates.has(group_id)


class Serving:
    """The handler of one connection's served requests."""

    def __init__(
        self,
        shared: Shared,
        flow: Flow,
        work: Work,
        mailbox: Mailbox,
        metadata: ListenerMetadata,
        heartbeats: HeartbeatScheduler,
        members: Members,
        transactions: Preparing,
    ) -> None:
        self._cluster, self._topics, self._metadata = shared.cluster, shared.topics, metadata
        self._flow, self._work = flow, work
        self._mailbox, self._heartbeats, self._members = mailbox, heartbeats, members
        self._transactions = transactions

    def serve(self, in_flight: InFlightRequest, frame: bytes) -> None:
        """Handle a request of an API in `SERVED`.

        Raises:
            Malformed: The request cannot be read.
        """
        served = SERVED[in_flight.header.api_key]
        message = decode(served.request, frame, in_flight.header)
        heartbeat = self._heartbeats.came(in_flight, message)
        if served.is_always_ready or self._is_ready(served, message):
            self._ask(in_flight, heartbeat, message, served.exchange(message, self._mailbox, self._metadata))
        else:
            then = partial(self._ask, in_flight, heartbeat, message)
            self._work.begin_alone(self._prepare(in_flight, served, message), then)

    def _is_ready(self, served: Served, message: Any) -> bool:
        """Return whether the gateway knows enough for an exchange, and nothing has to happen before it."""
        if served.prepare is not None or self._transactions.has_unsettled(served.groups_fetched(message)):
            return False
        return self._has_ids(served, message) and self._lookup(served, message) is None

    def _has_ids(self, served: Served, message: Any) -> bool:
        ids = served.topic_ids(message)
        return ids is not None and not self._unknown(ids)

    def _unknown(self, topic_ids: Collection[bytes]) -> list[bytes]:
        return [topic_id for topic_id in topic_ids if self._metadata.topic_of(topic_id) is None]

    async def _learn_ids(self, topic_ids: Collection[bytes] | None) -> None:
        """Request the facts about topics with these ids; None for all topics."""
        if topic_ids is None:
            await self._topics.learn_all()
        elif unknown := self._unknown(topic_ids):
            await self._topics.learn(unknown)

    def _lookup(self, served: Served, message: Any) -> Callable[[], Awaitable[None]] | None:
        """Return the request to the brokers about the message's topics; None if the gateway knows enough of them."""
        if topics := served.topics_named(message, self._metadata):
            self._cluster.renew()
            if not self._topics.have(topics):
                return partial(self._topics.learn, topics)
        fetched = served.topics_fetched(message, self._metadata)
        if fetched and not self._topics.are_current(fetched):
            return partial(self._topics.learn, fetched)
        wanted = served.subscription(message)
        return partial(self._learn, wanted) if self._must_learn(wanted) else None

    async def _prepare(self, in_flight: InFlightRequest, served: Served, message: Any) -> Exchange:
        """Send what comes before an exchange to the brokers, one after another, and return the exchange."""
        await self._learn_ids(served.topic_ids(message))
        if (lookup := self._lookup(served, message)) is not None:
            await lookup()
        await self._transactions.settle(served.groups_fetched(message))
        if served.prepare is None:
            return served.exchange(message, self._mailbox, self._metadata)
        written = await served.prepare(self._transactions, message, in_flight.since_s + WRITE_WAIT_S)
        return served.exchange(message, self._mailbox, self._metadata, written=written)

    def _must_learn(self, wanted: Subscription) -> bool:
        return bool(wanted.pattern) or not self._topics.are_sufficient(wanted.names)

    async def _learn(self, wanted: Subscription) -> None:
        """Request what the gateway does not know of the topics of a subscription."""
        names = dict.fromkeys(wanted.names)
        if wanted.pattern:
            await self._topics.learn_names()
            names.update(dict.fromkeys((await self._metadata.resolve(wanted.pattern)).topics))
        if not self._topics.are_sufficient(names):
            await self._topics.learn(names)

    def _ask(
        self, in_flight: InFlightRequest, heartbeat: PendingHeartbeat | None, message: Any, exchange: Exchange
    ) -> None:
        if heartbeat is not None:
            self._heartbeats.schedule(heartbeat, exchange.requests[0].request)
        else:
            self._mailbox.ask(exchange.requests, partial(self._answer, in_flight, message, exchange))

    def _answer(
        self, in_flight: InFlightRequest, message: Any, exchange: Exchange, answers: Sequence[AnyAnswer]
    ) -> None:
        """Send the response to any other request than a heartbeat."""
        try:
            match answers:
                case [JoinGroupAnswer(code=0) as joined]:
                    self._heartbeats.classic.joined(joined.member_id, message.session_timeout_ms)
                    self._members.joined(message, joined)
                case [LeaveGroupAnswer(code=0) as left]:
                    for member in left.members:
                        self._members.left(message.group_id, member.member_id)
            self._flow.respond(in_flight, exchange.respond(answers))
        except Exception as error:
            self._flow.fail(error)
