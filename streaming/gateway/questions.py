"""One connection's questions to the coordinator, which are requests for a client.

Each connection has its own mailbox, so that the coordinator can distinguish two clients of one gateway.
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
    """The sender of one connection's questions: the `Asker` of exchanges.

    Args:
        unanswered: The ids of the questions that have no answer yet. This class adds and removes them.
        on_notice: Called with each notice that comes to the mailbox.
    """

    def __init__(
        self,
        asking: Asking,
        identity: Identity,
        unanswered: set[str],
        on_notice: Callable[[RebalanceNotice], object],
    ) -> None:
        self._asking, self._identity, self._unanswered, self._on_notice = asking, identity, unanswered, on_notice
        self._mailbox = ""

    def fields(self) -> dict[str, Any]:
        """Return the fields of every request except the group id. Each call returns a new request id."""
        self._mailbox = self._mailbox or self._asking.open_inbox(self._on_notice)
        return {
            "request_id": self._asking.request_id(),
            "reply_to": self._mailbox,
            "client_id": self._identity.client_id[:NAME_CHARS_MAX],
            "client_host": self._identity.host,
            "principal": self._identity.principal,
        }

    def expect(self, questions: tuple[Question, ...]) -> None:
        """Count questions as unanswered, before the first of them is sent."""
        self._unanswered.update(question.request.request_id for question in questions)

    def send(self, questions: tuple[Question, ...], answers: Answers) -> None:
        """Send questions. `answers` collects their answers."""
        for index, question in enumerate(questions):
            self._asking.send(question.request, partial(answers.take, index), question.shard)

    def answered(self, questions: tuple[Question, ...]) -> None:
        """Count questions as answered."""
        self._unanswered.difference_update(question.request.request_id for question in questions)

    def close(self) -> None:
        """Close the mailbox. Later answers are dropped."""
        self._asking.close_inbox(self._mailbox)
        self._asking.forget(self._mailbox, self._unanswered)
