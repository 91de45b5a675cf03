"""The transactions that clients have ended, and whose offsets the coordinator may not have settled yet.

With Kafka's own coordinator the offsets of a transaction take effect with its end. Here they do a batch later, and some
clients fetch them before that without requiring stable offsets (sarama, KafkaJS). So a fetch waits until they are
settled. Only the ends of transactions with commits through this gateway are known, and only for a short time.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

SETTLE_WAIT_S = 2.0
"""The longest wait of a fetch, from the end of a transaction on: several batches."""

TRANSACTIONS_MAX = 10_000
"""The open transactions, and the commits of ended ones, that a gateway remembers. Beyond it the oldest are forgotten,
and a fetch does not wait for them."""

GROUPS_MAX = 10
"""The groups of one open transaction that are remembered. Nearly all transactions have the offsets of one group."""


class Commit(NamedTuple):
    """The commit of a group inside a transaction, with one of its partitions: all of them are settled together.

    Args:
        until_s: The monotonic time up to which a fetch waits; infinity while the transaction is open.
    """

    group_id: str
    topic: str
    partition: int
    until_s: float = float("inf")


class Ends:
    """The ends of the transactions of all connections of a gateway. The event loop calls all methods.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open = OrderedDict[int, dict[str, Commit]]()
        self._unsettled = OrderedDict[tuple[str, int], Commit]()
        """By group and producer, the first to end first."""

    def committed(self, producer_id: int, commit: Commit) -> None:
        """Note the latest commit of a group inside a producer's transaction."""
        commits = self._open.setdefault(producer_id, {})
        self._open.move_to_end(producer_id)
        if commit.group_id in commits or len(commits) < GROUPS_MAX:
            commits[commit.group_id] = commit
        if len(self._open) > TRANSACTIONS_MAX:
            self._open.popitem(last=False)

    def ended(self, producer_id: int) -> None:
        """Note that a producer ends its transaction."""
        self._forget_late()
        until_s = self._clock() + SETTLE_WAIT_S
        for group_id, commit in self._open.pop(producer_id, {}).items():
            self._unsettled[group_id, producer_id] = commit._replace(until_s=until_s)
            self._unsettled.move_to_end((group_id, producer_id))
        while len(self._unsettled) > TRANSACTIONS_MAX:
            self._unsettled.popitem(last=False)

    def unsettled(self, group_id: str) -> list[Commit]:
        """Return the commits of a group whose transactions have ended, and that may not be settled."""
        self._forget_late()
        return [commit for (named, _), commit in self._unsettled.items() if named == group_id]

    def settled(self, commit: Commit) -> None:
        """Note that a commit is settled."""
        for key in [key for key, each in self._unsettled.items() if each == commit]:
            del self._unsettled[key]

    def _forget_late(self) -> None:
        now_s = self._clock()
        while self._unsettled and next(iter(self._unsettled.values())).until_s <= now_s:
            self._unsettled.popitem(last=False)
