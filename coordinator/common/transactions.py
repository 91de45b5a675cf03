"""Offsets inside transactions: pending until the transaction ends, and then committed or dropped (KIP-98, KIP-447).

The brokers end a producer's transaction, and write its end only to partitions that belong to the transaction. So a
gateway first writes a record of the commit to the transactions topic, as a part of the same transaction. The request
has the offset of that record: the `place` of the commit. The brokers then write the end of the transaction into the
same partition, as a control record of that producer. The coordinator's driver reads all of them, and reports with
`SettleTransactions` which transactions have ended before an offset, how, and which ones are open there. So no open
transaction holds back another.

    accepted    the offsets are pending under their place; a fetch of stable offsets is answered UNSTABLE_OFFSET_COMMIT
    committed   its offsets are stored, but for partitions with a later commit
    aborted     its offsets are dropped

A request may come after the report about its place, if its sender has stalled. The coordinator refuses it: its producer
has ended the transaction without a response to this request, or was fenced. To know this, a shard keeps the offset
before which all is reported, and the transactions that are open there.

If the topic is made anew, the ends of the transactions before are lost, and their commits are dropped. A place belongs
to the topic that its request names. Ids of topics have no order. So a report of another topic also names the topic that
it replaces, and that has to be the shard's: the report of a driver that has stood still changes nothing. A commit of
another topic is answered COORDINATOR_LOAD_IN_PROGRESS, and its producer sends it again, with a new record.

Source: Kafka's OffsetMetadataManager (pendingTransactionalOffsets, replayEndTransactionMarker) and
GroupCoordinatorService.commitTransactionalOffsets.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct, structs

from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import PENDING_OFFSETS_MAX, SETTLED_BYTES_MAX
from coordinator.base.settled import Settled
from coordinator.base.states import Phase
from coordinator.common.offsets import error_of, publish_offset, store_offset
from coordinator.common.refusals import every_commit, refusal
from coordinator.messages.outputs import Output, size_of
from coordinator.messages.requests import SettleTransactions, TxnOffsetCommit
from coordinator.messages.responses import CommittedPartition, Reply, SettleTransactionsAnswer, TxnOffsetCommitAnswer
from coordinator.state.group import AnyGroup, Offset, PendingCommit


class Ending(NamedTuple):
    """A pending commit whose transaction has ended.

    Args:
        end: The offset of the end of its transaction.
    """

    end: int
    record_offset: int
    producer_id: int
    is_committed: bool
    group: AnyGroup


class Settling(Struct):
    """The subject of a report: which transactions have ended, and the groups with pending commits."""

    settled: Settled
    groups: list[AnyGroup] = []

    def follows(self, report: SettleTransactions) -> bool:
        """Return whether a report begins where the reports so far end, or before. An earlier one is missing if not."""
        return report.settled_from <= self.settled.before

    def endings(self, report: SettleTransactions) -> list[Ending]:
        """Return the pending commits whose transactions have ended, in the order of their ends and places.

        A place before `settled_before` whose transaction the report does not name was deleted at the brokers before a
        driver read it: it counts as aborted.
        """
        still = {each.producer_id: each.first for each in report.open}
        reported = Settled(report.topic_id, report.settled_before, still)
        ended = defaultdict(list)
        for each in report.ended:
            ended[each.producer_id].append(each)
        found = []
        for group in self.groups:
            for record_offset, commit in group.pending_commits.items():
                producer_id = commit.producer_id
                if not reported.has_ended(producer_id, record_offset):
                    continue
                its = next((each for each in ended[producer_id] if each.first <= record_offset <= each.end), None)
                end, is_committed = (record_offset, False) if its is None else (its.end, its.is_committed)
                found.append(Ending(end, record_offset, producer_id, is_committed, group))
        return sorted(found, key=itemgetter(0, 1))

    def reach(self, report: SettleTransactions, left: Ending | None) -> None:
        """Note how far a report was handled: as a whole, or up to the commit that is `left`."""
        reached = report.settled_before if left is None else left.end
        if reached < self.settled.before:
            return
        began = {each.producer_id: each.first for each in report.ended if each.first < reached <= each.end}
        began |= {each.producer_id: each.first for each in report.open if each.first < reached}
        if left is not None:
            began[left.producer_id] = left.record_offset
        handled = self.settled.open
        self.settled.open = {each: max(first, handled.get(each, 0)) for each, first in began.items()}
        self.settled.before = reached

    def remove_all(self) -> int:
        """Drop all pending commits. Return their number."""
        dropped = 0
        for group in self.groups:
            dropped += len(group.pending_commits)
            for record_offset in list(group.pending_commits):
                group.remove_pending(record_offset)
        return dropped


def is_from_no_member(request: TxnOffsetCommit) -> bool:
    """Return whether a commit creates its group: the commit has offsets, and no generation."""
    return request.generation_id < 0 and bool(request.offsets)


def is_from_outside(group: AnyGroup, request: TxnOffsetCommit) -> bool:
    """Return whether a commit needs no member: it has no generation, and the group is Empty, or it has no ids."""
    return request.generation_id < 0 and (group.phase is Phase.EMPTY or names_no_member(request))


def names_no_member(request: TxnOffsetCommit) -> bool:
    """Return whether a commit has no ids. If it has no generation either, it is accepted in any state, as in Kafka."""
    return not request.member_id and request.group_instance_id is None


def refuse_late(group: AnyGroup | None, request: TxnOffsetCommit, context: Context) -> Iterable[Output] | None:
    """Return the refusal of a commit whose transaction has ended; None if it is open.

    Replies with:
        INVALID_PRODUCER_EPOCH: the transaction has ended.
        COORDINATOR_LOAD_IN_PROGRESS: the transactions topic was made anew, before the commit or after it.
    """
    settled = context.settled
    if request.topic_id and settled.is_other(request.topic_id):
        error, why = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the transactions topic was made anew"
    elif settled.has_ended(request.producer_id, request.place):
        error, why = ErrorCode.INVALID_PRODUCER_EPOCH, "the transaction has ended already"
    else:
        return None
    return (refusal(TxnOffsetCommitAnswer, request, error, why, **every_commit(request, error)),)


def has_room(group: AnyGroup, request: TxnOffsetCommit, config: Config) -> ErrorCode:
    """COORDINATOR_LOAD_IN_PROGRESS: the open transactions have too many offsets of this group."""
    fits = group.pending_index.offsets + len(request.offsets) <= PENDING_OFFSETS_MAX
    return ErrorCode.NONE if fits or request.place in group.pending_commits else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def commit(group: AnyGroup, request: TxnOffsetCommit, context: Context) -> Iterator[Output]:
    """Keep the offsets of a transaction until it ends. The reply is as that of a commit; no session is renewed.

    A request with the place of a pending commit is a repeat, and changes nothing: a later commit may have replaced some
    of its offsets.
    """
    pending: dict[str, dict[int, Offset | None]] = {}
    ended, new = [], set[tuple[str, int]]()
    for entry in request.offsets:
        error = error_of(group, entry, context.config, others=len(new))
        if error is ErrorCode.NONE:
            if not group.has_offset(entry.topic, entry.partition):
                new.add((entry.topic, entry.partition))
            offset = Offset(
                entry.offset, entry.leader_epoch, entry.metadata or "", context.now_ms, None, entry.topic_id
            )
            pending.setdefault(entry.topic, {})[entry.partition] = offset
        ended.append(CommittedPartition(entry.topic, entry.partition, error.name, error.number))
    _leave_out_later(group, request, pending)
    if pending and request.place not in group.pending_commits:
        kept = PendingCommit(
            request.producer_id, request.producer_epoch, request.generation_id, request.member_id, pending
        )
        group.store_pending(request.place, kept)
        if not context.settled.topic_id:
            context.settled.begin(request.topic_id)
    yield Reply(request.reply_to, TxnOffsetCommitAnswer(request_id=request.request_id, partitions=tuple(ended)))


def _leave_out_later(group: AnyGroup, request: TxnOffsetCommit, pending: dict[str, dict[int, Offset | None]]) -> None:
    """Leave the offsets of a commit out for partitions that a later pending commit of its producer names.

    If both belong to one transaction, the later one counts. If not, the transaction of this one has ended, and its
    client has had no response: a Kafka broker, which checks the transaction, would refuse it (KIP-890).
    """
    if request.place > group.pending_index.last_record_offset:
        return
    for record_offset, later in group.pending_commits.items():
        if record_offset > request.place and later.producer_id == request.producer_id:
            for topic, partitions in pending.items():
                partitions.update(dict.fromkeys(partitions.keys() & later.offsets.get(topic, {}).keys()))


def settle(settling: Settling, request: SettleTransactions, context: Context) -> Iterator[Output]:
    """Store the offsets of the committed transactions, and drop those of the aborted ones.

    A report that comes again changes nothing. Nor does a report that follows a missing one, or one about an earlier
    topic. A report with too much to store is handled in part. The reply has the place up to which all is settled: the
    driver goes on there.
    """
    stored = dropped = spent_bytes = 0
    settled = settling.settled
    if settled.is_other(request.topic_id) and request.replaces == settled.topic_id:
        dropped = settling.remove_all()
        settled.begin(request.topic_id)
    elif not settled.topic_id:
        settled.begin(request.topic_id)
    if request.topic_id == settled.topic_id and settling.follows(request):
        left = None
        for ending in settling.endings(request):
            if spent_bytes > SETTLED_BYTES_MAX:
                left = ending
                break
            pending = ending.group.remove_pending(ending.record_offset)
            assert pending is not None, "the places of a report were just read"
            if ending.is_committed:
                stored += 1
                for output in _store(ending.group, ending.record_offset, pending):
                    spent_bytes += size_of(output)
                    yield output
            else:
                dropped += 1
        settling.reach(request, left)
    for group in settling.groups:
        group.schedule_offset_expiry(group.hot_state.now_ms)
    answer = SettleTransactionsAnswer(
        request_id=request.request_id,
        committed=stored,
        aborted=dropped,
        settled_before=settled.before,
        topic_id=settled.topic_id,
    )
    yield Reply(request.reply_to, answer)


def _store(group: AnyGroup, record_offset: int, pending: PendingCommit) -> Iterator[Output]:
    """Store the offsets of one committed transaction, in place of earlier ones, which may be pending still.

    They are committed now: the times of a partition's records must not go back, and the requests of two transactions
    may come in another order than their places.
    """
    for topic, partitions in pending.offsets.items():
        for partition, offset in partitions.items():
            if offset is not None:
                committed = structs.replace(offset, commit_timestamp_ms=group.hot_state.now_ms)
                store_offset(group, topic, partition, committed, before=record_offset)
                yield publish_offset(group, topic, partition, committed, pending.generation_id, pending.member_id)
