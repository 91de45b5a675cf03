"""The latest changes, numbered, so that a reader that was disconnected can catch up.

A reader keeps the number of the last change that it received, as `EPOCH-NUMBER`. All readers share one list, so a slow
reader delays no other reader and needs no memory. If the list no longer reaches back to its number, it must load
everything again. The same holds for a number of another epoch: one of another process, or from before a gap.
"""

import secrets
from collections import deque
from itertools import islice
from typing import NamedTuple

from coordinator.messages.events import AnyEvent

CHANGES_MAX = 20_000
"""Some minutes of a busy coordinator, in a few megabytes."""


class Change(NamedTuple):
    """A change of a group, with its event, if it has one."""

    cursor: str
    group_id: str
    event: AnyEvent | None


class Feed:
    """The latest changes. It has no lock of its own.

    Args:
        changes_max: The number of kept changes.
    """

    def __init__(self, changes_max: int = CHANGES_MAX) -> None:
        self.epoch = secrets.token_hex(4)
        self.number = 0
        self._latest: deque[Change] = deque(maxlen=changes_max)

    def add(self, group_id: str, event: AnyEvent | None = None) -> None:
        """Add a change."""
        self.number += 1
        self._latest.append(Change(self.cursor(self.number), group_id, event))

    def renew(self) -> None:
        """Start another epoch, since the changes in between are unknown."""
        self.epoch = secrets.token_hex(4)
        self._latest.clear()

    def since(self, cursor: str) -> list[Change] | None:
        """Return the changes after a cursor; None if they are no longer known."""
        epoch, _, told = cursor.partition("-")
        if epoch != self.epoch or not (told.isascii() and told.isdigit() and len(told) < 20):
            return None
        missed = self.number - int(told)
        if not 0 <= missed <= len(self._latest):
            return None
        return list(islice(reversed(self._latest), missed))[::-1]

    def cursor(self, number: int) -> str:
        """Return the cursor of a change of this epoch."""
        return f"{self.epoch}-{number}"
