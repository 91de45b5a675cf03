"""The wait until every member of a deployment has been served since a fault."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.system.waiting import wait_until

COMMITS = 2
"""The number of commits that must be acknowledged to a member after a fault. The second commit is sent after the first
response, and so after the fault."""


class Served:
    """Counts the acknowledged commits of members by their notes."""

    def __init__(self, histories: Sequence[Path]) -> None:
        self._read = dict.fromkeys(histories, 0)
        self._acknowledged = Counter(dict.fromkeys(histories, 0))

    def wait(self, check: Callable[[], object], account: Callable[[], str]) -> None:
        """Wait until every member is served.

        Args:
            check: Called before each look; it may raise an error.
            account: Returns more details for the message of a wait that is over.
        """
        self._count_new()
        before = Counter(self._acknowledged)

        def all_served() -> bool:
            check()
            self._count_new()
            return not self._unserved(before)

        wait_until(all_served, account=lambda: f"{self._unserved(before)}; {account()}")

    def _unserved(self, before: Counter[Path]) -> list[str]:
        return [file.name for file in self._read if self._acknowledged[file] < before[file] + COMMITS]

    def _count_new(self) -> None:
        """Count the acknowledged commits of each member, in the notes since the last call."""
        for file, place in self._read.items():
            with file.open("rb") as history:
                history.seek(place)
                lines, _, _ = history.read().rpartition(b"\n")
            self._acknowledged[file] += lines.count(b'"acknowledged"')
            self._read[file] = place + len(lines)
