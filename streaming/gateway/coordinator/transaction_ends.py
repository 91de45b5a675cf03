"""The transactions that clients have ended, and whose offsets the coordinator may not have settled yet.

With Kafka's own coordinator the offsets of a transaction take effect with its end. Here they do a batch later, and some
clients fetch them before that without requiring stable offsets (sarama, KafkaJS). So a fetch waits until they are
settled. Only the ends of transactions with commits through this gateway are known, and only for a short time.
"""

import time
from collections import OrderedDict, defaultdict, deque
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
        self._unsettled = defaultdict[str, dict[int, Commit]](dict)
        """By group and producer."""

        self._ended = deque[tuple[int, Commit]]()
        """The producer and the commit of each ended transaction, the first to end first; some are settled."""

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
        until_s = self._clock() + SETTLE_WAIT_S
        for open_commit in self._open.pop(producer_id, {}).values():
            commit = open_commit._replace(until_s=until_s)
            self._unsettled[commit.group_id][producer_id] = commit
            self._ended.append((producer_id, commit))
        self._forget_late()

    def unsettled(self, group_id: str) -> list[Commit]:
        """Return the commits of a group whose transactions have ended, and that may not be settled."""
        self._forget_late()
        return list(self._unsettled.get(group_id, {}).values())

    def settled(self, commit: Commit) -> None:
        """Note that a commit is settled."""
        for producer_id in [each for each, its in self._unsettled.get(commit.group_id, {}).items() if its == commit]:
            self._forget(producer_id, commit)

    def _forget_late(self) -> None:
        now_s = self._clock()
        while self._ended and (self._ended[0][1].until_s <= now_s or len(self._ended) > TRANSACTIONS_MAX):
            self._forget(*self._ended.popleft())

    def _forget(self, producer_id: int, commit: Commit) -> None:
        if (commits := self._unsettled.get(commit.group_id)) and commits.get(producer_id) == commit:
            del commits[producer_id]
            if not commits:
                del self._unsettled[commit.group_id]
