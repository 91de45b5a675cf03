"""The transactions that clients have ended, and whose offsets the coordinator may not have settled yet.

With Kafka's own coordinator the offsets of a transaction take effect with its end. Here they do a batch later, and some
clients fetch them before that without requiring stable offsets (sarama, KafkaJS). So a fetch waits until they are
settled. Only the ends of transactions with commits through this gateway are known, and only for a short time.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, TypeVar

Key = TypeVar("Key", int, str)

SETTLE_WAIT_S = 2.0
"""The longest wait of a fetch, from the end of a transaction on: several batches."""

TRANSACTIONS_MAX = 10_000
"""The open transactions, and the groups with ended ones, that a gateway remembers. Beyond it the oldest are forgotten,
and a fetch does not wait for them."""


class Commit(NamedTuple):
    """A commit inside a transaction, with one of its partitions: all of them are settled together.

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
        self._open = OrderedDict[int, Commit]()
        self._unsettled = OrderedDict[str, Commit]()

    def committed(self, producer_id: int, commit: Commit) -> None:
        """Note the latest commit inside a producer's transaction."""
        _put(self._open, producer_id, commit)

    def ended(self, producer_id: int) -> None:
        """Note that a producer ends its transaction."""
        if (commit := self._open.pop(producer_id, None)) is not None:
            _put(self._unsettled, commit.group_id, commit._replace(until_s=self._clock() + SETTLE_WAIT_S))

    def unsettled(self, group_id: str) -> Commit | None:
        """Return the latest ended transaction's commit of a group, if it may not be settled."""
        commit = self._unsettled.get(group_id)
        if commit is None or self._clock() < commit.until_s:
            return commit
        del self._unsettled[group_id]
        return None

    def settled(self, commit: Commit) -> None:
        """Note that a commit is settled."""
        if self._unsettled.get(commit.group_id) == commit:
            del self._unsettled[commit.group_id]


def _put(kept: OrderedDict[Key, Commit], key: Key, commit: Commit) -> None:
    kept[key] = commit
    kept.move_to_end(key)
    if len(kept) > TRANSACTIONS_MAX:
        kept.popitem(last=False)
