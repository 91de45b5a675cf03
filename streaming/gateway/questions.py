"""One connection's questions to the coordinator: who asks, and where the answers come.

Each connection has an inbox of its own, so that the coordinator tells two clients of one gateway apart.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from coordinator.limits import NAME_CHARS_MAX
from coordinator.outputs import RebalanceNotice
from streaming.gateway.answers import Answers
from streaming.gateway.asking import Asking
from streaming.gateway.authenticating import Identity
from streaming.gateway.exchanges.exchange import Question


class Questions:
    """Asks for one connection; the `Asker` that exchanges see.

    Args:
        unanswered: The ids of the questions that have no answer yet. They are added and removed here.
        on_notice: Called with a notice that comes to the inbox and answers no question.
    """

    def __init__(
        self,
        asking: Asking,
        identity: Identity,
        unanswered: set[str],
        on_notice: Callable[[RebalanceNotice], object],
    ) -> None:
        self._asking, self._identity, self._unanswered, self._on_notice = asking, identity, unanswered, on_notice
        self._inbox = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields that every request has besides its group id. The request id is a new one at each call."""
        self._inbox = self._inbox or self._asking.open_inbox(self._on_notice)
        return {
            "request_id": self._asking.request_id(),
            "reply_to": self._inbox,
            "client_id": self._identity.client_id[:NAME_CHARS_MAX],
            "client_host": self._identity.host,
            "principal": self._identity.principal,
        }

    def expect(self, questions: tuple[Question, ...]) -> None:
        """Count questions as unanswered, before the first of them is sent."""
        self._unanswered.update(question.request.request_id for question in questions)

    def send(self, questions: tuple[Question, ...], answers: Answers) -> None:
        """Send questions, and have their answers collected."""
        for index, question in enumerate(questions):
            self._asking.send(question.request, partial(answers.take, index), question.shard)

    def answered(self, questions: tuple[Question, ...]) -> None:
        """Count questions as answered."""
        self._unanswered.difference_update(question.request.request_id for question in questions)

    def close(self) -> None:
        """Close the inbox. Answers that come later are dropped."""
        self._asking.close_inbox(self._inbox)
        self._asking.forget(self._inbox, self._unanswered)
