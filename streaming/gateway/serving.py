"""The requests of one connection that this coordinator serves, each by an exchange of questions and answers."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from coordinator.consumer_requests import ConsumerGroupHeartbeat, TopicFact
from coordinator.outputs import AnyAnswer, ConsumerGroupHeartbeatAnswer, HeartbeatAnswer, JoinGroupAnswer
from streaming.gateway.answers import Answers
from streaming.gateway.authenticating import Identity
from streaming.gateway.definitions import ConsumerGroupHeartbeatRequest
from streaming.gateway.exchanges import SERVED
from streaming.gateway.exchanges.exchange import Exchange, GatewayData, Preparing, Served, Subscription
from streaming.gateway.flow import Flow
from streaming.gateway.heartbeats import Heartbeats
from streaming.gateway.members import Members
from streaming.gateway.messages import decode, encode
from streaming.gateway.questions import Questions
from streaming.gateway.shared import Shared
from streaming.gateway.slots import Slot
from streaming.gateway.work import Work
from streaming.kafka.patterns import Matches


class PortView:
    """The cluster as the gateway shows it at one of its ports: the `GatewayData` of exchanges.

    Args:
        node_id: The broker that the port stands for; None for the bootstrap address.
    """

    def __init__(self, shared: Shared, node_id: int | None, identity: Identity) -> None:
        self._shared, self._node_id, self._identity = shared, node_id, identity

    @property
    def shards(self) -> int:
        return self._shared.asking.shards

    @property
    def has_rules(self) -> bool:
        return self._shared.settings.access == "rules"

    def partitions_of(self, topic: str) -> int | None:
        return self._shared.cluster.partitions_of(topic)

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
        return self._shared.topics.matching(pattern, self.may_see)


class Serving:
    """The handler of one connection's served requests."""

    def __init__(
        self,
        shared: Shared,
        flow: Flow,
        work: Work,
        questions: Questions,
        world: GatewayData,
        heartbeats: Heartbeats,
        members: Members,
        transactions: Preparing,
    ) -> None:
        self._cluster, self._topics, self._world = shared.cluster, shared.topics, world
        self._flow, self._work = flow, work
        self._questions, self._heartbeats, self._members = questions, heartbeats, members
        self._transactions = transactions

    def serve(self, slot: Slot, frame: bytes) -> None:
        """Handle a request of an API in `SERVED`.

        Raises:
            Malformed: The request cannot be read.
        """
        served = SERVED[slot.header.api_key]
        message = decode(served.request, frame, slot.header)
        ids = served.topic_ids(message)
        if served.prepare is not None:
            self._work.begin_alone(self._prepare(slot, served, message))
        elif ids is None or not all(map(self._world.topic_of, ids)):
            self._work.begin_alone(self._topics.learn_all(), then=lambda: self._look_up(slot, served, message))
        else:
            self._look_up(slot, served, message)

    async def _prepare(self, slot: Slot, served: Served, message: Any) -> None:
        """Send what comes before an exchange to the brokers, and then start the exchange with the result."""
        assert served.prepare is not None, "the row has some"
        result = await served.prepare(self._transactions, message)
        self._look_up(slot, served._replace(exchange=partial(served.exchange, written=result)), message)

    def _look_up(self, slot: Slot, served: Served, message: Any) -> None:
        """Send the questions of a request, after the brokers' response about its topics if that is necessary."""
        topics = served.topics_named(message, self._world)
        if topics and not self._cluster.is_sure_of(topics):
            self._work.begin_alone(self._cluster.refresh(), then=lambda: self._ask(slot, served, message))
        elif (wanted := served.subscription(message)) and self._must_learn(wanted):
            self._work.begin_alone(self._learn(wanted), then=lambda: self._ask(slot, served, message))
        else:
            self._ask(slot, served, message)

    def _must_learn(self, wanted: Subscription) -> bool:
        return bool(wanted.pattern) or not self._topics.are_known(wanted.names)

    async def _learn(self, wanted: Subscription) -> None:
        """Request what the gateway does not know of the topics of a subscription."""
        names = dict.fromkeys(wanted.names)
        if wanted.pattern:
            await self._topics.learn_names()
            names.update(dict.fromkeys(self._world.matching(wanted.pattern).topics))
        if not self._topics.are_known(names):
            await self._topics.learn(names)

    def _ask(self, slot: Slot, served: Served, message: Any) -> None:
        exchange = served.exchange(message, self._questions, self._world)
        answers = Answers(
            len(exchange.questions), partial(self._answer, slot, message, exchange), self._flow.outgoing.hold
        )
        self._questions.expect(exchange.questions)
        if served.request is ConsumerGroupHeartbeatRequest:
            self._members.asked(slot, _heartbeat_in(exchange))
        self._flow.bound()
        self._questions.send(exchange.questions, answers)

    def _answer(self, slot: Slot, message: Any, exchange: Exchange, answers: Sequence[AnyAnswer]) -> None:
        """Send the response, or hold it for a notice of a rebalance."""
        self._questions.answered(exchange.questions)
        if slot.answer is not None:
            return  # the client has an error already, because this took too long
        try:
            response = encode(exchange.respond(answers), slot.header)
        except Exception as error:
            self._flow.fail(error)
            return
        match answers:
            case [JoinGroupAnswer(code=0, member_id=member_id)]:
                self._heartbeats.joined(member_id, message.session_timeout_ms)
            case [ConsumerGroupHeartbeatAnswer() as said]:
                self._members.answered(slot, _heartbeat_in(exchange), said)
                return
            case [HeartbeatAnswer(code=0)] if self._flow.slots.is_only(slot):
                if self._heartbeats.hold(slot, message.member_id, response):
                    self._flow.count(slot)
                    return
        self._flow.answer(slot, response)


def _heartbeat_in(exchange: Exchange) -> ConsumerGroupHeartbeat:
    request = exchange.questions[0].request
    assert isinstance(request, ConsumerGroupHeartbeat), "the exchange of a heartbeat has one question"
    return request
