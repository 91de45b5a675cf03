"""The answers to the requests of one exchange, collected until all have come."""

from collections.abc import Callable, Sequence
from typing import cast

from coordinator.base.errors import ErrorCode
from coordinator.messages.responses import AnyAnswer, ErrorAnswer
from streaming.gateway.protocol.limits import ONE_ANSWER_BYTES_MAX

TOO_MUCH = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The error that replaces an answer that is too large. Clients repeat the request for its group."""


class ReplyCollector:
    """A collector that gets answers in any order, and passes them on in the order of their requests.

    Args:
        count: The number of answers; with 0, `done` is called at once.
        done: The function that gets all answers.
        hold: Called with the number of bytes that are held in addition; below 0 for released bytes.
    """

    __slots__ = ("_bytes", "_done", "_hold", "_left", "_taken")

    def __init__(
        self, count: int, done: Callable[[Sequence[AnyAnswer]], None], hold: Callable[[int], None] = lambda _: None
    ) -> None:
        self._taken: list[AnyAnswer | None] = [None] * count
        self._left, self._done, self._hold, self._bytes = count, done, hold, 0
        if not count:
            done([])

    def handle(self, index: int, answer: AnyAnswer, size: int) -> None:
        """Store the answer to one request. Each request has one answer.

        Args:
            size: The bytes of its record. If all answers would exceed `ONE_ANSWER_BYTES_MAX`, an error replaces this
                one.
        """
        if self._bytes + size > ONE_ANSWER_BYTES_MAX:
            answer, size = ErrorAnswer(request_id=answer.request_id, error=TOO_MUCH.name, code=TOO_MUCH.number), 0
        self._taken[index] = answer
        self._left -= 1
        self._bytes += size
        self._hold(size)
        if not self._left:
            self.forget()
            self._done(cast(Sequence[AnyAnswer], self._taken))

    def forget(self) -> None:
        """Release the held bytes."""
        self._hold(-self._bytes)
        self._bytes = 0
