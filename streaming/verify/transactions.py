"""Offsets inside transactions: those of a committed transaction are published, and those of an aborted one never.

The requests of a shard show which commits were accepted, each with its place, and the reports show how the transactions
of these places ended. A commit of an aborted transaction is recognized by its offset. So it is not judged if another
commit of the partition has the same offset, or if requests are gone that may have had it.

Source: `coordinator.common.transactions`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import (
    DeleteGroup,
    EndedTransaction,
    OffsetCommit,
    OffsetDelete,
    Request,
    SettleTransactions,
    TxnOffsetCommit,
)
from coordinator.messages.responses import AnyAnswer, SettleTransactionsAnswer, TxnOffsetCommitAnswer

Key = tuple[str, str, int]
"""A group, a topic and a partition."""

CUT_MS = 60_000
"""Of a partition whose oldest requests are gone, aborted commits that are younger than the oldest kept one by less are
not judged."""


class Pending(NamedTuple):
    """A commit of one partition inside a transaction.

    Args:
        number: The number of its request among those of the shard.
        is_accepted: Whether the response acknowledges it. Without a response, it may have been refused.
    """

    key: Key
    offset: int
    transaction: int
    number: int
    at_ms: int
    where: str
    is_accepted: bool


class Stored(NamedTuple):
    """A commit whose transaction was committed, and that no later request has replaced.

    Args:
        settled_ms: The time of the report.
    """

    commit: Pending
    settled_ms: int


class Transactions(Struct):
    """The transactions of one shard, from its requests in their order.

    Args:
        topic_id: The id of the transactions topic that the places belong to.
        pending: By place, the commits of transactions that have not ended.
        producers: By place, the producer of these commits.
        aborted: The commits of aborted transactions.
        offsets: By partition, the offsets of all other commits.
        replaced: By partition, the number of the last commit outside transactions; `deleted` by group, of a deletion.
        stored: By partition, the commit of the latest committed transaction.
        ended: The places of all committed transactions.
        is_whole: Whether the requests of all of them were read.
    """

    topic_id: str = ""
    number: int = 0
    pending: dict[int, list[Pending]] = field(default_factory=dict)
    producers: dict[int, int] = field(default_factory=dict)
    aborted: list[Pending] = field(default_factory=list)
    offsets: dict[Key, set[int]] = field(default_factory=dict)
    replaced: dict[Key, int] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    stored: dict[Key, Stored] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    is_whole: bool = True

    def add(self, request: Request, answer: AnyAnswer | None, at_ms: int, where: str) -> None:
        """Read the next request of the shard.

        Args:
            answer: Its only response; None if it has none or several.
        """
        self.number += 1
        match request:
            case TxnOffsetCommit():
                self._open(request, answer, at_ms, where)
            case SettleTransactions():
                self._settle(request, answer, at_ms)
            case OffsetCommit():
                for commit in request.offsets:
                    key = request.group_id, commit.topic, commit.partition
                    self.replaced[key] = self.number
                    self.offsets.setdefault(key, set()).add(commit.offset)
            case OffsetDelete() | DeleteGroup():
                self.deleted[request.group_id] = self.number

    def _open(self, request: TxnOffsetCommit, answer: AnyAnswer | None, at_ms: int, where: str) -> None:
        if self.topic_id and request.topic_id not in {"", self.topic_id}:
            return  # its place is one of another topic, so it was refused
        codes = [each.code for each in answer.partitions] if isinstance(answer, TxnOffsetCommitAnswer) else []
        commits = self.pending.setdefault(request.place, [])
        self.producers[request.place] = request.producer_id
        for index, commit in enumerate(request.offsets):
            is_accepted = index < len(codes) and codes[index] == ErrorCode.NONE.number
            if is_accepted or not codes:
                self.topic_id = self.topic_id or request.topic_id
                key = request.group_id, commit.topic, commit.partition
                commits.append(
                    Pending(key, commit.offset, request.place, self.number, at_ms, where, is_accepted=is_accepted)
                )

    def _settle(self, request: SettleTransactions, answer: AnyAnswer | None, at_ms: int) -> None:
        is_handled = isinstance(answer, SettleTransactionsAnswer) and not answer.code
        topic_id = answer.topic_id if isinstance(answer, SettleTransactionsAnswer) else request.topic_id
        if self.topic_id and topic_id != self.topic_id:
            self._abort(list(self.pending), is_certain=is_handled)
        self.topic_id = topic_id
        if request.topic_id != topic_id:
            return
        before = request.settled_before
        if isinstance(answer, SettleTransactionsAnswer):
            before = min(before, answer.settled_before)
        ended = [each for each in request.ended if each.end < before]
        firsts = [each.first for each in ended if each.is_committed]
        self.is_whole = self.is_whole and all(first in self.pending or first in self.ended for first in firsts)
        for each in ended:
            places = [place for place in sorted(self.pending) if self._is_of(each, place)]
            if not each.is_committed:
                self._abort(places, is_certain=is_handled)
                continue
            self.ended.update(places)
            for commit in (commit for place in places for commit in self._end(place)):
                self.offsets.setdefault(commit.key, set()).add(commit.offset)
                if is_handled and commit.is_accepted:
                    self._store(Stored(commit, at_ms))

    def _is_of(self, transaction: EndedTransaction, place: int) -> bool:
        is_within = transaction.first <= place <= transaction.end
        return is_within and self.producers[place] == transaction.producer_id

    def _abort(self, places: list[int], *, is_certain: bool) -> None:
        for place in places:
            for commit in self._end(place):
                if is_certain:
                    self.aborted.append(commit)
                else:
                    self.offsets.setdefault(commit.key, set()).add(commit.offset)

    def _end(self, place: int) -> list[Pending]:
        del self.producers[place]
        return self.pending.pop(place)

    def _store(self, stored: Stored) -> None:
        """Note a commit as the latest one of its partition, unless a later transaction has stored another."""
        before = self.stored.get(stored.commit.key)
        if before is None or before.commit.transaction < stored.commit.transaction:
            self.stored[stored.commit.key] = stored

    def kept(self) -> Iterator[Stored]:
        """Yield the commits of committed transactions that have to be published, at the end of the shard's requests."""
        for key, stored in self.stored.items():
            if max(self.replaced.get(key, 0), self.deleted.get(key[0], 0)) < stored.commit.number:
                yield stored

    def never(self, from_ms: float) -> Iterator[Pending]:
        """Yield the commits of aborted transactions that may not be published, at the end of the shard's requests.

        Args:
            from_ms: The time of the oldest request that was read; minus infinity if none is gone.
        """
        for places in self.pending.values():
            for commit in places:
                self.offsets.setdefault(commit.key, set()).add(commit.offset)
        if self.is_whole:
            for commit in self.aborted:
                if commit.at_ms > from_ms + CUT_MS and commit.offset not in self.offsets.get(commit.key, ()):
                    yield commit
