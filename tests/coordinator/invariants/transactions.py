"""Offsets inside transactions (docs/transactions.md): hidden while they are pending, then stored or dropped.

Only requests and answers tell the checkers which commits are pending: `Transactions` follows them. A repeat of a
request is the same commit: its transaction has one place in the transactions topic.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import RECORD_OFFSET_END
from coordinator.messages.events import GroupDeleted, OffsetsExpired
from coordinator.messages.group_records import OffsetRecord, Published
from coordinator.messages.outputs import Output
from coordinator.messages.requests import OffsetFetch, OffsetToCommit, SettleTransactions, TxnOffsetCommit
from coordinator.messages.responses import (
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    OffsetTopicsAnswer,
    Reply,
    RepublishGroupAnswer,
    SettleTransactionsAnswer,
    TxnOffsetCommitAnswer,
)
from coordinator.state.classic_group import Group
from coordinator.state.consumer_group import ConsumerGroup
from tests.coordinator.invariants.step import NONE, KnownRequests, Step, forgotten

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT.number
LATE = ErrorCode.INVALID_PRODUCER_EPOCH.number

Partition = tuple[str, int]
Value = tuple[int, int, str, str | None]
"""The offset, leader epoch, metadata and topic id of a commit."""

Commits = dict[int, dict[Partition, Value | None]]
"""Pending commits by place; None for a partition with a later commit: one that has replaced the offset, or
one of the same producer that was pending already."""

Stored = list[tuple[Partition, Value]]


@dataclass
class Taken:
    """A commit inside a transaction was answered.

    Args:
        is_late: Whether its transaction had ended.
        is_of_other_topic: Whether its place is not one of the shard's topic.
    """

    request: TxnOffsetCommit
    answer: TxnOffsetCommitAnswer
    is_late: bool
    is_of_other_topic: bool
    stored: Stored


@dataclass
class Fetched:
    """A fetch was answered.

    Args:
        pending: The partitions of the group with a pending offset.
        committed: The committed offsets of the group, as acknowledged commits and reports tell.
    """

    request: OffsetFetch
    answer: OffsetFetchAnswer
    pending: set[Partition]
    committed: dict[Partition, Value]


@dataclass
class Settled:
    """A report was answered.

    Args:
        expected: By group, the offsets of committed transactions, in the order of their places.
        stored: By group, the offsets that were stored.
    """

    request: SettleTransactions
    expected: dict[str, Stored]
    stored: dict[str, Stored]


@dataclass
class Ended:
    """A group ended, or offsets of it expired.

    Args:
        why: The reason of the event.
        pending: The partitions with a pending offset that it concerns.
    """

    group_id: str
    why: str
    pending: set[Partition]


Happening = Taken | Fetched | Settled | Ended


class Transactions:
    """The pending and the committed offsets of all groups, by requests and answers alone."""

    def __init__(self, asked: KnownRequests) -> None:
        self.asked = asked
        self.topic_id, self.settled_before = "", 0
        self.open: dict[int, int] = {}
        """By producer, the first place of the transaction that is open at `settled_before`."""

        self.producers: dict[int, int] = {}
        """By place, the producer of a pending commit."""

        self.pending: defaultdict[str, Commits] = defaultdict(dict)
        self.committed: defaultdict[str, dict[Partition, Value]] = defaultdict(dict)
        self.stored: defaultdict[str, Stored] = defaultdict(list)
        """The offsets that were stored since the last response that stores any."""

        self._deleted: dict[str, str] = {}
        self._latest: Step | None = None
        self._happened: list[Happening] = []

    def of(self, step: Step) -> list[Happening]:
        """Follow the outputs of a step once, and return what happened to transactions."""
        if step is not self._latest:
            self.asked.note(step)
            self._latest = step
            self._happened = [h for output in step.news if (h := self._follow(output)) is not None]
        return self._happened

    def _follow(self, output: Output) -> Happening | None:
        if isinstance(output, Reply):
            return self._answered(output)
        group_id = output.group_id or ""
        if isinstance(output, GroupDeleted):
            self._deleted[group_id] = output.why
        elif isinstance(output, OffsetsExpired):
            return Ended(group_id, "expired", self._unstable(group_id) & set(output.partitions))
        elif forgotten(output):
            pending = self._unstable(group_id)
            for memory in (self.pending, self.committed, self.stored):
                memory.pop(group_id, None)
            return Ended(group_id, self._deleted.pop(group_id, ""), pending)
        elif isinstance(output, Published) and output.key[0] == "offset":
            self._published(output, group_id)
        return None

    def _published(self, output: Published, group_id: str) -> None:
        if isinstance(output.record, OffsetRecord):
            record = output.record
            value = record.offset, record.leader_epoch, record.metadata, record.topic_id or None
            self.stored[group_id].append(((record.topic, record.partition), value))
        else:
            self.committed[group_id].pop((output.key[2], output.key[3]), None)  # type: ignore[misc]

    def _answered(self, reply: Reply) -> Happening | None:
        answer, request = reply.answer, self.asked.by(reply)
        match answer:
            case OffsetCommitAnswer():
                self.stored.pop(request.group_id, None)
                for partition, value in _accepted(request.offsets, answer):
                    self._replace(request.group_id, partition)
                    self.committed[request.group_id][partition] = value
            case OffsetDeleteAnswer():
                for each in answer.partitions:
                    if each.code == NONE:
                        self._replace(request.group_id, (each.topic, each.partition))
            case RepublishGroupAnswer():
                self.stored.pop(request.group_id, None)
            case OffsetTopicsAnswer():  # offsets without an id have got one
                self.committed[request.group_id].update(self.stored.pop(request.group_id, []))
            case TxnOffsetCommitAnswer():
                return self._taken(request, answer)
            case OffsetFetchAnswer():
                group_id = request.group_id
                return Fetched(request, answer, self._unstable(group_id), dict(self.committed.get(group_id, {})))
            case SettleTransactionsAnswer():
                return self._settled(request, answer)
        return None

    def _unstable(self, group_id: str) -> set[Partition]:
        return {partition for commit in self.pending.get(group_id, {}).values() for partition in commit}

    def _replace(self, group_id: str, partition: Partition, before: int = RECORD_OFFSET_END) -> None:
        for place, commit in self.pending.get(group_id, {}).items():
            if partition in commit and place < before:
                commit[partition] = None

    def _taken(self, request: TxnOffsetCommit, answer: TxnOffsetCommitAnswer) -> Taken:
        topic_id = request.topic_id or self.topic_id
        is_of_other_topic = bool(self.topic_id) and topic_id != self.topic_id
        taken = dict(_accepted(request.offsets, answer))
        if taken:
            self.topic_id = self.topic_id or topic_id
            self.producers[request.place] = request.producer_id
            commits = self.pending[request.group_id]
            later = [each for at, each in commits.items() if at > request.place and self._has_same(at, request.place)]
            pending = {each: None if any(each in commit for commit in later) else v for each, v in taken.items()}
            commits.setdefault(request.place, pending)
        has_ended = request.place < min(self.settled_before, self.open.get(request.producer_id, RECORD_OFFSET_END))
        is_late = has_ended and not is_of_other_topic
        return Taken(request, answer, is_late, is_of_other_topic, self.stored.pop(request.group_id, []))

    def _has_same(self, place: int, other: int) -> bool:
        """Return whether two commits are of one producer."""
        return self.producers[place] == self.producers[other]

    def _settled(self, request: SettleTransactions, answer: SettleTransactionsAnswer) -> Settled:
        expected: dict[str, Stored] = {}
        is_believed = request.topic_id == self.topic_id or self.topic_id in {"", request.replaces}
        if self.topic_id and self.topic_id != request.topic_id and is_believed:
            self.pending.clear()
            self.settled_before, self.open = 0, {}
        elif request.settled_from <= self.settled_before and is_believed:
            self._end(request, answer, expected)
        if is_believed:
            self.topic_id = request.topic_id
            if answer.settled_before == request.settled_before:
                self._reach(request, request.settled_before)
        assert answer.topic_id == self.topic_id, "the answer names the shard's topic"
        stored = dict(self.stored)
        self.stored.clear()
        return Settled(request, expected, stored)

    def _end(self, request: SettleTransactions, answer: SettleTransactionsAnswer, expected: dict[str, Stored]) -> None:
        """End the transactions that a report names: all, or as many commits as the answer counts."""
        spans = sorted(request.ended, key=lambda each: each.end)
        ended = [
            (each.end, place, group_id, each.is_committed)
            for group_id, commits in self.pending.items()
            for place in commits
            for each in spans
            if each.producer_id == self.producers[place] and each.first <= place <= each.end
        ]
        ended.sort(key=lambda each: each[:2])
        handled = answer.committed + answer.aborted
        for _, place, group_id, is_committed in ended[:handled]:
            commit = self.pending[group_id].pop(place)
            kept = [(partition, value) for partition, value in commit.items() if value is not None]
            if is_committed and kept:
                expected.setdefault(group_id, []).extend(kept)
                self.committed[group_id].update(kept)
                for partition, _ in kept:
                    self._replace(group_id, partition, before=place)
        assert len(ended) == handled or answer.settled_before < request.settled_before, f"{ended} have ended: {answer}"
        if len(ended) > handled:
            self._reach(request, answer.settled_before)
            self.open[self.producers[ended[handled][1]]] = ended[handled][1]

    def _reach(self, request: SettleTransactions, reached: int) -> None:
        if reached >= self.settled_before:
            begun = [*request.open, *(each for each in request.ended if each.end >= reached)]
            self.open = {each.producer_id: each.first for each in begun if each.first < reached}
            self.settled_before = reached


def _accepted(offsets: Iterable[OffsetToCommit], answer: Any) -> Iterator[tuple[Partition, Value]]:
    for asked, ended in zip(offsets, answer.partitions, strict=True):
        if ended.code == NONE:
            yield (
                (asked.topic, asked.partition),
                (asked.offset, asked.leader_epoch, asked.metadata or "", asked.topic_id),
            )


class PendingOffsetsAreHidden:
    """A pending offset is not visible before its transaction was committed; a fetch of stable offsets hears so."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions

    def watch(self, step: Step) -> None:
        for happening in self.transactions.of(step):
            if isinstance(happening, Fetched) and happening.answer.code == NONE:
                self._judge(happening)

    def _judge(self, fetched: Fetched) -> None:
        wanted = [t.topic_id for t in fetched.request.topics or () for _ in t.partitions]
        for at, each in enumerate(fetched.answer.partitions):
            partition = each.topic, each.partition
            is_pending = partition in fetched.pending
            if each.code == UNSTABLE:
                assert is_pending, f"{partition} has no open transaction, and is unstable"
                assert fetched.request.require_stable, f"{partition} is refused, and no stable offset was requested"
            elif each.code == NONE and is_pending:
                assert not fetched.request.require_stable, f"{partition} has an open transaction, and is answered"
                self._is_committed(fetched, each, wanted[at] if wanted else None)

    @staticmethod
    def _is_committed(fetched: Fetched, each: Any, topic_id: str | None) -> None:
        *value, known_id = fetched.committed.get((each.topic, each.partition), (-1, -1, "", None))
        if topic_id and known_id and topic_id != known_id:
            value = [-1, -1, ""]
        found = [each.offset, each.leader_epoch, each.metadata]
        assert found == value, f"{each} is pending, committed is {value}"


