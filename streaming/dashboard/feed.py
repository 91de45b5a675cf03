"""What has changed lately, numbered, so that whoever was away for a while is told what it missed.

A reader keeps the number of the latest change that it was told, as `EPOCH-NUMBER`. There is one list for all:
whoever is slow keeps nothing waiting and costs nothing, and where the list no longer reaches back to it, it has to look
at everything anew. The same holds for a number of another epoch, that is of another process or from before a gap.
"""

import secrets
from collections import deque
from itertools import islice
from typing import NamedTuple

from coordinator.outputs import AnyEvent

CHANGES_MAX = 20_000
"""Some minutes of a busy coordinator, in a few megabytes."""


class Change(NamedTuple):
    """A group is not as it was; with the event that says so, where there is one."""

    cursor: str
    group_id: str
    event: AnyEvent | None


class Feed:
    """The latest changes. It has no lock of its own.

    Args:
        changes_max: How many are kept.
    """

    def __init__(self, changes_max: int = CHANGES_MAX) -> None:
        self.epoch = secrets.token_hex(4)
        self.number = 0
        self._ring: deque[Change] = deque(maxlen=changes_max)

    def add(self, group_id: str, event: AnyEvent | None = None) -> None:
        """Note a change."""
        self.number += 1
        self._ring.append(Change(self.cursor(self.number), group_id, event))

    def renew(self) -> None:
        """Begin another epoch: what has changed in between, nobody has noted."""
        self.epoch = secrets.token_hex(4)
        self._ring.clear()

    def since(self, cursor: str) -> list[Change] | None:
        """Return what came after a cursor; None where that cannot be said any more."""
        epoch, _, told = cursor.partition("-")
        if epoch != self.epoch or not (told.isascii() and told.isdigit() and len(told) < 20):
            return None
        missed = self.number - int(told)
        if not 0 <= missed <= len(self._ring):
            return None
        return list(islice(reversed(self._ring), missed))[::-1]

    def cursor(self, number: int) -> str:
        """Name a change of this epoch."""
        return f"{self.epoch}-{number}"
