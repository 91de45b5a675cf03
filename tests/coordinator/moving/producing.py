"""A producer that commits offsets inside transactions, in a simulation of moves, and the topics that have their ends.

Each coordinator has a transactions topic of its own. A transaction has one commit. Its record is written for the
coordinator that is asked; if that one refuses the commit, another record is written where the producer goes then. All
records of a transaction end in the same way.
"""

from random import Random
from typing import Any

from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import EndedTransaction, OpenTransaction
from coordinator.messages.responses import SettleTransactionsAnswer, TxnOffsetCommitAnswer
from tests.coordinator.moving.client import Client


class Topic:
    """The transactions topic of one coordinator: the records of the transactions, and how these have ended.

    Args:
        end: The place of the next record.
        open: The places of open transactions.
        ended: The transactions that have ended.
    """

    def __init__(self) -> None:
        self.end = 0
        self.open: set[int] = set()
        self.ended: list[EndedTransaction] = []

    def write(self) -> int:
        """Write a record of an open transaction. Return its place."""
        self.end += 1
        self.open.add(self.end - 1)
        return self.end - 1

    def finish(self, places: set[int], *, commits: bool) -> int:
        """End a transaction. Return the offset of its end."""
        self.open -= places
        if places:
            self.ended.append(EndedTransaction(1, min(places), self.end, commits))
            self.end += 1
        return self.end - 1

    def report(self, settled: int) -> dict[str, Any]:
        """Return the fields of the report that the driver sends if the shard has settled all before a place."""
        return {
            "settled_from": settled,
            "settled_before": self.end,
            "ended": tuple(each for each in self.ended if each.end >= settled),
            "open": tuple(OpenTransaction(1, min(self.open)) for _ in self.open)[:1],
        }


class Producer(Client):
    """The client of a name that commits its offsets inside transactions.

    Args:
        topics: The transactions topic of each coordinator.
        places: The records of its transaction, by coordinator.
        accepted: The coordinator that has accepted the commit of the open transaction, and its place there.
        ended: The coordinator of the last transaction, and the offset of its end there, until it is settled.
        visible: The offsets of the committed transactions.
    """

    def __init__(self, name: str, chance: Random) -> None:
        super().__init__(name)
        self.chance = chance
        self.topics = {"A": Topic(), "B": Topic()}
        self.places: dict[str, set[int]] = {"A": set(), "B": set()}
        self.accepted: tuple[str, int] | None = None
        self.ended: tuple[str, int] | None = None
        self.is_open = False
        self.visible = {0}

    def begin(self) -> None:
        """Begin a transaction with the next offset, unless one is open: then its commit is sent again."""
        if not self.is_open:
            self.is_open = True
            self.offset += 1

    def write(self) -> int:
        """Write a record for the coordinator that is asked. Return its place."""
        place = self.topics[self.where].write()
        self.places[self.where].add(place)
        return place

    def end(self) -> None:
        """Commit the transaction, or abort it."""
        commits = self.chance.random() < 0.7
        ends = {side: self.topics[side].finish(places, commits=commits) for side, places in self.places.items()}
        self.places = {side: set() for side in ends}
        self.ended = None if self.accepted is None else (self.accepted[0], ends[self.accepted[0]])
        self.is_open, self.accepted = False, None
        if commits:
            self.visible.add(self.offset)

    def note(self, by: str, answer: Any) -> None:
        """Store what an answer says."""
        if isinstance(answer, SettleTransactionsAnswer):
            self._note_settled(by, answer)
        if not isinstance(answer, TxnOffsetCommitAnswer) or answer.request_id not in self.asked:
            return
        self.asked = set()
        error = ErrorCode[answer.partitions[0].error]
        if error is ErrorCode.NONE:
            self.accepted = by, max(self.places[by])
        elif error is ErrorCode.NOT_COORDINATOR:
            self.follow(by, answer)
        else:
            assert error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"a commit in a transaction got {error}"

    def _note_settled(self, by: str, answer: SettleTransactionsAnswer) -> None:
        if self.ended is not None and self.ended[0] == by and self.ended[1] < answer.settled_before:
            self.acked = max(offset for offset in self.visible if offset <= self.offset)
            self.ended = None
