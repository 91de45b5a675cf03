"""The answers to the questions of one exchange, until all of them are there."""

from collections.abc import Callable, Sequence
from typing import cast

from coordinator.outputs import AnyAnswer


class Answers:
    """Takes them in whatever order they come, and hands them on in the order of the questions.

    Args:
        count: How many there will be; where it is 0, they are handed on at once.
        done: What they are handed to.
    """

    __slots__ = ("_done", "_left", "_taken")

    def __init__(self, count: int, done: Callable[[Sequence[AnyAnswer]], None]) -> None:
        self._taken: list[AnyAnswer | None] = [None] * count
        self._left, self._done = count, done
        if not count:
            done([])

    def take(self, index: int, answer: AnyAnswer) -> None:
        """Take the answer to one question, which comes once."""
        self._taken[index] = answer
        self._left -= 1
        if not self._left:
            self._done(cast(Sequence[AnyAnswer], self._taken))