class OnlyCommittedOffsetsAreStored:
    """An aborted transaction leaves nothing: only acknowledged commits and committed transactions store offsets."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions

    def watch(self, step: Step) -> None:
        for happening in self.transactions.of(step):
            if isinstance(happening, Taken):
                assert not happening.stored, f"{happening.stored} are stored before the end of {happening.request}"
            elif isinstance(happening, Settled):
                for group_id, stored in happening.stored.items():
                    wrong = [each for each in stored if each not in happening.expected.get(group_id, ())]
                    assert not wrong, f"{wrong} of {group_id} belong to no committed transaction, and are stored"
        left = {group_id: stored for group_id, stored in self.transactions.stored.items() if stored}
        assert not left, f"no response has stored {left}"


class CommittedOffsetsAreStored:
    """The offsets of a committed transaction are stored, but for partitions with a later commit of either kind."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions

    def watch(self, step: Step) -> None:
        for happening in self.transactions.of(step):
            if isinstance(happening, Settled):
                for group_id, expected in happening.expected.items():
                    stored = dict(happening.stored.get(group_id, ()))
                    assert stored == dict(expected), f"{expected} of {group_id} were committed, {stored} are stored"


class PendingCommitsAreKept:
    """A pending commit stays until its transaction has ended, and keeps its group and its offsets from expiring."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions

    def watch(self, step: Step) -> None:
        for happening in self.transactions.of(step):
            if isinstance(happening, Ended) and happening.why != "deleted on request":
                assert not happening.pending, f"{happening} before the end of an open transaction"
        for group_id, group in _groups(step):
            kept = _pending_of(group)
            for place, commit in self.transactions.pending.get(group_id, {}).items():
                assert place in kept, f"the commit {place} of {group_id} is pending, and is lost"
                assert kept[place] == commit, f"the commit {place} of {group_id} is {commit}, not {kept[place]}"


class EndedCommitsAreNotPending:
    """No commit is pending after a report about its place, or in a group that begins anew."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions

    def watch(self, step: Step) -> None:
        self.transactions.of(step)
        for group_id, group in _groups(step):
            left = group.pending_commits.keys() - self.transactions.pending.get(group_id, {}).keys()
            assert not left, f"the commits {sorted(left)} of {group_id} have ended, and are pending"


