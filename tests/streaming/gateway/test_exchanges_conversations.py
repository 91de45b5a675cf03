"""The conversations with Kafka's coordinator, repeated with ours through a gateway, with the same responses.

Each request is written as a stock client of its version writes it, read and translated as the gateway does, and
answered by the real coordinator. Its response is translated back. The client's response must equal the response over
the topics. Where the gateway differs from the topics on purpose, it must equal Kafka's response.
"""

from typing import NamedTuple

import pytest

from coordinator.messages.responses import AnyAnswer, RebalanceNotice, Reply
from streaming.gateway.exchanges.offsets import BY_ID
from tests.differential import wire
from tests.differential.language import Conversation, Heard, Line
from tests.differential.ours import Ours
from tests.differential.talk import hold
from tests.differential.test_conversations import CONVERSATIONS
from tests.differential.theirs import RULES
from tests.differential.transcript import ClientRequest, Step
from tests.streaming.gateway.wiring import FakeAsker, FakeGateway, SentRequest, ask

OF_A_GATEWAY = {"unknown topics", "a sync without a protocol"}
"""The differences from Kafka that exist over the topics, and not through a gateway."""


class Pending(NamedTuple):
    asked: ClientRequest
    asking: SentRequest


class OurselvesThroughAGateway(Ours):
    """Our coordinator for clients with Kafka's protocol. It coordinates every group, and its topics are t and u."""

    def __init__(self) -> None:
        super().__init__(RULES)
        self._pending: dict[str | None, Pending] = {}
        self._heard: list[tuple[ClientRequest, AnyAnswer]] = []

    def ask(self, asked: ClientRequest) -> None:
        request = asked.request
        who = {"reply_to": request.reply_to, "client_id": request.client_id, "client_host": request.client_host}
        message = wire.message(request, asked.version)
        asking = ask(message, asked.version, FakeAsker(who, prefix=f"{request.request_id}."), FakeGateway(has_all=True))
        if not asking.requests:
            self._heard.append((asked, wire.answer(request, asked.version, asking.response_to())))
        for question in asking.requests:
            self._pending[question.request_id] = Pending(asked, asking)
            self._fresh += self._step(question)

    def hear(self, expected: tuple[Heard, ...]) -> list[tuple[ClientRequest, AnyAnswer]]:
        answers = [output.answer for output in self._fresh if isinstance(output, Reply)]
        heard = self._heard + [self._response_to(a) for a in answers if not isinstance(a, RebalanceNotice)]
        self._fresh, self._heard = [], []
        return heard

    def _response_to(self, answer: AnyAnswer) -> tuple[ClientRequest, AnyAnswer]:
        asked, asking = self._pending[answer.request_id]
        return asked, wire.answer(asked.request, asked.version, asking.response_to(answer))


def has_topic_ids(line: Line) -> bool:
    """Return whether a request of the conversation, or its response, names topics by their ids."""
    by_id = line.verb in ("commit", "fetch") and line.options.get("v") == str(BY_ID)
    return by_id or line.verb in ("beat", "describe-consumer")


WITHOUT_TOPIC_IDS = [c for c in CONVERSATIONS if not any(map(has_topic_ids, c.lines))]
"""The conversations of the classic protocol. Those of the consumer protocol are held through a real gateway, because
they need a cluster's topic ids."""


@pytest.mark.parametrize("conversation", WITHOUT_TOPIC_IDS, ids=lambda c: c.slug)
def test_responses_through_a_gateway_are_the_same(conversation: Conversation):
    """S56: the conversations have every request in every version, as stock clients write it."""
    over_topics = hold(conversation, Ours(RULES), theirs=False)
    through_a_gateway = hold(conversation, OurselvesThroughAGateway(), theirs=False)
    for line, direct, translated in zip(conversation.lines, over_topics, through_a_gateway, strict=True):
        if line.difference in OF_A_GATEWAY:
            assert _codes(translated) == _expected(line)
        else:
            assert translated == direct


def _codes(step: Step) -> list[str]:
    return [codes for _, codes, _ in step.heard]


def _expected(line: Line) -> list[str]:
    return [heard.codes for heard in line.kafka]
