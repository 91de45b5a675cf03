"""Bugs of offsets inside transactions."""

from coordinator.common import offsets, transactions
from coordinator.consumer import checks as consumer_offsets
from coordinator.shard import converting
from coordinator.shard.state import ShardState
from coordinator.state import codec
from coordinator.state.store import _lowest_record_offset
from streaming.query.watchers.settling import Settling
from tests.simulation.bugs.bug import Bug

RETURNS = "    group.hot_state = hot_state\n"

BUGS = (
    # -- while they are pending ----------------------------------------------------------------------------------------
    Bug("a pending offset is visible to a plain fetch", transactions.commit,
        "pending.setdefault(entry.topic, {})[entry.partition] = offset",
        "pending.setdefault(entry.topic, {})[entry.partition] = offset\n"
        "            group.store_offset(entry.topic, entry.partition, offset)", "CommitsAreKept"),
    Bug("a stable fetch is answered while a transaction is open", offsets.fetch,
        "if group and group.pending_commits and request.require_stable:", "if False:", "PendingOffsetsAreHidden"),
    Bug("an open transaction makes all partitions unstable", offsets.fetch,
        "if group.is_unstable(f.topic, f.partition)", "if True", "PendingOffsetsAreHidden"),
    Bug("a group with pending commits is forgotten", offsets.offsets_due,
        "group.phase is Phase.EMPTY and not group.offsets and not group.pending_commits",
        "group.phase is Phase.EMPTY and not group.offsets", "PendingCommitsAreKept"),
    Bug("an offset expires while a transaction may replace it", offsets._stable_offsets,
        "if not group.pending_commits:", "if True:", "PendingCommitsAreKept"),
    Bug("a converted group loses its pending commits", converting._take_over,
        "group.pending_commits = before.pending_commits", "pass", "PendingCommitsAreKept"),
    Bug("pending commits are lost between batches", codec.decode_rest,
        RETURNS, f"{RETURNS}    group.pending_commits = {{}}\n", "PendingCommitsAreKept"),
    # -- when they have ended ------------------------------------------------------------------------------------------
    Bug("an aborted commit is stored", transactions.settle,
        "if ending.is_committed:", "if True:", "OnlyCommittedOffsetsAreStored"),
    Bug("a committed commit is dropped", transactions.settle,
        "if ending.is_committed:", "if False:", "CommittedOffsetsAreStored"),
    Bug("the end of a transaction ends those of other producers", transactions.Settling.endings,
        "ended[producer_id]", "sum(ended.values(), [])", "CommittedOffsetsAreStored"),
    Bug("an open transaction is ended with the others", transactions.Settling.endings,
        "report.settled_before, still)", "report.settled_before)",
        "PendingOffsetsAreHidden"),
    Bug("a commit of an open transaction is refused after a report", transactions.Settling.reach,
        "self.settled.open = {each: max(first, handled.get(each, 0)) for each, first in began.items()}",
        "self.settled.open = {}",
        "LateCommitsAreRefused"),
    Bug("open transactions are forgotten between batches", ShardState.to_bytes,
        "settled.open,", "{},", "LateCommitsAreRefused"),
    Bug("a report leaves out an open transaction", Settling._report,
        "(*later, *still.items())", "later", "ReportsAreTrue"),
    Bug("records of an open transaction are deleted", Settling.needed_from,
        "min(settled, self._read_to[partition], *firsts, *self._open[partition].values())", "settled",
        "ReportsAreTrue"),
    Bug("an earlier transaction replaces a later commit", offsets.store_offset,
        "group.replace_pending(topic, partition, before)", "pass", "PendingCommitsAreKept"),
    Bug("an earlier transaction drops the offsets of later ones", offsets.store_offset,
        "group.replace_pending(topic, partition, before)", "group.replace_pending(topic, partition)",
        "CommittedOffsetsAreStored"),
    Bug("a commit after the end of its transaction is accepted", transactions.refuse_late,
        "elif settled.has_ended(", "elif False and settled.has_ended(", "LateCommitsAreRefused"),
    Bug("pending commits outlive their topic", transactions.settle,
        "dropped = settling.remove_all()", "pass", "EndedCommitsAreNotPending"),
    Bug("a commit of another topic is accepted", transactions.refuse_late,
        "if request.topic_id and settled.is_other(request.topic_id):", "if False:", "LateCommitsAreRefused"),
    Bug("a late report of a deleted topic is believed", transactions.settle,
        " and request.replaces == settled.topic_id", "", "PendingOffsetsAreHidden"),
    Bug("the first commit of a shard does not name its topic", transactions.commit,
        "context.settled.begin(request.topic_id)", "pass", "LateCommitsAreRefused"),
    Bug("a group's latest pending commit hides its earlier ones", _lowest_record_offset,
        "return min(", "return max(", "CommittedOffsetsAreStored"),
    Bug("a report after one that is missing is believed", transactions.Settling.follows,
        "return report.settled_from <= self.settled.before", "return True", "CommittedOffsetsAreStored"),
    Bug("a lost report is not made again", Settling.sent,
        "del self._on_their_way[shard]", "pass", "ComesToRest"),
    Bug("a commit of any older epoch is accepted in a transaction", consumer_offsets.may_commit_in_transaction,
        "(is_older and _had_all(group, member, request, config))", "is_older",
        "CommitsComeFromHolders"),
)  # fmt: skip
