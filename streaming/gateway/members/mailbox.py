"""One connection's questions to the coordinator, which are requests for a client.

Each connection has its own mailbox, so that the coordinator can distinguish two clients of one gateway.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from coordinator.base.limits import NAME_CHARS_MAX
from coordinator.messages.heartbeats import AnyHeartbeat, Heartbeat
from coordinator.messages.responses import AnyAnswer, RebalanceNotice
from streaming.gateway.coordinator.replies import ReplyCollector
from streaming.gateway.coordinator.routing import Coordinators
from streaming.gateway.exchanges.exchange import CoordinatorRequest
from streaming.gateway.security.authenticate import Identity
from streaming.wire.inbox import OnAnswer


class Mailbox:
    """The sender of one connection's questions: the `Asker` of exchanges.

    Args:
        outstanding: The ids of the questions that have no answer yet. This class adds and removes them.
        on_notice: Called with each notice that comes to the mailbox.
        hold: Called with the number of bytes of answers that are held in addition; below 0 for released bytes.
    """

    def __init__(
        self,
        coordinators: Coordinators,
        identity: Identity,
        outstanding: set[str],
        on_notice: Callable[[RebalanceNotice], object],
        hold: Callable[[int], None],
    ) -> None:
        self._coordinators, self._identity, self._outstanding, self._on_notice = (
            coordinators,
            identity,
            outstanding,
            on_notice,
        )
        self._hold, self._mailbox = hold, ""

    def fields(self) -> dict[str, Any]:
        """Return the fields of every request except the group id. Each call returns a new request id."""
        self._mailbox = self._mailbox or self._coordinators.open_inbox(self._on_notice)
        return {
            "request_id": self._coordinators.request_id(),
            "reply_to": self._mailbox,
            "client_id": self._identity.client_id[:NAME_CHARS_MAX],
            "client_host": self._identity.host,
            "principal": self._identity.principal,
        }

    def ask(self, requests: Sequence[CoordinatorRequest], then: Callable[[Sequence[AnyAnswer]], object]) -> None:
        """Send questions, and call `then` with their answers in the order of the questions."""
        self._coordinators.batchers.send_prompt()
        ids = [request.request.request_id for request in requests]

        def done(answers: Sequence[AnyAnswer]) -> None:
            self._outstanding.difference_update(ids)
            then(answers)

        self._outstanding.update(ids)
        answers = ReplyCollector(len(ids), done, self._hold)
        for index, request in enumerate(requests):
            self._coordinators.send(request.request, partial(answers.handle, index), request.shard, request.at)

    def gather(self, heartbeat: AnyHeartbeat, ticks: int, then: Callable[[Sequence[AnyAnswer]], object]) -> None:
        """Send a heartbeat at a tick whose number is a multiple of `ticks`, and call `then` with its answer."""
        self._coordinators.batchers.add(heartbeat, self._awaited(heartbeat, then), ticks)

    def gather_prompt(self, heartbeat: Heartbeat, then: Callable[[Sequence[AnyAnswer]], object]) -> None:
        """Send a heartbeat in the event loop's next turn, and call `then` with its answer."""
        self._coordinators.batchers.add_prompt(heartbeat, self._awaited(heartbeat, then))

    def _awaited(self, heartbeat: AnyHeartbeat, then: Callable[[Sequence[AnyAnswer]], object]) -> OnAnswer:
        def done(answer: AnyAnswer, _: int) -> None:
            self._outstanding.discard(heartbeat.request_id)
            then((answer,))

        self._outstanding.add(heartbeat.request_id)
        return done

    def send_now(self, heartbeat: AnyHeartbeat) -> None:
        """Send a heartbeat at once that still waits for the next tick."""
        self._coordinators.batchers.send_now(heartbeat)

    async def answer_to(self, request: CoordinatorRequest, within_s: float) -> AnyAnswer:
        """Send a question, and return its answer.

        Raises:
            TimeoutError: No answer has come within that time.
        """
        answered: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()

        def handle(answers: Sequence[AnyAnswer]) -> None:
            if not answered.done():
                answered.set_result(answers[0])

        self.ask((request,), handle)
        return await asyncio.wait_for(answered, within_s)

    def close(self) -> None:
        """Close the mailbox. Later answers are dropped."""
        self._coordinators.close_inbox(self._mailbox)
        self._coordinators.batchers.forget(self._outstanding)
        self._coordinators.forget(self._mailbox, self._outstanding)
