"""Offsets inside transactions: pending until the transaction ends, and then committed or dropped (KIP-98, KIP-447).

A producer's transaction ends at the brokers, which tell nobody. So a gateway first writes a record of the commit to the
transactions topic, as a part of the same transaction, and names its offset in that topic in the request: the `place` of
the commit. The brokers then write there how the transaction ended. The coordinator's driver reads this, and reports
with `SettleTransactions` which places were committed, and before which place all transactions have ended.

    accepted    the offsets are pending under their place; a fetch of stable offsets is answered UNSTABLE_OFFSET_COMMIT
    committed   its offsets are stored, but for partitions with a later commit
    aborted     a place that has ended and was not committed: its offsets are dropped

A request may come after the report about its place, if its sender stood still. It is refused: its producer has ended
the transaction without a response to it, or was fenced.

Source: Kafka's OffsetMetadataManager (pendingTransactionalOffsets, replayEndTransactionMarker) and
GroupCoordinatorService.commitTransactionalOffsets.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from coordinator.config import Config
from coordinator.context import Context
from coordinator.errors import ErrorCode
from coordinator.group_parts import AnyGroup, Offset, PendingCommit
from coordinator.limits import PENDING_OFFSETS_MAX
from coordinator.offsets import error_of, publish_offset, store_offset
from coordinator.outputs import (
    CommittedPartition,
    Output,
    Reply,
    SettleTransactionsAnswer,
    TxnOffsetCommitAnswer,
)
from coordinator.phases import Phase
from coordinator.refusals import every_commit, refusal
from coordinator.requests import SettleTransactions, TxnOffsetCommit


class Settling(Struct):
    """The subject of a report: the groups with pending commits of ended transactions, and all that have ended.

    Args:
        topic_id: The id of the transactions topic that the places belong to; "" before the first report.
        settled_before: The place before which all transactions have ended.
    """

    topic_id: str
    settled_before: int
    groups: list[AnyGroup] = []

    def is_of_earlier_topic(self, report: SettleTransactions) -> bool:
        """Return whether the places belong to a topic that was deleted: the ends of its transactions are lost."""
        return bool(self.topic_id) and self.topic_id != report.topic_id


def is_from_no_member(request: TxnOffsetCommit) -> bool:
    """Return whether a commit creates its group: the commit has offsets, and no generation."""
    return request.generation_id < 0 and bool(request.offsets)


def is_from_outside(group: AnyGroup, request: TxnOffsetCommit) -> bool:
    """Return whether a commit needs no member: it has no generation, and the group is Empty, or it has no ids."""
    return request.generation_id < 0 and (group.phase is Phase.EMPTY or names_no_member(request))


def names_no_member(request: TxnOffsetCommit) -> bool:
    """Return whether a commit has neither a generation nor ids: it is accepted in any state, as in Kafka."""
    return request.generation_id < 0 and not request.member_id and request.group_instance_id is None


def refuse_late(group: AnyGroup | None, request: TxnOffsetCommit, context: Context) -> Iterable[Output] | None:
    """Return the refusal of a commit whose transaction has ended: INVALID_PRODUCER_EPOCH. None for all others."""
    if request.place >= context.settled_before:
        return None
    error = ErrorCode.INVALID_PRODUCER_EPOCH
    why = "the transaction has ended already"
    return (refusal(TxnOffsetCommitAnswer, request, error, why, **every_commit(request, error)),)


def has_room(group: AnyGroup, request: TxnOffsetCommit, config: Config) -> ErrorCode:
    """COORDINATOR_LOAD_IN_PROGRESS: the open transactions have too many offsets of this group."""
    pending = sum(commit.count for commit in group.pending_commits.values())
    fits = pending + len(request.offsets) <= PENDING_OFFSETS_MAX
    return ErrorCode.NONE if fits else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def commit(group: AnyGroup, request: TxnOffsetCommit, context: Context) -> Iterator[Output]:
    """Keep the offsets of a transaction until it ends. The reply is as that of a commit; no session is renewed."""
    pending: dict[str, dict[int, Offset | None]] = {}
    ended = []
    for asked in request.offsets:
        error = error_of(group, asked, context.config)
        if error is ErrorCode.NONE:
            offset = Offset(
                asked.offset, asked.leader_epoch, asked.metadata or "", context.now_ms, None, asked.topic_id
            )
            pending.setdefault(asked.topic, {})[asked.partition] = offset
        ended.append(CommittedPartition(asked.topic, asked.partition, error.name, error.number))
    if pending:
        group.pending_commits[request.place] = PendingCommit(
            request.producer_id, request.producer_epoch, request.generation_id, request.member_id, pending
        )
    yield Reply(request.reply_to, TxnOffsetCommitAnswer(request_id=request.request_id, partitions=tuple(ended)))


def settle(settling: Settling, request: SettleTransactions, context: Context) -> Iterator[Output]:
    """Store the offsets of the committed transactions, and drop those of the aborted ones.

    The reply has the number of commits of each kind. A report that comes again changes nothing.
    """
    is_lost = settling.is_of_earlier_topic(request)
    settling.settled_before = max(0 if is_lost else settling.settled_before, request.settled_before)
    settling.topic_id = request.topic_id
    wanted, stored, dropped = set[int]() if is_lost else set(request.committed), 0, 0
    for group in settling.groups:
        ended = sorted(place for place in group.pending_commits if is_lost or place < request.settled_before)
        for place in ended:
            pending = group.pending_commits.pop(place)
            if place in wanted:
                stored += 1
                yield from _store(group, place, pending)
            else:
                dropped += 1
        if ended:
            group.look_at_offsets(group.vitals.now_ms)
    answer = SettleTransactionsAnswer(request_id=request.request_id, committed=stored, aborted=dropped)
    yield Reply(request.reply_to, answer)


def _store(group: AnyGroup, place: int, pending: PendingCommit) -> Iterator[Output]:
    """Store the offsets of one committed transaction, in place of earlier ones, which may be pending still."""
    for topic, partitions in pending.offsets.items():
        for partition, offset in partitions.items():
            if offset is not None:
                store_offset(group, topic, partition, offset, before=place)
                yield publish_offset(group, topic, partition, offset, pending.generation_id, pending.member_id)
