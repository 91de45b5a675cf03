"""The answers to the questions of one exchange, until all of them are there."""

from collections.abc import Callable, Sequence
from typing import cast

from coordinator.errors import ErrorCode
from coordinator.outputs import AnyAnswer, ErrorAnswer
from streaming.gateway.limits import ONE_ANSWER_BYTES_MAX

TOO_MUCH = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""Clients ask again about the groups that hear this."""


class Answers:
    """Takes them in whatever order they come, and hands them on in the order of the questions.

    Args:
        count: How many there will be; where it is 0, they are handed on at once.
        done: What they are handed to.
        hold: Called with the bytes that are held from now on; below 0 for such as are held no longer.
    """

    __slots__ = ("_bytes", "_done", "_hold", "_left", "_taken")

    def __init__(
        self, count: int, done: Callable[[Sequence[AnyAnswer]], None], hold: Callable[[int], None] = lambda _: None
    ) -> None:
        self._taken: list[AnyAnswer | None] = [None] * count
        self._left, self._done, self._hold, self._bytes = count, done, hold, 0
        if not count:
            done([])

    def take(self, index: int, answer: AnyAnswer, size: int) -> None:
        """Take the answer to one question, which comes once.

        Args:
            size: The bytes of its record. Where all would come to more than `ONE_ANSWER_BYTES_MAX`, it is an error.
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
        """Hold no bytes any more."""
        self._hold(-self._bytes)
        self._bytes = 0