class LateCommitsAreRefused:
    """A commit whose transaction was reported as ended is refused with INVALID_PRODUCER_EPOCH, and no other is.

    A commit of another topic than the shard's is not accepted.
    """

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions

    def watch(self, step: Step) -> None:
        for happening in self.transactions.of(step):
            if isinstance(happening, Taken):
                codes = {each.code for each in happening.answer.partitions}
                place = happening.request.place
                assert NONE not in codes or not happening.is_late, f"{place} has ended, and is accepted"
                assert LATE not in codes or happening.is_late, f"{place} is open, and is refused as late"
                assert NONE not in codes or not happening.is_of_other_topic, f"{place} is of another topic"


def _groups(step: Step) -> Iterator[tuple[str, Group | ConsumerGroup]]:
    yield from (step.groups or {}).items()
    yield from step.consumer_groups.items()


def _pending_of(group: Group | ConsumerGroup) -> Commits:
    return {
        place: {
            (topic, number): None if o is None else (o.offset, o.leader_epoch, o.metadata, o.topic_id)
            for topic, numbers in commit.offsets.items()
            for number, o in numbers.items()
        }
        for place, commit in group.pending_commits.items()
    }


def checkers_of_transactions(asked: KnownRequests) -> list[Any]:
    """Return the checkers of this module. They share what they follow."""
    transactions = Transactions(asked)
    return [
        PendingOffsetsAreHidden(transactions),
        OnlyCommittedOffsetsAreStored(transactions),
        CommittedOffsetsAreStored(transactions),
        PendingCommitsAreKept(transactions),
        EndedCommitsAreNotPending(transactions),
        LateCommitsAreRefused(transactions),
    ]
