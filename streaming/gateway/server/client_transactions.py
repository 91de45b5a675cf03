"""The gateway's part in transactions: records of the transactions topic, written into the transactions of clients.

    AddOffsetsToTxn   adds the group's partition of the transactions topic to the client's transaction
    TxnOffsetCommit   adds it from version 5 on, and writes a record there; the offset of the record is the place of the
                      commit, which the coordinator keeps pending
    OffsetFetch       waits for the offsets of transactions that clients of this gateway have just ended: see
                      `transaction_ends`

The brokers end the transaction as any other, so the coordinator does not need EndTxn. `coordinator.common.transactions`
and `query.watchers.settling` handle and read the end.

A record may not join a later transaction than the client means. A client waits for the response before it begins
another transaction, unless it gives up; then it closes the connection. So a request is prepared within `WRITE_WAIT_S`
of its arrival, and the coordinator is asked only if the connection is still open after the record was written. A record
without such a request has no effect.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

from kafka.errors import TransactionalIdAuthorizationFailedError

from coordinator.base.access import Operation, Resource
from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import OffsetFetch, TopicPartitions
from coordinator.messages.responses import CheckAccessAnswer, OffsetFetchAnswer
from streaming.gateway.coordinator.routing import ShardAddress
from streaming.gateway.coordinator.transaction_ends import Commit
from streaming.gateway.coordinator.transaction_writer import NOT_AVAILABLE, Written
from streaming.gateway.exchanges.exchange import CoordinatorRequest, ListenerData, expected, may
from streaming.gateway.exchanges.offsets import name_of
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.members.services import Shared
from streaming.gateway.security.authenticate import Identity
from streaming.kafka.transactional import Transaction

GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED.number
INVALID_GROUP = ErrorCode.INVALID_GROUP_ID.number
ID_REFUSED: int = TransactionalIdAuthorizationFailedError.errno

WITHOUT_ADD_OFFSETS = 5
"""From this version of TxnOffsetCommit on, clients send no AddOffsetsToTxn before it (KIP-890)."""

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT.number

SETTLED_PAUSE_S = 0.05
"""The pause between two looks whether the offsets of a transaction are settled. Each of them is a request."""

GONE = Written(NOT_AVAILABLE)
"""The result for a client that has closed its connection. Nobody reads the response."""


class ClientTransactions:
    """The transactions of one client: its rights are checked before anything is written.

    Args:
        metadata: What the client may see of the topics.
        has_left: Returns whether the client has closed the connection, also while nothing is read from it.
    """

    def __init__(
        self,
        shared: Shared,
        mailbox: Mailbox,
        identity: Identity,
        metadata: ListenerData,
        has_left: Callable[[], bool],
    ) -> None:
        self._shared, self._mailbox, self._identity = shared, mailbox, identity
        self._metadata, self._has_left = metadata, has_left

    async def join(self, message: Any, until_s: float) -> Written:
        """Prepare an AddOffsetsToTxn."""
        if refusal := await self._refusal(message, until_s):
            return refusal
        return await self._shared.transactions.join(_transaction(message), self._shard_address(message), until_s)

    async def write(self, message: Any, until_s: float) -> Written:
        """Prepare a TxnOffsetCommit. The result is an error if the client has left: its record has no effect then."""
        if not message.group_id:
            return Written(INVALID_GROUP)
        if refusal := await self._refusal(message, until_s):
            return refusal
        joins = message.version >= WITHOUT_ADD_OFFSETS or self._shared.coordinators.may_have_moved(message.group_id)
        written = await self._shared.transactions.write(
            _transaction(message), self._shard_address(message), message.group_id, until_s, joins=joins
        )
        if not written.code and (commit := self._commit_in(message)):
            self._shared.transactions.ends.committed(message.producer_id, commit)
        return GONE if self._has_left() else written

    def _commit_in(self, message: Any) -> Commit | None:
        """Return one of the offsets of a message; None if it has none of a known topic."""
        for topic in message.topics:
            if topic.partitions and (name := name_of(topic, self._metadata)):
                return Commit(message.group_id, name, topic.partitions[0].partition_index)
        return None

    def has_unsettled(self, group_ids: Collection[str]) -> bool:
        """Return whether a group may have offsets of a transaction that was ended, and is not settled."""
        return any(self._shared.transactions.ends.unsettled(group_id) for group_id in group_ids)

    async def settle(self, group_ids: Collection[str]) -> None:
        """Wait until all groups have the offsets of transactions that have ended by now, `SETTLE_WAIT_S` at most."""
        unsettled = [self._shared.transactions.ends.unsettled(group_id) for group_id in set(group_ids)]
        for commits in unsettled:
            while commits := await self._still_unsettled(commits):
                await asyncio.sleep(SETTLED_PAUSE_S)

    async def _still_unsettled(self, commits: list[Commit]) -> list[Commit]:
        """Return the commits of a group that a stable fetch shows as pending. A fetch has to wait for each of them."""
        commits = [each for each in commits if each.until_s > time.monotonic()]
        if not commits:
            return []
        named = defaultdict[str, set[int]](set)
        for each in commits:
            named[each.topic].add(each.partition)
        topics = tuple(TopicPartitions(topic, tuple(sorted(partitions))) for topic, partitions in named.items())
        fields = self._mailbox.fields()
        fetch = OffsetFetch(**fields, group_id=commits[0].group_id, topics=topics, require_stable=True)
        try:
            wait_s = max(each.until_s for each in commits) - time.monotonic()
            answer = await self._mailbox.answer_to(CoordinatorRequest(fetch), wait_s)
        except TimeoutError:
            return []
        found = answer.partitions if isinstance(answer, OffsetFetchAnswer) else ()
        pending = {(each.topic, each.partition) for each in found if each.code == UNSTABLE}
        for each in commits:
            if (each.topic, each.partition) not in pending:
                self._shared.transactions.ends.settled(each)
        return [each for each in commits if (each.topic, each.partition) in pending]

    def _shard_address(self, message: Any) -> ShardAddress:
        return self._shared.coordinators.shard_address_of(message.group_id)

    async def _refusal(self, message: Any, until_s: float) -> Written | None:
        """Return the error of a request that the client may not send; None if it may."""
        authorizer, client = self._shared.authorizer, self._identity.client
        if not authorizer.may_use_transaction(client, message.transactional_id):
            return Written(ID_REFUSED)
        if self._shared.settings.access == "rules":
            question = may(self._mailbox, message.group_id, [(Operation.READ, Resource.GROUP, message.group_id)])
            try:
                answer = await self._mailbox.answer_to(question, until_s - time.monotonic())
            except TimeoutError:
                return Written(NOT_AVAILABLE)
            said = expected(answer, CheckAccessAnswer)
            if said.code or not all(said.allowed):
                return Written(said.code or GROUP_REFUSED)
        return GONE if self._has_left() else None


def _transaction(message: Any) -> Transaction:
    return Transaction(message.transactional_id, message.producer_id, message.producer_epoch)
