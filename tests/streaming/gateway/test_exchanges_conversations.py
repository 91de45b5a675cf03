"""The conversations held with Kafka's coordinator, held with ours by clients of Kafka: the wire must change nothing.

Each request is written as a stock client of its version writes it, read and translated as the gateway does, answered by
the real coordinator, and its answer goes the same way back. Whoever asks so must hear what those hear who ask over the
topics; where the two are meant to differ, what Kafka says.
"""

from typing import NamedTuple

import pytest

from coordinator.outputs import AnyAnswer, RebalanceNotice, Reply
from tests.differential import wire
from tests.differential.language import Conversation, Heard, Line
from tests.differential.ours import Ours
from tests.differential.talk import hold
from tests.differential.test_conversations import CONVERSATIONS
from tests.differential.theirs import RULES
from tests.differential.transcript import Asked, Step
from tests.streaming.gateway.wiring import Asking, Place, Somebody, ask

OF_A_GATEWAY = {"unknown topics", "a sync without a protocol"}
"""Differences from Kafka that there are over the topics, and through a gateway are not."""


class Pending(NamedTuple):
    asked: Asked
    asking: Asking


class OurselvesThroughAGateway(Ours):
    """Our coordinator as clients see it that speak Kafka's protocol. It has every group; t and u are the topics."""

    def __init__(self) -> None:
        super().__init__(RULES)
        self._pending: dict[str | None, Pending] = {}
        self._heard: list[tuple[Asked, AnyAnswer]] = []

    def ask(self, asked: Asked) -> None:
        request = asked.request
        who = {"reply_to": request.reply_to, "client_id": request.client_id, "client_host": request.client_host}
        message = wire.message(request, asked.version)
        asking = ask(message, asked.version, Somebody(who, prefix=f"{request.request_id}."), Place(has_all=True))
        if not asking.requests:
            self._heard.append((asked, wire.answer(request, asked.version, asking.hears())))
        for question in asking.requests:
            self._pending[question.request_id] = Pending(asked, asking)
            self._fresh += self._step(question)

    def hear(self, expected: tuple[Heard, ...]) -> list[tuple[Asked, AnyAnswer]]:
        answers = [output.answer for output in self._fresh if isinstance(output, Reply)]
        heard = self._heard + [self._told(a) for a in answers if not isinstance(a, RebalanceNotice)]
        self._fresh, self._heard = [], []
        return heard

    def _told(self, answer: AnyAnswer) -> tuple[Asked, AnyAnswer]:
        asked, asking = self._pending[answer.request_id]
        return asked, wire.answer(asked.request, asked.version, asking.hears(answer))


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda c: c.slug)
def test_a_gateway_changes_nothing(conversation: Conversation):
    """S56: every request of every version, as stock clients write it."""
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
