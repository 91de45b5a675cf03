"""The requests of one connection that this coordinator serves, each by an exchange of questions and answers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from coordinator.outputs import AnyAnswer, HeartbeatAnswer, JoinGroupAnswer
from streaming.gateway.answers import Answers
from streaming.gateway.exchanges import SERVED
from streaming.gateway.exchanges.exchange import Exchange, GatewayData, Served
from streaming.gateway.flow import Flow
from streaming.gateway.heartbeats import Heartbeats
from streaming.gateway.messages import decode, encode
from streaming.gateway.questions import Questions
from streaming.gateway.shared import Shared
from streaming.gateway.slots import Slot
from streaming.gateway.work import Work


class PortView:
    """The cluster as the gateway shows it at one of its ports: the `GatewayData` of exchanges.

    Args:
        node_id: The broker that the port stands for; None for the bootstrap address.
    """

    def __init__(self, shared: Shared, node_id: int | None) -> None:
        self._shared, self._node_id = shared, node_id

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


class Serving:
    """The handler of one connection's served requests."""

    def __init__(
        self, shared: Shared, flow: Flow, work: Work, questions: Questions, world: GatewayData, heartbeats: Heartbeats
    ) -> None:
        self._cluster, self._world = shared.cluster, world
        self._flow, self._work = flow, work
        self._questions, self._heartbeats = questions, heartbeats

    def serve(self, slot: Slot, frame: bytes) -> None:
        """Handle a request of an API in `SERVED`.

        Raises:
            Malformed: The request cannot be read.
        """
        served = SERVED[slot.header.api_key]
        message = decode(served.request, frame, slot.header)
        topics = served.topics_named(message)
        if topics and not self._cluster.is_sure_of(topics):
            self._work.begin_alone(self._cluster.refresh(), then=lambda: self._ask(slot, served, message))
        else:
            self._ask(slot, served, message)

    def _ask(self, slot: Slot, served: Served, message: Any) -> None:
        exchange = served.exchange(message, self._questions, self._world)
        answers = Answers(
            len(exchange.questions), partial(self._answer, slot, message, exchange), self._flow.outgoing.hold
        )
        self._questions.expect(exchange.questions)
        self._flow.bound()
        self._questions.send(exchange.questions, answers)

    def _answer(self, slot: Slot, message: Any, exchange: Exchange, answers: Sequence[AnyAnswer]) -> None:
        """Send the response, or hold it for a notice of a rebalance."""
        self._questions.answered(exchange.questions)
        try:
            response = encode(exchange.respond(answers), slot.header)
        except Exception as error:
            self._flow.fail(error)
            return
        match answers:
            case [JoinGroupAnswer(code=0, member_id=member_id)]:
                self._heartbeats.joined(member_id, message.session_timeout_ms)
            case [HeartbeatAnswer(code=0)] if self._flow.slots.is_only(slot):
                if self._heartbeats.hold(slot, message.member_id, response):
                    self._flow.count(slot)
                    return
        self._flow.answer(slot, response)
