"""What a connection has been asked and has not answered yet: answers go out in the order of the requests."""

import time
from collections import deque
from dataclasses import dataclass, field

from streaming.gateway.apis import Api
from streaming.gateway.messages import Header


@dataclass(slots=True, eq=False)
class Slot:
    """One request's place in the row.

    Args:
        answer: All of it, with its length; None until it is there, and for good where it is passed on piece by piece.
        is_wanted_whole: Whether an answer of a broker's is read here before it goes out.
    """

    api: Api
    header: Header
    is_wanted_whole: bool = False
    answer: bytes | None = None
    since_s: float = field(default_factory=time.monotonic)


class Slots:
    """The row."""

    def __init__(self) -> None:
        self._row: deque[Slot] = deque()

    def __len__(self) -> int:
        return len(self._row)

    def add(self, slot: Slot) -> Slot:
        self._row.append(slot)
        return slot

    def is_first(self, slot: Slot) -> bool:
        return bool(self._row) and self._row[0] is slot

    def is_only(self, slot: Slot) -> bool:
        return len(self._row) == 1 and self._row[0] is slot

    def pass_first(self) -> None:
        """Take out the first one, which was answered piece by piece."""
        self._row.popleft()

    def ready(self) -> list[bytes]:
        """Take out all answers whose turn it is."""
        answers: list[bytes] = []
        while self._row and (answer := self._row[0].answer) is not None:
            answers.append(answer)
            self._row.popleft()
        return answers
